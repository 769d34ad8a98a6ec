//! Alerts: what operators should hear of without looking, and when it begins and ends.
//!
//! To add a kind: a variant of [`AlertKind`], its words, and its [`Rule`]; then whoever sees it tells the gateway's alerts.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::ids::UpstreamId;
use crate::limits::{Scope, UnknownScope};
use crate::text;
use crate::text::Text;

/// The longest message, in characters; what is longer is cut.
pub const MESSAGE_CHARS_MAX: usize = 500;
/// How long alerts are kept after they are over, in days.
pub const ALERTS_KEPT_DAYS: i64 = 30;
/// How often a gateway says that its open alerts are still its own, in milliseconds.
pub const ALERT_KEEP_INTERVAL_MS: u64 = 10_000;
/// An open alert whose gateway is gone and has not said so for so long is cleared by the others, in milliseconds. A gateway
/// that is started again within it goes on with its alerts, and nobody is told twice.
pub const ALERT_ORPHANED_MS: i64 = 60_000;
/// How often an event is sent to the webhook at most. With the pauses between them, that is two and a half hours.
pub const DELIVERY_ATTEMPTS_MAX: u32 = 12;
/// The pause after the first attempt that failed, in milliseconds; each further one is twice as long.
const DELIVERY_PAUSE_MS: u64 = 5_000;
/// The longest pause, in milliseconds.
const DELIVERY_PAUSE_MS_MAX: u64 = 3_600_000;

/// What began so close to what was counted is the same: two who tell of it may have looked at the clock one after the other.
const SAME_TIME: TimeDelta = TimeDelta::milliseconds(500);

const SECOND: u64 = 1_000;

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// A breaker lets nothing through to an upstream, or to one of its models.
    Breaker,
    /// Redis does not answer, or did not lately: a gateway admits by its own counters.
    Counters,
    /// Budgets are closed until what they have spent is read.
    Budgets,
    /// Entries of the ledger wait for Postgres.
    JournalLag,
    /// The journal is full: requests are refused.
    JournalFull,
    /// The disk does not take the journal, or Postgres an entry of it.
    JournalError,
    /// A gateway's policy is old: Postgres does not answer.
    Policy,
    /// Requests for a model that has no price.
    Unpriced,
}

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Callers are served; something is worse than it should be.
    Warning,
    /// Callers are refused, or soon will be.
    Critical,
}

/// When an alert begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What holds for so long, without a break, is raised; in milliseconds.
    pub raise_after_ms: u64,
    /// What has been over for so long, without a break, is cleared; in milliseconds.
    pub clear_after_ms: u64,
}

impl AlertKind {
    /// All of them, in the order of pages and metrics.
    pub const ALL: [Self; 8] = [
        Self::Breaker,
        Self::Counters,
        Self::Budgets,
        Self::JournalLag,
        Self::JournalFull,
        Self::JournalError,
        Self::Policy,
        Self::Unpriced,
    ];

    /// The word in SQL, JSON, metrics and addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::Counters => "counters",
            Self::Budgets => "budgets",
            Self::JournalLag => "journal_lag",
            Self::JournalFull => "journal_full",
            Self::JournalError => "journal_error",
            Self::Policy => "policy",
            Self::Unpriced => "unpriced",
        }
    }

    /// What people call it.
    pub fn title(self) -> Text {
        match self {
            Self::Breaker => text!("Upstream not used"),
            Self::Counters => text!("Shared counters degraded"),
            Self::Budgets => text!("Budgets closed"),
            Self::JournalLag => text!("Ledger lags behind"),
            Self::JournalFull => text!("Journal full"),
            Self::JournalError => text!("Journal not taken"),
            Self::Policy => text!("Policy stale"),
            Self::Unpriced => text!("Traffic without a price"),
        }
    }

    /// How soon somebody should look.
    pub fn severity(self) -> Severity {
        match self {
            Self::Counters | Self::JournalLag | Self::Unpriced => Severity::Warning,
            Self::Breaker | Self::Budgets | Self::JournalFull | Self::JournalError | Self::Policy => Severity::Critical,
        }
    }

    /// What to do about it.
    pub fn advice(self) -> Text {
        match self {
            Self::Breaker => text!(
                "Requests go to the other routes of their models; without one they are refused. It is tried again by itself. \
                 Look at the reason: a refused credential or a closed account needs somebody."
            ),
            Self::Counters => text!(
                "See that Redis runs and can be reached from the gateway. Until then every gateway admits a part of each \
                 limit by itself; budgets still hold."
            ),
            Self::Budgets => text!(
                "Requests that count in them are refused. See that Postgres answers, and Redis where counters are shared: \
                 what was spent is read from there."
            ),
            Self::JournalLag => text!(
                "Requests are served and booked on disk. See that Postgres answers and keeps up; reports are behind until then."
            ),
            Self::JournalFull => text!(
                "New requests are refused, as they could not be booked. Bring Postgres back, or give the data directory more \
                 room."
            ),
            Self::JournalError => {
                text!("The gateway's log says why. See to the disk of the data directory, and to Postgres.")
            }
            Self::Policy => text!(
                "Requests are served by what was known last; new keys and changed limits are not in force. See that Postgres \
                 answers."
            ),
            Self::Unpriced => text!(
                "Give the model a price. Until then its requests are refused, or charged at the fallback price, as the settings \
                 say."
            ),
        }
    }

    /// When it begins and ends. What flaps by nature has to be over for a while; what carries a threshold of its own is raised
    /// at once.
    pub fn rule(self) -> Rule {
        let (raise_after_ms, clear_after_ms) = match self {
            Self::Breaker | Self::JournalFull => (0, 60 * SECOND),
            Self::Counters | Self::JournalLag => (0, 30 * SECOND),
            Self::JournalError => (10 * SECOND, 30 * SECOND),
            // New budgets are closed for a moment, and a restart of Postgres takes a few seconds.
            Self::Budgets => (30 * SECOND, 10 * SECOND),
            Self::Policy => (10 * SECOND, 10 * SECOND),
            // Each request is an event by itself: an hour without one says that it is over.
            Self::Unpriced => (0, 3_600 * SECOND),
        };
        Rule {
            raise_after_ms,
            clear_after_ms,
        }
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no kind of alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such kind of alert")]
pub struct UnknownAlertKind;

impl FromStr for AlertKind {
    type Err = UnknownAlertKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(UnknownAlertKind)
    }
}

