//! A provider that fails costs its callers nothing but time, and is left alone until it is well again.

use chrono::Utc;
use control::limits::NodeLimits;
use control::models::ModelDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use domain::ids::{TenantId, UpstreamId};
use domain::instances::BreakerState;
use domain::limits::{Dimension, Scope, Target};
use domain::policy::{Dialect, Encoding, Route};
use domain::prices::Rates;
use domain::questions::Question;
use domain::readings::Reading;
use domain::refusals::RefusalCode;
use futures_util::future::join_all;
use gateway::clock::Clock as _;
use gateway::relay::ATTEMPTS_MAX;
use serde_json::{Value, json};
use simulator::{Simulator, SimulatorConfig};
use test_support::http::{Answer, Stream};
use test_support::tollgate::{CHAT_PATH, CREDENTIAL, Options, Tollgate};
use upstream::breaker::{FAILURES_IN_ROW, OPEN_MS, SUCCESSES_TO_CLOSE};
use upstream::{RESERVED_RETRIES, RETRY_PERCENT, Timeouts};

/// What a model here is expected to answer when nothing is learned yet, in tokens.
const OUTPUT_DEFAULT: i64 = 500;
/// How long the provider may be silent where a test waits for the end of that, in milliseconds.
const FIRST_BYTE_MS: u64 = 400;

/// Two providers, and models that are served by them.
struct World {
    tollgate: Tollgate,
    second: Simulator,
    first_id: UpstreamId,
    second_id: UpstreamId,
}

impl World {
    async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    async fn start_with(options: Options) -> Self {
        let tollgate = Tollgate::start_with(options).await;
        let second = simulator(SimulatorConfig::default()).await;
        let first_id = tollgate.upstream("first", &tollgate.simulator.base_url()).await;
        let second_id = tollgate.upstream("second", &second.base_url()).await;
        Self {
            tollgate,
            second,
            first_id,
            second_id,
        }
    }

    fn first(&self) -> &Simulator {
        &self.tollgate.simulator
    }

    /// A model of the first provider, and of the second one where the first fails.
    async fn model(&self, name: &str) {
        let routes = [(self.first_id, 0, 1), (self.second_id, 1, 1)];
        routed(&self.tollgate, name, &routes).await;
    }

    /// How many requests each of them has seen.
    fn seen(&self) -> (u64, u64) {
        let seen = |simulator: &Simulator| simulator.stats().requests_received;
        (seen(self.first()), seen(&self.second))
    }

    fn breakers(&self) -> Vec<BreakerState> {
        breakers(&self.tollgate)
    }

    /// What the account's limit in this dimension says.
    async fn reading(&self, upstream: UpstreamId, dimension: Dimension) -> Reading {
        let gateway = &self.tollgate.running.gateway;
        let policy = gateway.policy().expect("a policy");
        let node = policy.limits_on(&Scope::Upstream(upstream));
        let now = self.tollgate.clock.now();
        let zone = policy.settings.time_zone;
        let readings = gateway.limits().peek(&[node], None, None, zone, now).await;
        let found = readings.into_iter().find(|reading| reading.dimension == dimension);
        found.expect("such a limit")
    }
}

async fn simulator(config: SimulatorConfig) -> Simulator {
    let config = SimulatorConfig {
        credential: Some(CREDENTIAL.to_owned()),
        ..config
    };
    Simulator::start(config).await.expect("the simulator starts")
}

/// A model by these ways: upstream, position and weight.
async fn routed(tollgate: &Tollgate, name: &str, routes: &[(UpstreamId, i32, i32)]) {
    let draft = ModelDraft {
        name: name.into(),
        group: None,
        context_tokens: 128_000,
        output_cap_tokens: 4_096,
        output_default_tokens: OUTPUT_DEFAULT.unsigned_abs(),
        encoding: Encoding::Ratio,
        is_disabled: false,
        routes: routes
            .iter()
            .map(|(upstream_id, position, weight)| Route {
                upstream_id: *upstream_id,
                upstream_model: format!("{name}-there"),
                position: *position,
                weight: *weight,
            })
            .collect(),
    };
    let (control, actor) = (tollgate.control(), tollgate.actor());
    control.create_model(&actor, &draft, Utc::now()).await.expect("a model");
    let price = control::prices::PriceDraft {
        valid_from: Some(Utc::now() - chrono::Duration::days(400)),
        rates: Rates::flat(1_000_000_000, 2_000_000_000),
        tiers: Vec::new(),
    };
    let priced = control.add_price(&actor, name, &price, Utc::now()).await;
    priced.expect("a price");
    tollgate.in_force().await;
}

