//! `cargo xtask run`: build everything and become the demo.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install;
use crate::postgres;
use crate::process;
use crate::site;
use crate::workspace::Workspace;

/// Where root's demo lives when the build folder is inside a closed home.
const SYSTEM_DATA_DIR: &str = "/var/lib/tollgate-demo";

/// How to run the demo.
pub(crate) struct Options {
    /// Optimised instead of quick to build.
    pub(crate) is_release: bool,
    /// Where it keeps its data, if not in the build folder.
    pub(crate) data_dir: Option<PathBuf>,
    /// Passed on.
    pub(crate) demo_arguments: Vec<String>,
}

/// Returns only if something failed: the demo takes our place, so that Ctrl-C goes straight to it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    postgres::ensure_installed()?;
    let site = site::build(workspace)?;
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--package=server", "--bin=tollgate"]);
    if options.is_release {
        cargo.arg("--release");
    }
    process::run(&mut cargo)?;

    let data_dir = match &options.data_dir {
        Some(data_dir) => data_dir.clone(),
        None => default_data_dir(workspace)?,
    };
    let server = workspace.server_path(options.is_release);
    let error = Command::new(&server)
        .arg("demo")
        .args(&options.demo_arguments)
        .env("TOLLGATE_DATA_DIR", data_dir)
        .env("TOLLGATE_SITE_DIR", site)
        .exec();
    Err(error).with_context(|| format!("{} cannot be started", server.display()))
}

/// `demo-data` in the build folder. Postgres refuses to run as root, though, and the user it then runs as cannot enter
/// a closed home.
fn default_data_dir(workspace: &Workspace) -> Result<PathBuf> {
    let in_target = workspace.target_path("demo-data");
    if install::is_root()? && !is_open_to_others(&in_target) {
        println!("The demo's data go to {SYSTEM_DATA_DIR}: Postgres does not run as root, and others cannot enter");
        println!("{} (choose another place with --data-dir).", in_target.display());
        return Ok(PathBuf::from(SYSTEM_DATA_DIR));
    }
    Ok(in_target)
}

fn is_open_to_others(directory: &Path) -> bool {
    directory
        .ancestors()
        .skip(1)
        .all(|above| fs::metadata(above).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0))
}
