//! The Postgres that the demo and the tests start: installed if it is missing.

use std::path::Path;

use anyhow::{Context, Result};
use embedded_postgres::Throwaway;

use crate::install;

/// Makes sure that server binaries are installed, without a service that nobody asked for.
pub(crate) fn ensure_installed() -> Result<()> {
    if embedded_postgres::is_installed() {
        return Ok(());
    }
    if Path::new("/etc/debian_version").exists() {
        // Debian would otherwise make and start a cluster of its own on port 5432.
        install::settings_file(
            Path::new("/etc/postgresql-common/createcluster.conf"),
            "create_main_cluster = false\n",
        )?;
    }
    install::packages(&["postgresql"], "the ledger and the settings live in Postgres")
}

/// A server that ends with this process.
pub(crate) fn start() -> Result<Throwaway> {
    ensure_installed()?;
    Throwaway::start().context("a private Postgres")
}
