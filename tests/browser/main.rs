//! The console in a real Chromium. `cargo xtask test` builds what the browser loads and installs Chromium with its driver.

mod accessibility;
mod chromium;
mod installation;
mod live_figures;
mod main_job;
mod stories;
