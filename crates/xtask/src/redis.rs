//! The Redis that the tests start: installed if it is missing.

use anyhow::Result;

use crate::install;
use crate::process;

/// Names of the server program, as `test-redis` looks for them.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Makes sure that a server program is installed.
///
/// Debian also starts a service on port 6379, which is left alone: each test starts a server of its own on a port of its
/// own.
pub(crate) fn ensure_installed() -> Result<()> {
    if SERVERS.iter().any(|name| process::find_on_path(name).is_some()) {
        return Ok(());
    }
    install::packages(&["redis-server"], "shared limits are tested against real Redis servers")
}
