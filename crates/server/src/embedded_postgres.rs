//! A private Postgres, started from the server binaries installed on this machine.

use std::path::Path;

use embedded_postgres::{Cluster, Durability};
use tokio::task::spawn_blocking;

#[cfg(test)]
mod tests;

pub use embedded_postgres::EmbeddedPostgresError;

/// A running private Postgres that belongs to this process and ends with [`EmbeddedPostgres::stop`].
///
/// It listens on a free port of 127.0.0.1 with a random password, keeps its data in `<data dir>/postgres` and logs to
/// `<data dir>/postgres.log`. It runs in its own process group, so a Ctrl-C in the terminal reaches only the gateway,
/// which can still write what it owes. Dropped without `stop`, it is ended at once; committed data survive that.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    cluster: Cluster,
    url: String,
}

impl EmbeddedPostgres {
    /// Starts Postgres over `data_dir`, creating the cluster and the database `tollgate` the first time.
    ///
    /// A Postgres that a killed gateway left running over the same directory is stopped first. As root the server runs
    /// as the user `postgres` (else `nobody`), to whom the data are given. Returns once connections are accepted.
    pub async fn start(data_dir: &Path) -> Result<Self, EmbeddedPostgresError> {
        let data_dir = data_dir.to_owned();
        // If the caller goes away meanwhile, the finished cluster is dropped by the runtime, which ends it.
        let cluster = blocking(move || Cluster::start(&data_dir, Durability::Durable)).await?;
        let url = cluster.url();
        Ok(Self { cluster, url })
    }

    /// The connection URL of the database `tollgate`, with the superuser's password: not for logs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the Postgres server.
    pub fn process_id(&self) -> u32 {
        self.cluster.process_id()
    }

    /// Ends Postgres: a fast shutdown within a bound, then an immediate one. No process is left when this returns.
    pub async fn stop(self) {
        blocking(move || self.cluster.stop()).await;
    }
}

/// The connection URL of the private Postgres that another process runs over `data_dir`, if one does; with the superuser's
/// password: not for logs.
pub async fn running_url(data_dir: &Path) -> Result<Option<String>, EmbeddedPostgresError> {
    let data_dir = data_dir.to_owned();
    blocking(move || embedded_postgres::running_url(&data_dir)).await
}

/// Runs `work` off the async threads and carries its panic, if any, to the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => panic!("blocking work is never cancelled while its runtime lives"),
        },
    }
}
