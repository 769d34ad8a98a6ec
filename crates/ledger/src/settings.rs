//! Bounds of journal and shipper, and how hard the journal tries to reach the disk.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When the journal asks the operating system to write to the disk. A killed process loses nothing under any of them; the
/// difference is what a power failure or a crash of the whole machine may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// When the operating system likes, usually within 30 seconds.
    Os,
    /// Every [`JournalSettings::fsync_interval`].
    #[default]
    Interval,
    /// Before each append returns; concurrent appends share one call. An append stands even if the disk then does not
    /// confirm it: that is logged and shown in the journal's status.
    Each,
}

impl FsyncPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Os, Self::Interval, Self::Each];

    /// The word in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Interval => "interval",
            Self::Each => "each",
        }
    }
}

impl fmt::Display for FsyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the three policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a journal's fsync policy is one of os, interval, each")]
pub struct UnknownFsyncPolicy;

impl FromStr for FsyncPolicy {
    type Err = UnknownFsyncPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or(UnknownFsyncPolicy)
    }
}

/// Bounds of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// Above this size a segment is closed and the next one begun.
    pub segment_bytes: u64,
    /// Above this size of all segments no new request is taken on; endings still are.
    pub bytes_max: u64,
    /// Above this share of it, in percent, refusals are counted in memory, so that a flood of them leaves room for requests
    /// that run. 1 to 100.
    pub refusals_percent: u8,
    /// When to ask for the disk.
    pub fsync: FsyncPolicy,
    /// How often under [`FsyncPolicy::Interval`].
    pub fsync_interval: Duration,
}

/// Segments that a journal is divided into at least: only a whole one makes room again.
const SEGMENTS_MIN: u64 = 8;
/// The usual size of a segment, in bytes.
const SEGMENT_BYTES: u64 = 8 << 20;

impl JournalSettings {
    /// The defaults for a journal of so many bytes.
    pub fn with_room(bytes_max: u64) -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES.min(bytes_max / SEGMENTS_MIN),
            bytes_max,
            ..Self::default()
        }
    }
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            bytes_max: 4 << 30,
            refusals_percent: 75,
            fsync: FsyncPolicy::default(),
            fsync_interval: Duration::from_secs(1),
        }
    }
}

/// Bounds of the shipper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShipperSettings {
    /// Records in one transaction at most.
    pub batch_records_max: usize,
    /// Bytes of journal in one transaction at most, if more than one record.
    pub batch_bytes_max: usize,
    /// How long the first entry waits for others to share its transaction.
    pub linger: Duration,
    /// How long holds without an ending wait to be passed over, and the longest pause without looking.
    pub interval: Duration,
    /// The pause after a first failure; doubled after each further one.
    pub retry_first: Duration,
    /// The longest pause between attempts. There is no last attempt.
    pub retry_max: Duration,
}

impl Default for ShipperSettings {
    fn default() -> Self {
        Self {
            batch_records_max: 1_000,
            batch_bytes_max: 2 << 20,
            linger: Duration::from_millis(50),
            interval: Duration::from_secs(1),
            retry_first: Duration::from_millis(100),
            retry_max: Duration::from_secs(10),
        }
    }
}
