//! The last policy in the data directory, sealed, so that a restart without Postgres serves.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::policy::PolicyChanges;
use store::random::SystemRandom;
use store::sealing::{Purpose, SecretKey};
use tokio::fs;

/// The file in the data directory.
pub const KEPT_POLICY_FILE: &str = "policy.sealed";

/// Where the policy is kept.
#[derive(Clone, Debug)]
pub struct KeptPolicy {
    path: PathBuf,
    secret_key: Arc<SecretKey>,
}

/// Why the kept policy could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum KeptPolicyError {
    /// The file could not be written or read.
    #[error("the kept policy could not be written or read")]
    File(#[from] io::Error),
    /// It was sealed under another secret key, is damaged, or comes from another version.
    #[error("the kept policy cannot be used: it is damaged, or was sealed under another secret key")]
    Unusable,
}

impl KeptPolicy {
    /// Kept under `data_dir`.
    pub fn new(data_dir: &Path, secret_key: Arc<SecretKey>) -> Self {
        Self {
            path: data_dir.join(KEPT_POLICY_FILE),
            secret_key,
        }
    }

    /// Replaces what is kept, as a whole or not at all.
    pub(crate) async fn write(&self, policy: PolicyChanges) -> Result<(), KeptPolicyError> {
        let secret_key = Arc::clone(&self.secret_key);
        let path = self.path.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let plain = serde_json::to_vec(&policy).map_err(|_| KeptPolicyError::Unusable)?;
            let sealed = secret_key.seal(Purpose::PolicySnapshot, "", &plain, &SystemRandom);
            replace(&path, &sealed).map_err(KeptPolicyError::File)
        });
        writing.await.map_err(|_| KeptPolicyError::Unusable)?
    }

    /// What is kept; `None` when nothing is.
    pub(crate) async fn read(&self) -> Result<Option<PolicyChanges>, KeptPolicyError> {
        let sealed = match fs::read(&self.path).await {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let plain = self
            .secret_key
            .open(Purpose::PolicySnapshot, "", &sealed)
            .map_err(|_| KeptPolicyError::Unusable)?;
        serde_json::from_slice(&plain)
            .map(Some)
            .map_err(|_| KeptPolicyError::Unusable)
    }
}

/// The new name must not reach the disk before the bytes do: a power failure would leave an empty file.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