fn breakers(tollgate: &Tollgate) -> Vec<BreakerState> {
    let status = tollgate.running.gateway.status();
    status.breakers.iter().map(|breaker| breaker.state).collect()
}

fn body(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}

async fn ask(tollgate: &Tollgate, key: &str, model: &str, text: &str) -> Answer {
    tollgate.browser().post_json(CHAT_PATH, key, &body(model, text)).await
}

async fn stream(tollgate: &Tollgate, key: &str, model: &str, text: &str) -> Stream {
    let mut body = body(model, text);
    body["stream"] = json!(true);
    tollgate.browser().stream_json(CHAT_PATH, key, &body).await
}

async fn named_key(tollgate: &Tollgate, name: &str) -> (TenantId, String) {
    tollgate.named_tenant_with_key(name, NodeLimits::default()).await
}

/// The row of a request.
#[derive(Debug, sqlx::FromRow)]
struct Row {
    outcome: String,
    usage_source: String,
    upstream_id: Option<uuid::Uuid>,
    upstream_model: Option<String>,
    status: Option<i16>,
    input_tokens: i64,
    output_tokens: i64,
    cost_nanos: i64,
    expected_input_tokens: i64,
    expected_cost_nanos: i64,
    attempts: Value,
}

impl Row {
    /// Where it was tried, with the status or what went wrong.
    fn tries(&self) -> Vec<(UpstreamId, String)> {
        let attempts = self.attempts.as_array().expect("a list");
        let tried = attempts.iter().map(|attempt| {
            let upstream: uuid::Uuid = attempt["upstream_id"].as_str().expect("an id").parse().expect("an id");
            let what = match attempt["status"].as_u64() {
                Some(status) => status.to_string(),
                None => attempt["error"].as_str().unwrap_or_default().to_owned(),
            };
            (UpstreamId(upstream), what)
        });
        tried.collect()
    }
}

/// The rows of a tenant. Nothing may be held.
async fn rows(tollgate: &Tollgate, tenant: TenantId) -> Vec<Row> {
    tollgate.shipped().await;
    assert_eq!(tollgate.running.gateway.open_holds(), 0, "a hold is left");
    sqlx::query_as(
        "select outcome, usage_source, upstream_id, upstream_model, status, output_tokens, cost_nanos,
                input_fresh_tokens + cache_read_tokens as input_tokens,
                expected_input_tokens, expected_cost_nanos, attempts
         from settlements where tenant_id = $1 order by admitted_at, id",
    )
    .bind(tenant.0)
    .fetch_all(&mut tollgate.sql().await)
    .await
    .expect("rows")
}

