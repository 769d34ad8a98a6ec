//! A Rust that builds for the browser: the one in use if it can, else the target from rustup, else Debian's own Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::install;
use crate::process;
use crate::workspace::Workspace;

/// The target's name.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// A download that works takes seconds; without a network rustup may try for long.
const RUSTUP_WAIT_MAX: Duration = Duration::from_secs(120);

/// The `rust-version` of this workspace.
const NEEDED_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_STD_SOURCES: &str = "/usr/lib/rustlib/src/rust/library";
const DEBIAN_LINKERS: &str = "/usr/bin";

/// Which Rust builds for the browser.
pub(crate) enum WasmRust {
    /// The one that runs us.
    Own,
    /// Debian's, which has no compiled standard library for the target: it is built along, from the packaged sources.
    Debian {
        /// LLVM's linker for WASM.
        linker: PathBuf,
    },
}

/// Finds or installs one.
pub(crate) fn ensure() -> Result<WasmRust> {
    if has_target("rustc") {
        return Ok(WasmRust::Own);
    }
    if let Some(linker) = debian_linker() {
        return Ok(WasmRust::Debian { linker });
    }
    if process::find_on_path("rustup").is_some() {
        println!("Installing the Rust target {WASM} with rustup: the console's browser code is compiled to WASM.");
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add", WASM]).env("RUSTUP_MAX_RETRIES", "0");
        if process::succeeds_within(&mut rustup, RUSTUP_WAIT_MAX) && has_target("rustc") {
            return Ok(WasmRust::Own);
        }
        println!("rustup cannot download it here.");
    }
    install_debian()
}

impl WasmRust {
    /// A `cargo build` for the target, without the options that say what to build.
    pub(crate) fn cargo_build(&self, workspace: &Workspace) -> Command {
        let Self::Debian { linker } = self else {
            let mut command = workspace.cargo();
            command.args(["build", "--target", WASM]);
            return command;
        };
        let mut command = workspace.cargo_at(Path::new(DEBIAN_CARGO));
        command
            .args(["build", "--target", WASM, "-Zbuild-std=std,panic_abort"])
            .env("RUSTC", DEBIAN_RUSTC)
            // Debian ships the sources for exactly this compiler, so the unstable option is safe with it.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }

    /// A word that differs where build folders must.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Own => "browser",
            Self::Debian { .. } => "browser-debian",
        }
    }
}

fn has_target(rustc: &str) -> bool {
    let Ok(sysroot) = process::read(Command::new(rustc).args(["--print", "sysroot"])) else {
        return false;
    };
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(WASM).join("lib");
    let Ok(entries) = fs::read_dir(library) else {
        return false;
    };
    entries
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

/// The linker, if everything of Debian's Rust is there.
fn debian_linker() -> Option<PathBuf> {
    let is_there = [DEBIAN_RUSTC, DEBIAN_CARGO, DEBIAN_STD_SOURCES]
        .iter()
        .all(|path| Path::new(path).exists());
    let version = process::read(Command::new(DEBIAN_RUSTC).arg("--version")).ok()?;
    if !is_there || minor_version(&version)? < minor_version(NEEDED_VERSION)? {
        return None;
    }
    let names = fs::read_dir(DEBIAN_LINKERS)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names
        .filter_map(|name| name.strip_prefix("wasm-ld-")?.parse::<u32>().ok())
        .max()?;
    Some(Path::new(DEBIAN_LINKERS).join(format!("wasm-ld-{newest}")))
}

fn install_debian() -> Result<WasmRust> {
    let reason = "the console's browser code is compiled to WASM, for which this Rust lacks the target \
                  (`rustup target add wasm32-unknown-unknown` would do as well)";
    let linker = match process::find_on_path("apt-cache") {
        Some(_) => install::newest_package("lld-")?,
        None => "lld".to_owned(),
    };
    install::packages(&["rustc-web", "cargo-web", "rust-web-src", &linker], reason)?;
    let linker = debian_linker().with_context(|| {
        format!(
            "Debian's Rust is older than {NEEDED_VERSION} here: add Debian's security updates to apt's sources, or \
             run `rustup target add {WASM}` where that can download"
        )
    })?;
    Ok(WasmRust::Debian { linker })
}

/// The 94 of `1.94` or `rustc 1.94.0 (…)`.
fn minor_version(text: &str) -> Option<u32> {
    text.split('.').nth(1)?.parse().ok()
}
