//! The nginx that Tollgate is compared with: installed if it is missing.

use std::path::Path;

use anyhow::Result;

use crate::install;
use crate::process;

/// Where Debian puts it, which is not on everybody's PATH.
const SERVER: &str = "/usr/sbin/nginx";

/// Makes sure that it is installed.
///
/// Debian also starts a service on port 80, which is left alone: the benchmark starts one of its own on a port of its own.
pub(crate) fn ensure_installed() -> Result<()> {
    if process::find_on_path("nginx").is_some() || Path::new(SERVER).exists() {
        return Ok(());
    }
    install::packages(&["nginx-light"], "Tollgate is compared with a plain reverse proxy")
}
