//! Where the console's files are.

use std::path::{Path, PathBuf};

/// The directory given, or else the one beside the program: `site` next to it, as in a package, or one level up, as in a
/// build folder.
pub fn directory(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| {
        let program = std::env::current_exe().unwrap_or_default();
        let beside = program.parent().unwrap_or(Path::new(".")).join("site");
        let above = program
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("."))
            .join("site");
        if beside.is_dir() { beside } else { above }
    })
}
