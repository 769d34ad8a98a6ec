//! One limit in full: its figures, and the texts of the form that describes it.

use std::sync::Arc;

use domain::budget_events::{THRESHOLDS_MAX, Thresholds};
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Gates, Limit, Mode};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use domain::text;
use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::fields::{COUNT_MAX, Fields};

/// The longest window of a rate, seconds.
pub const WINDOW_SECONDS_MAX: u32 = 86_400;
/// The longest time-out of one request, seconds.
pub const REQUEST_SECONDS_MAX: u64 = 3_600;
/// The largest number of requests in flight that a limit takes.
pub const CONCURRENCY_MAX: u64 = 1_000_000;

/// One limit in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDraft {
    /// Fields `dimension`, `value`, `window_seconds`, `burst`, `period`, `model`, `priority`, `gates`.
    pub dimension: Dimension,
    /// Requests, tokens, seconds, or nano-units of money. Zero admits nothing.
    pub value: u64,
    /// Rates: the window, 1 to [`WINDOW_SECONDS_MAX`].
    pub window_seconds: u32,
    /// Token rates: the bucket's size; `None` is the default.
    pub burst: Option<u64>,
    /// Budgets: their period.
    pub period: Period,
    /// Only this model's requests.
    pub model: Option<Arc<str>>,
    /// Only requests of this priority.
    pub priority: Option<Priority>,
    /// Refuse, or rehearse.
    pub mode: Mode,
    /// Priority gates.
    pub gates: Option<Gates>,
    /// Budgets: what they tell of.
    pub thresholds: Thresholds,
}

/// The same as a form's texts. A blank burst is the default; blank gates are none; a blank model or priority is all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitText {
    /// A word of [`Dimension`]; the form is made for one.
    pub dimension: String,
    /// Requests, tokens, seconds, or an amount of the currency.
    pub value: String,
    /// Rates: seconds; a blank is a minute.
    pub window_seconds: String,
    /// Token rates: tokens.
    pub burst: String,
    /// Budgets: a word of [`Period`]; a blank is a month.
    pub period: String,
    /// The model's name.
    pub model: String,
    /// A word of [`Priority`].
    pub priority: String,
    /// A word of [`Mode`]; a blank enforces.
    pub mode: String,
    /// The lower gate, percent.
    pub gate_lower_percent: String,
    /// The upper gate, percent.
    pub gate_upper_percent: String,
    /// `wait`, or blank to refuse.
    pub gate_upper: String,
    /// Budgets: percentages with commas between them; blank for none.
    pub thresholds: String,
}

/// The word for an upper gate that lets wait.
const WAIT: &str = "wait";

impl LimitText {
    /// Reads the texts; what is wrong is noted under the fields' names.
    pub fn parse(&self, dimension: Dimension, fields: &mut Fields) -> LimitDraft {
        let value = match dimension {
            Dimension::BudgetCost => fields
                .amount("value", &self.value)
                .map(|cost| u64::try_from(cost.0).unwrap_or(0)),
            _ => {
                // Elsewhere an empty count has a meaning; here it would be no limit at all.
                let mut own = Fields::default();
                let count = own.count("value", &self.value);
                fields.require(
                    own.check().is_ok(),
                    "value",
                    text!("write a whole number such as 60 or 200,000"),
                );
                count
            }
        };
        if self.value.trim().is_empty() {
            fields.refuse("value", text!("write a value; 0 admits nothing"));
        }
        let window_seconds = fields
            .count("window_seconds", &self.window_seconds)
            .map_or(DEFAULT_WINDOW_SECONDS, |seconds| {
                u32::try_from(seconds).unwrap_or(u32::MAX)
            });
        let mode = match self.mode.trim() {
            "" => Mode::Enforce,
            word => {
                let mode = [Mode::Enforce, Mode::Rehearse]
                    .into_iter()
                    .find(|mode| mode.as_str() == word);
                fields.require(mode.is_some(), "mode", text!("a limit enforces or rehearses"));
                mode.unwrap_or_default()
            }
        };
        LimitDraft {
            dimension,
            value: value.unwrap_or(0),
            window_seconds,
            burst: fields.count("burst", &self.burst),
            period: fields.word("period", &self.period).unwrap_or(Period::Month),
            model: Some(self.model.trim())
                .filter(|model| !model.is_empty())
                .map(Into::into),
            priority: fields.word("priority", &self.priority),
            mode,
            gates: self.gates(fields),
            thresholds: match dimension.is_budget() {
                true => self.thresholds(fields),
                false => Thresholds::default(),
            },
        }
    }

