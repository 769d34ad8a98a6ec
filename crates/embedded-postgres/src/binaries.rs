//! Where this machine keeps PostgreSQL's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{EmbeddedPostgresError, Result, io_error};

const PROGRAMS: [&str; 4] = ["postgres", "initdb", "pg_ctl", "createdb"];
/// Debian and Ubuntu keep one directory a major version here, none of them on PATH.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// A directory that holds all programs of one PostgreSQL version.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The first installation on PATH, else Debian's newest; over existing data the one that wrote them.
    pub(crate) fn find(cluster: &Path) -> Result<Self> {
        let installed = installed_directories();
        let version_path = cluster.join("PG_VERSION");
        if !version_path.exists() {
            let directory = installed
                .into_iter()
                .next()
                .ok_or(EmbeddedPostgresError::BinariesMissing)?;
            return Ok(Self { directory });
        }

        let data_version = fs::read_to_string(&version_path).map_err(io_error("read", &version_path))?;
        let data_version = data_version.trim();
        let mut other_versions = Vec::new();
        for directory in installed {
            let version = major_version(&directory)?;
            if version == data_version {
                return Ok(Self { directory });
            }
            other_versions.push(version);
        }
        if other_versions.is_empty() {
            return Err(EmbeddedPostgresError::BinariesMissing);
        }
        Err(EmbeddedPostgresError::VersionMissing {
            directory: cluster.to_owned(),
            data_version: data_version.to_owned(),
            installed: other_versions.join(", "),
        })
    }

    /// The path of one of PostgreSQL's programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Every directory with a complete installation, best first.
fn installed_directories() -> Vec<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path)
        // A link on PATH leads to where its companions are.
        .filter_map(|directory| fs::canonicalize(directory.join("postgres")).ok())
        .filter_map(|program| program.parent().map(Path::to_owned));
    on_path
        .chain(debian_directories())
        .filter(|directory| is_complete(directory))
        .collect()
}

fn debian_directories() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN_ROOT) else {
        return Vec::new();
    };
    let mut versions: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    versions
        .into_iter()
        .map(|version| Path::new(DEBIAN_ROOT).join(version.to_string()).join("bin"))
        .collect()
}

fn is_complete(directory: &Path) -> bool {
    PROGRAMS.iter().all(|program| directory.join(program).is_file())
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` is 15.
fn major_version(directory: &Path) -> Result<String> {
    let program = directory.join("postgres");
    let output = Command::new(&program)
        .arg("--version")
        .output()
        .map_err(io_error("run", &program))?;
    let line = String::from_utf8_lossy(&output.stdout);
    let digits = line
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit);
    Ok(digits.collect())
}
