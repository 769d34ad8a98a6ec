//! The plain reverse proxy: nginx with one worker, connections kept, nothing buffered, nothing logged.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::pinned::{Process, find_server};

const START_WAIT: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = include_str!("nginx.conf");

/// A running nginx.
pub(crate) struct Nginx {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// In front of this upstream, with everything it writes in `folder`.
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        let program = find_server("nginx").context("nginx is not installed; `cargo xtask bench proxy` does that")?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let folder_name = folder.to_str().context("a temporary folder whose name is no text")?;
        let text = CONFIGURATION
            .replace("{folder}", folder_name)
            .replace("{address}", &address.to_string())
            .replace("{upstream}", &upstream.to_string());
        let path = format!("{folder_name}/nginx.conf");
        fs::write(&path, text).with_context(|| path.clone())?;
        let arguments = ["-p", folder_name, "-c", &path];
        let mut process = Process::start(&program, &arguments, &[], &folder.join("nginx.log"))?;
        let accepts = |_: &str| TcpStream::connect(address).ok();
        process.until("nginx accepts connections", START_WAIT, accepts).await?;
        Ok(Self { process, address })
    }

    /// As it says of itself: `nginx/1.22.1`.
    pub(crate) fn version() -> anyhow::Result<String> {
        let program = find_server("nginx").context("nginx is not installed")?;
        let output = Command::new(program).arg("-v").output()?;
        ensure!(output.status.success(), "nginx does not tell its version");
        let text = String::from_utf8_lossy(&output.stderr);
        Ok(text.trim().rsplit(' ').next().unwrap_or_default().to_owned())
    }
}
