//! Whether an installation is fit for production: what its gateways say of themselves and what Postgres knows, item by item.

use chrono::{DateTime, Utc};

use crate::instances::{DataDirKind, InstanceStatus, STATUS_STALE_MS, Setup};
use crate::text;
use crate::text::Text;

/// Clocks further apart than this are pointed out, in milliseconds: budgets' periods and expiries then differ by as much.
pub const CLOCKS_APART_MS_MAX: i64 = 1_000;
/// The eviction policy that keeps counters.
const NO_EVICTION: &str = "noeviction";

/// What the list is made from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The time of looking.
    pub now: DateTime<Utc>,
    /// Gateways with when they last wrote.
    pub gateways: Vec<Gateway>,
    /// The webhook for alerts.
    pub webhook: Webhook,
    /// What is known of backups.
    pub backups: Backups,
}

/// One gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its name.
    pub name: String,
    /// When it last wrote.
    pub seen_at: DateTime<Utc>,
    /// What it wrote.
    pub status: InstanceStatus,
}

/// The webhook for alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    /// There is none.
    Missing,
    /// Nothing was sent yet.
    Unused,
    /// Its receiver took the last event that is done with.
    Delivered,
    /// The last event was not taken.
    Failed,
}

/// What Postgres says of archiving its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backups {
    /// It archives nothing, which says nothing about other ways.
    Unknown,
    /// The last attempt succeeded.
    Archived,
    /// The last attempt failed, or none was made.
    NotArchived,
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What.
    pub subject: Subject,
    /// How it is.
    pub state: State,
    /// What was found, in a sentence.
    pub found: Text,
}

/// How an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// Something is to be done.
    ToDo,
    /// It cannot be known.
    Unknown,
}

impl State {
    /// In a word.
    pub fn word(self) -> Text {
        match self {
            Self::Good => text!("good"),
            Self::ToDo => text!("to do"),
            Self::Unknown => text!("not known"),
        }
    }
}

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Counters that all gateways share.
    Counters,
    /// What Redis does when its memory is full.
    Eviction,
    /// The gateways' clocks.
    Clocks,
    /// How long requests wait for room.
    Queue,
    /// The webhook for alerts.
    Webhook,
    /// Where journals lie.
    DataDirectory,
    /// Where Postgres runs.
    Postgres,
    /// The secret key.
    SecretKey,
    /// The console's address.
    PublicUrl,
    /// Backups.
    Backups,
}

impl Subject {
    /// What it is called.
    pub fn title(self) -> Text {
        match self {
            Self::Counters => text!("Shared counters"),
            Self::Eviction => text!("Redis keeps its counters"),
            Self::Clocks => text!("Clocks"),
            Self::Queue => text!("Waiting for room"),
            Self::Webhook => text!("Alerts reach somebody"),
            Self::DataDirectory => text!("Data directories stay"),
            Self::Postgres => text!("Postgres of its own"),
            Self::SecretKey => text!("Secret key"),
            Self::PublicUrl => text!("Console over TLS"),
            Self::Backups => text!("Backups"),
        }
    }

    /// Why it matters.
    pub fn meaning(self) -> Text {
        match self {
            Self::Counters => text!(
                "Counters in memory are one gateway's own: several gateways together admit as many times every rate."
            ),
            Self::Eviction => text!(
                "A Redis that drops keys when its memory is full forgets what was counted, and reads budgets anew again and \
                 again."
            ),
            Self::Clocks => text!(
                "A request's time decides its budget period, its price and its month. Gateways whose clocks differ draw the \
                 line at different moments."
            ),
            Self::Queue => {
                text!("A request that waits as long as it may take altogether has no time left to be answered.")
            }
            Self::Webhook => {
                text!("Without one, nobody hears of an open breaker or a full journal unless they look at the console.")
            }
            Self::DataDirectory => text!(
                "The journal holds what was charged and is not in Postgres yet. Where it goes with the container or machine, a \
                 crash loses it."
            ),
            Self::Postgres => text!(
                "The private Postgres under the data directory is for evaluation: it has no backups and no standby, and \
                 serves one gateway."
            ),
            Self::SecretKey => text!(
                "It seals the providers' credentials. One that was made in a data directory is lost with it, and other \
                 gateways do not have it."
            ),
            Self::PublicUrl => text!(
                "Cookies are kept to TLS, and links in invitations lead to the right place, when the address people use is \
                 known and begins with https."
            ),
            Self::Backups => text!("What Postgres archives can be restored up to the last moment."),
        }
    }