    fn thresholds(&self, fields: &mut Fields) -> Thresholds {
        let is_between = |character: char| character.is_whitespace() || matches!(character, ',' | ';' | '%');
        let percents: Result<Vec<u8>, _> = self
            .thresholds
            .split(is_between)
            .filter(|percent| !percent.is_empty())
            .map(str::parse)
            .collect();
        let read = percents.ok().and_then(|percents| Thresholds::new(&percents).ok());
        if read.is_none() {
            fields.refuse(
                "thresholds",
                text!(
                    "write at most {count} different percentages from 1 to 100, such as 50, 80, 100; or none",
                    count = THRESHOLDS_MAX
                ),
            );
        }
        read.unwrap_or(Thresholds::NONE)
    }

    fn gates(&self, fields: &mut Fields) -> Option<Gates> {
        let mut percent = |field: &'static str, text: &str, other: &str| {
            if text.trim().is_empty() && !other.trim().is_empty() {
                fields.refuse(field, text!("write both gates, or none"));
            }
            // What is no percentage is refused with the gates themselves.
            fields
                .count(field, text)
                .map(|percent| u8::try_from(percent).unwrap_or(u8::MAX))
        };
        let lower = percent("gate_lower_percent", &self.gate_lower_percent, &self.gate_upper_percent);
        let upper = percent("gate_upper_percent", &self.gate_upper_percent, &self.gate_lower_percent);
        lower.zip(upper).map(|(lower_percent, upper_percent)| Gates {
            lower_percent,
            upper_percent,
            upper_waits: self.gate_upper.trim() == WAIT,
        })
    }
}

impl From<&Limit> for LimitText {
    fn from(limit: &Limit) -> Self {
        let percent = |percent: Option<u8>| percent.map(|percent| percent.to_string()).unwrap_or_default();
        let gates = limit.gates;
        Self {
            dimension: limit.dimension.as_str().to_owned(),
            value: match limit.dimension {
                Dimension::BudgetCost => Nanos(i64::try_from(limit.value).unwrap_or(i64::MAX)).to_string(),
                _ => limit.value.to_string(),
            },
            window_seconds: limit.window_seconds.to_string(),
            burst: limit.burst.map(|burst| burst.to_string()).unwrap_or_default(),
            period: limit.period.as_str().to_owned(),
            model: limit.model.as_deref().unwrap_or_default().to_owned(),
            priority: limit.priority.map(Priority::as_str).unwrap_or_default().to_owned(),
            mode: limit.mode.as_str().to_owned(),
            gate_lower_percent: percent(gates.map(|gates| gates.lower_percent)),
            gate_upper_percent: percent(gates.map(|gates| gates.upper_percent)),
            gate_upper: if gates.is_some_and(|gates| gates.upper_waits) {
                WAIT
            } else {
                ""
            }
            .to_owned(),
            thresholds: limit.thresholds.to_string(),
        }
    }
}

impl LimitDraft {
    /// These figures in the slot of a limit that exists.
    pub fn in_slot_of(self, limit: &Limit) -> Self {
        Self {
            dimension: limit.dimension,
            window_seconds: limit.window_seconds,
            period: limit.period,
            model: limit.model.clone(),
            priority: limit.priority,
            ..self
        }
    }
}

pub(super) fn check_value(fields: &mut Fields, field: &'static str, dimension: Dimension, value: u64) {
    let max = match dimension {
        Dimension::RequestSeconds => REQUEST_SECONDS_MAX,
        Dimension::Concurrency => CONCURRENCY_MAX,
        Dimension::BudgetCost => i64::MAX.unsigned_abs(),
        _ => COUNT_MAX,
    };
    if dimension == Dimension::RequestSeconds && value == 0 {
        fields.refuse(field, text!("at least 1 second"));
    } else if value > max {
        let max = match dimension {
            Dimension::BudgetCost => Nanos(i64::MAX).to_string(),
            _ => max.to_string(),
        };
        fields.refuse(field, text!("at most {max}", max));
    }
}

pub(super) fn check_draft(draft: &LimitDraft) -> Result<(), ControlError> {
    let mut fields = Fields::default();
    check_value(&mut fields, "value", draft.dimension, draft.value);
    fields.require(
        (1..=WINDOW_SECONDS_MAX).contains(&draft.window_seconds),
        "window_seconds",
        text!("between 1 second and one day (86,400 seconds)"),
    );
    if let Some(burst) = draft.burst {
        fields.require(
            draft.dimension.is_rate() && draft.dimension != Dimension::Requests,
            "burst",
            text!("only token rates have a burst"),
        );
        fields.require(
            (1..=COUNT_MAX).contains(&burst),
            "burst",
            text!("at least 1; leave it empty for five seconds' worth"),
        );
    }
    if let Some(gates) = draft.gates {
        fields.require(
            1 <= gates.lower_percent && gates.lower_percent <= gates.upper_percent && gates.upper_percent <= 100,
            "gates",
            text!("the lower gate is at least 1 %, the upper not below it and at most 100 %"),
        );
        fields.require(
            !draft.dimension.is_request_cap(),
            "gates",
            text!("a cap on single requests has no gates"),
        );
    }
    fields.check()
}
