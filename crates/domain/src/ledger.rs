//! The ledger's entries. Field names are the column names: an entry's JSON is its journal record, its log line and the
//! row that Postgres makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::ids::{AdjustmentId, JobId, KeyId, LimitId, PriceId, RequestId, TenantId, UpstreamId};
use crate::limits::{Dimension, Scope};
use crate::money::Nanos;
use crate::policy::Dialect;
use crate::prices::Price;
use crate::priority::Priority;
use crate::refusals::RefusalCode;
use crate::usage::{TokenUsage, UsageSource};

/// Upper bounds, in milliseconds, of the latency histogram's buckets; one more bucket is open above.
pub const LATENCY_BOUNDS_MS: [i64; 15] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 60_000, 120_000, 300_000,
];
/// The longest text kept of a caller's user agent, in characters.
pub const USER_AGENT_CHARS_MAX: usize = 200;
/// The longest name of an end user, in characters.
pub const USER_ID_CHARS_MAX: usize = 128;

/// Whose request for what: the same on a hold, a settlement and a rejection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The request, and the entry.
    pub id: RequestId,
    /// Who pays.
    pub tenant_id: TenantId,
    /// Whom it is for: a person's id or the name of an end user.
    pub user_id: Option<String>,
    /// With which key.
    pub key_id: KeyId,
    /// The name the caller asked for; absent when the request could not be read.
    pub model: Option<Arc<str>>,
    /// In which dialect it was asked.
    pub dialect: Dialect,
    /// Under which path, without the version: `chat/completions`.
    pub endpoint: String,
    /// What it ran at.
    pub priority: Priority,
    /// Whether a stream was asked for.
    pub is_streamed: bool,
    /// The caller's tags.
    pub tags: BTreeMap<String, String>,
    /// The gateway that took it.
    pub instance: String,
    /// The caller's user agent, cut to [`USER_AGENT_CHARS_MAX`].
    pub user_agent: Option<String>,
    /// The job that it is a run of, or whose end without a run it tells.
    #[serde(default)]
    pub job_id: Option<JobId>,
}

/// What is journalled before the first byte goes upstream, so that a killed gateway leaves a trace to settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// Whose.
    #[serde(flatten)]
    pub identity: Identity,
    /// Decides period, price and report month.
    pub admitted_at: DateTime<Utc>,
    /// The upstream taken first.
    pub upstream_id: Option<UpstreamId>,
    /// What it is thought to use.
    pub estimate: Estimate,
    /// The price in force, if the model has one.
    pub price_id: Option<PriceId>,
    /// Whether the model had no valid price, and the fallback was charged.
    pub is_unpriced: bool,
    /// How long it waited for admission, in milliseconds.
    pub queue_ms: i64,
}

/// How a request that ran has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The provider's answer was passed on whole.
    Completed,
    /// The provider failed or refused.
    UpstreamError,
    /// A time-out of ours ended it.
    TimedOut,
    /// The caller left.
    ClientClosed,
    /// The gateway failed; its message is in the log.
    GatewayError,
    /// The gateway stopped before the ending was known; charged at the expected use.
    Abandoned,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::UpstreamError,
        Self::TimedOut,
        Self::ClientClosed,
        Self::GatewayError,
        Self::Abandoned,
    ];

    /// The word in SQL, JSON, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::UpstreamError => "upstream_error",
            Self::TimedOut => "timed_out",
            Self::ClientClosed => "client_closed",
            Self::GatewayError => "gateway_error",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether provider or gateway failed the caller. A caller who left was not failed.
    pub fn is_failure(self) -> bool {
        match self {
            Self::Completed | Self::ClientClosed => false,
            Self::UpstreamError | Self::TimedOut | Self::GatewayError | Self::Abandoned => true,
        }
    }
}

/// One try at one upstream, nested in the settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Where.
    pub upstream_id: UpstreamId,
    /// The model's name there.
    pub upstream_model: String,
    /// The provider's status; absent when there was none.
    pub status: Option<u16>,
    /// What went wrong, in a word; absent on success.
    pub error: Option<String>,
    /// From sending to the first byte or the failure, in milliseconds.
    pub first_byte_ms: i64,
}

