//! The data directory: made on first start, private, with what is generated once and must stay.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use domain::instances::DataDirKind;
use store::random::{self, SystemRandom};
use store::sealing::SecretKey;

/// The directory, absolute, and taken by this process for as long as this lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes it if it is not there, and takes it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_if_free(path)?.with_context(|| {
            format!(
                "the data directory {} is in use by another Tollgate; stop that one, or give this one a directory of its own \
                 with --data-dir",
                std::path::absolute(path).as_deref().unwrap_or(path).display()
            )
        })
    }

    /// The same; none where another process has it.
    pub fn open_if_free(path: &Path) -> anyhow::Result<Option<Self>> {
        let path = std::path::absolute(path).with_context(|| format!("{} is no usable path", path.display()))?;
        // Others may pass through, so that the private Postgres reaches its own part as another user; its files are 0600.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&path)
            .with_context(|| format!("the data directory {} cannot be made", path.display()))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .with_context(|| format!("{} cannot be made", lock_path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", lock_path.display()))
            }
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it lies on, as far as this system tells.
    pub fn kind(&self) -> DataDirKind {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        kind_of(&mounts, &path)
    }

    /// The secret key: `given`, or the one kept here, or a new one that is kept here with mode 0600.
    pub fn secret_key(&self, given: Option<&str>) -> anyhow::Result<SecretKey> {
        if let Some(given) = given {
            return SecretKey::parse(given).context("TOLLGATE_SECRET_KEY cannot be used");
        }
        let path = self.path.join("secret-key");
        let text = read_or_create(&path, || SecretKey::generate(&SystemRandom).reveal())?;
        SecretKey::parse(&text).with_context(|| format!("{} cannot be used", path.display()))
    }

    /// The gateway's name: `given`, or the one kept here, or a new one that is kept here.
    pub fn instance(&self, given: Option<&str>) -> anyhow::Result<String> {
        let name = match given {
            Some(given) => given.to_owned(),
            None => {
                let generated = || format!("{}-{}", host_name(), hex::encode(random::bytes::<3>(&SystemRandom)));
                read_or_create(&self.path.join("instance-name"), generated)?
            }
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            bail!("TOLLGATE_INSTANCE is 1 to 64 letters, digits, '-', '_' or '.'; {name:?} is not");
        }
        Ok(name)
    }
}

/// Directories whose content is deleted by itself.
const TEMPORARY: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// What `path` lies on, by the lines of `/proc/self/mountinfo`: the last of the mounts whose place is the longest part of it.
fn kind_of(mounts: &str, path: &Path) -> DataDirKind {
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let place = mount.split(' ').nth(4)?.replace("\\040", " ");
            let kind = system.split(' ').next()?;
            path.starts_with(&place).then_some((place, kind))
        })
        .max_by_key(|(place, _)| place.len());
    let Some((place, kind)) = mount else {
        return DataDirKind::Unknown;
    };
    match kind {
        "tmpfs" | "ramfs" => DataDirKind::Memory,
        "overlay" | "aufs" => DataDirKind::Overlay,
        // A volume that is mounted below such a directory stays.
        _ if TEMPORARY
            .iter()
            .any(|temporary| path.starts_with(temporary) && Path::new(temporary).starts_with(&place)) =>
        {
            DataDirKind::Temporary
        }
        _ => DataDirKind::Disk,
    }
}

/// The file's text, made with mode 0600 if it is not there.
fn read_or_create(path: &Path, generate: impl FnOnce() -> String) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
    let text = generate();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} cannot be made", path.display()))?;
    writeln!(file, "{text}")
        .and_then(|()| file.sync_all())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(text)
}

fn host_name() -> String {
    let name = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let plain: String = name
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(40)
        .collect();
    if plain.is_empty() { "gateway".to_owned() } else { plain }
}

#[cfg(test)]
mod tests;