    /// What to do.
    pub fn advice(self) -> Text {
        match self {
            Self::Counters => text!("Give all gateways the same REDIS_URL."),
            Self::Eviction => {
                text!("Set maxmemory-policy to noeviction in Redis, or give the counters a Redis of their own.")
            }
            Self::Clocks => text!("Let all machines, that of Postgres too, follow one time service (NTP)."),
            Self::Queue => text!("Set TOLLGATE_QUEUE_TIMEOUT_SECONDS below TOLLGATE_REQUEST_TIMEOUT_SECONDS."),
            Self::Webhook => text!("Set a webhook under Settings, Webhook, and send a test."),
            Self::DataDirectory => text!("Give each gateway a volume that stays, and name it in TOLLGATE_DATA_DIR."),
            Self::Postgres => {
                text!("Run Postgres as you run your other databases, and give its address in DATABASE_URL.")
            }
            Self::SecretKey => {
                text!("Keep the key where you keep secrets, and give it to every gateway in TOLLGATE_SECRET_KEY.")
            }
            Self::PublicUrl => text!("Put the console behind TLS, and give its address in TOLLGATE_PUBLIC_URL."),
            Self::Backups => text!("See why archive_command fails in Postgres's log."),
        }
    }
}

/// The list, in the order in which things had better be done. What does not apply is left out.
pub fn checklist(facts: &Facts) -> Vec<Item> {
    let live: Vec<&Gateway> = facts
        .gateways
        .iter()
        .filter(|gateway| (facts.now - gateway.seen_at).num_milliseconds() <= STATUS_STALE_MS)
        .collect();
    let mut items = vec![
        setups(
            Subject::Postgres,
            &live,
            |setup| !setup.has_private_postgres,
            text!("Every gateway runs on a Postgres that you run."),
            |count, names| match count {
                1 => text!("{names} runs on the private Postgres of its data directory.", names),
                _ => text!("{names} run on the private Postgres of their data directories.", names),
            },
        ),
        data_directories(&live),
        setups(
            Subject::SecretKey,
            &live,
            |setup| setup.has_given_secret_key,
            text!("Every gateway runs with the key it was given."),
            |count, names| match count {
                1 => text!("{names} runs with a key that was made in its data directory.", names),
                _ => text!("{names} run with keys that were made in their data directories.", names),
            },
        ),
        counters(&live),
    ];
    items.extend(eviction(&live));
    items.extend([clocks(&live), queue(&live), public_url(&live), webhook(facts.webhook)]);
    items.extend(backups(facts.backups));
    items
}

fn item(subject: Subject, state: State, found: Text) -> Item {
    Item { subject, state, found }
}

fn not_told(subject: Subject) -> Item {
    item(subject, State::Unknown, text!("No gateway that runs now tells."))
}

/// Names of at most three, and how many more there are.
fn names<'a>(gateways: impl IntoIterator<Item = &'a Gateway>) -> Text {
    const NAMED_MAX: usize = 3;
    let names: Vec<&str> = gateways.into_iter().map(|gateway| gateway.name.as_str()).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - more].join(", ");
    if more == 0 {
        Text::word(named)
    } else {
        text!("{names} and {count} more", names = named, count = more)
    }
}