/// What a limit in rehearsal would have done to a request that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedVerdict {
    /// Where.
    pub scope: Scope,
    /// In what.
    pub dimension: Dimension,
    /// By which limit.
    pub limit_id: LimitId,
    /// The code it would have refused with.
    pub code: RefusalCode,
}

/// A request that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// Whose.
    #[serde(flatten)]
    pub identity: Identity,
    /// Decides period, price and report month.
    pub admitted_at: DateTime<Utc>,
    /// When the ending was known.
    pub settled_at: DateTime<Utc>,
    /// The upstream that answered, or was tried last.
    pub upstream_id: Option<UpstreamId>,
    /// The model's name there.
    pub upstream_model: Option<String>,
    /// The provider's own id of the request.
    pub upstream_request_id: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status the caller was given; absent when it left before one.
    pub status: Option<u16>,
    /// Tries, in order.
    pub attempts: Vec<Attempt>,
    /// What it used.
    #[serde(flatten)]
    pub usage: TokenUsage,
    /// Where those figures come from.
    pub usage_source: UsageSource,
    /// Expected input, tokens.
    pub expected_input_tokens: u64,
    /// Expected output, tokens.
    pub expected_output_tokens: u64,
    /// Expected cost.
    pub expected_cost_nanos: Nanos,
    /// Ceiling of the input, tokens.
    pub ceiling_input_tokens: u64,
    /// Ceiling of the output, tokens.
    pub ceiling_output_tokens: u64,
    /// Ceiling of the cost.
    pub ceiling_cost_nanos: Nanos,
    /// What it cost.
    pub cost_nanos: Nanos,
    /// How much of that is above the ceiling.
    pub overrun_nanos: Nanos,
    /// By which price.
    pub price_id: Option<PriceId>,
    /// Whether the fallback price was charged for want of one.
    pub is_unpriced: bool,
    /// Waited for admission, milliseconds.
    pub queue_ms: i64,
    /// From arrival to the first byte to the caller, milliseconds; absent when none was sent.
    pub first_byte_ms: Option<i64>,
    /// From arrival to the end, milliseconds.
    pub total_ms: i64,
    /// What limits in rehearsal would have done.
    pub rehearsed: Vec<RehearsedVerdict>,
}

impl Settlement {
    /// What a hold without an ending becomes: charged at its expected use, correctable by an adjustment.
    pub fn abandoned(hold: HoldRecord, settled_at: DateTime<Utc>) -> Self {
        let Estimate { expected, ceiling } = hold.estimate;
        Self {
            admitted_at: hold.admitted_at,
            settled_at,
            upstream_id: hold.upstream_id,
            upstream_model: None,
            upstream_request_id: None,
            outcome: Outcome::Abandoned,
            status: None,
            attempts: Vec::new(),
            usage: TokenUsage {
                input_fresh_tokens: expected.input_tokens,
                output_tokens: expected.output_tokens,
                ..TokenUsage::default()
            },
            usage_source: UsageSource::Estimated,
            expected_input_tokens: expected.input_tokens,
            expected_output_tokens: expected.output_tokens,
            expected_cost_nanos: expected.cost,
            ceiling_input_tokens: ceiling.input_tokens,
            ceiling_output_tokens: ceiling.output_tokens,
            ceiling_cost_nanos: ceiling.cost,
            cost_nanos: expected.cost,
            overrun_nanos: Nanos::ZERO,
            price_id: hold.price_id,
            is_unpriced: hold.is_unpriced,
            queue_ms: hold.queue_ms,
            first_byte_ms: None,
            total_ms: (settled_at - hold.admitted_at).num_milliseconds().max(0),
            rehearsed: Vec::new(),
            identity: hold.identity,
        }
    }

