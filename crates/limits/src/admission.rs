//! What admission is asked.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::estimate::{Amounts, Estimate};
use domain::ids::{KeyId, LimitId, RequestId, TenantId};
use domain::limits::{Dimension, Limit, Scope, Slot};
use domain::periods::{Period, Span};
use domain::priority::Priority;

/// What time it is, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For rates and leases: milliseconds of a clock that never steps back.
    pub monotonic_ms: u64,
    /// For periods.
    pub wall: DateTime<Utc>,
}

/// How holds are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a hold lasts without being renewed, in milliseconds. Then its place in flight is given away.
    pub lease_ms: u64,
    /// How long a budget keeps counting a hold whose lease has ended, in milliseconds: its request may have cost money
    /// that is not booked yet.
    pub orphan_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ms: 60_000,
            orphan_ms: 3_600_000,
        }
    }
}

/// A node of the quota tree with the limits in force on it.
#[derive(Clone, Debug)]
pub struct ScopeLimits {
    /// Which node.
    pub scope: Scope,
    /// Its effective limits; those for other models and priorities are passed over.
    pub limits: Arc<[Limit]>,
    /// The tenant of a key: its counters stand with those of the tenant.
    pub tenant: Option<TenantId>,
}

impl ScopeLimits {
    /// A node that is no key's.
    pub fn new(scope: Scope, limits: Arc<[Limit]>) -> Self {
        Self {
            scope,
            limits,
            tenant: None,
        }
    }

    /// The node of this tenant's key.
    pub fn of_key(key: KeyId, tenant: TenantId, limits: Arc<[Limit]>) -> Self {
        Self {
            tenant: Some(tenant),
            ..Self::new(Scope::Key(key), limits)
        }
    }
}

/// An upstream that could take the request.
#[derive(Clone, Debug)]
pub struct UpstreamCandidate {
    /// Its account's limits.
    pub scope: ScopeLimits,
    /// The caller's own number for it, handed back by [`Hold::upstream`](crate::Hold::upstream).
    pub index: usize,
}

/// One request that asks to be admitted. `now.wall` of the call becomes its `admitted_at`, which decides its periods.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// Which request; its hold goes by this id.
    pub id: RequestId,
    /// The model asked for.
    pub model: &'a str,
    /// What it runs at: decides which limits apply to it.
    pub priority: Priority,
    /// What its gates are judged by: its priority, or more after it has waited long.
    pub gate_priority: Priority,
    /// What it is thought to use.
    pub estimate: Estimate,
    /// The nodes it belongs to in the order of the tree: global, group, model, tenant, user, key. Each at most once. One
    /// without limits may be left out, but then its budgets, should a limit come back, do not know what they missed.
    pub scopes: &'a [ScopeLimits],
    /// Upstreams in the order of preference; the first with room is taken. Empty takes none.
    pub upstreams: &'a [UpstreamCandidate],
    /// Decides where periods begin.
    pub time_zone: Tz,
    /// Rehearses all enforced limits at this share of their value, in percent.
    pub rehearsal_percent: Option<u8>,
}

/// One budget in one period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetKey {
    /// Whose.
    pub scope: Scope,
    /// The limit that counts here. Under another one a shared counter is read anew: requests may have passed by it.
    pub limit_id: LimitId,
    /// The tenant of a key's budget: its counters stand with those of the tenant.
    pub tenant: Option<TenantId>,
    /// Tokens or cost.
    pub dimension: Dimension,
    /// How long it lasts.
    pub period: Period,
    /// Only this model's spend.
    pub model: Option<Arc<str>>,
    /// Only this priority's spend.
    pub priority: Option<Priority>,
    /// The period: entries admitted in it count.
    pub span: Span,
}

impl BudgetKey {
    /// The budget of this limit on this node in the period of `at`.
    pub fn of(node: &ScopeLimits, limit: &Limit, at: DateTime<Utc>, time_zone: Tz) -> Self {
        Self {
            scope: node.scope.clone(),
            limit_id: limit.id,
            tenant: node.tenant,
            dimension: limit.dimension,
            period: limit.period,
            model: limit.model.clone(),
            priority: limit.priority,
            span: limit.period.span(at, time_zone),
        }
    }

    /// What one unit of a shared store is, in the unit of the dimension.
    pub(crate) fn unit(&self) -> u64 {
        unit_of(self.dimension)
    }

    pub(crate) fn slot(&self) -> Slot {
        Slot {
            dimension: self.dimension,
            window_seconds: None,
            period: Some(self.period),
            model: self.model.clone(),
            priority: self.priority,
        }
    }
}

/// What the ledger has summed up for a budget, and up to where.
///
/// A budget's spend is this base and what was settled here past its mark. A later base replaces both, so that a
/// difference between counters and ledger does not outlive the next reading, and no entry counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetBase {
    /// Tokens, or nano-units of money. Negative where credits outweigh the spend.
    pub spent: i64,
    /// The sum contains this instance's journal entries up to and including this sequence number. The first entry is
    /// number 1; 0 contains none.
    pub mark: u64,
}

impl BudgetBase {
    /// A period in which nothing has happened yet.
    pub(crate) const ZERO: Self = Self { spent: 0, mark: 0 };
}

/// Budgets that count from now on, and what their bases have to contain to open them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BegunBudgets {
    /// Those whose bases the caller is to read. Somebody else reads the others.
    pub wanted: Vec<BudgetKey>,
    /// Those of them that only a base with [`BegunBudgets::least_marks`] may open. Counters in memory see to it themselves.
    pub closed: HashSet<BudgetKey>,
    /// By gateway, the number of its last journal entry that nobody counted.
    pub least_marks: BTreeMap<String, u64>,
}

/// A budget known here, for reading its base again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetState {
    /// Which one.
    pub key: BudgetKey,
    /// The base in force; without one the budget is closed.
    pub base: Option<BudgetBase>,
}

/// What one unit of a shared store is: budgets of cost count in micro-units there, a thousand nano-units.
pub(crate) fn unit_of(dimension: Dimension) -> u64 {
    match dimension {
        Dimension::BudgetCost => 1_000,
        _ => 1,
    }
}

/// What `dimension` counts of `amounts`; one for those that count requests.
pub(crate) fn amount_of(dimension: Dimension, amounts: &Amounts) -> u64 {
    match dimension {
        Dimension::Requests | Dimension::Concurrency => 1,
        Dimension::InputTokens | Dimension::RequestInputTokens => amounts.input_tokens,
        Dimension::OutputTokens | Dimension::RequestOutputTokens => amounts.output_tokens,
        Dimension::TotalTokens | Dimension::BudgetTokens => amounts.total_tokens(),
        Dimension::BudgetCost => u64::try_from(amounts.cost.0).unwrap_or(0),
        Dimension::RequestSeconds => 0,
    }
}

/// What `dimension` holds for a request estimated so: rates the expected use, budgets and caps the ceiling.
pub(crate) fn need_of(dimension: Dimension, estimate: &Estimate) -> u64 {
    if dimension.is_budget() || dimension.is_request_cap() {
        amount_of(dimension, &estimate.ceiling)
    } else {
        amount_of(dimension, &estimate.expected)
    }
}