/// An item of what each gateway says of its setup. `bad` tells of so many gateways with these names.
fn setups(
    subject: Subject,
    live: &[&Gateway],
    is_good: fn(&Setup) -> bool,
    good: Text,
    bad: fn(usize, Text) -> Text,
) -> Item {
    let told: Vec<(&Gateway, &Setup)> = live
        .iter()
        .filter_map(|gateway| Some((*gateway, gateway.status.setup.as_ref()?)))
        .collect();
    if told.is_empty() {
        return not_told(subject);
    }
    let bad_ones: Vec<&Gateway> = told
        .iter()
        .filter(|(_, setup)| !is_good(setup))
        .map(|(gateway, _)| *gateway)
        .collect();
    if bad_ones.is_empty() {
        return item(subject, State::Good, good);
    }
    item(subject, State::ToDo, bad(bad_ones.len(), names(bad_ones)))
}

fn counters(live: &[&Gateway]) -> Item {
    let alone: Vec<&Gateway> = live
        .iter()
        .copied()
        .filter(|gateway| gateway.status.counters == "memory")
        .collect();
    let (state, found) = match (live.len(), alone.len()) {
        (0, _) => return not_told(Subject::Counters),
        (1, 1) => (State::Good, text!("One gateway runs, and counts in its own memory.")),
        (_, 0) => (State::Good, text!("Every gateway counts in Redis.")),
        (all, 1) => (
            State::ToDo,
            text!(
                "{all} gateways run, and one counts in memory: {names}.",
                all,
                names = names(alone)
            ),
        ),
        (all, count) => (
            State::ToDo,
            text!(
                "{all} gateways run, and {count} count in memory: {names}.",
                all,
                count,
                names = names(alone)
            ),
        ),
    };
    item(Subject::Counters, state, found)
}

fn eviction(live: &[&Gateway]) -> Option<Item> {
    let of_redis: Vec<&Gateway> = live
        .iter()
        .copied()
        .filter(|gateway| !matches!(gateway.status.counters.as_str(), "memory" | ""))
        .collect();
    if of_redis.is_empty() {
        return None;
    }
    let mut told = of_redis
        .iter()
        .filter_map(|gateway| gateway.status.redis_eviction.as_deref());
    let found = match told.clone().find(|policy| *policy != NO_EVICTION) {
        Some(policy) => item(
            Subject::Eviction,
            State::ToDo,
            text!(
                "Redis drops keys when its memory is full: its maxmemory-policy is {policy}.",
                policy
            ),
        ),
        None if told.next().is_some() => item(
            Subject::Eviction,
            State::Good,
            text!("Its maxmemory-policy is noeviction."),
        ),
        None => item(
            Subject::Eviction,
            State::Unknown,
            text!("Redis does not tell its maxmemory-policy."),
        ),
    };
    Some(found)
}

fn clocks(live: &[&Gateway]) -> Item {
    let told = live
        .iter()
        .filter_map(|gateway| Some((*gateway, gateway.status.clock_ahead_ms?)));
    let Some((gateway, ahead_ms)) = told.max_by_key(|(_, ahead_ms)| ahead_ms.abs()) else {
        return not_told(Subject::Clocks);
    };
    let apart_ms = ahead_ms.abs();
    if apart_ms <= CLOCKS_APART_MS_MAX {
        let found = text!(
            "No gateway's clock is further than {apart} ms from Postgres's.",
            apart = apart_ms
        );
        return item(Subject::Clocks, State::Good, found);
    }
    let seconds = format!("{}.{}", apart_ms / 1_000, apart_ms % 1_000 / 100);
    let name = &gateway.name;
    let found = if ahead_ms > 0 {
        text!("The clock of {name} is {seconds} s ahead of Postgres's.", name, seconds)
    } else {
        text!("The clock of {name} is {seconds} s behind Postgres's.", name, seconds)
    };
    item(Subject::Clocks, State::ToDo, found)
}