impl Severity {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What an alert's kind is said of. Its text is kept and sent: empty for the gateway itself, a scope's text, or that of an
/// upstream with a model's name there: `upstream:<id>/<model>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AlertSubject {
    /// The gateway that raised it.
    Gateway,
    /// A node of the quota tree: a model, an upstream, later whoever has a budget.
    Scope(Scope),
    /// A model of one upstream, by its name there.
    UpstreamModel(UpstreamId, String),
}

impl AlertSubject {
    /// An upstream, or one of its models by its name there.
    pub fn upstream(id: UpstreamId, model: Option<&str>) -> Self {
        match model {
            Some(model) => Self::UpstreamModel(id, model.to_owned()),
            None => Self::Scope(Scope::Upstream(id)),
        }
    }

    /// A model by the name that callers ask for.
    pub fn model(name: &str) -> Self {
        Self::Scope(Scope::Model(name.into()))
    }
}

impl fmt::Display for AlertSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => Ok(()),
            Self::Scope(scope) => scope.fmt(f),
            Self::UpstreamModel(id, model) => write!(f, "{}/{model}", Scope::Upstream(*id)),
        }
    }
}

impl FromStr for AlertSubject {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::Gateway);
        }
        let of_upstream = text.strip_prefix("upstream:").and_then(|rest| rest.split_once('/'));
        match of_upstream {
            Some((id, model)) => {
                let id = id.parse().map_err(|_| UnknownScope)?;
                Ok(Self::UpstreamModel(id, model.to_owned()))
            }
            None => text.parse().map(Self::Scope),
        }
    }
}

impl Serialize for AlertSubject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AlertSubject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// One alert, from when it was raised until it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Which one; sorts by when it was raised.
    pub id: Uuid,
    /// What happened.
    pub kind: AlertKind,
    /// To what.
    pub subject: AlertSubject,
    /// The gateway that saw it.
    pub instance: String,
    /// What it means, in words for people; at most [`MESSAGE_CHARS_MAX`] characters.
    pub message: String,
    /// When it was raised.
    pub raised_at: DateTime<Utc>,
    /// When it was last seen to be so.
    pub last_seen_at: DateTime<Utc>,
    /// When it was over; absent while it is open.
    pub cleared_at: Option<DateTime<Utc>>,
    /// How often it happened meanwhile, at least once.
    pub count: u64,
}

impl Alert {
    /// Whether it is not over.
    pub fn is_open(&self) -> bool {
        self.cleared_at.is_none()
    }
}

/// What a webhook is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertEvent {
    /// An alert was raised.
    Raised,
    /// An alert is over.
    Cleared,
    /// Nothing: somebody tries the webhook.
    Test,
}

impl AlertEvent {
    /// The word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "alert.raised",
            Self::Cleared => "alert.cleared",
            Self::Test => "alert.test",
        }
    }

    /// What is sent, under the event's own id. A test has no alert.
    pub fn body(self, id: Uuid, at: DateTime<Utc>, alert: Option<&Alert>) -> String {
        let alert = alert.map(|alert| {
            json!({
                "id": alert.id,
                "kind": alert.kind,
                "severity": alert.kind.severity(),
                "subject": alert.subject,
                "instance": alert.instance,
                "title": alert.kind.title().to_string(),
                "message": alert.message,
                "advice": alert.kind.advice().to_string(),
                "raised_at": alert.raised_at,
                "last_seen_at": alert.last_seen_at,
                "cleared_at": alert.cleared_at,
                "count": alert.count,
            })
        });
        json!({ "id": id, "event": self.as_str(), "at": at, "alert": alert }).to_string()
    }
}

