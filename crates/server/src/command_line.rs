//! Who runs the program for one thing, as the audit log names them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use control::Actor;

/// Characters of a host's or user's name that are noted.
const NAME_CHARS_MAX: usize = 64;

/// Whoever runs this process, on this host: `ada@gateway-1`.
pub(crate) fn actor() -> Actor {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = match fs::metadata("/proc/self") {
        Ok(process) => user_name(&users, process.uid()),
        // No Linux: what the shell says will do, where everything may be done anyway.
        Err(_) => variable("USER"),
    };
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| variable("HOSTNAME"));
    // Whoever became root may have been somebody before.
    let before = std::env::var("SUDO_USER").ok().filter(|name| !name.is_empty());
    let from = match before {
        Some(before) => format!("{}@{} for {}", plain(&user), plain(&host), plain(&before)),
        None => format!("{}@{}", plain(&user), plain(&host)),
    };
    Actor::CommandLine { from }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| "unknown".to_owned())
}

/// The name of a user in the text of `/etc/passwd`, or its number.
fn user_name(users: &str, uid: u32) -> String {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|parts| parts.get(2).is_some_and(|of| of.parse() == Ok(uid)));
    match line.as_deref() {
        Some([name, ..]) => (*name).to_owned(),
        _ => format!("uid {uid}"),
    }
}

/// A name without what would break a line, within its bound.
fn plain(name: &str) -> String {
    let characters = name.trim().chars().filter(|character| !character.is_control());
    characters.take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