    /// Whether its cost follows from its tokens at `price`: those of the answer, rounded up once, and the expected use, as
    /// often as it was tried before and may have cost something.
    pub fn costs_as_priced(&self, price: &Price) -> bool {
        let lost_max = self.attempts.len() as u64;
        (0..=lost_max).any(|lost| {
            let input = self.expected_input_tokens.saturating_mul(lost);
            let output = self.expected_output_tokens.saturating_mul(lost);
            let (Some(input_fresh_tokens), Some(output_tokens)) = (
                self.usage.input_fresh_tokens.checked_sub(input),
                self.usage.output_tokens.checked_sub(output),
            ) else {
                return false;
            };
            let answered = TokenUsage {
                input_fresh_tokens,
                output_tokens,
                ..self.usage
            };
            let lost_cost = self
                .expected_cost_nanos
                .0
                .saturating_mul(i64::try_from(lost).unwrap_or(i64::MAX));
            self.cost_nanos == price.cost(&answered) + Nanos(lost_cost)
        })
    }
}

/// One scope's answer in the chain that admission checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScopeCheck {
    /// Where.
    pub scope: Scope,
    /// In what.
    pub dimension: Dimension,
    /// By which limit.
    pub limit_id: LimitId,
    /// Its value, in the unit of the dimension.
    pub limit_value: u64,
    /// How full it was, in percent of the limit; may exceed 100.
    pub utilisation_percent: f64,
    /// Whether there was room for this request.
    pub has_room: bool,
}

/// A request that was refused, or several equal ones folded into one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    /// Whose.
    #[serde(flatten)]
    pub identity: Identity,
    /// When; the last of them when folded.
    pub refused_at: DateTime<Utc>,
    /// Why.
    pub code: RefusalCode,
    /// The HTTP status the caller was given.
    pub status: u16,
    /// The scope that refused.
    pub scope: Option<Scope>,
    /// In which dimension.
    pub dimension: Option<Dimension>,
    /// By which limit.
    pub limit_id: Option<LimitId>,
    /// The counter's key, as it is named in the shared store.
    pub limit_key: Option<String>,
    /// Every limit checked, in the order of the tree.
    pub chain: Vec<ScopeCheck>,
    /// What the caller was told.
    pub message: String,
    /// The `Retry-After` the caller was given, seconds.
    pub retry_after_seconds: Option<i64>,
    /// How often the caller says it has tried before; the most that any said when folded.
    pub caller_retries: Option<i32>,
    /// How many equal refusals this row stands for, at least 1.
    pub refusal_count: i64,
    /// How many of them came before the wait was over that the key had been told.
    #[serde(default)]
    pub early_count: i64,
    /// Expected input, tokens.
    pub expected_input_tokens: u64,
    /// Expected output, tokens.
    pub expected_output_tokens: u64,
    /// Expected cost.
    pub expected_cost_nanos: Nanos,
    /// Waited for admission, milliseconds.
    pub queue_ms: i64,
}

/// A signed correction; the way to correct an abandoned or wrongly priced request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    /// Which one.
    pub id: AdjustmentId,
    /// The instant whose period and month it counts in.
    pub admitted_at: DateTime<Utc>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The request that it corrects, if it corrects one.
    #[serde(default)]
    pub request_id: Option<RequestId>,
    /// Whose account.
    pub tenant_id: TenantId,
    /// Whose within the tenant, if it corrects one user.
    pub user_id: Option<String>,
    /// Of which key.
    pub key_id: Option<KeyId>,
    /// For which model.
    pub model: Option<Arc<str>>,
    /// At which upstream.
    pub upstream_id: Option<UpstreamId>,
    /// Of which priority.
    pub priority: Priority,
    /// Tokens of input, signed.
    pub input_tokens: i64,
    /// Tokens of output, signed.
    pub output_tokens: i64,
    /// Money, signed.
    pub cost_nanos: Nanos,
    /// Why.
    pub reason: String,
    /// Who made it.
    pub author: String,
    /// The ticket, credit note or invoice it refers to.
    pub reference: Option<String>,
}

/// What the journal holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "entry")]
pub enum JournalRecord {
    /// A request is about to be sent.
    Hold(Box<HoldRecord>),
    /// It has ended.
    Settlement(Box<Settlement>),
    /// It was refused.
    Rejection(Box<Rejection>),
}

impl JournalRecord {
    /// The request it is about.
    pub fn request_id(&self) -> RequestId {
        match self {
            Self::Hold(hold) => hold.identity.id,
            Self::Settlement(settlement) => settlement.identity.id,
            Self::Rejection(rejection) => rejection.identity.id,
        }
    }
}
