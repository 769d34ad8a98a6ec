//! What budgets tell of while they are being spent: a threshold was reached.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::ids::{LimitId, TenantId};
use crate::limits::{Dimension, Scope, Slot};
use crate::money::Nanos;
use crate::periods::{Period, Span};
use crate::priority::Priority;
use crate::text;
use crate::text::Text;

/// Thresholds of one budget at most.
pub const THRESHOLDS_MAX: usize = 5;

/// What part of a budget has to be spent for it to be told of, in percent: up to [`THRESHOLDS_MAX`] different ones from 1 to
/// 100, the lowest first, or none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Thresholds {
    /// Zero where there are fewer.
    percents: [u8; THRESHOLDS_MAX],
}

/// These are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct NoThresholds;

impl NoThresholds {
    /// What they have to be.
    pub fn text(&self) -> Text {
        text!(
            "at most {count} different whole percentages from 1 to 100",
            count = THRESHOLDS_MAX
        )
    }
}

impl Thresholds {
    /// Nothing is told.
    pub const NONE: Self = Self {
        percents: [0; THRESHOLDS_MAX],
    };

    /// In any order.
    ///
    /// # Errors
    /// Where they are too many, out of range, or one of them is there twice.
    pub fn new(percents: &[u8]) -> Result<Self, NoThresholds> {
        let mut sorted = Self::NONE;
        let places = sorted.percents.get_mut(..percents.len()).ok_or(NoThresholds)?;
        places.copy_from_slice(percents);
        places.sort_unstable();
        let is_in_range = places.iter().all(|percent| (1..=100).contains(percent));
        let is_ascending = places.windows(2).all(|pair| pair[0] < pair[1]);
        if is_in_range && is_ascending {
            Ok(sorted)
        } else {
            Err(NoThresholds)
        }
    }

    /// The percentages, the lowest first.
    pub fn percents(&self) -> impl Iterator<Item = u8> {
        self.percents.into_iter().filter(|percent| *percent > 0)
    }

    /// Those that `spent` of a budget of `value` has reached. A budget of nothing has no part that could be spent.
    pub fn reached(&self, spent: i128, value: u64) -> impl Iterator<Item = u8> {
        let reaches = move |percent: &u8| {
            value > 0 && spent.saturating_mul(100) >= i128::from(value).saturating_mul(i128::from(*percent))
        };
        self.percents().filter(reaches)
    }
}

/// What a budget tells unless it says otherwise: half, four fifths, all of it.
impl Default for Thresholds {
    fn default() -> Self {
        Self {
            percents: [50, 80, 100, 0, 0],
        }
    }
}

impl fmt::Debug for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.percents()).finish()
    }
}

/// `50, 80, 100`; nothing where there are none.
impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, percent) in self.percents().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{percent}")?;
        }
        Ok(())
    }
}

impl TryFrom<Vec<u8>> for Thresholds {
    type Error = NoThresholds;

    fn try_from(percents: Vec<u8>) -> Result<Self, Self::Error> {
        Self::new(&percents)
    }
}

impl From<Thresholds> for Vec<u8> {
    fn from(thresholds: Thresholds) -> Self {
        thresholds.percents().collect()
    }
}

/// How long an event is kept after its period has ended, in days.
pub const BUDGET_EVENTS_KEPT_DAYS: i64 = 30;
/// The event's name for the webhook.
pub const BUDGET_THRESHOLD: &str = "budget.threshold";

/// A threshold that a budget has reached: told once for each node, slot, period and threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetEvent {
    /// Which one; sorts by when it was seen. The webhook knows it by the same.
    pub id: Uuid,
    /// The node that spent it.
    pub scope: Scope,
    /// Whose node it is; none of what tenants share.
    pub tenant_id: Option<TenantId>,
    /// The limit that was in force.
    pub limit_id: LimitId,
    /// Tokens or cost.
    pub dimension: Dimension,
    /// How long the budget lasts.
    pub period: Period,
    /// Only this model's spend.
    pub model: Option<Arc<str>>,
    /// Only this priority's spend.
    pub priority: Option<Priority>,
    /// The period it was spent in.
    pub span: Span,
    /// The threshold, percent of the value.
    pub percent: u8,
    /// The budget when it was seen, in the unit of the dimension.
    pub value: u64,
    /// What was spent of it by then, in the unit of the dimension.
    pub spent: i64,
    /// When it was seen.
    pub at: DateTime<Utc>,
}

/// What tells events apart: the second of two that are alike is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetEventKey {
    scope: Scope,
    dimension: Dimension,
    period: Period,
    model: Option<Arc<str>>,
    priority: Option<Priority>,
    period_start: DateTime<Utc>,
    period_end: DateTime<Utc>,
    percent: u8,
}

impl BudgetEventKey {
    /// The threshold of the budget in this slot of this node; `None` where the slot is no budget's.
    pub fn new(scope: &Scope, slot: &Slot, span: Span, percent: u8) -> Option<Self> {
        Some(Self {
            scope: scope.clone(),
            dimension: slot.dimension,
            period: slot.period?,
            model: slot.model.clone(),
            priority: slot.priority,
            period_start: span.start,
            period_end: span.end,
            percent,
        })
    }

    /// The end of its period.
    pub fn period_end(&self) -> DateTime<Utc> {
        self.period_end
    }
}

impl BudgetEvent {
    /// What tells it apart.
    pub fn key(&self) -> BudgetEventKey {
        BudgetEventKey {
            scope: self.scope.clone(),
            dimension: self.dimension,
            period: self.period,
            model: self.model.clone(),
            priority: self.priority,
            period_start: self.span.start,
            period_end: self.span.end,
            percent: self.percent,
        }
    }

    /// What the webhook is sent. Amounts are decimal text: money exactly in the currency, tokens whole.
    pub fn body(&self, tenant_name: Option<&str>, currency: &str) -> String {
        let is_money = self.dimension == Dimension::BudgetCost;
        let amount = |amount: i64| match is_money {
            true => Nanos(amount).to_string(),
            false => amount.to_string(),
        };
        json!({
            "id": self.id,
            "event": BUDGET_THRESHOLD,
            "at": self.at,
            "budget": {
                "scope": self.scope,
                "tenant_id": self.tenant_id,
                "tenant": tenant_name,
                "limit_id": self.limit_id,
                "dimension": self.dimension,
                "model": self.model,
                "priority": self.priority,
                "period": self.period,
                "period_start": self.span.start,
                "period_end": self.span.end,
                "threshold_percent": self.percent,
                "value": amount(i64::try_from(self.value).unwrap_or(i64::MAX)),
                "spent": amount(self.spent),
                "currency": is_money.then_some(currency),
            },
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests;
