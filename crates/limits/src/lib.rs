//! Admission: what every scope of the quota tree still has room for.
//!
//! [`Limits::admit`] checks a request against every limit of every scope it belongs to, and one upstream with room, and
//! takes its estimate from all of them in one step, or from none. The answer is a [`Hold`], which ends exactly once
//! (settled with what the request really used, refunded, or dropped), or a [`Denial`] that says where and until when.
//!
//! # How each dimension counts
//!
//! - `requests`: a sliding window in 20 cells plus one. Never over the limit in any window; room returns at most a
//!   twentieth of the window late.
//! - token rates: a bucket of `burst` tokens that refills continuously, and the same sliding window beside it. Admitted
//!   when the bucket holds `min(need, burst)` and less than `value + burst` stands in the window; the bucket may go
//!   below zero, so that a request larger than the burst is possible and paid back. No window admits more than
//!   `value + burst` and one request, even when tokens held by slow requests come back late. `expected` is held.
//! - `concurrency`: one member per request, with a lease.
//! - budgets: base (what the ledger has summed up) + since (what was settled after that) + holds. `ceiling` is held.
//! - per-request caps: `ceiling` against the cap. `request_seconds` is the gateway's time-out and not checked here.
//!
//! A value of zero admits nothing, whatever the request needs: rates and concurrency of zero answer `request_too_large`,
//! which no queue and no retry heals. A request that needs nothing of a dimension (no output tokens, an explicit price of
//! zero) passes its token rates and budgets even when they are spent.
//!
//! # Counters and limits
//!
//! A counter belongs to (scope, dimension, window or period, model, priority): a limit that changes its value keeps it.
//! A limit in rehearsal counts every request, refuses none, and its verdict is kept on the hold. Counters are dropped by
//! [`Limits::sweep`] when nothing is held and a new one would say the same; budgets stay for their period and a day.
//!
//! # Budgets
//!
//! A budget without a base refuses with `budget_unknown`; [`Denial::unknown_budgets`] names what to read. One that is new
//! begins to count first ([`Limits::begin_budgets`]) and opens with a base that contains everything settled before; requests
//! that were admitted before it are seen when they are renewed and when they end. A period that
//! begins while its budget is counted here starts at zero. Entries are told apart by the journal's sequence numbers, so
//! that bases may be set at any time, late or twice.
//!
//! # What providers say
//!
//! [`Limits::correct_upstream`] puts a provider's word on what its account has left beside the counters of that upstream.
//! While it stands, the rates admit no more than that, and gates and readings go by it where it says less than they do.
//!
//! # Idempotency keys
//!
//! [`Limits::claim`] gives a caller's key to one request, as a [`Claim`] that ends once: with the answer, sealed, which is
//! told to others for [`IDEMPOTENCY_KEPT_MS`]; with the word that it is lost; or free again. [`Unclaimed`] says what others
//! are told. Gateways that share counters share claims, too.
//!
//! # Which store
//!
//! [`Limits::memory`] keeps everything in this process. [`Limits::redis`] keeps it in Redis, for all gateways that use the
//! same one; while that does not answer, each goes by counters of its own, at a part of every limit ([`Mode`]). Both mean
//! the same: what is told is decided by the same code, and a property test compares every answer and every counter.

mod admission;
mod bucket;
mod budget;
mod counter;
mod decide;
mod denial;
mod explain;
#[cfg(test)]
mod fixture;
mod hold;
mod idempotency;
mod in_force;
mod limits;
mod members;
mod memory;
mod names;
mod node;
mod reading;
mod redis;
mod told;
mod upstream_room;
mod window;

pub use admission::{Admission, BegunBudgets, BudgetKey, Now, ScopeLimits, Settings, UpstreamCandidate};
pub(crate) use admission::{BudgetBase, BudgetState};
pub use denial::Denial;
pub use hold::Hold;
pub use idempotency::{
    Claim, IDEMPOTENCY_KEPT_MS, IDEMPOTENT_ANSWER_BYTES_MAX, IdempotencyKey, SealedAnswer, Unclaimed,
};
pub use limits::Limits;
pub use reading::Tightest;
pub use redis::{LifeSigns, Mode, RedisSettings, RedisSettingsError};
pub use upstream_room::{RoomLeft, UpstreamRoom};
