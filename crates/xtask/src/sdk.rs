//! A Python with the official SDKs, in the versions that `tests/sdk/requirements.txt` pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install;
use crate::process;
use crate::workspace::Workspace;

const REQUIREMENTS: &str = "tests/sdk/requirements.txt";

/// Makes the virtual environment unless it is current; gives its interpreter.
pub(crate) fn ensure_python(workspace: &Workspace) -> Result<PathBuf> {
    let requirements_path = workspace.path(REQUIREMENTS);
    let requirements =
        fs::read_to_string(&requirements_path).with_context(|| requirements_path.display().to_string())?;
    let environment = workspace.target_path("sdk-venv");
    let python = environment.join("bin/python");
    let installed = environment.join("installed-requirements.txt");
    if python.exists() && fs::read_to_string(&installed).is_ok_and(|installed| installed == requirements) {
        return Ok(python);
    }

    println!(
        "Installing {} with pip: the gateway is tested with them.",
        requirements.trim().replace('\n', ", ")
    );
    if environment.exists() {
        fs::remove_dir_all(&environment).with_context(|| environment.display().to_string())?;
    }
    create(&environment)?;
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ]);
    process::run(pip.arg(&requirements_path))?;
    fs::write(&installed, requirements).with_context(|| installed.display().to_string())?;
    Ok(python)
}

fn create(environment: &Path) -> Result<()> {
    let attempt = |python: &str| process::run_quietly(Command::new(python).args(["-m", "venv"]).arg(environment));
    if attempt("python3").is_ok() {
        return Ok(());
    }
    install::packages(
        &["python3", "python3-venv"],
        "the official Python SDKs are tested in a virtual environment",
    )?;
    // The one from the packages, whatever else is first on PATH.
    attempt("/usr/bin/python3")
}
