//! Where the sources are, where builds go, and how to call cargo on them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// What cargo sets for the programs it runs (us) and must not reach a build for something else.
const CARGO_LEFTOVERS: [&str; 6] = [
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION",
    "CARGO_TARGET_DIR",
];

/// The clone this program works on.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// Asks cargo, so that CARGO_TARGET_DIR and cargo's own settings count.
    pub(crate) fn find() -> Result<Self> {
        let mut command = Command::new(cargo_path());
        command
            .args(["metadata", "--no-deps", "--format-version=1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let metadata: Value = serde_json::from_str(&process::read(&mut command)?).context("cargo metadata")?;
        let path = |name: &str| {
            metadata[name]
                .as_str()
                .map(PathBuf::from)
                .with_context(|| format!("cargo metadata tells no {name}"))
        };
        Ok(Self {
            root: path("workspace_root")?,
            target: path("target_directory")?,
        })
    }

    /// A file or folder of the clone.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// A file or folder of the build folder.
    pub(crate) fn target_path(&self, relative: &str) -> PathBuf {
        self.target.join(relative)
    }

    /// The console's files for the browser.
    pub(crate) fn site_dir(&self) -> PathBuf {
        self.target_path("site")
    }

    /// The built server.
    pub(crate) fn server_path(&self, is_release: bool) -> PathBuf {
        self.target_path(if is_release { "release" } else { "debug" })
            .join("tollgate")
    }

    /// The cargo that started us, over this workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.cargo_at(Path::new(&cargo_path()))
    }

    /// Another cargo over this workspace.
    pub(crate) fn cargo_at(&self, cargo: &Path) -> Command {
        let mut command = Command::new(cargo);
        for name in CARGO_LEFTOVERS {
            command.env_remove(name);
        }
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }
}

fn cargo_path() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
