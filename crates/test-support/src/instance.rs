//! One more gateway of an installation: a name and a data directory of its own, everything else shared.

use std::sync::Arc;

use gateway::Gateway;
use server::wiring::{self, Running, Settings};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::http::{Answer, Browser, Stream};
use crate::tollgate::{self, Common, chat, chat_stream};

/// A running gateway beside the first.
pub struct Instance {
    /// The process.
    pub running: Running,
    name: String,
    data_dir: TempDir,
    common: Common,
}

impl Instance {
    pub(crate) async fn start(common: Common, name: &str, change: impl FnOnce(Settings) -> Settings) -> Self {
        let data_dir = tempfile::tempdir().expect("a directory");
        let settings = change(common.settings(name, data_dir.path()));
        Self {
            running: wiring::start(settings).await.expect("another gateway starts"),
            name: name.to_owned(),
            data_dir,
            common,
        }
    }

    /// Stops it in good order and starts it again on the same data.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(self) -> Self {
        self.running.stop().await;
        let settings = self.common.settings(&self.name, self.data_dir.path());
        Self {
            running: wiring::start(settings).await.expect("the gateway starts again"),
            ..self
        }
    }

    /// Its name among the gateways.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.running.address)
    }

    /// A browser without JavaScript.
    pub fn browser(&self) -> Browser {
        Browser::new(&self.url())
    }

    /// One chat request with this text, whole.
    pub async fn chat(&self, key: &str, text: &str) -> Answer {
        chat(&self.browser(), key, text).await
    }

    /// One streamed chat request with this text.
    pub async fn chat_stream(&self, key: &str, text: &str) -> Stream {
        chat_stream(&self.browser(), key, text).await
    }

    /// Waits until every request has ended and everything journalled is in Postgres.
    ///
    /// # Panics
    /// When that does not happen.
    pub async fn shipped(&self) {
        tollgate::shipped(&self.running).await;
    }
}

/// A gateway that lives in threads of its own, to be killed with everything it has under way.
pub struct Mortal {
    runtime: Runtime,
    url: String,
    /// Leaked with the gateway: nothing of it may act any more.
    running: Running,
    data_dir: TempDir,
}

impl Mortal {
    pub(crate) async fn start(common: Common, name: &str) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let data_dir = tempfile::tempdir().expect("a directory");
        let settings = common.settings(name, data_dir.path());
        let (started, is_started) = oneshot::channel();
        runtime.spawn(async move {
            let _ = started.send(wiring::start(settings).await);
        });
        let running = is_started.await.expect("it ends");
        let running = running.expect("another gateway starts");
        Self {
            url: format!("http://{}", running.address),
            runtime,
            running,
            data_dir,
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its data plane.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.running.gateway
    }

    /// Ends it in the middle of whatever it does: nobody hears of it again.
    pub fn kill(self) {
        self.runtime.shutdown_background();
        std::mem::forget(self.running);
        drop(self.data_dir);
    }
}
