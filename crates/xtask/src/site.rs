//! What the browser loads: the islands as WASM, one stylesheet, the public files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use wasm_bindgen_cli_support::Bindgen;

use crate::process;
use crate::stylesheet;
use crate::wasm_target::{self, WASM};
use crate::workspace::Workspace;

/// The name Leptos asks for: `pkg/tollgate.js`, `pkg/tollgate_bg.wasm`, `pkg/tollgate.css`.
const OUTPUT: &str = "tollgate";

/// Builds the site into the build folder; gives its root.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let site = workspace.site_dir();
    let package = site.join("pkg");
    fs::create_dir_all(&package).with_context(|| package.display().to_string())?;

    let module = compile_islands(workspace)?;
    let bound = package.join(format!("{OUTPUT}_bg.wasm"));
    // We are an input too: another version of this program may bind differently.
    if !is_newer(&bound, &module) || !is_newer(&bound, &env::current_exe()?) {
        bind(&module, &package, &workspace.target_path(""))?;
    }
    let stylesheet = stylesheet::join(&workspace.path("style"))?;
    write_if_changed(&package.join(format!("{OUTPUT}.css")), stylesheet.as_bytes())?;
    copy_folder(&workspace.path("public"), &site)?;
    Ok(site)
}

fn compile_islands(workspace: &Workspace) -> Result<PathBuf> {
    let rust = wasm_target::ensure()?;
    let folder = workspace.target_path(rust.name());
    let mut cargo = rust.cargo_build(workspace);
    cargo
        .args([
            "--package=admin-islands",
            "--lib",
            "--no-default-features",
            "--features=hydrate",
            "--profile=browser",
        ])
        .env("CARGO_TARGET_DIR", &folder);
    process::run(&mut cargo)?;
    Ok(folder.join(WASM).join("browser/admin_islands.wasm"))
}

/// The module stays as wasm-bindgen made it. Debian's wasm-opt (binaryen 108) would save little of what is sent compressed,
/// and mixes up the exported tables: no island would come to life.
fn bind(module: &Path, package: &Path, staging_root: &Path) -> Result<()> {
    let staging = tempfile::tempdir_in(staging_root).context("a folder to bind in")?;
    Bindgen::new()
        .input_path(module)
        .web(true)
        .map_err(bindgen_error)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .out_name(OUTPUT)
        .generate(staging.path())
        .map_err(bindgen_error)?;
    let wasm = staging.path().join(format!("{OUTPUT}_bg.wasm"));
    // The WASM comes last: it tells that the rest is complete.
    for entry in fs::read_dir(staging.path())? {
        let entry = entry?;
        if entry.path() != wasm {
            replace(&entry.path(), &package.join(entry.file_name()))?;
        }
    }
    replace(&wasm, &package.join(format!("{OUTPUT}_bg.wasm")))
}

fn is_newer(output: &Path, input: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    matches!((changed(output), changed(input)), (Ok(output), Ok(input)) if output > input)
}

fn replace(from: &Path, to: &Path) -> Result<()> {
    if to.is_dir() {
        fs::remove_dir_all(to).with_context(|| to.display().to_string())?;
    }
    fs::rename(from, to).with_context(|| to.display().to_string())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| from.display().to_string()),
    };
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            write_if_changed(&target, &fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Leaves the time of an unchanged file alone, for browsers that ask by it.
fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| path.display().to_string())
}

fn bindgen_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("wasm-bindgen: {error:#}")
}