fn queue(live: &[&Gateway]) -> Item {
    let told: Vec<(&Gateway, u64, u64)> = live
        .iter()
        .filter_map(|gateway| {
            let request_ms = gateway.status.setup.as_ref()?.request_timeout_ms;
            Some((*gateway, gateway.status.queue.timeout_ms, request_ms))
        })
        .collect();
    if told.is_empty() {
        return not_told(Subject::Queue);
    }
    match told.iter().find(|(_, queue_ms, request_ms)| queue_ms >= request_ms) {
        Some((gateway, queue_ms, request_ms)) => item(
            Subject::Queue,
            State::ToDo,
            text!(
                "At {gateway} requests may wait {wait} s, and take {all} s altogether.",
                gateway = &gateway.name,
                wait = queue_ms / 1_000,
                all = request_ms / 1_000
            ),
        ),
        None => item(
            Subject::Queue,
            State::Good,
            text!("Requests wait for a shorter time than they may take altogether."),
        ),
    }
}

fn data_directories(live: &[&Gateway]) -> Item {
    let told: Vec<(&Gateway, DataDirKind)> = live
        .iter()
        .filter_map(|gateway| Some((*gateway, gateway.status.setup.as_ref()?.data_dir)))
        .collect();
    let lost = told.iter().find_map(|(gateway, kind)| {
        let name = &gateway.name;
        match kind {
            DataDirKind::Memory => Some(text!("The data directory of {name} lies in memory (tmpfs).", name)),
            DataDirKind::Overlay => Some(text!(
                "The data directory of {name} lies in its container's own layer (overlay).",
                name
            )),
            DataDirKind::Temporary => Some(text!(
                "The data directory of {name} lies in a directory for temporary files.",
                name
            )),
            DataDirKind::Disk | DataDirKind::Unknown => None,
        }
    });
    if let Some(found) = lost {
        return item(Subject::DataDirectory, State::ToDo, found);
    }
    if told.iter().any(|(_, kind)| *kind == DataDirKind::Disk) {
        return item(
            Subject::DataDirectory,
            State::Good,
            text!("They lie on disks or volumes. That these stay when a container is made anew is yours to see to."),
        );
    }
    not_told(Subject::DataDirectory)
}

fn public_url(live: &[&Gateway]) -> Item {
    let told: Vec<&Setup> = live
        .iter()
        .filter_map(|gateway| gateway.status.setup.as_ref())
        .collect();
    if told.is_empty() {
        return not_told(Subject::PublicUrl);
    }
    let origins = || told.iter().map(|setup| setup.public_origin.as_deref());
    let bad = origins().find(|origin| !origin.is_some_and(|origin| origin.starts_with("https://")));
    match (bad, origins().flatten().next()) {
        (Some(None), _) => item(
            Subject::PublicUrl,
            State::ToDo,
            text!("A gateway was not told how people reach the console."),
        ),
        (Some(Some(origin)), _) => item(
            Subject::PublicUrl,
            State::ToDo,
            text!("A gateway was told that people reach the console at {origin}.", origin),
        ),
        (None, origin) => {
            let origin = origin.unwrap_or_default();
            item(
                Subject::PublicUrl,
                State::Good,
                text!("People reach the console at {origin}.", origin),
            )
        }
    }
}

fn webhook(webhook: Webhook) -> Item {
    let (state, found) = match webhook {
        Webhook::Missing => (State::ToDo, text!("There is no webhook.")),
        Webhook::Unused => (
            State::ToDo,
            text!("There is a webhook, and nothing was ever sent to it: send a test."),
        ),
        Webhook::Failed => (
            State::ToDo,
            text!("The last event was not taken by the webhook's receiver."),
        ),
        Webhook::Delivered => (
            State::Good,
            text!("The last event was taken by the webhook's receiver."),
        ),
    };
    item(Subject::Webhook, state, found)
}

fn backups(backups: Backups) -> Option<Item> {
    match backups {
        Backups::Unknown => None,
        Backups::Archived => Some(item(Subject::Backups, State::Good, text!("Postgres archives its log."))),
        Backups::NotArchived => Some(item(
            Subject::Backups,
            State::ToDo,
            text!("Postgres is to archive its log, and the last attempt failed."),
        )),
    }
}

#[cfg(test)]
mod tests;
