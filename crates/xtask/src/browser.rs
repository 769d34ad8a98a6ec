//! The browser that the console is tested in.

use anyhow::Result;

use crate::install;
use crate::process;

/// Names by which Chromium is known, Debian's first.
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that Chromium and its driver are installed.
pub(crate) fn ensure_installed() -> Result<()> {
    let has_chromium = CHROMIUM.iter().any(|name| process::find_on_path(name).is_some());
    if has_chromium && process::find_on_path("chromedriver").is_some() {
        return Ok(());
    }
    install::packages(
        &["chromium", "chromium-driver"],
        "the console is tested in a real browser",
    )
}
