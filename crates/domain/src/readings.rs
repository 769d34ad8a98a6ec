//! What limits say at one moment: how full they are, and what they would answer to a request.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{LimitId, UpstreamId};
use crate::limits::{Dimension, Gate, Limit, Mode, Scope};
use crate::periods::Period;
use crate::priority::Priority;
use crate::refusals::RefusalCode;

/// One limit and its counter, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Where.
    pub scope: Scope,
    /// Which limit.
    pub limit_id: LimitId,
    /// In what.
    pub dimension: Dimension,
    /// Rates: the window in seconds.
    pub window_seconds: Option<u32>,
    /// Budgets: the period.
    pub period: Option<Period>,
    /// Only this model's requests.
    pub model: Option<Arc<str>>,
    /// Only this priority's requests.
    pub priority: Option<Priority>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Its value, in the unit of the dimension.
    pub limit_value: u64,
    /// Rates: counted in the last window, requests in flight at their expected use. Budgets: spent, negative after
    /// credits. Zero otherwise.
    pub used: i64,
    /// Concurrency: in flight. Budgets: held by requests in flight. Zero otherwise.
    pub held: u64,
    /// What is left of the value; nothing while a token bucket pays back what it owes.
    pub remaining: u64,
    /// Used and held, in percent of the value; may exceed 100. 100 where the value is zero.
    pub utilisation_percent: f64,
    /// Milliseconds until it is as good as new if nothing more is admitted; absent where that depends on requests in
    /// flight, or never happens.
    pub reset_ms: Option<u64>,
    /// False for a budget that waits for its base: `used` is less than the truth then.
    pub is_known: bool,
}

/// Where the counters that answered are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterStore {
    /// In the memory of one gateway.
    Memory,
    /// In Redis, shared by all gateways.
    Redis,
    /// In the memory of one gateway, while Redis cannot be reached: conservative, and of this gateway alone.
    Degraded,
}

impl CounterStore {
    /// The word in JSON and in a gateway's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Degraded => "degraded",
        }
    }
}

/// A limit in force on a node, of its own or of its class, with its reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveLimit {
    /// As it was configured; its target says whether it is the node's own.
    pub limit: Limit,
    /// On this node.
    pub reading: Reading,
}

/// What the limits of some nodes say at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// Who counted.
    pub store: CounterStore,
    /// When they were read.
    pub at: DateTime<Utc>,
    /// Node by node in the order asked for; nothing of a node without limits.
    pub limits: Vec<LiveLimit>,
}

/// Why one limit would say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRefusal {
    /// The reason.
    pub code: RefusalCode,
    /// When there would be room if nothing else were admitted, in milliseconds; absent where waiting does not help.
    pub retry_after_ms: Option<u64>,
    /// Which gate, for [`RefusalCode::PriorityGated`].
    pub gate: Option<Gate>,
}

/// What one limit would say to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitAnswer {
    /// The limit and its counter.
    pub reading: Reading,
    /// What the request would take, in the unit of the dimension.
    pub need: u64,
    /// Its no, also where it only rehearses; nothing where it has room.
    pub refusal: Option<LimitRefusal>,
}

/// What would happen to a request, without sending it: nothing is taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Every limit that would be asked, in the order of the tree, then those of the upstreams that would be tried.
    pub answers: Vec<LimitAnswer>,
    /// The position in `answers` of the refusal that the caller would be told; it would be admitted where there is none.
    pub told: Option<usize>,
    /// The upstream that would be taken.
    pub upstream: Option<UpstreamId>,
}
