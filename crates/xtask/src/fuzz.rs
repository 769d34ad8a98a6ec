//! Fuzzing of what reads foreign bytes: LLVM's libFuzzer over the targets in `crates/protocol/fuzz`, with the compiler in use.
//!
//! rustc's stable flags place the counters that guide libFuzzer. A sanitizer would need a nightly compiler, and has nothing to
//! find in code without `unsafe`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install;
use crate::process;
use crate::workspace::Workspace;

/// How long `cargo xtask check` fuzzes each target, in seconds.
pub(crate) const CHECK_SECONDS: u64 = 20;

/// The fuzz targets, named as the checks of `protocol::invariants` are.
const TARGETS: [&str; 3] = ["sse", "request", "usage"];
const SEEDS: &str = "crates/protocol/golden";
/// One folder for each target, of inputs that broke it once; seeds, too, and ordinary tests of `protocol` read them.
const REGRESSIONS: &str = "crates/protocol/fuzz/regressions";
/// What inputs are put together from, besides pieces of one another.
const WORDS: &str = "crates/protocol/fuzz/words.dict";

/// The longest input that is tried, in bytes; more than any seed has.
const INPUT_BYTES_MAX: usize = 4_096;
/// The longest that one input may take, in seconds.
const INPUT_SECONDS_MAX: u64 = 10;
/// The most memory that a target may take, in MB.
const MEMORY_MB_MAX: u64 = 1_024;
/// What earlier runs found worth keeping is where the next one begins; with more files than this, it begins anew.
const CORPUS_FILES_MAX: usize = 20_000;

const RUST_FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Makes sure that libFuzzer, which is C++, can be built.
pub(crate) fn ensure_installed() -> Result<()> {
    if std::env::var_os("CXX").is_some() || process::find_on_path("c++").is_some() {
        return Ok(());
    }
    install::packages(&["g++"], "libFuzzer, which tries the parsers, is compiled from C++")
}

/// Builds the targets, and tries each for so many seconds. The first input that breaks one ends it.
pub(crate) fn fuzz(workspace: &Workspace, seconds: u64) -> Result<()> {
    ensure_installed()?;
    let programs = build(workspace)?;
    TARGETS
        .into_iter()
        .try_for_each(|target| try_inputs(workspace, &programs, target, seconds))
}

/// In a folder of its own: other flags would make cargo build everything else anew.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target_path("fuzz")
}

/// Gives the folder with the programs.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let version = process::read(Command::new("rustc").arg("-vV"))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc does not say what it builds for")?;
    let folder = folder(workspace);
    let mut cargo = workspace.cargo();
    cargo
        .args(["build", "--package=protocol-fuzz", "--features=libfuzzer", "--bins"])
        // Naming the target keeps the flags from build scripts, which know nothing of libFuzzer.
        .args(["--profile=fuzz", "--target", host])
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_ENCODED_RUSTFLAGS", RUST_FLAGS.join("\u{1f}"));
    process::run(&mut cargo)?;
    Ok(folder.join(host).join("fuzz"))
}

fn try_inputs(workspace: &Workspace, programs: &Path, target: &str, seconds: u64) -> Result<()> {
    let corpus = folder(workspace).join("corpus").join(target);
    if fs::read_dir(&corpus).is_ok_and(|files| files.count() > CORPUS_FILES_MAX) {
        fs::remove_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    }
    let found = folder(workspace).join("found").join(target);
    for created in [&corpus, &found] {
        fs::create_dir_all(created).with_context(|| created.display().to_string())?;
    }

    let program = programs.join(target);
    let output = Command::new(&program)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-dict={}", workspace.path(WORDS).display()))
        .args(["-verbosity=0", "-print_final_stats=1"])
        // What is new goes to the first folder; the others are only read.
        .arg(&corpus)
        .arg(workspace.path(SEEDS))
        .arg(workspace.path(REGRESSIONS).join(target))
        .output()
        .with_context(|| format!("{} cannot be started", program.display()))?;

    let said = String::from_utf8_lossy(&output.stderr);
    let after = |prefix: &str| said.lines().find_map(|line| Some(line.split_once(prefix)?.1.trim()));
    if output.status.success() {
        let tried = after("stat::number_of_executed_units:").unwrap_or("some");
        println!("{target}: {tried} inputs tried.");
        return Ok(());
    }
    eprintln!("{said}");
    let Some(input) = after("Test unit written to ") else {
        bail!("{target}: libFuzzer failed ({})", output.status);
    };
    bail!(
        "{target}: an input breaks it: {input}\nTo see it again: {} {input}\nTo keep it: copy it to {REGRESSIONS}/{target}/, \
         where `cargo test --package protocol` reads it",
        program.display()
    )
}