async fn only_row(tollgate: &Tollgate, tenant: TenantId) -> Row {
    let mut rows = rows(tollgate, tenant).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

#[tokio::test]
async fn whatever_a_provider_does_instead_of_answering_another_one_answers() {
    let world = World::start_with(Options {
        upstream_timeouts: Timeouts {
            first_byte_ms: FIRST_BYTE_MS,
            ..Timeouts::default()
        },
        ..Options::default()
    })
    .await;
    let cases = [
        ("status=500", "500", false),
        ("status=502", "502", false),
        ("status=503 retry-after=60", "503", false),
        ("status=529", "529", false),
        ("status=408", "408", false),
        ("status=429", "429", false),
        ("status=429 retry-after=7", "429", false),
        ("reset", "connection_broken", true),
        ("silence", "first_byte_timeout", true),
    ];
    for (number, (orders, what, may_have_cost)) in cases.into_iter().enumerate() {
        let model = format!("model-{number}");
        world.model(&model).await;
        let (tenant, key) = named_key(&world.tollgate, &format!("Tenant {number}")).await;
        world.first().script([orders]).expect("known orders");
        let answer = ask(&world.tollgate, &key, &model, "Hello. [[sim: tokens=25]]").await;
        assert_eq!(answer.status, 200, "{orders}: {}", answer.text());

        let row = only_row(&world.tollgate, tenant).await;
        let tries = [(world.first_id, what.to_owned()), (world.second_id, "200".to_owned())];
        assert_eq!(row.tries(), tries, "{orders}");
        assert_eq!((row.outcome.as_str(), row.status), ("completed", Some(200)));
        assert_eq!(row.upstream_id, Some(world.second_id.0));
        assert_eq!(row.upstream_model, Some(format!("{model}-there")));
        let reported = answer.json()["usage"]["prompt_tokens"].as_i64().expect("usage");
        // 1 and 2 units per million tokens.
        let cost = reported * 1_000 + 25 * 2_000;
        let figures = (
            row.usage_source.as_str(),
            row.input_tokens,
            row.output_tokens,
            row.cost_nanos,
        );
        if may_have_cost {
            let expected = (
                "estimated",
                reported + row.expected_input_tokens,
                25 + OUTPUT_DEFAULT,
                cost + row.expected_cost_nanos,
            );
            assert_eq!(figures, expected, "{orders}");
        } else {
            assert_eq!(figures, ("reported", reported, 25, cost), "{orders}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_passed_by() {
    let world = World::start().await;
    let gone = simulator(SimulatorConfig::default()).await;
    let url = gone.base_url();
    gone.stop().await;
    let gone = world.tollgate.upstream("gone", &url).await;
    let routes = [(gone, 0, 1), (world.second_id, 1, 1)];
    routed(&world.tollgate, "model", &routes).await;
    let (tenant, key) = named_key(&world.tollgate, "Tenant").await;
    let text = stream(&world.tollgate, &key, "model", "Hello. [[sim: tokens=25]]").await;
    assert_eq!(text.status, 200);
    assert!(text.rest().await.ends_with("data: [DONE]\n\n"));
    let row = only_row(&world.tollgate, tenant).await;
    let tries = [(gone, "connect".to_owned()), (world.second_id, "200".to_owned())];
    assert_eq!(row.tries(), tries);
    // What was never sent cost nothing.
    assert_eq!((row.usage_source.as_str(), row.output_tokens), ("reported", 25));
}

#[tokio::test]
async fn nothing_is_tried_again_once_the_caller_has_seen_a_byte() {
    let world = World::start().await;
    for (number, orders) in ["reset-after-chunks=2", "error-after-chunks=2", "close-after-chunks=2"]
        .into_iter()
        .enumerate()
    {
        let model = format!("model-{number}");
        world.model(&model).await;
        let (tenant, key) = named_key(&world.tollgate, &format!("Tenant {number}")).await;
        world.first().script([orders]).expect("known orders");
        let text = stream(&world.tollgate, &key, &model, "Hello. [[sim: tokens=25]]").await;
        assert_eq!(text.status, 200);
        let text = text.rest().await;
        assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "{text}");
        let row = only_row(&world.tollgate, tenant).await;
        assert_eq!(row.outcome, "upstream_error");
        assert_eq!(row.tries(), [(world.first_id, "200".to_owned())], "{orders}");
    }
    assert_eq!(world.seen().1, 0);
}

#[tokio::test]
async fn answers_that_break_off_open_the_breaker_too() {
    let world = World::start().await;
    world.model("model").await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    for number in 0..FAILURES_IN_ROW {
        assert!(world.breakers().is_empty());
        world.first().script(["reset-after-chunks=1"]).expect("known orders");
        let text = stream(&world.tollgate, &key, "model", &format!("Hello {number}.")).await;
        text.rest().await;
    }
    assert_eq!(world.breakers(), [BreakerState::Open]);
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
    assert_eq!(world.seen(), (FAILURES_IN_ROW as u64, 1));
}

#[tokio::test]
async fn a_callers_mistake_is_passed_on_and_opens_nothing() {
    let world = World::start().await;
    world.model("model").await;
    let (tenant, key) = named_key(&world.tollgate, "Tenant").await;
    for status in [400, 404, 409, 413, 422] {
        for _ in 0..FAILURES_IN_ROW {
            let text = format!("Hello. [[sim: status={status}]]");
            let answer = ask(&world.tollgate, &key, "model", &text).await;
            assert_eq!(answer.status, status);
        }
    }
    assert!(world.breakers().is_empty());
    assert_eq!(world.seen(), (5 * FAILURES_IN_ROW as u64, 0));
    let rows = rows(&world.tollgate, tenant).await;
    assert!(rows.iter().all(|row| row.tries().len() == 1 && row.cost_nanos == 0));
}

#[tokio::test]
async fn a_lone_upstream_is_tried_again_a_few_times_unless_it_asks_to_wait() {
    let world = World::start().await;
    routed(&world.tollgate, "patient", &[(world.first_id, 0, 1)]).await;
    routed(&world.tollgate, "hopeless", &[(world.first_id, 0, 1)]).await;
    routed(&world.tollgate, "waiting", &[(world.first_id, 0, 1)]).await;
    let (tenant, key) = named_key(&world.tollgate, "Tenant").await;
    world.first().script(["status=500", "reset"]).expect("known orders");
    let answer = ask(&world.tollgate, &key, "patient", "Hello.").await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let answer = ask(&world.tollgate, &key, "hopeless", "Hello. [[sim: status=503]]").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), "1");

    let text = "Hello. [[sim: status=503 retry-after=7]]";
    let answer = ask(&world.tollgate, &key, "waiting", text).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, "7"));

    let tries: Vec<Vec<String>> = rows(&world.tollgate, tenant)
        .await
        .iter()
        .map(|row| row.tries().into_iter().map(|(_, what)| what).collect())
        .collect();
    assert_eq!(
        tries,
        [
            vec!["500", "connection_broken", "200"],
            vec!["503"; ATTEMPTS_MAX as usize],
            vec!["503"]
        ]
    );
}