/// The message, cut to [`MESSAGE_CHARS_MAX`] characters. A NUL character, which Postgres does not take, becomes U+FFFD.
pub fn cut_message(message: String) -> String {
    let message = message.replace('\0', "\u{fffd}");
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => message[..end].to_owned(),
        None => message,
    }
}

/// The pause after so many attempts to send an event that failed, in milliseconds; `None` when it is given up.
pub fn delivery_pause_ms(attempts: u32) -> Option<u64> {
    if attempts >= DELIVERY_ATTEMPTS_MAX {
        return None;
    }
    let doublings = attempts.saturating_sub(1);
    Some((DELIVERY_PAUSE_MS << doublings).min(DELIVERY_PAUSE_MS_MAX))
}

/// A moment by both clocks: rows are written with the wall's, and waits are measured by the one that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For people.
    pub wall: DateTime<Utc>,
    /// Milliseconds since some start.
    pub monotonic_ms: u64,
}

/// What an open alert is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    /// When it was raised.
    pub raised_at: DateTime<Utc>,
    /// When it was last seen to be so.
    pub last_seen_at: DateTime<Utc>,
    /// How often it happened, at least once.
    pub count: u64,
}

/// Decides for one kind and subject when an alert is raised, kept and cleared. Whoever owns it lets it [`turn`](Watch::turn)
/// after each thing seen, and now and then.
#[derive(Clone, Debug)]
pub struct Watch {
    rule: Rule,
    /// Since when it holds, by the monotonic clock.
    holds_since_ms: Option<u64>,
    /// Since when it does not, while an alert is open.
    over_since_ms: Option<u64>,
    /// When the last thing began that was counted.
    counted_at: Option<DateTime<Utc>>,
    last_seen_at: Option<DateTime<Utc>>,
    count: u64,
    raised_at: Option<DateTime<Utc>>,
}

impl Watch {
    /// Nothing was seen yet.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            holds_since_ms: None,
            over_since_ms: None,
            counted_at: None,
            last_seen_at: None,
            count: 0,
            raised_at: None,
        }
    }

    /// Goes on with an alert that an earlier run left open. It is over unless it is seen, or seen again, in time.
    pub fn resume(&mut self, episode: Episode, now: Moment) {
        if self.holds_since_ms.is_none() {
            self.over_since_ms = Some(now.monotonic_ms);
        }
        self.last_seen_at = self.last_seen_at.max(Some(episode.last_seen_at));
        self.count = self.count.saturating_add(episode.count);
        self.raised_at = Some(episode.raised_at);
    }

    /// It happened: by itself, and nothing says when it is over but that it does not happen again. Raised whatever the rule
    /// says of waiting.
    pub fn happened(&mut self, now: Moment) {
        self.count = self.count.saturating_add(1);
        self.last_seen_at = Some(now.wall);
        self.over_since_ms = Some(now.monotonic_ms);
        self.raised_at.get_or_insert(now.wall);
    }

    /// It is so. `began_at` tells one time from the next where it may be over and begin again between two looks.
    pub fn holds(&mut self, began_at: Option<DateTime<Utc>>, now: Moment) {
        let is_another = match began_at {
            Some(began_at) => self
                .counted_at
                .is_none_or(|counted_at| counted_at + SAME_TIME < began_at),
            None => self.holds_since_ms.is_none(),
        };
        if is_another {
            self.count = self.count.saturating_add(1);
            self.counted_at = began_at.or(self.counted_at);
        }
        self.holds_since_ms.get_or_insert(now.monotonic_ms);
        self.over_since_ms = None;
        self.last_seen_at = Some(now.wall);
    }

    /// It is not so.
    pub fn over(&mut self, now: Moment) {
        self.holds_since_ms = None;
        if self.raised_at.is_some() {
            self.over_since_ms.get_or_insert(now.monotonic_ms);
        } else {
            self.count = 0;
        }
    }

    /// Raises and clears what is due by now. The alert that is over with it, if one is.
    pub fn turn(&mut self, now: Moment) -> Option<Episode> {
        let is_long = |since_ms: u64, wait_ms| now.monotonic_ms.saturating_sub(since_ms) >= wait_ms;
        match (self.episode(), self.holds_since_ms, self.over_since_ms) {
            (None, Some(since_ms), _) if is_long(since_ms, self.rule.raise_after_ms) => {
                self.raised_at = Some(now.wall);
                None
            }
            (Some(episode), None, Some(since_ms)) if is_long(since_ms, self.rule.clear_after_ms) => {
                let counted_at = self.counted_at;
                *self = Self {
                    counted_at,
                    ..Self::new(self.rule)
                };
                Some(episode)
            }
            _ => None,
        }
    }

    /// The alert, while it is open.
    pub fn episode(&self) -> Option<Episode> {
        let raised_at = self.raised_at?;
        Some(Episode {
            raised_at,
            last_seen_at: self.last_seen_at.unwrap_or(raised_at),
            count: self.count.max(1),
        })
    }

    /// Whether there is nothing to remember: no alert, and nothing that may become one.
    pub fn is_idle(&self) -> bool {
        self.raised_at.is_none() && self.holds_since_ms.is_none()
    }
}

#[cfg(test)]
mod tests;
