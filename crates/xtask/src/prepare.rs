//! `cargo xtask prepare`: describe every query of `store` against a database that has all migrations.
//!
//! The macros of sqlx write a description for each query they check while SQLX_OFFLINE_DIR is set and they are online;
//! ordinary builds read the committed ones and need no database.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self as this_process, Command};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use embedded_postgres::Cluster;

use crate::postgres;
use crate::process;
use crate::workspace::Workspace;

const COMMITTED: &str = "crates/store/.sqlx";

/// File name to content.
type Descriptions = BTreeMap<String, Vec<u8>>;

/// Replaces the committed descriptions.
pub(crate) fn renew(workspace: &Workspace) -> Result<()> {
    let current = describe(workspace)?;
    let folder = workspace.path(COMMITTED);
    let committed = read_descriptions(&folder)?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for name in committed.keys().filter(|name| !current.contains_key(*name)) {
        fs::remove_file(folder.join(name)).with_context(|| name.clone())?;
    }
    for (name, content) in current
        .iter()
        .filter(|(name, content)| committed.get(*name) != Some(content))
    {
        fs::write(folder.join(name), content).with_context(|| name.clone())?;
    }
    println!("{} queries are described in {COMMITTED}.", current.len());
    Ok(())
}

/// Fails if the committed descriptions are not those of the queries and migrations in this clone.
pub(crate) fn compare(workspace: &Workspace) -> Result<()> {
    let current = describe(workspace)?;
    let committed = read_descriptions(&workspace.path(COMMITTED))?;
    let missing = current.keys().filter(|name| !committed.contains_key(*name)).count();
    let unused = committed.keys().filter(|name| !current.contains_key(*name)).count();
    let different = current
        .iter()
        .filter(|(name, content)| committed.get(*name).is_some_and(|other| other != *content))
        .count();
    if missing + unused + different > 0 {
        bail!(
            "{COMMITTED} is not current ({missing} missing, {unused} unused, {different} different): run `cargo xtask \
             prepare` and commit it"
        );
    }
    println!("{} queries are described as committed.", current.len());
    Ok(())
}

fn describe(workspace: &Workspace) -> Result<Descriptions> {
    let server = postgres::start()?;
    for migration in migrations(workspace)? {
        apply(server.cluster(), &migration)?;
    }
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "rustc",
            "--quiet",
            "--package=store",
            "--lib",
            "--profile=check",
            "--",
            "--cfg",
        ])
        .arg(format!("described=\"{}\"", unique_word()?))
        .env("DATABASE_URL", server.cluster().url())
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", folder.path());
    process::run(&mut cargo)?;
    read_descriptions(folder.path())
}

/// An argument that no earlier compilation had makes cargo compile `store` anew, and nothing else.
fn unique_word() -> Result<String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?;
    Ok(format!("{}-{}", now.as_nanos(), this_process::id()))
}

fn migrations(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.path("migrations");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn apply(cluster: &Cluster, migration: &Path) -> Result<()> {
    let content = fs::read_to_string(migration).with_context(|| migration.display().to_string())?;
    let mut psql = Command::new(cluster.program("psql"));
    psql.arg(cluster.url())
        .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"])
        .env("PGOPTIONS", "-c client_min_messages=warning")
        .arg("--file")
        .arg(migration);
    // The same first line as sqlx goes by.
    if !content.starts_with("-- no-transaction") {
        psql.arg("--single-transaction");
    }
    process::run_quietly(&mut psql)
}

fn read_descriptions(folder: &Path) -> Result<Descriptions> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Descriptions::new()),
        Err(error) => return Err(error).with_context(|| folder.display().to_string()),
    };
    let mut descriptions = Descriptions::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") {
            descriptions.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(descriptions)
}