#[tokio::test]
async fn the_callers_own_time_limit_is_nobodys_failure() {
    let world = World::start().await;
    world.model("model").await;
    let limits = NodeLimits {
        request_seconds: Some(1),
        ..NodeLimits::default()
    };
    let (tenant, key) = world.tollgate.tenant_with_key(limits).await;
    let asking = (0..FAILURES_IN_ROW).map(|_| ask(&world.tollgate, &key, "model", "Hello. [[sim: silence]]"));
    for answer in join_all(asking).await {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (504, "upstream_timeout")
        );
    }
    assert!(world.breakers().is_empty());
    let rows = rows(&world.tollgate, tenant).await;
    assert!(rows.iter().all(|row| row.tries().len() == 1), "{rows:?}");
    assert_eq!(world.seen().1, 0);
}

#[tokio::test]
async fn traffic_is_shared_by_weight() {
    let world = World::start().await;
    let third = simulator(SimulatorConfig::default()).await;
    let third_id = world.tollgate.upstream("third", &third.base_url()).await;
    let routes = [(world.first_id, 0, 2), (world.second_id, 0, 5), (third_id, 0, 3)];
    routed(&world.tollgate, "model", &routes).await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    for _ in 0..20 {
        let asking = (0..20).map(|_| ask(&world.tollgate, &key, "model", "Hello. [[sim: tokens=1]]"));
        assert!(join_all(asking).await.iter().all(|answer| answer.status == 200));
    }
    // Six times the deviation to be expected.
    let (first, second) = world.seen();
    assert!((32..=128).contains(&first), "{first}");
    assert!((140..=260).contains(&second), "{second}");
    assert_eq!(first + second + third.stats().requests_received, 400);

    // What one cannot take is shared by the others as their weights are.
    world
        .tollgate
        .simulator
        .script(vec!["status=500"; FAILURES_IN_ROW])
        .expect("known orders");
    while world.breakers().is_empty() {
        assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
    }
    let (first, before) = world.seen();
    for _ in 0..10 {
        let asking = (0..20).map(|_| ask(&world.tollgate, &key, "model", "Hello. [[sim: tokens=1]]"));
        assert!(join_all(asking).await.iter().all(|answer| answer.status == 200));
    }
    let (still, second) = world.seen();
    assert_eq!(still, first);
    assert!((84..=166).contains(&(second - before)), "{}", second - before);
}

