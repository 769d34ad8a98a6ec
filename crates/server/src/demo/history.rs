//! A month and a half of made-up history, put into the ledger the way a gateway would: in batches, with roll-ups and marks.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Datelike as _, Duration, Utc, Weekday};
use domain::ids::{LimitId, RequestId, TenantId};
use domain::ledger::{Attempt, Identity, Outcome, RehearsedVerdict, Rejection, Settlement};
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::usage::{TokenUsage, UsageSource};
use store::Store;
use store::ledger::{ShipBatch, Shipped};

use super::organisation::{DemoKey, Made, REHEARSED_GROUP};

const DAYS: i64 = 46;
/// How much of its budget a tenant spends in a month at most, in percent.
const SPENT_PERCENT_MAX: i64 = 96;
const INSTANCE: &str = "demo-history";
const BATCH: usize = 1_000;
/// The last minutes are left to live traffic.
const UNTIL_MINUTES_AGO: i64 = 5;

/// Ships the history.
pub(super) async fn create(store: &Store, made: &Made, now: DateTime<Utc>) -> anyhow::Result<()> {
    // Months that are over want their partitions too.
    store.ensure_partitions(now - Duration::days(DAYS + 31)).await?;
    store.ensure_partitions(now).await?;
    let (settlements, rejections) = generate(made, now);
    let mut previous_seq = store.ledger_mark(INSTANCE).await?;
    let mut rejections = rejections.chunks(BATCH);
    for batch in settlements.chunks(BATCH) {
        let rejections = rejections.next().unwrap_or_default();
        let last_seq = previous_seq + (batch.len() + rejections.len()) as u64;
        let batch = ShipBatch {
            previous_seq,
            last_seq,
            settlements: batch.iter().collect(),
            rejections: rejections.iter().collect(),
        };
        match store.ship_ledger(INSTANCE, &batch).await? {
            Shipped::Committed { .. } => previous_seq = last_seq,
            Shipped::Elsewhere { .. } => anyhow::bail!("somebody else writes the demo's history"),
        }
    }
    Ok(())
}

fn generate(made: &Made, now: DateTime<Utc>) -> (Vec<Settlement>, Vec<Rejection>) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut settlements, mut rejections) = (Vec::new(), Vec::new());
    let mut spent: HashMap<(TenantId, u32), Nanos> = HashMap::new();
    for days_ago in (0..=DAYS).rev() {
        let day = now - Duration::days(days_ago);
        let is_weekend = matches!(day.weekday(), Weekday::Sat | Weekday::Sun);
        for key in &made.keys {
            let usual = if is_weekend {
                key.daily_requests / 4
            } else {
                key.daily_requests
            };
            let requests = usual + dice.below(usual.max(1).into()) as u32 / 2;
            for _ in 0..requests {
                // Busiest in the early afternoon: the sum of two dice over the working hours.
                let minute = 360 + (dice.below(400) + dice.below(400)) as i64;
                let start = day.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
                let at = start + Duration::minutes(minute) + Duration::milliseconds(dice.below(60_000) as i64);
                if at > now - Duration::minutes(UNTIL_MINUTES_AGO) {
                    continue;
                }
                if dice.below(100) < 3 {
                    rejections.push(rejection(&mut dice, key, at));
                } else {
                    let ran = settlement(&mut dice, key, made, at);
                    let of_month = spent.entry((key.tenant, at.month())).or_default();
                    // A budget is never passed: what would have passed it did not run. A little is left for the live traffic.
                    let left = key.monthly_cost.0 / 100 * SPENT_PERCENT_MAX - of_month.0;
                    if ran.cost_nanos.0 <= left {
                        of_month.0 += ran.cost_nanos.0;
                        settlements.push(ran);
                    }
                }
            }
        }
    }
    (settlements, rejections)
}

/// Two thirds of the requests say which project they are for.
fn tags(random: [u8; 10]) -> BTreeMap<String, String> {
    let project = ["search", "support", "reporting", "search"].get(usize::from(random[9]) % 6);
    project
        .map(|project| ("project".to_owned(), (*project).to_owned()))
        .into_iter()
        .collect()
}

fn identity(dice: &mut Dice, key: &DemoKey, model: &str, at: DateTime<Utc>) -> Identity {
    let random = dice.bytes();
    Identity {
        id: RequestId::new(at, random),
        tenant_id: key.tenant,
        user_id: key.owner.map(|owner| owner.to_string()),
        key_id: key.id,
        model: Some(model.into()),
        dialect: Dialect::Openai,
        endpoint: "chat/completions".into(),
        priority: key.priority,
        is_streamed: dice.below(3) > 0,
        tags: tags(random),
        instance: INSTANCE.into(),
        user_agent: Some("OpenAI/Python".into()),
        job_id: None,
    }
}

fn model(dice: &mut Dice, key: &DemoKey) -> &'static str {
    let drawn = dice.below(key.models.len() as u64 + 1) as usize;
    key.models[drawn.saturating_sub(1)]
}

