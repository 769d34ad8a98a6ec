//! What processes have used, as Linux tells: processor time and memory, of one with all below it.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;

#[cfg(test)]
mod tests;

/// Times in /proc are given in ticks of this many milliseconds, whatever the kernel's own clock does.
const TICK_MS: u64 = 10;

/// Processor time of all threads of a process, of every process below it, and of those below it that have ended.
///
/// # Errors
/// When there is no such process.
pub fn cpu_time(process_id: u32) -> anyhow::Result<Duration> {
    let stats = tree(process_id)?;
    Ok(time(
        stats.iter().map(|(_, stat)| stat.own_ticks + stat.waited_ticks).sum(),
    ))
}

/// Processor time of all threads of this process, without those below it.
///
/// # Errors
/// When /proc does not tell.
pub fn own_cpu_time() -> anyhow::Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let stat = Stat::parse(&text).context("/proc/self/stat is not as expected")?;
    Ok(time(stat.own_ticks))
}

fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * TICK_MS)
}

/// Memory of a process and those below it, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What is in memory now. Pages that processes share are counted in each.
    pub resident_kib: u64,
    /// The most that ever was.
    pub resident_kib_max: u64,
}

/// Memory of a process and those below it.
///
/// # Errors
/// When there is no such process.
pub fn memory(process_id: u32) -> anyhow::Result<Memory> {
    let mut all = Memory::default();
    for (id, _) in tree(process_id)? {
        // One that has ended meanwhile has none.
        if let Ok(text) = fs::read_to_string(format!("/proc/{id}/status")) {
            let one = Memory::parse(&text);
            all.resident_kib += one.resident_kib;
            all.resident_kib_max += one.resident_kib_max;
        }
    }
    Ok(all)
}

impl Memory {
    /// Reads /proc/<id>/status.
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Self {
            resident_kib: field("VmRSS:").unwrap_or(0),
            resident_kib_max: field("VmHWM:").unwrap_or(0),
        }
    }
}

/// A line of /proc/<id>/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent_id: u32,
    /// User and system time of its threads.
    own_ticks: u64,
    /// The same of children that it has waited for, and of theirs.
    waited_ticks: u64,
}

impl Stat {
    /// Positions count from the state, which follows the name: a name may hold blanks and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Self {
            parent_id: fields.get(1)?.parse().ok()?,
            own_ticks: field(11)? + field(12)?,
            waited_ticks: field(13)? + field(14)?,
        })
    }
}

/// A process and all below it.
fn tree(process_id: u32) -> anyhow::Result<Vec<(u32, Stat)>> {
    let mut stats = HashMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let name = entry.context("/proc")?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has ended meanwhile is in its parent's times.
        let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if let Some(stat) = Stat::parse(&text) {
            stats.insert(id, stat);
        }
    }
    let root = *stats
        .get(&process_id)
        .with_context(|| format!("there is no process {process_id}"))?;
    Ok(descend(process_id, root, &stats))
}

fn descend(process_id: u32, root: Stat, stats: &HashMap<u32, Stat>) -> Vec<(u32, Stat)> {
    let mut found = vec![(process_id, root)];
    let mut next = 0;
    while let Some((parent, _)) = found.get(next).copied() {
        let children = stats.iter().filter(|(_, stat)| stat.parent_id == parent);
        found.extend(children.map(|(id, stat)| (*id, *stat)));
        next += 1;
    }
    found
}
