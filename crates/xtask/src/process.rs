//! Calling other programs: run, read, and say clearly which one failed.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const WAIT_POLL: Duration = Duration::from_millis(50);

/// Runs with our own terminal; an exit code other than zero is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("`{}` cannot be started", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs silently; what it said is shown only when it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    read(command).map(|_| ())
}

/// Runs silently and gives its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{}` cannot be started", shown(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({})\n{}{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs with our own standard error and gives its standard output, which no error shows.
pub(crate) fn read_with_errors_shown(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{}` cannot be started", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs silently for at most `wait_max`; true if it succeeded within that.
pub(crate) fn succeeds_within(command: &mut Command, wait_max: Duration) -> bool {
    let Ok(mut child) = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        return false;
    };
    let deadline = Instant::now() + wait_max;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => sleep(WAIT_POLL),
            Err(_) => return false,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The first program of that name on PATH.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words: Vec<_> = [program]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}