#[tokio::test]
async fn five_failures_open_the_breaker_and_a_few_good_answers_close_it() {
    let world = World::start().await;
    routed(&world.tollgate, "model", &[(world.first_id, 0, 1)]).await;
    let tenant = world.tollgate.tenant("Tenant", NodeLimits::default()).await;
    let issued = world.tollgate.issue(tenant).await;
    let key = issued.text.reveal().to_owned();
    world.tollgate.in_force().await;
    let ask_for = async |text: &str| ask(&world.tollgate, &key, "model", text).await;
    while world.breakers().is_empty() {
        assert_eq!(ask_for("Hello. [[sim: status=500]]").await.status, 500);
    }
    let failures = FAILURES_IN_ROW as u64;
    assert_eq!(world.seen().0, failures);
    let refused = ask_for("Hello.").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "upstream_unavailable")
    );
    let retry_after: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((50..=80).contains(&retry_after), "{retry_after}");
    assert_eq!(refused.json()["error"]["retry_after"], retry_after);
    assert_eq!(world.seen().0, failures, "it is left alone");
    let status = world.tollgate.running.gateway.status();
    let [breaker] = &status.breakers[..] else {
        panic!("{:?}", status.breakers);
    };
    assert_eq!(
        (breaker.upstream_id, breaker.upstream_model.as_deref(), breaker.state),
        (world.first_id, Some("model-there"), BreakerState::Open)
    );
    let open_ms = (breaker.until.expect("a time") - breaker.since).num_milliseconds();
    assert_eq!(open_ms.unsigned_abs(), OPEN_MS);
    assert_eq!(breaker.reason, "5 failures in a row, the last: status 500");
    let scopes = scopes_refused(&world.tollgate).await;
    assert_eq!(scopes, [format!("upstream:{}", world.first_id)]);
    let question = Question {
        key_id: issued.row.id,
        model: "model".into(),
        input_tokens: 10,
        output_cap_tokens: None,
        priority: None,
        user: None,
    };
    let explained = world.tollgate.running.gateway.explain(&question).await;
    let told = explained.expect("an answer").refusal.expect("a refusal");
    assert_eq!(told.code, RefusalCode::UpstreamUnavailable);
    assert!((50..=80).contains(&told.retry_after_seconds.expect("a time")));

    // One failed probe opens it again.
    world.tollgate.clock.skip(u32::try_from(OPEN_MS).expect("a minute"));
    assert_eq!(world.breakers(), [BreakerState::HalfOpen]);
    assert_eq!(ask_for("Hello. [[sim: status=500]]").await.status, 500);
    assert_eq!(world.breakers(), [BreakerState::Open]);
    assert_eq!(ask_for("Hello.").await.status, 503);
    assert_eq!(world.seen().0, failures + 1);

    world.tollgate.clock.skip(u32::try_from(OPEN_MS).expect("a minute"));
    for _ in 0..SUCCESSES_TO_CLOSE {
        assert_eq!(world.breakers(), [BreakerState::HalfOpen]);
        assert_eq!(ask_for("Hello.").await.status, 200);
    }
    assert!(world.breakers().is_empty());
}

/// Where requests were refused.
async fn scopes_refused(tollgate: &Tollgate) -> Vec<String> {
    tollgate.shipped().await;
    sqlx::query_scalar("select scope from rejections order by refused_at, id")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("scopes")
}

#[tokio::test]
async fn a_429_leaves_the_provider_alone_for_as_long_as_it_says() {
    let world = World::start().await;
    routed(&world.tollgate, "model", &[(world.first_id, 0, 1)]).await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    world
        .first()
        .script(["status=429 retry-after=30"])
        .expect("known orders");
    let answer = ask(&world.tollgate, &key, "model", "Hello.").await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, "30"));
    assert_eq!(world.breakers(), [BreakerState::Cooling]);
    world.tollgate.clock.skip(20_000);
    let answer = ask(&world.tollgate, &key, "model", "Hello.").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "upstream_unavailable")
    );
    let retry_after: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!((9..=13).contains(&retry_after), "{retry_after}");
    assert_eq!(world.seen().0, 1);
    world.tollgate.clock.skip(10_000);
    assert!(world.breakers().is_empty());
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
}

