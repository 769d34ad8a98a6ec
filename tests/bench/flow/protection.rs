//! What the gateway protects by, set as an operator would.

use chrono::Utc;
use clap::ValueEnum;
use control::limits::{LimitDraft, NodeLimits};
use control::{Actor, Control};
use domain::budget_events::Thresholds;
use domain::ids::{TenantId, UpstreamId};
use domain::limits::{Class, Dimension, Gates, Mode, Scope, Target};
use domain::periods::Period;

/// The three gateways of the proving run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protection {
    /// No limits, no queue. An upstream that has answered 429 is left alone for as long as it says all the same: that
    /// cannot be turned off.
    Nothing,
    /// Limits on each user and one window for all; whoever finds no room is refused.
    Rates,
    /// Limits at every level, the account's own with them, queue and client SDK.
    Everything,
}

/// How the account is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Requests per window. A sliding window counts in 20 cells and one more: never more than this within it, and of what
    /// wants to pass all the time 20/21 of it.
    pub(crate) requests: u64,
    /// The window, in seconds.
    pub(crate) seconds: u32,
    /// Tokens per minute.
    pub(crate) tokens: u64,
    /// The burst of it. Whoever starts from rest gets this much at once, so that tokens per minute and burst together are
    /// to be below what the provider allows.
    pub(crate) burst_tokens: u64,
}

/// As an operator should set it for 500 requests and 400,000 tokens a minute: requests as the provider states them, tokens
/// with the burst taken off and a little more. The bucket of tokens also spreads what would come at once.
pub(crate) const ACCOUNT: Account = Account {
    requests: 500,
    seconds: 60,
    tokens: 385_000,
    burst_tokens: 13_000,
};

/// What each user may do in a minute.
const USER: NodeLimits = NodeLimits {
    requests_per_minute: Some(20),
    total_tokens_per_minute: Some(90_000),
    ..NO_LIMITS
};
/// What each key may have in flight.
const KEY: NodeLimits = NodeLimits {
    concurrency: Some(5),
    ..NO_LIMITS
};
/// What each tenant may do in a minute: a fair part, and half as much again.
const TENANT: NodeLimits = NodeLimits {
    requests_per_minute: Some(180),
    total_tokens_per_minute: Some(150_000),
    ..NO_LIMITS
};
const NO_LIMITS: NodeLimits = NodeLimits {
    monthly_cost: None,
    monthly_tokens: None,
    requests_per_minute: None,
    input_tokens_per_minute: None,
    output_tokens_per_minute: None,
    total_tokens_per_minute: None,
    concurrency: None,
    request_input_tokens: None,
    request_output_tokens: None,
    request_seconds: None,
};
/// The one window for all, where there is no account limit behind it.
const GLOBAL_REQUESTS: u64 = 500;
/// The global limit with gates: above what the account lets through, so that background work waits first when much is
/// wanted, and ordinary traffic does not.
const GATED_GLOBAL_REQUESTS: u64 = 600;

impl Protection {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nothing => "no protection",
            Self::Rates => "user limits and global window",
            Self::Everything => "everything",
        }
    }

    /// Sets the limits.
    pub(crate) async fn establish(
        self,
        control: &Control,
        tenants: &[TenantId],
        upstream: UpstreamId,
        account: Account,
    ) -> anyhow::Result<()> {
        let operator = Operator(control);
        match self {
            Self::Nothing => {}
            Self::Rates => {
                for tenant in tenants {
                    operator.plain(Target::OfTenant(*tenant, Class::User), &USER).await?;
                }
                let window = requests(GLOBAL_REQUESTS, 60);
                operator.one(Target::Node(Scope::Global), 0, window).await?;
            }
            Self::Everything => {
                for tenant in tenants {
                    operator.plain(Target::OfTenant(*tenant, Class::User), &USER).await?;
                    operator.plain(Target::OfTenant(*tenant, Class::Key), &KEY).await?;
                    operator.plain(Target::Node(Scope::Tenant(*tenant)), &TENANT).await?;
                }
                let gated = LimitDraft {
                    gates: Some(Gates {
                        lower_percent: 70,
                        upper_percent: 90,
                        upper_waits: true,
                    }),
                    ..requests(GATED_GLOBAL_REQUESTS, 60)
                };
                operator.one(Target::Node(Scope::Global), 0, gated).await?;
                let node = Target::Node(Scope::Upstream(upstream));
                operator
                    .one(node.clone(), 0, requests(account.requests, account.seconds))
                    .await?;
                let tokens = LimitDraft {
                    dimension: Dimension::TotalTokens,
                    value: account.tokens,
                    burst: Some(account.burst_tokens),
                    ..requests(0, 60)
                };
                operator.one(node, 1, tokens).await?;
            }
        }
        Ok(())
    }
}

fn requests(value: u64, window_seconds: u32) -> LimitDraft {
    LimitDraft {
        dimension: Dimension::Requests,
        value,
        window_seconds,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

struct Operator<'a>(&'a Control);

impl Operator<'_> {
    const ACTOR: Actor = Actor::System { name: "bench" };

    async fn plain(&self, target: Target, limits: &NodeLimits) -> anyhow::Result<()> {
        self.0.set_limits(&Self::ACTOR, &target, 0, limits, Utc::now()).await?;
        Ok(())
    }

    async fn one(&self, target: Target, version: i64, limit: LimitDraft) -> anyhow::Result<()> {
        self.0
            .set_limit(&Self::ACTOR, &target, version, &limit, Utc::now())
            .await?;
        Ok(())
    }
}
