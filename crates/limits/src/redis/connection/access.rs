//! How a server is reached: TCP, TLS if wanted, user and password, and a first answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{ConnectError, words};
use super::settings::{Address, Endpoint, Login, RedisSettings, RedisSettingsError};

/// Calls that may wait for their turn to be written; a call beyond that waits for a place.
const PLACES: usize = 1024;
/// What operators see in `CLIENT LIST`.
const CLIENT_NAME: &str = "tollgate";

/// What all connections of one setting share.
pub(super) struct Access {
    login: Option<Login>,
    database: u32,
    tls: Option<TlsConnector>,
    pub(super) connect_timeout: Duration,
    pub(super) command_timeout: Duration,
}

/// An open connection, and what carries its bytes: nothing moves unless that is polled, and it ends with the connection.
pub(super) type Opened = (MultiplexedConnection, Carrier);
pub(super) type Carrier = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Access {
    pub(super) fn new(settings: &RedisSettings, endpoint: &Endpoint) -> Result<Self, RedisSettingsError> {
        if settings.connect_timeout_ms == 0 || settings.command_timeout_ms == 0 {
            return Err(RedisSettingsError::NoTime);
        }
        let tls = match (endpoint.has_tls, &settings.ca_certificate) {
            (true, _) => Some(connector(authorities(settings)?)),
            (false, None) => None,
            (false, Some(_)) => return Err(RedisSettingsError::CertificateWithoutTls),
        };
        Ok(Self {
            login: endpoint.login.clone(),
            database: endpoint.database,
            tls,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            command_timeout: Duration::from_millis(settings.command_timeout_ms),
        })
    }

    /// Connects, signs in and sees a first answer, all within the connect time-out.
    pub(super) async fn connect(&self, address: &Address) -> Result<Opened, ConnectError> {
        timeout(self.connect_timeout, self.connect_at_leisure(address))
            .await
            .unwrap_or(Err(ConnectError::Slow(self.connect_timeout.as_millis())))
    }

    async fn connect_at_leisure(&self, address: &Address) -> Result<Opened, ConnectError> {
        let stream = tcp(address).await?;
        let Some(tls) = &self.tls else {
            return self.sign_in(stream).await;
        };
        let name = ServerName::try_from(address.host.clone())
            .map_err(|error| ConnectError::Tls(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let stream = tls.connect(name, stream).await.map_err(ConnectError::Tls)?;
        self.sign_in(stream).await
    }

    async fn sign_in<S>(&self, stream: S) -> Result<Opened, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Signing in is left to the pipeline below, which keeps the server's own words when it fails.
        let nobody = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PLACES);
        let (mut connection, carrier) = MultiplexedConnection::new_with_config(&nobody, stream, config)
            .await
            .map_err(|error| ConnectError::NotReady(words(&error)))?;
        let mut carrier: Carrier = Box::pin(carrier);
        let greeting = self.greeting();
        let answers = tokio::select! {
            () = &mut carrier => return Err(ConnectError::Closed),
            answers = connection.send_packed_commands(&greeting, 0, greeting.len()) => answers,
        };
        for (command, answer) in greeting
            .cmd_iter()
            .zip(answers.map_err(|error| broken_greeting(&error))?)
        {
            let name = command.args_iter().next();
            if let Value::ServerError(error) = answer
                && name != Some(redis::Arg::Simple(b"CLIENT".as_slice()))
            {
                accept(&words(&error.into()))?;
            }
        }
        Ok((connection, carrier))
    }

    /// Everything that is said first, in one round trip.
    fn greeting(&self) -> Pipeline {
        let mut greeting = Pipeline::new();
        if let Some(login) = &self.login {
            greeting.cmd("AUTH").arg(&login.user).arg(&login.password);
        }
        if self.database != 0 {
            greeting.cmd("SELECT").arg(self.database);
        }
        greeting.cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME);
        greeting.cmd("PING");
        greeting
    }
}

/// Whether a server that answered a greeting with these words can be used all the same.
fn accept(answer: &str) -> Result<(), ConnectError> {
    let code = answer.split(' ').next().unwrap_or_default();
    match code {
        // Somebody who may not ask for a sign of life got one.
        "NOPERM" => Ok(()),
        "NOAUTH" | "WRONGPASS" => Err(ConnectError::SignIn(answer.to_owned())),
        _ if answer.contains("AUTH") => Err(ConnectError::SignIn(answer.to_owned())),
        _ => Err(ConnectError::NotReady(answer.to_owned())),
    }
}

fn broken_greeting(error: &RedisError) -> ConnectError {
    if error.is_io_error() {
        ConnectError::Closed
    } else {
        ConnectError::NotReady(words(error))
    }
}

/// To whichever of a name's addresses answers first.
async fn tcp(address: &Address) -> Result<TcpStream, ConnectError> {
    let found = lookup_host((address.host.as_str(), address.port))
        .await
        .map_err(ConnectError::Unresolved)?;
    let attempts: Vec<_> = found.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(ConnectError::Unresolved(io::ErrorKind::NotFound.into()));
    }
    let (stream, _) = select_ok(attempts).await.map_err(ConnectError::NotTaken)?;
    stream.set_nodelay(true).map_err(ConnectError::NotTaken)?;
    Ok(stream)
}

fn connector(authorities: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|error| panic!("ring supports the default protocol versions: {error}"))
        .with_root_certificates(authorities)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

fn authorities(settings: &RedisSettings) -> Result<RootCertStore, RedisSettingsError> {
    let mut authorities = RootCertStore::empty();
    let Some(path) = &settings.ca_certificate else {
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if authorities.is_empty() {
            Err(RedisSettingsError::NoSystemCertificates)
        } else {
            Ok(authorities)
        };
    };
    let pem = std::fs::read(path).map_err(|source| RedisSettingsError::CertificateFile {
        path: path.clone(),
        source,
    })?;
    let no_certificate = || RedisSettingsError::NoCertificate { path: path.clone() };
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| no_certificate())?;
        authorities.add(certificate).map_err(|_| no_certificate())?;
    }
    if authorities.is_empty() {
        return Err(no_certificate());
    }
    Ok(authorities)
}

impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Access")
            .field("has_login", &self.login.is_some())
            .field("has_tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}
