//! A server that another process runs over a data directory: found, and left to that process.

use std::fs;
use std::io;
use std::path::Path;

use crate::{EmbeddedPostgresError, Result, io_error, is_server_over, password_path, url};

/// The line of `postmaster.pid` that has the port, counted from zero.
const PORT_LINE: usize = 3;

/// The connection URL of the server that runs over `data_dir`, with the superuser's password (not for logs); none where none
/// runs, or where it has not got as far as to say its port.
pub fn running_url(data_dir: &Path) -> Result<Option<String>, EmbeddedPostgresError> {
    // The server's working directory has no symbolic links in it.
    let data_dir = match fs::canonicalize(data_dir) {
        Ok(data_dir) => data_dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("find", data_dir)(error)),
    };
    let directory = data_dir.join("postgres");
    let pid_path = directory.join("postmaster.pid");
    let pid_file = match fs::read_to_string(&pid_path) {
        Ok(pid_file) => pid_file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", &pid_path)(error)),
    };
    let pid = pid_file.lines().next().unwrap_or_default().trim();
    let port = pid_file
        .lines()
        .nth(PORT_LINE)
        .and_then(|line| line.trim().parse().ok());
    let Some(port) = port.filter(|_| is_server_over(&directory, pid)) else {
        return Ok(None);
    };
    let password_path = password_path(&data_dir);
    let password = fs::read_to_string(&password_path).map_err(io_error("read", &password_path))?;
    Ok(Some(url(&password, port)))
}
