//! Installing what a machine lacks, with Debian's package manager and a line that says what and why.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// Installs Debian packages. Elsewhere, or without the right to, the error says what to install by hand.
pub(crate) fn packages(names: &[&str], reason: &str) -> Result<()> {
    let list = names.join(" ");
    if process::find_on_path("apt-get").is_none() {
        bail!("{reason}: this machine has no apt-get, so please install the equivalent of: {list}");
    }
    println!("Installing {list}: {reason}.");
    // A machine's lists may be missing, or too old to know the versions needed; without a network they may still do.
    let updated = update_lists();
    try_packages(names).or_else(|error| updated.and(Err(error)))
}

/// The newest of Debian's packages named `<prefix><number>`.
pub(crate) fn newest_package(prefix: &str) -> Result<String> {
    update_lists()?;
    let pattern = format!("^{prefix}[0-9]+$");
    let found = process::read(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    let numbers = found
        .lines()
        .filter_map(|line| line.split(' ').next()?.strip_prefix(prefix)?.parse::<u32>().ok());
    match numbers.max() {
        Some(number) => Ok(format!("{prefix}{number}")),
        None => bail!("no package {prefix}<version> is known to apt-get"),
    }
}

/// Writes a root-owned settings file unless there is one.
pub(crate) fn settings_file(path: &Path, content: &str) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    println!("Writing {}: {}", path.display(), content.trim_end());
    let script = r#"mkdir -p "$(dirname "$1")" && printf '%s' "$2" > "$1""#;
    process::run_quietly(as_root("sh")?.args(["-c", script, "sh"]).arg(path).arg(content))
}

/// Whether this process is root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(process::read(Command::new("id").arg("-u"))?.trim() == "0")
}

fn update_lists() -> Result<()> {
    process::run_quietly(as_root("apt-get")?.args(["update", "-qq"]))
}

fn try_packages(names: &[&str]) -> Result<()> {
    let mut command = as_root("apt-get")?;
    command
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(["-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0"])
        .args(names);
    process::run_quietly(&mut command)
}

fn as_root(program: &str) -> Result<Command> {
    if is_root()? {
        let mut command = Command::new(program);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        return Ok(command);
    }
    if process::find_on_path("sudo").is_none() {
        bail!("`{program}` needs root here, and there is no sudo: run this once as root");
    }
    let mut command = Command::new("sudo");
    command.args(["DEBIAN_FRONTEND=noninteractive", program]);
    Ok(command)
}
