//! The plain limits of a node: one field per dimension, per minute or calendar month, for all models and priorities.

use domain::budget_events::Thresholds;
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Limit, Mode};
use domain::money::Nanos;
use domain::own_limits::OwnLimits;
use domain::periods::Period;
use serde::{Deserialize, Serialize};

use super::draft::{LimitDraft, check_value};
use crate::fields::Fields;

/// The plain limits of a node, as forms show them: per minute, per calendar month, enforced, for all models and
/// priorities. `None` is no limit, which is not the same as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLimits {
    /// Money per calendar month.
    pub monthly_cost: Option<Nanos>,
    /// Input and output tokens per calendar month.
    pub monthly_tokens: Option<u64>,
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Input tokens per minute.
    pub input_tokens_per_minute: Option<u64>,
    /// Output tokens per minute.
    pub output_tokens_per_minute: Option<u64>,
    /// Input and output tokens per minute.
    pub total_tokens_per_minute: Option<u64>,
    /// Requests in flight.
    pub concurrency: Option<u64>,
    /// Input tokens of one request.
    pub request_input_tokens: Option<u64>,
    /// Output tokens of one request.
    pub request_output_tokens: Option<u64>,
    /// Duration of one request, seconds.
    pub request_seconds: Option<u64>,
}

/// The same as a form's texts. A blank is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLimitsText {
    /// Money per calendar month.
    pub monthly_cost: String,
    /// Input and output tokens per calendar month.
    pub monthly_tokens: String,
    /// Requests per minute.
    pub requests_per_minute: String,
    /// Input tokens per minute.
    pub input_tokens_per_minute: String,
    /// Output tokens per minute.
    pub output_tokens_per_minute: String,
    /// Input and output tokens per minute.
    pub total_tokens_per_minute: String,
    /// Requests in flight.
    pub concurrency: String,
    /// Input tokens of one request.
    pub request_input_tokens: String,
    /// Output tokens of one request.
    pub request_output_tokens: String,
    /// Duration of one request, seconds.
    pub request_seconds: String,
}

impl NodeLimitsText {
    /// Reads the texts; what is wrong is noted under the fields' names.
    pub fn parse(&self, fields: &mut Fields) -> NodeLimits {
        NodeLimits {
            monthly_cost: fields.amount("monthly_cost", &self.monthly_cost),
            monthly_tokens: fields.count("monthly_tokens", &self.monthly_tokens),
            requests_per_minute: fields.count("requests_per_minute", &self.requests_per_minute),
            input_tokens_per_minute: fields.count("input_tokens_per_minute", &self.input_tokens_per_minute),
            output_tokens_per_minute: fields.count("output_tokens_per_minute", &self.output_tokens_per_minute),
            total_tokens_per_minute: fields.count("total_tokens_per_minute", &self.total_tokens_per_minute),
            concurrency: fields.count("concurrency", &self.concurrency),
            request_input_tokens: fields.count("request_input_tokens", &self.request_input_tokens),
            request_output_tokens: fields.count("request_output_tokens", &self.request_output_tokens),
            request_seconds: fields.count("request_seconds", &self.request_seconds),
        }
    }
}

impl From<&NodeLimits> for NodeLimitsText {
    fn from(limits: &NodeLimits) -> Self {
        let count = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        Self {
            monthly_cost: limits.monthly_cost.map(|cost| cost.to_string()).unwrap_or_default(),
            monthly_tokens: count(limits.monthly_tokens),
            requests_per_minute: count(limits.requests_per_minute),
            input_tokens_per_minute: count(limits.input_tokens_per_minute),
            output_tokens_per_minute: count(limits.output_tokens_per_minute),
            total_tokens_per_minute: count(limits.total_tokens_per_minute),
            concurrency: count(limits.concurrency),
            request_input_tokens: count(limits.request_input_tokens),
            request_output_tokens: count(limits.request_output_tokens),
            request_seconds: count(limits.request_seconds),
        }
    }
}

