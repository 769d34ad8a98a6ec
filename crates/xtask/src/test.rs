//! `cargo xtask test`: everything CI runs, in the order in which a mistake shows soonest.

use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::browser;
use crate::check;
use crate::deny;
use crate::postgres;
use crate::prepare;
use crate::process;
use crate::redis;
use crate::sdk;
use crate::site;
use crate::steps::Steps;
use crate::texts;
use crate::workspace::Workspace;

/// Runs all steps up to the first that fails. Whatever was started ends with us, also when we are interrupted.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::default();
    let mut results = Vec::new();
    let outcome = all(workspace, &mut steps, &mut results);
    print!("\n{}\n", steps.summary());
    for line in results {
        println!("{line}");
    }
    outcome
}

fn all(workspace: &Workspace, steps: &mut Steps, results: &mut Vec<String>) -> Result<()> {
    steps.step("format", || check::format(workspace))?;
    steps.step("texts", || texts::compare(workspace))?;
    steps.step("dependencies", || deny::deny(workspace))?;
    steps.step("queries", || prepare::compare(workspace))?;
    let site = steps.step("site", || site::build(workspace))?;
    // With the tests at once, so that both are built from the same parts.
    steps.step("build and lints", || {
        process::run(check::linting(&mut workspace.cargo()).args(["build", "--workspace", "--all-targets"]))
    })?;
    let server = steps.step("Postgres", postgres::start)?;
    steps.step("Redis", redis::ensure_installed)?;
    steps.step("browser", browser::ensure_installed)?;
    let python = steps.step("SDKs for Python", || sdk::ensure_python(workspace))?;
    let node = steps.step("SDKs for Node.js", || sdk::ensure_node(workspace))?;
    steps.step("tests", || {
        let mut cargo = workspace.cargo();
        // Built as above, or all would be built again.
        check::linting(&mut cargo)
            // All that fails is said, and not only what fails in the first program.
            .args(["test", "--workspace", "--no-fail-fast"])
            // Tests wait for processes, leases and answers more than they compute.
            .env("RUST_TEST_THREADS", threads().to_string())
            .env("TOLLGATE_TEST_DATABASE_URL", server.cluster().url())
            .env("TOLLGATE_TEST_SERVER", workspace.server_path(false))
            .env("TOLLGATE_TEST_PYTHON", python)
            .env("TOLLGATE_TEST_NODE", node.program)
            .env("TOLLGATE_TEST_NODE_MODULES", node.modules)
            .env("TOLLGATE_SITE_DIR", site);
        run_tests(&mut cargo, results)
    })
}

/// How many tests run at once.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get) * 3 / 2
}

/// Shows what cargo says as it comes and keeps the lines with results.
fn run_tests(cargo: &mut Command, results: &mut Vec<String>) -> Result<()> {
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test cannot be started")?;
    let output = child.stdout.take().context("its output was asked for")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("cargo's output")?;
        println!("{line}");
        if line.starts_with("test result:") {
            results.push(line);
        }
    }
    let status = child.wait().context("cargo test")?;
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    Ok(())
}
