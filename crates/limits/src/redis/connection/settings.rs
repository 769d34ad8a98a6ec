//! Which Redis, as an operator writes it.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

#[cfg(test)]
mod tests;

const CONNECT_TIMEOUT_MS: u64 = 100;
const COMMAND_TIMEOUT_MS: u64 = 40;
const PORT: u16 = 6379;
const FORMS: &str = "redis://[[user]:password@]host[:port][/database], rediss:// for TLS, redis-cluster:// or \
                     rediss-cluster:// followed by the addresses of some nodes, separated by commas";

/// Which Redis keeps the shared counters, and how long to wait for it.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[[user]:password@]host[:port][/database]` for one server, `redis-cluster://…host:port,host:port` for a
    /// cluster, of which some nodes are named; `rediss://` and `rediss-cluster://` speak TLS. The port is 6379 unless
    /// stated. In user and password, `%` and two hexadecimal digits stand for any character.
    pub url: String,
    /// The authorities trusted to vouch for the servers, as a file of certificates in PEM; those of the system otherwise.
    pub ca_certificate: Option<PathBuf>,
    /// How long one attempt to connect may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long one call may take, in milliseconds.
    pub command_timeout_ms: u64,
}

/// What is wrong with the settings. Never shows a password.
#[derive(Debug, thiserror::Error)]
pub enum RedisSettingsError {
    /// It begins with something else.
    #[error(
        "the Redis URL begins with none of redis://, rediss://, redis-cluster:// and rediss-cluster://; write {FORMS}"
    )]
    Scheme,
    /// Nothing is left where an address should be.
    #[error("the Redis URL names no host; write {FORMS}")]
    NoHost,
    /// An address cannot be one. It is only counted, from 1, because a misplaced password would be shown.
    #[error("address {0} in the Redis URL is none: write host:port, or [address]:port for IPv6")]
    Address(usize),
    /// What follows the address is no number.
    #[error(
        "what follows the address in the Redis URL is no number of a database: write for example redis://localhost/2"
    )]
    Database,
    /// Clusters have no numbered databases.
    #[error("a Redis cluster has no databases: let the URL end with the addresses")]
    DatabaseOfCluster,
    /// Several addresses without the word cluster.
    #[error(
        "the Redis URL names several servers: begin it with redis-cluster:// (or rediss-cluster://) if they are a cluster"
    )]
    SeveralServers,
    /// Options in the URL.
    #[error("the Redis URL takes no options: leave out everything from `?` or `#` on")]
    Options,
    /// A user name alone.
    #[error("the Redis URL has a user and no password: write redis://:password@host for a password alone")]
    UserWithoutPassword,
    /// A time-out of nothing.
    #[error("a time-out for Redis of 0 ms lets nothing through: give it at least 1")]
    NoTime,
    /// Authorities without TLS.
    #[error(
        "a certificate authority is named for Redis, but its URL does not speak TLS: begin it with rediss:// or rediss-cluster://"
    )]
    CertificateWithoutTls,
    /// The file of authorities cannot be read.
    #[error("the certificates for Redis in {} cannot be read", path.display())]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file of authorities has none.
    #[error("{} has no certificate in PEM that could vouch for Redis", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The system has no authorities.
    #[error(
        "this system trusts no certificate authority: install its certificates (Debian: ca-certificates), or name a file of them for Redis"
    )]
    NoSystemCertificates,
}

/// A server's host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A URL taken apart.
pub(super) struct Endpoint {
    /// At least one; exactly one unless it is a cluster.
    pub(super) addresses: Vec<Address>,
    pub(super) is_cluster: bool,
    pub(super) has_tls: bool,
    pub(super) login: Option<Login>,
    pub(super) database: u32,
}

/// How to sign in.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

impl RedisSettings {
    /// This URL with the usual time-outs and the system's certificate authorities.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_certificate: None,
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            command_timeout_ms: COMMAND_TIMEOUT_MS,
        }
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, RedisSettingsError> {
        let (scheme, rest) = self.url.trim().split_once("://").ok_or(RedisSettingsError::Scheme)?;
        let (has_tls, is_cluster) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis-cluster" => (false, true),
            "rediss-cluster" => (true, true),
            _ => return Err(RedisSettingsError::Scheme),
        };
        // The last @, so that a password may hold one.
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (login_of(login)?, rest),
            None => (None, rest),
        };
        if rest.contains(['?', '#']) {
            return Err(RedisSettingsError::Options);
        }
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.is_empty() {
            return Err(RedisSettingsError::NoHost);
        }
        if is_cluster && !database.is_empty() {
            return Err(RedisSettingsError::DatabaseOfCluster);
        }
        let addresses = hosts
            .split(',')
            .zip(1..)
            .map(|(text, number)| address_of(text).ok_or(RedisSettingsError::Address(number)))
            .collect::<Result<Vec<_>, _>>()?;
        if addresses.len() > 1 && !is_cluster {
            return Err(RedisSettingsError::SeveralServers);
        }
        Ok(Endpoint {
            addresses,
            is_cluster,
            has_tls,
            login,
            database: database_of(database)?,
        })
    }
}

fn login_of(text: &str) -> Result<Option<Login>, RedisSettingsError> {
    let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    match text.split_once(':') {
        Some((_, "")) | None if !text.is_empty() => Err(RedisSettingsError::UserWithoutPassword),
        Some((user, password)) => Ok(Some(Login {
            user: (!user.is_empty()).then(|| decode(user)),
            password: decode(password),
        })),
        None => Ok(None),
    }
}

fn address_of(text: &str) -> Option<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port {
        "" => PORT,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    // What no certificate could be for is no host.
    rustls::pki_types::ServerName::try_from(host).ok()?;
    Some(Address {
        host: host.to_owned(),
        port,
    })
}

fn database_of(text: &str) -> Result<u32, RedisSettingsError> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| RedisSettingsError::Database),
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // From its parts, so that no mistake in the URL shows the password.
        let url = match self.endpoint() {
            Ok(endpoint) => endpoint.to_string(),
            Err(_) => "(unusable)".to_owned(),
        };
        formatter
            .debug_struct("RedisSettings")
            .field("url", &url)
            .field("ca_certificate", &self.ca_certificate)
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .field("command_timeout_ms", &self.command_timeout_ms)
            .finish()
    }
}

/// The URL without the way to sign in.
impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.has_tls, self.is_cluster) {
            (false, false) => "redis",
            (true, false) => "rediss",
            (false, true) => "redis-cluster",
            (true, true) => "rediss-cluster",
        };
        let addresses: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        write!(formatter, "{scheme}://{}", addresses.join(","))?;
        match self.database {
            0 => Ok(()),
            database => write!(formatter, "/{database}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}