#[tokio::test]
async fn a_refused_credential_shuts_all_models_and_a_new_one_opens_them() {
    let world = World::start().await;
    let draft = UpstreamDraft {
        name: "third".into(),
        dialect: Dialect::Openai,
        base_url: world.first().base_url(),
        credential: CredentialChange::Replace("an-old-credential".into()),
        is_disabled: false,
    };
    let (control, actor) = (world.tollgate.control(), world.tollgate.actor());
    let created = control.create_upstream(&actor, &draft, Utc::now()).await;
    let third_id = created.expect("an upstream");
    routed(&world.tollgate, "one", &[(third_id, 0, 1)]).await;
    routed(&world.tollgate, "other", &[(third_id, 0, 1)]).await;
    routed(&world.tollgate, "both", &[(third_id, 0, 1), (world.second_id, 1, 1)]).await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    let answer = ask(&world.tollgate, &key, "one", "Hello.").await;
    assert_eq!(answer.status, 502);
    assert!(!answer.text().contains("old-credential") && !answer.text().contains("API key"));
    assert_eq!(ask(&world.tollgate, &key, "other", "Hello.").await.status, 503);
    assert_eq!(ask(&world.tollgate, &key, "both", "Hello.").await.status, 200);
    assert_eq!(world.seen(), (1, 1));
    let status = world.tollgate.running.gateway.status();
    assert_eq!(status.breakers.len(), 1);
    assert_eq!(status.breakers[0].upstream_model, None);

    let draft = UpstreamDraft {
        credential: CredentialChange::Replace(CREDENTIAL.into()),
        ..draft
    };
    let version = control.upstream(&actor, third_id).await.expect("the upstream").version;
    let edited = control.edit_upstream(&actor, third_id, version, &draft, Utc::now());
    edited.await.expect("an edit");
    world.tollgate.in_force().await;
    assert_eq!(ask(&world.tollgate, &key, "other", "Hello.").await.status, 200);
}

#[tokio::test]
async fn one_tenants_bad_requests_do_not_close_the_door_for_another() {
    let world = World::start().await;
    routed(&world.tollgate, "model", &[(world.first_id, 0, 1)]).await;
    let (_, bad) = named_key(&world.tollgate, "Bad").await;
    let (_, good) = named_key(&world.tollgate, "Good").await;
    let poison = "Hello. [[sim: status=500]]";
    for _ in 0..FAILURES_IN_ROW {
        assert_eq!(ask(&world.tollgate, &good, "model", "Hello.").await.status, 200);
        assert_eq!(ask(&world.tollgate, &bad, "model", poison).await.status, 500);
    }
    assert!(world.breakers().is_empty(), "others are served");

    // Alone it shuts the door on itself.
    routed(&world.tollgate, "alone", &[(world.first_id, 0, 1)]).await;
    while world.breakers().is_empty() {
        assert_eq!(ask(&world.tollgate, &bad, "alone", poison).await.status, 500);
    }
    assert_eq!(ask(&world.tollgate, &bad, "alone", "Hello.").await.status, 503);
    for _ in 0..SUCCESSES_TO_CLOSE {
        assert_eq!(ask(&world.tollgate, &good, "alone", "Hello.").await.status, 200);
    }
    assert!(world.breakers().is_empty());
}

#[tokio::test]
async fn retries_stay_a_share_of_the_traffic_when_everything_fails() {
    let world = World::start().await;
    world.model("model").await;
    let (_, bad) = named_key(&world.tollgate, "Bad").await;
    let (_, good) = named_key(&world.tollgate, "Good").await;
    // Others are served, so that no breaker is what stops it. The second provider serves one after a failure.
    assert_eq!(ask(&world.tollgate, &good, "model", "Hello.").await.status, 200);
    world.first().script(["status=500"]).expect("known orders");
    assert_eq!(ask(&world.tollgate, &good, "model", "Hello.").await.status, 200);
    let (first, second) = world.seen();
    assert_eq!((first, second), (2, 1));

    let count = 100;
    let asking = (0..count).map(|_| ask(&world.tollgate, &bad, "model", "Hello. [[sim: status=500]]"));
    for answer in join_all(asking).await {
        assert_eq!(answer.status, 500);
    }
    assert!(world.breakers().is_empty());
    let sent = world.seen().0 + world.seen().1 - 3;
    // One retry went to whom the second provider served.
    let retries_max = (count + 2) * RETRY_PERCENT / 100 + RESERVED_RETRIES - 1;
    assert_eq!(sent, count + retries_max);
}

