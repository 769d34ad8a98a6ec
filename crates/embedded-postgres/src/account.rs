//! Whom Postgres runs as: this user, or an unprivileged one when this user is root.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::{EmbeddedPostgresError, Result, io_error};

const OTHERS_PASS: u32 = 0o001;

/// The user that owns the data and runs every program over them.
#[derive(Clone, Debug)]
pub(crate) enum Account {
    /// The user who runs this process.
    Own,
    /// An unprivileged user, because this process is root.
    Unprivileged {
        /// For messages.
        name: &'static str,
        /// Its user id.
        uid: u32,
        /// Its main group.
        gid: u32,
    },
}

impl Account {
    /// `postgres`, else `nobody`, if this process is root.
    pub(crate) fn choose() -> Result<Self> {
        if id(&["-u"]) != Some(0) {
            return Ok(Self::Own);
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| {
                let (uid, gid) = (id(&["-u", name])?, id(&["-g", name])?);
                Some(Self::Unprivileged { name, uid, gid })
            })
            .ok_or(EmbeddedPostgresError::NoUnprivilegedUser)
    }

    /// User and group to give files to, if they differ from ours.
    pub(crate) fn ids(&self) -> Option<(u32, u32)> {
        match self {
            Self::Own => None,
            Self::Unprivileged { uid, gid, .. } => Some((*uid, *gid)),
        }
    }

    /// A command that runs as this user, untouched by the caller's own Postgres settings, language and directory.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if is_foreign_setting(&name) {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").current_dir("/");
        if let Some((uid, gid)) = self.ids() {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives `directory` and all that is in it to this user, unless it has it already.
    pub(crate) fn own(&self, directory: &Path) -> Result<()> {
        let Some((uid, gid)) = self.ids() else {
            return Ok(());
        };
        if fs::symlink_metadata(directory)
            .map_err(io_error("inspect", directory))?
            .uid()
            == uid
        {
            return Ok(());
        }
        give(directory, uid, gid)
    }

    /// Makes sure that this user can walk to `data_dir`, opening that directory itself for passage if need be. What
    /// lies above belongs to the machine's owner: a closed directory there is an error.
    pub(crate) fn ensure_reach(&self, data_dir: &Path) -> Result<()> {
        let Self::Unprivileged { name, uid, gid } = self else {
            return Ok(());
        };
        let passes = |directory: &Path| -> Result<bool> {
            let metadata = fs::metadata(directory).map_err(io_error("inspect", directory))?;
            let needed = match () {
                () if metadata.uid() == *uid => 0o100,
                () if metadata.gid() == *gid => 0o010,
                () => OTHERS_PASS,
            };
            Ok(metadata.mode() & needed != 0)
        };
        for above in data_dir.ancestors().skip(1) {
            if !passes(above)? {
                return Err(EmbeddedPostgresError::Unreachable {
                    user: (*name).to_owned(),
                    directory: data_dir.to_owned(),
                    closed: above.to_owned(),
                });
            }
        }
        if !passes(data_dir)? {
            let mode = fs::metadata(data_dir).map_err(io_error("inspect", data_dir))?.mode();
            fs::set_permissions(data_dir, Permissions::from_mode(mode | OTHERS_PASS))
                .map_err(io_error("open for passage", data_dir))?;
        }
        Ok(())
    }
}

fn give(path: &Path, uid: u32, gid: u32) -> Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(io_error("inspect", path))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(io_error("read", path))? {
            give(&entry.map_err(io_error("read", path))?.path(), uid, gid)?;
        }
    }
    // The directory comes last, so that its owner tells whether all below it was done.
    chown(path, Some(uid), Some(gid)).map_err(io_error("give away", path))
}

/// The number that `id` prints; none if there is no such user.
fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

fn is_foreign_setting(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("PG") || name.starts_with("LC_") || name == "LANG")
}
