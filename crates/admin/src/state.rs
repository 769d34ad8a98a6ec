//! What the console is given when it is started.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use control::Control;
use leptos::config::LeptosOptions;
use tokio_util::sync::CancellationToken;

/// What every page and form can reach. Cheap to clone.
#[derive(Clone)]
pub struct AdminState {
    /// The operations.
    pub control: Arc<Control>,
    /// The clock.
    pub now: fn() -> DateTime<Utc>,
    /// Where the browser's files are: `pkg/`, `favicon.svg`, `robots.txt`.
    pub site_dir: PathBuf,
    /// Names of those files.
    pub options: LeptosOptions,
    /// Where people reach the console, without a slash at the end; shown in links.
    pub public_address: Arc<str>,
    /// Where programs reach the proxy, without a slash at the end; shown in snippets. Another than the console's where that
    /// has an address of its own.
    pub gateway_address: Arc<str>,
    /// Whether the session's cookie is sent over TLS only: where people reach the console by https. Elsewhere browsers would
    /// not send it at all.
    pub has_secure_cookies: bool,
    /// Ends what would otherwise not end by itself: the streams of live figures.
    pub stopping: CancellationToken,
    /// Streams of live figures at once; fewer than the door has connections.
    pub live_streams_max: usize,
}

impl AdminState {
    /// The options under which the site's files are named: `/pkg/tollgate.js`, `/pkg/tollgate_bg.wasm`.
    pub fn site_options() -> LeptosOptions {
        LeptosOptions::builder().output_name("tollgate").build()
    }
}
