//! A server for tests, gone with all its data when this process ends, however it ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Cluster, Durability, EmbeddedPostgresError, Result, io_error};

/// Waits until its standard input closes, which the end of this process does; then ends the server over `$1` and
/// removes that directory. The server's last act is to remove its pid file.
const WATCH: &str = r#"
read -r _
pid_file="$1/postgres/postmaster.pid"
if [ -e "$pid_file" ]; then
    kill -QUIT "$(head -n 1 "$pid_file")"
fi
tries=100
while [ "$tries" -gt 0 ] && [ -e "$pid_file" ]; do
    sleep 0.1
    tries=$((tries - 1))
done
rm -rf "$1"
"#;

/// A server over a temporary directory. It ends when dropped, and also when this process is killed or exits without
/// dropping it, as it does with a value in a static.
#[derive(Debug)]
pub struct Throwaway {
    pub(crate) watch: Child,
    // Ends before its directory is removed: fields drop in this order.
    pub(crate) cluster: Cluster,
    _data_dir: TempDir,
}

impl Throwaway {
    /// Starts an empty server that trades all durability for speed.
    pub fn start() -> Result<Self, EmbeddedPostgresError> {
        let temporary = std::env::temp_dir();
        let data_dir = tempfile::Builder::new()
            .prefix("tollgate-postgres-")
            .tempdir()
            .map_err(io_error("create a directory in", &temporary))?;
        // First, so that this process can be killed at any time.
        let shell = Path::new("sh");
        let watch = Command::new(shell)
            .args(["-c", WATCH, "watch"])
            .arg(data_dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(io_error("start", shell))?;
        let cluster = Cluster::start(data_dir.path(), Durability::Disposable)?;
        Ok(Self {
            watch,
            cluster,
            _data_dir: data_dir,
        })
    }

    /// The running server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The same, to be halted and resumed.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        // Before the server's process id is free for others.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}