impl From<&NodeLimits> for OwnLimits {
    fn from(limits: &NodeLimits) -> Self {
        let values = limits.values().into_iter();
        Self(
            values
                .filter_map(|(dimension, value)| Some((dimension, value?)))
                .collect(),
        )
    }
}

impl From<&OwnLimits> for NodeLimits {
    fn from(own: &OwnLimits) -> Self {
        let value = |dimension: Dimension| own.0.get(&dimension).copied();
        Self::by(value)
    }
}

impl NodeLimits {
    /// The plain ones among a node's limits.
    pub fn of(limits: &[Limit]) -> Self {
        let value = |dimension| {
            limits
                .iter()
                .find(|limit| is_plain(limit, dimension))
                .map(|limit| limit.value)
        };
        Self::by(value)
    }

    fn by(value: impl Fn(Dimension) -> Option<u64>) -> Self {
        Self {
            monthly_cost: value(Dimension::BudgetCost).map(|nanos| Nanos(i64::try_from(nanos).unwrap_or(i64::MAX))),
            monthly_tokens: value(Dimension::BudgetTokens),
            requests_per_minute: value(Dimension::Requests),
            input_tokens_per_minute: value(Dimension::InputTokens),
            output_tokens_per_minute: value(Dimension::OutputTokens),
            total_tokens_per_minute: value(Dimension::TotalTokens),
            concurrency: value(Dimension::Concurrency),
            request_input_tokens: value(Dimension::RequestInputTokens),
            request_output_tokens: value(Dimension::RequestOutputTokens),
            request_seconds: value(Dimension::RequestSeconds),
        }
    }

    /// Notes which values are out of range.
    pub fn validate(&self, fields: &mut Fields) {
        for (dimension, value) in self.values() {
            if let Some(value) = value {
                check_value(fields, field_of(dimension), dimension, value);
            }
        }
    }

    pub(super) fn values(&self) -> [(Dimension, Option<u64>); 10] {
        let cost = self.monthly_cost.map(|cost| u64::try_from(cost.0).unwrap_or(0));
        [
            (Dimension::BudgetCost, cost),
            (Dimension::BudgetTokens, self.monthly_tokens),
            (Dimension::Requests, self.requests_per_minute),
            (Dimension::InputTokens, self.input_tokens_per_minute),
            (Dimension::OutputTokens, self.output_tokens_per_minute),
            (Dimension::TotalTokens, self.total_tokens_per_minute),
            (Dimension::Concurrency, self.concurrency),
            (Dimension::RequestInputTokens, self.request_input_tokens),
            (Dimension::RequestOutputTokens, self.request_output_tokens),
            (Dimension::RequestSeconds, self.request_seconds),
        ]
    }
}

/// The form's field of a dimension.
pub fn field_of(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::BudgetCost => "monthly_cost",
        Dimension::BudgetTokens => "monthly_tokens",
        Dimension::Requests => "requests_per_minute",
        Dimension::InputTokens => "input_tokens_per_minute",
        Dimension::OutputTokens => "output_tokens_per_minute",
        Dimension::TotalTokens => "total_tokens_per_minute",
        Dimension::Concurrency => "concurrency",
        Dimension::RequestInputTokens => "request_input_tokens",
        Dimension::RequestOutputTokens => "request_output_tokens",
        Dimension::RequestSeconds => "request_seconds",
    }
}

pub(super) fn plain(dimension: Dimension, value: u64) -> LimitDraft {
    LimitDraft {
        dimension,
        value,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

/// Whether the limit sits in the slot that forms show.
pub fn is_plain(limit: &Limit, dimension: Dimension) -> bool {
    limit.dimension == dimension
        && limit.model.is_none()
        && limit.priority.is_none()
        && (!dimension.is_rate() || limit.window_seconds == DEFAULT_WINDOW_SECONDS)
        && (!dimension.is_budget() || limit.period == Period::Month)
}
