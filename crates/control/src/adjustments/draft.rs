//! The forms of adjustments: their texts, and what they say once read.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::adjustments::{ADJUSTED_TOKENS_MAX, Correction, CorrectionError, Figures};
use domain::ids::{KeyId, PriceId, TenantId};
use domain::ledger::{Settlement, USER_ID_CHARS_MAX};
use domain::money::Nanos;
use domain::periods::Month;
use domain::prices::Price;
use domain::text;
use domain::usage::TokenUsage;
use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::fields::Fields;

/// The form that corrects a request, as it was filled in: what is right, or by how much it is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrectionText {
    /// The right fresh input, tokens.
    pub input_fresh: String,
    /// The right cache reads, tokens.
    pub cache_read: String,
    /// The right cache writes for five minutes, tokens.
    pub cache_write_5m: String,
    /// The right cache writes for one hour, tokens.
    pub cache_write_1h: String,
    /// The right output, tokens.
    pub output: String,
    /// The price to charge; that which was charged, if blank.
    pub price: String,
    /// The right cost; by the price, if blank.
    pub cost: String,
    /// By how many tokens of input it is wrong.
    pub input_by: String,
    /// By how many tokens of output it is wrong.
    pub output_by: String,
    /// By how much money it is wrong.
    pub cost_by: String,
}

/// What is right about a request, or by how much it is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorrectionDraft {
    /// Right figures.
    Right {
        /// Fields `input_fresh`, `cache_read`, `cache_write_5m`, `cache_write_1h`, `output`.
        tokens: TokensDraft,
        /// Field `price`.
        price: Option<PriceId>,
        /// Field `cost`.
        cost: Option<Nanos>,
    },
    /// Fields `input_by`, `output_by`, `cost_by`.
    By(Figures),
}

/// Right tokens by class; those that are absent are right as they were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokensDraft {
    /// Fresh input.
    pub input_fresh: Option<u64>,
    /// Read from a cache.
    pub cache_read: Option<u64>,
    /// Written to a cache for five minutes.
    pub cache_write_5m: Option<u64>,
    /// Written to a cache for one hour.
    pub cache_write_1h: Option<u64>,
    /// Output.
    pub output: Option<u64>,
}

impl TokensDraft {
    fn has_input(&self) -> bool {
        let classes = [
            self.input_fresh,
            self.cache_read,
            self.cache_write_5m,
            self.cache_write_1h,
        ];
        classes.iter().any(Option::is_some)
    }

    /// The tokens, if any class is written; the rest is as settled.
    fn usage(&self, settled: &TokenUsage) -> Option<TokenUsage> {
        (self.has_input() || self.output.is_some()).then(|| TokenUsage {
            input_fresh_tokens: self.input_fresh.unwrap_or(settled.input_fresh_tokens),
            cache_read_tokens: self.cache_read.unwrap_or(settled.cache_read_tokens),
            cache_write_5m_tokens: self.cache_write_5m.unwrap_or(settled.cache_write_5m_tokens),
            cache_write_1h_tokens: self.cache_write_1h.unwrap_or(settled.cache_write_1h_tokens),
            output_tokens: self.output.unwrap_or(settled.output_tokens),
            reasoning_tokens: settled.reasoning_tokens,
        })
    }
}

impl CorrectionText {
    /// Whether nobody has filled in anything yet.
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the texts.
    pub fn draft(&self) -> Result<CorrectionDraft, ControlError> {
        let mut fields = Fields::default();
        let mut tokens = |field: &'static str, text: &str| {
            let count = fields.count(field, text);
            if count.is_some_and(|count| count > ADJUSTED_TOKENS_MAX as u64) {
                fields.refuse(field, text!("no request has so many tokens"));
            }
            count
        };
        let right = TokensDraft {
            input_fresh: tokens("input_fresh", &self.input_fresh),
            cache_read: tokens("cache_read", &self.cache_read),
            cache_write_5m: tokens("cache_write_5m", &self.cache_write_5m),
            cache_write_1h: tokens("cache_write_1h", &self.cache_write_1h),
            output: tokens("output", &self.output),
        };
        let price = match self.price.trim() {
            "" => None,
            text => {
                let id = text.parse().ok();
                if id.is_none() {
                    fields.refuse("price", text!("choose a price from the list"));
                }
                id
            }
        };
        let cost = fields.amount("cost", &self.cost);
        let by = Figures {
            input_tokens: fields.signed_count("input_by", &self.input_by).unwrap_or_default(),
            output_tokens: fields.signed_count("output_by", &self.output_by).unwrap_or_default(),
            cost_nanos: fields.signed_amount("cost_by", &self.cost_by).unwrap_or_default(),
        };
        let differences = [&self.input_by, &self.output_by, &self.cost_by];
        let has_difference = differences.iter().any(|text| !text.trim().is_empty());
        let has_right = right != TokensDraft::default() || price.is_some() || cost.is_some();
        if price.is_some() && cost.is_some() {
            fields.refuse("price", text!("write the right cost or choose a price, not both"));
        }
        if has_difference && has_right {
            fields.refuse("", text!("write the right figures or a difference, not both"));
        }
        fields.check()?;
        if has_difference {
            return Ok(CorrectionDraft::By(by));
        }
        if !has_right {
            return Err(ControlError::field(
                "",
                text!("write what is right: tokens, cost or both; or the difference"),
            ));
        }
        Ok(CorrectionDraft::Right {
            tokens: right,
            price,
            cost,
        })
    }
}

