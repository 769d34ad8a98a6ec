//! The way to the Redis servers: opened in the background, shared by all calls, bounded in every wait.

mod access;
mod cluster;
mod error;
mod link;
mod outage;
mod refresh;
mod request;
mod settings;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use access::Access;
use cluster::Cluster;
use link::Link;

pub(crate) use error::CallError;
pub(crate) use request::{Arg, Script};
pub use settings::{RedisSettings, RedisSettingsError};
pub(crate) use slots::slot_of;

/// A server, or the servers of a cluster. Clones share everything.
///
/// Nothing happens before the first call. From then on connections are kept open in the background, and opened again
/// when they break. A call waits for its answer within the command time-out; while a server is known to be out of reach,
/// it fails at once.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    servers: Servers,
    command_timeout: Duration,
}

#[derive(Clone, Debug)]
enum Servers {
    One(Link),
    Cluster(Cluster),
}

/// What a server says about itself, where it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// What it does when its memory is full. Of a cluster: of the first node that does not say `noeviction`, if any.
    pub(crate) maxmemory_policy: Option<String>,
    /// Its release.
    pub(crate) version: Option<String>,
    /// Whether it is the node of a cluster.
    pub(crate) is_cluster: Option<bool>,
}

impl Connection {
    /// Checks the settings and reads certificates; connects to nothing.
    pub(crate) fn open(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        let endpoint = settings.endpoint()?;
        let access = Arc::new(Access::new(settings, &endpoint)?);
        let command_timeout = access.command_timeout;
        let mut addresses = endpoint.addresses;
        let servers = if endpoint.is_cluster {
            Servers::Cluster(Cluster::new(addresses, access))
        } else {
            Servers::One(Link::new(addresses.swap_remove(0), access))
        };
        Ok(Self {
            servers,
            command_timeout,
        })
    }

    /// Whether keys are spread over several servers.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// How long a call waits for its answer.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// Runs a script, in a cluster where its first key lives. A server that does not know the script is sent its text,
    /// within the same time-out; it is never asked to load one, which some refuse.
    ///
    /// An error says whether the script [may have run](CallError::may_have_run), or may still run later.
    pub(crate) async fn call<K: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[Arg<'_>],
    ) -> Result<Value, CallError> {
        let deadline = Instant::now() + self.command_timeout;
        let key = keys.first().map(AsRef::as_ref);
        match self.send(key, &script.by_digest(keys, args), deadline).await {
            Err(CallError::Refused { answer }) if answer.starts_with("NOSCRIPT") => {
                self.send(key, &script.by_text(keys, args), deadline).await
            }
            outcome => outcome,
        }
    }

    /// Sends the command `name`, `key`, `args`; without a key, to any node of a cluster.
    #[cfg(test)]
    pub(crate) async fn command(
        &self,
        name: &'static str,
        key: Option<&[u8]>,
        args: &[Arg<'_>],
    ) -> Result<Value, CallError> {
        let deadline = Instant::now() + self.command_timeout;
        self.send(key, &request::command(name, key, args), deadline).await
    }

    /// Waits until every server of a cluster has answered something. One server alone answers its calls, or does not.
    pub(crate) async fn reach_all(&self) -> Result<(), CallError> {
        match &self.servers {
            Servers::One(_) => Ok(()),
            Servers::Cluster(cluster) => cluster.reach_all(Instant::now() + self.command_timeout).await,
        }
    }

    /// Asks every server for what matters before relying on it. What a server does not tell is `None`.
    pub(crate) async fn check_server(&self) -> Result<ServerFacts, CallError> {
        let deadline = Instant::now() + self.command_timeout;
        let links = match &self.servers {
            Servers::One(link) => vec![link.clone()],
            Servers::Cluster(cluster) => cluster.primaries(deadline).await?,
        };
        let mut facts = ServerFacts::default();
        for link in links {
            let of_this = self.facts(&link).await?;
            if facts
                .maxmemory_policy
                .as_deref()
                .is_none_or(|policy| policy == "noeviction")
            {
                facts = of_this;
            }
        }
        Ok(facts)
    }

    async fn facts(&self, link: &Link) -> Result<ServerFacts, CallError> {
        let server = self.info(link, "server").await?;
        let memory = self.info(link, "memory").await?;
        let cluster = self.info(link, "cluster").await?;
        let version = field(&server, "valkey_version").or_else(|| field(&server, "redis_version"));
        Ok(ServerFacts {
            maxmemory_policy: field(&memory, "maxmemory_policy"),
            version,
            is_cluster: field(&cluster, "cluster_enabled").map(|enabled| enabled == "1"),
        })
    }

    /// One section of `INFO`, which unlike `CONFIG` even hosted servers let everyone read; empty where it is refused.
    async fn info(&self, link: &Link, section: &str) -> Result<String, CallError> {
        let deadline = Instant::now() + self.command_timeout;
        let command = request::command("INFO", None, &[Arg::from(section)]);
        match link.send(&command, deadline).await {
            Ok(value) => Ok(redis::from_redis_value(value).unwrap_or_default()),
            Err(CallError::Refused { .. }) => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, key: Option<&[u8]>, command: &Cmd, deadline: Instant) -> Result<Value, CallError> {
        match &self.servers {
            Servers::One(link) => link.send(command, deadline).await,
            Servers::Cluster(cluster) => cluster.send(key, command, deadline).await,
        }
    }
}

/// The value of `name:value` among lines.
fn field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
}
