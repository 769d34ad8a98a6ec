//! What a request will be charged by: the model's price, or the fallback for want of one.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::estimate::{Amounts, Estimate};
use domain::ids::PriceId;
use domain::money::Nanos;
use domain::policy::Settings;
use domain::prices::{Price, Unpriced};
use domain::refusals::RefusalCode;
use domain::usage::TokenUsage;
use uuid::Uuid;

use crate::policy::ModelPolicy;
use crate::refusal::Refusal;

/// The price of one request, fixed when it is admitted.
#[derive(Clone, Debug)]
pub(crate) struct Pricing {
    price: Arc<Price>,
    /// Whether this is the fallback.
    pub is_unpriced: bool,
}

impl Pricing {
    /// The price of `model` at `admitted_at`, or what the settings say about models without one.
    pub(crate) fn choose(
        model: &ModelPolicy,
        settings: &Settings,
        admitted_at: DateTime<Utc>,
    ) -> Result<Self, Refusal> {
        if let Some(price) = model.price_at(admitted_at) {
            return Ok(Self {
                price: Arc::new(price.clone()),
                is_unpriced: false,
            });
        }
        match settings.unpriced {
            Unpriced::Refuse => Err(Refusal::plain(
                RefusalCode::ModelUnpriced,
                "This model has no price, and unpriced models are refused here. Ask your platform operator to set one.",
            )),
            Unpriced::Charge(rates) => {
                let price = Price {
                    id: PriceId(Uuid::nil()),
                    model: model.model.name.clone(),
                    valid_from: DateTime::UNIX_EPOCH,
                    valid_until: None,
                    rates,
                    tiers: Vec::new(),
                };
                Ok(Self {
                    price: Arc::new(price),
                    is_unpriced: true,
                })
            }
        }
    }

    /// The price row; absent for the fallback.
    pub(crate) fn price_id(&self) -> Option<PriceId> {
        (!self.is_unpriced).then_some(self.price.id)
    }

    /// What `usage` costs.
    pub(crate) fn cost(&self, usage: &TokenUsage) -> Nanos {
        self.price.cost(usage)
    }

    /// The estimate with its money: expected tokens at the fresh rate, ceiling tokens at the dearest.
    pub(crate) fn estimate(&self, expected: (u64, u64), ceiling: (u64, u64)) -> Estimate {
        let ceiling = (ceiling.0.max(expected.0), ceiling.1.max(expected.1));
        let ceiling_cost = self.price.ceiling(ceiling.0, ceiling.1);
        let expected_cost = self
            .price
            .cost(&TokenUsage {
                input_fresh_tokens: expected.0,
                output_tokens: expected.1,
                ..TokenUsage::default()
            })
            .min(ceiling_cost);
        Estimate {
            expected: Amounts {
                input_tokens: expected.0,
                output_tokens: expected.1,
                cost: expected_cost,
            },
            ceiling: Amounts {
                input_tokens: ceiling.0,
                output_tokens: ceiling.1,
                cost: ceiling_cost,
            },
        }
    }
}