impl CorrectionDraft {
    /// The correction of a request that was settled like this, charged at `charged`, with adjustments that come to
    /// `adjusted`; `others` are the other prices to choose from.
    pub(super) fn correction(
        &self,
        settlement: &Settlement,
        adjusted: Figures,
        charged: Option<&Price>,
        others: &[Price],
    ) -> Result<Correction, ControlError> {
        let (tokens, price, cost) = match self {
            Self::By(figures) => return Ok(Correction::By(*figures)),
            Self::Right { tokens, price, cost } => (tokens, *price, *cost),
        };
        let usage = tokens.usage(&settlement.usage);
        // What was corrected before is not as settled, and must be written again.
        let is_partial = (adjusted.input_tokens != 0 && !tokens.has_input())
            || (adjusted.output_tokens != 0 && tokens.output.is_none());
        if usage.is_some() && is_partial {
            return Err(ControlError::field("", CorrectionError::ClassesUnknown.text()));
        }
        if let Some(cost_nanos) = cost {
            return Ok(Correction::AtCost { usage, cost_nanos });
        }
        let price = match price {
            Some(id) => charged.into_iter().chain(others).find(|price| price.id == id),
            None => charged,
        };
        match price {
            Some(price) => Ok(Correction::AtPrice {
                usage,
                price: price.clone(),
            }),
            None => Err(ControlError::field(
                "cost",
                text!("it was not charged at a price that is known; choose a price, or write the right cost"),
            )),
        }
    }
}

/// The form of an adjustment of a tenant's account, as it was filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdjustmentText {
    /// The tenant's id.
    pub tenant: String,
    /// A person's address or an end user's name.
    pub user: String,
    /// The key's id.
    pub key: String,
    /// The model's name.
    pub model: String,
    /// The month in which it counts.
    pub month: String,
    /// The instant at which it counts.
    pub at: String,
    /// Tokens of input.
    pub input_tokens: String,
    /// Tokens of output.
    pub output_tokens: String,
    /// Money.
    pub cost: String,
}

/// An adjustment of a tenant's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdjustmentDraft {
    /// Field `tenant`.
    pub tenant_id: TenantId,
    /// Field `user`: a person's address or id, or an end user's name.
    pub user: Option<String>,
    /// Field `key`.
    pub key_id: Option<KeyId>,
    /// Field `model`.
    pub model: Option<String>,
    /// Fields `month` and `at`.
    pub when: When,
    /// Fields `input_tokens`, `output_tokens` and `cost`; below zero gives back.
    pub figures: Figures,
}

/// Where in time an adjustment counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In this month: now, where it is the present one, and else at its beginning, so that no budget of a day or week
    /// that is under way hears of another month's correction.
    Month(Month),
    /// At this instant.
    At(DateTime<Utc>),
}

impl When {
    pub(super) fn instant(self, zone: Tz, now: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::At(at) => at,
            Self::Month(month) if month == Month::containing(now, zone) => now,
            Self::Month(month) => month.span(zone).start,
        }
    }
}

impl AdjustmentText {
    /// Reads the texts; times without an offset are those of `zone`.
    pub fn draft(&self, zone: Tz) -> Result<AdjustmentDraft, ControlError> {
        let mut fields = Fields::default();
        let tenant_id = self.tenant.trim().parse().ok();
        if tenant_id.is_none() {
            fields.refuse("tenant", text!("choose a tenant from the list"));
        }
        let key_id = match self.key.trim() {
            "" => None,
            text => {
                let key = text.parse().ok();
                if key.is_none() {
                    fields.refuse("key", text!("write the key's whole id, as in the address of its page"));
                }
                key
            }
        };
        let user = fields.text("user", &self.user, USER_ID_CHARS_MAX);
        let month = fields.word::<Month>("month", &self.month);
        let at = fields.instant("at", &self.at, zone);
        let has_both = !self.month.trim().is_empty() && !self.at.trim().is_empty();
        let is_blank = self.month.trim().is_empty() && self.at.trim().is_empty();
        if has_both || is_blank {
            fields.refuse(
                "month",
                text!("write the month in which it counts, or an instant: one of both"),
            );
        }
        let figures = Figures {
            input_tokens: fields
                .signed_count("input_tokens", &self.input_tokens)
                .unwrap_or_default(),
            output_tokens: fields
                .signed_count("output_tokens", &self.output_tokens)
                .unwrap_or_default(),
            cost_nanos: fields.signed_amount("cost", &self.cost).unwrap_or_default(),
        };
        fields.check()?;
        let (Some(tenant_id), Some(when)) = (tenant_id, month.map(When::Month).or(at.map(When::At))) else {
            return Err(ControlError::field(
                "month",
                text!("write the month in which it counts"),
            ));
        };
        let model = self.model.trim();
        Ok(AdjustmentDraft {
            tenant_id,
            user: Some(user).filter(|user| !user.is_empty()),
            key_id,
            model: (!model.is_empty()).then(|| model.to_owned()),
            when,
            figures,
        })
    }
}