#[tokio::test]
async fn the_account_that_failed_has_its_room_back_and_the_other_one_is_taken() {
    let world = World::start().await;
    world.model("model").await;
    let limits = NodeLimits {
        concurrency: Some(3),
        requests_per_minute: Some(100),
        total_tokens_per_minute: Some(100_000),
        ..NodeLimits::default()
    };
    for upstream in [world.first_id, world.second_id] {
        let target = Target::Node(Scope::Upstream(upstream));
        let (control, actor) = (world.tollgate.control(), world.tollgate.actor());
        let set = control.set_limits(&actor, &target, 0, &limits, Utc::now()).await;
        set.expect("set");
    }
    world.tollgate.in_force().await;
    let (tenant, key) = named_key(&world.tollgate, "Tenant").await;
    world.first().script(["status=500"]).expect("known orders");
    world.second.hold();
    let (answer, ()) = tokio::join!(
        ask(&world.tollgate, &key, "model", "Hello. [[sim: tokens=25]]"),
        async {
            world.second.wait_parked(1).await;
            let held = async |upstream| world.reading(upstream, Dimension::Concurrency).await.held;
            assert_eq!((held(world.first_id).await, held(world.second_id).await), (0, 1));
            let used = async |upstream, dimension| world.reading(upstream, dimension).await.used;
            // A request that was sent was one.
            assert_eq!(used(world.first_id, Dimension::Requests).await, 1);
            assert_eq!(used(world.first_id, Dimension::TotalTokens).await, 0);
            assert!(used(world.second_id, Dimension::TotalTokens).await > OUTPUT_DEFAULT);
            world.second.release_all();
        }
    );
    assert_eq!(answer.status, 200);
    let row = only_row(&world.tollgate, tenant).await;
    for upstream in [world.first_id, world.second_id] {
        assert_eq!(world.reading(upstream, Dimension::Concurrency).await.held, 0);
        assert_eq!(world.reading(upstream, Dimension::Requests).await.used, 1);
    }
    let used = world.reading(world.second_id, Dimension::TotalTokens).await.used;
    assert_eq!(used, row.input_tokens + row.output_tokens);
}

#[tokio::test]
async fn an_account_without_room_is_no_way_out() {
    let world = World::start().await;
    world.model("model").await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let target = Target::Node(Scope::Upstream(world.second_id));
    let (control, actor) = (world.tollgate.control(), world.tollgate.actor());
    let set = control.set_limits(&actor, &target, 0, &limits, Utc::now()).await;
    set.expect("set");
    world.tollgate.in_force().await;
    let (tenant, key) = named_key(&world.tollgate, "Tenant").await;
    world
        .first()
        .script(["status=429", "status=400"])
        .expect("known orders");
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
    world.tollgate.clock.skip(2_000);
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 400);
    world.first().script(["status=408"]).expect("known orders");
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 408);
    assert_eq!(world.seen(), (3, 1));
    assert_eq!(rows(&world.tollgate, tenant).await.len(), 3);
}

#[tokio::test]
async fn what_the_provider_says_of_its_account_lowers_our_counters() {
    let options = Options {
        simulator: SimulatorConfig {
            requests_per_minute: Some(10),
            tokens_per_minute: Some(5_000),
            ..SimulatorConfig::default()
        },
        ..Options::default()
    };
    let world = World::start_with(options).await;
    world.model("model").await;
    let limits = NodeLimits {
        requests_per_minute: Some(500),
        total_tokens_per_minute: Some(100_000),
        ..NodeLimits::default()
    };
    let target = Target::Node(Scope::Upstream(world.first_id));
    let (control, actor) = (world.tollgate.control(), world.tollgate.actor());
    let set = control.set_limits(&actor, &target, 0, &limits, Utc::now()).await;
    set.expect("set");
    world.tollgate.in_force().await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
    let requests = world.reading(world.first_id, Dimension::Requests).await;
    assert!(requests.remaining <= 9, "{requests:?}");
    let tokens = world.reading(world.first_id, Dimension::TotalTokens).await;
    assert!((1..5_000).contains(&tokens.remaining), "{tokens:?}");
}

#[tokio::test]
async fn changes_of_breakers_are_in_the_metrics() {
    let world = World::start().await;
    world.model("model").await;
    let (_, key) = named_key(&world.tollgate, "Tenant").await;
    for _ in 0..FAILURES_IN_ROW {
        world.first().script(["status=500"]).expect("known orders");
        assert_eq!(ask(&world.tollgate, &key, "model", "Hello.").await.status, 200);
    }
    let gateway = &world.tollgate.running.gateway;
    gateway.report_metrics(&gateway.status());
    let answer = world.tollgate.browser().get("/metrics").await.text();
    // Tests of one process share the metrics: what others have added is in them, too.
    let value = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} is not in {answer}"))
    };
    assert!(value("tollgate_breaker_transitions_total{upstream=\"first\",state=\"open\"}") >= 1.0);
    assert!(value("tollgate_upstream_failovers_total{upstream=\"second\"}") >= 5.0);
    for state in ["open", "half_open", "cooling"] {
        value(&format!("tollgate_breakers{{state=\"{state}\"}}"));
    }
}
