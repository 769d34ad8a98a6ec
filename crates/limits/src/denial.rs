//! Why a request was not admitted, and until when.

use domain::ids::LimitId;
use domain::ledger::ScopeCheck;
use domain::limits::{Dimension, Gate, Limit, Scope};
use domain::refusals::RefusalCode;

use crate::decide::Refusal;
use crate::names;
use crate::node::{Check, Level};
use crate::{BudgetKey, Now, Tightest};

/// The refusal worth telling. Where several limits refuse: the first in the order of the tree that time does not heal
/// (too large, exhausted); else the first closed budget; else the first gate that does not let wait; else the one with
/// the longest wait. Where the tree has room and no upstream has: that of the upstream whose refusal is mildest.
#[derive(Clone, Debug, PartialEq)]
pub struct Denial {
    /// Why.
    pub code: RefusalCode,
    /// Where.
    pub scope: Scope,
    /// In what.
    pub dimension: Dimension,
    /// By which limit.
    pub limit_id: LimitId,
    /// Its counter's key, as it is named in the shared store.
    pub limit_key: String,
    /// Its value, in the unit of the dimension.
    pub limit_value: u64,
    /// How full it was, in percent of the limit.
    pub utilisation_percent: f64,
    /// When the same request would find room there, if nothing else is admitted: exact for rates and for the end of a
    /// budget's period, a hint where it depends on requests in flight. Absent where waiting does not help, and for a
    /// budget without a base. Without jitter.
    pub retry_after_ms: Option<u64>,
    /// Which gate, for [`RefusalCode::PriorityGated`].
    pub gate: Option<Gate>,
    /// Every limit checked, in the order of the tree.
    pub chain: Vec<ScopeCheck>,
    /// Whether only the caller's own traffic counts there: "you" instead of "the service".
    pub is_own_limit: bool,
    /// Budgets on the way whose base is missing or misses something, whatever the code: set them and ask again.
    pub unknown_budgets: Vec<BudgetKey>,
    /// The tightest limits, for response headers.
    pub tightest: Tightest,
}

impl Denial {
    /// Whether the request may join the queue: time or the end of other requests heals this.
    pub fn may_wait(&self) -> bool {
        match self.code {
            RefusalCode::RateLimitExceeded | RefusalCode::ConcurrencyLimitExceeded | RefusalCode::BudgetHeld => true,
            RefusalCode::PriorityGated => self.gate != Some(Gate::Upper { waits: false }),
            _ => false,
        }
    }
}

/// A denial in the making: the refusal worth telling of some scopes.
pub(crate) struct Candidate {
    refusal: Refusal,
    denial: Denial,
}

impl Candidate {
    /// The refusal worth telling of these scopes; `None` where nothing refuses.
    pub(crate) fn of(levels: &[Level<'_>], now: Now) -> Option<Self> {
        let mut told: Option<(&Level<'_>, &Limit, &Check, Refusal)> = None;
        for level in levels {
            for (limit, check, refusal) in level.refusals() {
                if told.as_ref().is_none_or(|(.., before)| is_worse(&refusal, before)) {
                    told = Some((level, limit, check, refusal));
                }
            }
        }
        let (level, limit, check, refusal) = told?;
        let scope = level.of.scope.clone();
        let denial = Denial {
            code: refusal.code,
            dimension: limit.dimension,
            limit_id: limit.id,
            limit_key: names::limit_key(&scope, &limit.slot(), &names::tag(&scope, level.of.tenant)),
            limit_value: limit.value,
            utilisation_percent: level.utilisation_percent(check, now),
            retry_after_ms: refusal.retry_after_ms,
            gate: refusal.gate,
            chain: Vec::new(),
            is_own_limit: scope.is_own(),
            unknown_budgets: Vec::new(),
            tightest: Tightest::default(),
            scope,
        };
        Some(Self { refusal, denial })
    }

    /// Whether the caller is served sooner with this upstream than with the other.
    pub(crate) fn is_milder_than(&self, other: &Self) -> bool {
        let rank = |candidate: &Self| {
            let refusal = &candidate.refusal;
            (refusal.hardness(), refusal.retry_after_ms.unwrap_or(u64::MAX))
        };
        rank(self) < rank(other)
    }
}

/// Whether the later of two refusals is told instead of the earlier.
pub(crate) fn is_worse(later: &Refusal, earlier: &Refusal) -> bool {
    let (later_hardness, earlier_hardness) = (later.hardness(), earlier.hardness());
    if later_hardness != earlier_hardness {
        return later_hardness > earlier_hardness;
    }
    later_hardness < 2 && later.retry_after_ms > earlier.retry_after_ms
}

/// The denial of a tree in which something refuses.
pub(crate) fn of_tree(tree: &[Level<'_>], now: Now) -> Option<Box<Denial>> {
    Candidate::of(tree, now).map(|candidate| with_tree(candidate, tree, now))
}

/// The denial with the chain, the closed budgets and the readings of the tree.
pub(crate) fn with_tree(candidate: Candidate, tree: &[Level<'_>], now: Now) -> Box<Denial> {
    let mut denial = candidate.denial;
    for level in tree {
        level.chain(now, &mut denial.chain);
        level.unknown_budgets(now, &mut denial.unknown_budgets);
    }
    denial.tightest = Tightest::of(tree, now);
    Box::new(denial)
}
