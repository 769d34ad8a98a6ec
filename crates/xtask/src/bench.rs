//! `cargo xtask bench`: measurements that print a table.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{process, redis};

/// What one decision costs; about three minutes after the build.
pub(crate) fn limits(workspace: &Workspace) -> Result<()> {
    redis::ensure_installed()?;
    process::run(
        workspace
            .cargo()
            .args(["bench", "--package", "limits", "--bench", "decision"]),
    )
}
