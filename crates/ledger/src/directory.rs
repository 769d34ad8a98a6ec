//! The journal's directory: one process at a time, one instance for ever, and a note of how far it has been shipped.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Why a journal cannot be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the journal in {} is in use by another process; stop that one, or give this one a data directory of its own",
        directory.display()
    )]
    Locked {
        /// Where.
        directory: PathBuf,
    },
    /// It belongs to another instance.
    #[error(
        "the journal in {} belongs to the instance \"{found}\", and this is \"{instance}\"; start it as \
         TOLLGATE_INSTANCE={found}, or give it a data directory of its own",
        directory.display()
    )]
    OtherInstance {
        /// Where.
        directory: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asked.
        instance: String,
    },
    /// The file system refused.
    #[error("the journal in {} cannot be opened; check that the directory exists, is writable and has room", directory.display())]
    Io {
        /// Where.
        directory: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// Where the journal is known to stand. Written after each batch and with each new segment; may lag behind Postgres, which
/// has the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Everything up to here was in Postgres.
    pub(crate) shipped_seq: u64,
    /// No number below this one is free.
    pub(crate) next_seq: u64,
    /// Whether this directory has ever compared its numbers with Postgres's mark.
    pub(crate) has_met_postgres: bool,
    /// The first numbers of the segments that are there. Written before one is removed, so that one that is not there has
    /// gone astray.
    #[serde(default)]
    pub(crate) segments: Vec<u64>,
}

/// A locked directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked until it is dropped, by the operating system, so that a killed process leaves no lock behind.
    _lock: File,
}

impl Directory {
    /// Locks `path` for `instance`, making it at first.
    pub(crate) fn open(path: &Path, instance: &str) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            directory: path.to_owned(),
            source,
        };
        create_private(path).map_err(io)?;
        let lock = file_options()
            .write(true)
            .create(true)
            .open(path.join("lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked {
                    directory: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let directory = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        match fs::read_to_string(path.join("instance")) {
            Ok(found) if found.trim() == instance => {}
            Ok(found) if !found.trim().is_empty() => {
                return Err(OpenError::OtherInstance {
                    directory: path.to_owned(),
                    found: found.trim().to_owned(),
                    instance: instance.to_owned(),
                });
            }
            Ok(_) => directory.replace("instance", instance.as_bytes()).map_err(io)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                directory.replace("instance", instance.as_bytes()).map_err(io)?;
            }
            Err(error) => return Err(io(error)),
        }
        Ok(directory)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The mark; zeros when there is none that can be read.
    pub(crate) fn mark(&self) -> Mark {
        let Ok(bytes) = fs::read(self.path.join("mark")) else {
            return Mark::default();
        };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "the journal's mark cannot be read; Postgres's mark decides");
            Mark::default()
        })
    }

    /// Writes the mark.
    pub(crate) fn set_mark(&self, mark: &Mark) -> io::Result<()> {
        self.replace("mark", &serde_json::to_vec(mark)?)
    }

    /// Asks for the disk to have the names of its files.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Replaces a small file whole: a reader sees the old or the new content.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let partial = self.path.join(format!("{name}.partial"));
        let mut file = file_options().write(true).create(true).truncate(true).open(&partial)?;
        file.write_all(content)?;
        fs::rename(&partial, self.path.join(name))
    }
}

/// Options for files that only the gateway's own account may read.
pub(crate) fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