fn settlement(dice: &mut Dice, key: &DemoKey, made: &Made, at: DateTime<Utc>) -> Settlement {
    let model = model(dice, key);
    let upstream = made.upstream;
    let identity = identity(dice, key, model, at);
    let input = 200 + dice.below(3_000) + if dice.below(12) == 0 { dice.below(20_000) } else { 0 };
    let cached = if dice.below(3) == 0 { input * 2 / 3 } else { 0 };
    let output = 40 + dice.below(900);
    let outcome = match dice.below(200) {
        0..=2 => Outcome::UpstreamError,
        3..=4 => Outcome::ClientClosed,
        5 => Outcome::TimedOut,
        _ => Outcome::Completed,
    };
    let has_failed = matches!(outcome, Outcome::UpstreamError | Outcome::TimedOut);
    let usage = if has_failed {
        TokenUsage::default()
    } else {
        TokenUsage {
            input_fresh_tokens: input - cached,
            cache_read_tokens: cached,
            output_tokens: output,
            reasoning_tokens: if model == "sim-reasoning" { output / 2 } else { 0 },
            ..TokenUsage::default()
        }
    };
    let price = made.prices.iter().find(|price| price.model == model);
    let cost = |usage: &TokenUsage| price.map_or(Nanos::ZERO, |price| price.cost(usage));
    let expected = (input + input / 10, 700);
    let ceiling = (input + input / 6, 2_048);
    let expected_usage = TokenUsage {
        input_fresh_tokens: expected.0,
        output_tokens: expected.1,
        ..TokenUsage::default()
    };
    let first_byte_ms = 180 + dice.below(400) as i64;
    let total_ms = first_byte_ms + output as i64 * (8 + dice.below(12) as i64);
    Settlement {
        identity,
        admitted_at: at,
        settled_at: at + Duration::milliseconds(total_ms),
        upstream_id: Some(upstream),
        upstream_model: Some(model.into()),
        upstream_request_id: None,
        outcome,
        status: Some(if has_failed { 502 } else { 200 }),
        attempts: vec![Attempt {
            upstream_id: upstream,
            upstream_model: model.into(),
            status: Some(if has_failed { 500 } else { 200 }),
            error: None,
            first_byte_ms,
        }],
        usage,
        usage_source: if has_failed {
            UsageSource::None
        } else {
            UsageSource::Reported
        },
        expected_input_tokens: expected.0,
        expected_output_tokens: expected.1,
        expected_cost_nanos: cost(&expected_usage),
        ceiling_input_tokens: ceiling.0,
        ceiling_output_tokens: ceiling.1,
        ceiling_cost_nanos: price.map_or(Nanos::ZERO, |price| price.ceiling(ceiling.0, ceiling.1)),
        cost_nanos: cost(&usage),
        overrun_nanos: Nanos::ZERO,
        price_id: price.map(|price| price.id),
        is_unpriced: false,
        queue_ms: 0,
        first_byte_ms: Some(first_byte_ms),
        total_ms,
        rehearsed: rehearsed(dice, model, made.rehearsed),
    }
}

/// What the rehearsed limit would have said: no, now and then.
fn rehearsed(dice: &mut Dice, model: &str, limit_id: LimitId) -> Vec<RehearsedVerdict> {
    if model == "sim-small" || dice.below(9) > 0 {
        return Vec::new();
    }
    vec![RehearsedVerdict {
        scope: Scope::ModelGroup(REHEARSED_GROUP.into()),
        dimension: Dimension::Requests,
        limit_id,
        code: RefusalCode::RateLimitExceeded,
    }]
}

fn rejection(dice: &mut Dice, key: &DemoKey, at: DateTime<Utc>) -> Rejection {
    let model = model(dice, key);
    let (code, message, retry) = match dice.below(10) {
        0..=5 if key.priority == Priority::Low => (
            RefusalCode::PriorityGated,
            "The service is busy. Retry in 9 s.",
            Some(9),
        ),
        0..=5 => (
            RefusalCode::RateLimitExceeded,
            "Too many requests: your tenant allows 30 requests per window. Retry in 4 s.",
            Some(4),
        ),
        6..=7 => (RefusalCode::InvalidRequest, "The field `messages` is required.", None),
        8 => (
            RefusalCode::ModelNotFound,
            "There is no model of this name here. `GET /v1/models` lists those your key may use.",
            None,
        ),
        _ => (
            RefusalCode::ConcurrencyLimitExceeded,
            "Too many requests at once: your tenant allows 50 in flight. Retry in 1 s.",
            Some(1),
        ),
    };
    let dimension = match code {
        RefusalCode::RateLimitExceeded | RefusalCode::PriorityGated => Some(Dimension::Requests),
        RefusalCode::ConcurrencyLimitExceeded => Some(Dimension::Concurrency),
        _ => None,
    };
    let scope = match code {
        RefusalCode::PriorityGated => Scope::Global,
        _ => Scope::Tenant(key.tenant),
    };
    // One of the programs does not wait.
    let is_early = retry.is_some() && key.owner.is_none() && key.priority == Priority::Default && dice.below(3) > 0;
    Rejection {
        identity: identity(dice, key, model, at),
        refused_at: at,
        code,
        status: code.status(),
        scope: dimension.map(|_| scope),
        dimension,
        limit_id: None,
        limit_key: None,
        chain: Vec::new(),
        message: message.into(),
        retry_after_seconds: retry,
        caller_retries: retry.map(|_| if is_early { 2 } else { 0 }),
        refusal_count: 1,
        early_count: i64::from(is_early),
        expected_input_tokens: 0,
        expected_output_tokens: 0,
        expected_cost_nanos: Nanos::ZERO,
        queue_ms: 0,
    }
}

/// Always the same history: xorshift64*, which is good enough for made-up figures.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }

    fn bytes(&mut self) -> [u8; 10] {
        std::array::from_fn(|_| (self.next() >> 32) as u8)
    }
}
