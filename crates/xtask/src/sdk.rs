//! The official SDKs, in the versions that `tests/sdk/requirements.txt` and `tests/sdk/package.json` pin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install;
use crate::process;
use crate::workspace::Workspace;

const REQUIREMENTS: &str = "tests/sdk/requirements.txt";
/// What it names has no dependencies of its own, so these versions are all there is to pin.
const PACKAGES: &str = "tests/sdk/package.json";

/// The oldest Node.js that runs what is pinned; also that of the oldest Debian with it.
const NODE_MAJOR_MIN: u32 = 18;
const DEBIAN_NODE: &str = "/usr/bin/node";
const DEBIAN_NPM: &str = "/usr/bin/npm";

/// What runs scripts of Node.js.
pub(crate) struct Node {
    /// The program.
    pub(crate) program: PathBuf,
    /// Where the packages are.
    pub(crate) modules: PathBuf,
}

/// Makes the virtual environment unless it is current; gives its interpreter.
pub(crate) fn ensure_python(workspace: &Workspace) -> Result<PathBuf> {
    let requirements_path = workspace.path(REQUIREMENTS);
    let requirements = read(&requirements_path)?;
    let environment = workspace.target_path("sdk-venv");
    let python = environment.join("bin/python");
    let installed = environment.join("installed-requirements.txt");
    if python.exists() && is_current(&installed, &requirements) {
        return Ok(python);
    }

    println!(
        "Installing {} with pip: the gateway is tested with them.",
        requirements.trim().replace('\n', ", ")
    );
    remove(&environment)?;
    create_environment(&environment)?;
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

/// Makes a virtual environment for packages of Python.
pub(crate) fn create_environment(environment: &Path) -> Result<()> {
    let attempt = |python: &str| process::run_quietly(Command::new(python).args(["-m", "venv"]).arg(environment));
    if attempt("python3").is_ok() {
        return Ok(());
    }
    install::packages(
        &["python3", "python3-venv"],
        "what comes from Python's registry is installed in a virtual environment",
    )?;
    // The one from the packages, whatever else is first on PATH.
    attempt("/usr/bin/python3")
}

/// Installs the packages for Node.js unless they are current, and Node.js itself if it is missing or too old.
pub(crate) fn ensure_node(workspace: &Workspace) -> Result<Node> {
    let (program, npm) = node_programs()?;
    let packages = read(&workspace.path(PACKAGES))?;
    let folder = workspace.target_path("sdk-node");
    let node = Node {
        program,
        modules: folder.join("node_modules"),
    };
    let installed = folder.join("installed-packages.json");
    if node.modules.exists() && is_current(&installed, &packages) {
        return Ok(node);
    }

    println!("Installing what {PACKAGES} names with npm: the gateway is tested with it.");
    remove(&folder)?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let copied = folder.join("package.json");
    fs::write(&copied, &packages).with_context(|| copied.display().to_string())?;
    // A lock file would name the registry, and machines have their own.
    let quietly = [
        "--no-package-lock",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    process::run_quietly(Command::new(npm).arg("install").args(quietly).current_dir(&folder))?;
    fs::write(&installed, packages).with_context(|| installed.display().to_string())?;
    Ok(node)
}

/// Node.js and npm, installed if need be.
fn node_programs() -> Result<(PathBuf, PathBuf)> {
    if let (Some(node), Some(npm)) = (process::find_on_path("node"), process::find_on_path("npm"))
        && node_major(&node).is_some_and(|major| major >= NODE_MAJOR_MIN)
    {
        return Ok((node, npm));
    }
    install::packages(
        &["nodejs", "npm"],
        &format!("the official SDKs for Node.js are tested, which need version {NODE_MAJOR_MIN} or newer"),
    )?;
    Ok((PathBuf::from(DEBIAN_NODE), PathBuf::from(DEBIAN_NPM)))
}

/// The 20 of `v20.19.2`.
fn node_major(node: &Path) -> Option<u32> {
    let version = process::read(Command::new(node).arg("--version")).ok()?;
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn is_current(installed: &Path, wanted: &str) -> bool {
    fs::read_to_string(installed).is_ok_and(|installed| installed == wanted)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}
