//! The page that explains: what it says is what a request is then told, and asking takes nothing.

use std::collections::BTreeMap;

use chrono::Utc;
use control::explain::Explained;
use control::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, NodeLimits};
use control::models::ModelDraft;
use control::prices::PriceDraft;
use control::rows::EntryFilter;
use control::{Actor, ControlError};
use domain::ids::{KeyId, TenantId};
use domain::ledger::Rejection;
use domain::limits::{Dimension, Gates, Mode, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::policy::{Encoding, Route};
use domain::prices::Rates;
use domain::priority::Priority;
use domain::questions::Question;
use serde_json::json;
use test_support::console::Window;
use test_support::html::Page;
use test_support::http::Answer;
use test_support::tollgate::{MODEL, Tollgate, chat_body};

/// What a request states as its output cap here.
const OUTPUT_CAP: u64 = 50;
/// Explanations after which something would be used up if they took anything.
const EXPLANATIONS: usize = 20;

fn requests(value: u64) -> LimitDraft {
    test_support::tollgate::limit(Dimension::Requests, value)
}

async fn limit(tollgate: &Tollgate, target: Target, draft: &LimitDraft) {
    tollgate
        .control()
        .set_limit(&tollgate.actor(), &target, 0, draft, Utc::now())
        .await
        .expect("the limit is set");
}

/// A tenant of this name with such limits and a key.
async fn key_with(tollgate: &Tollgate, name: &str, limits: NodeLimits) -> IssuedKey {
    let tenant = tollgate.tenant(name, limits).await;
    tollgate.issue(tenant).await
}

fn question(key: KeyId, model: &str) -> Question {
    Question {
        key_id: key,
        model: model.to_owned(),
        input_tokens: 20,
        output_cap_tokens: Some(OUTPUT_CAP),
        priority: None,
        user: None,
    }
}

fn body(model: &str) -> serde_json::Value {
    let mut body = chat_body("Hello.");
    body["model"] = json!(model);
    body["max_completion_tokens"] = json!(OUTPUT_CAP);
    body
}

async fn send(tollgate: &Tollgate, key: &IssuedKey, model: &str) -> Answer {
    let answer = tollgate
        .browser()
        .post_json("/v1/chat/completions", key.text.reveal(), &body(model))
        .await;
    tollgate.shipped().await;
    answer
}

/// Fills the form in as somebody would.
async fn ask(window: &mut Window, key: &str, model: &str) -> Page {
    window.visit("/explain").await;
    let form = window
        .page
        .form("/explain")
        .fill("key", key)
        .fill("model", model)
        .fill("input_tokens", "20")
        .fill("output_cap_tokens", &OUTPUT_CAP.to_string());
    window.send(&form).await.clone()
}

/// The explanation and, right after it, what the same request really gets. They have to agree.
async fn compared(tollgate: &Tollgate, key: &IssuedKey, model: &str, expected: Option<&str>) -> Explained {
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let explained = control
        .explain(&actor, &question(key.row.id, model))
        .await
        .expect("an explanation");
    let answer = send(tollgate, key, model).await;
    let Some(expected) = expected else {
        assert_eq!(explained.refusal, None, "{}", answer.text());
        assert_eq!(answer.status, 200, "{}", answer.text());
        return explained;
    };
    let refusal = explained.refusal.clone().expect("a refusal");
    assert_eq!((refusal.code.as_str(), answer.code().as_str()), (expected, expected));
    assert_eq!(refusal.code.status(), answer.status.as_u16());
    let said = answer.json()["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // The seconds of a real answer have jitter.
    let worded = |text: &str| text.split(char::is_numeric).next().unwrap_or_default().to_owned();
    assert_eq!(worded(&refusal.message), worded(&said));
    if let Some(seconds) = refusal.retry_after_seconds {
        let told: u64 = answer.header("retry-after").parse().expect("a number");
        assert!(
            (seconds.saturating_sub(1)..=seconds + seconds * 3 / 10 + 1).contains(&told),
            "{seconds}, {told}"
        );
    } else {
        assert_eq!(answer.header("retry-after"), "");
    }

    // Every limit that was asked said the same, in the same order; and the row names the one that was told.
    let row = last_rejection(tollgate, key.row.id).await;
    let chain: Vec<_> = row
        .chain
        .iter()
        .map(|check| {
            (
                check.scope.to_string(),
                check.dimension,
                check.limit_value,
                check.has_room,
            )
        })
        .collect();
    let asked: Vec<_> = explained
        .asked
        .iter()
        .map(|asked| {
            let reading = &asked.answer.reading;
            let has_room = asked.answer.refusal.is_none();
            (
                reading.scope.to_string(),
                reading.dimension,
                reading.limit_value,
                has_room,
            )
        })
        .collect();
    if row.scope.is_some_and(|scope| matches!(scope, Scope::Upstream(_))) {
        assert_eq!(asked, chain);
    } else {
        // A tree that refuses does not ask upstreams any more.
        assert_eq!(asked[..chain.len()], chain);
        assert!(
            asked[chain.len()..]
                .iter()
                .all(|(scope, ..)| scope.starts_with("upstream:"))
        );
    }
    let told = explained.asked.iter().find(|asked| asked.is_told);
    assert_eq!(told.map(|asked| asked.answer.reading.limit_id), row.limit_id);
    explained
}

async fn last_rejection(tollgate: &Tollgate, key: KeyId) -> Rejection {
    let filter = EntryFilter {
        key: Some(key),
        ..EntryFilter::default()
    };
    let page = tollgate
        .control()
        .rejections(&tollgate.actor(), &filter, None, 1)
        .await
        .expect("rejections");
    page.entries.into_iter().next().expect("a rejection").entry
}

#[tokio::test]
async fn an_explanation_says_what_the_request_is_then_told_by_limits() {
    let tollgate = Tollgate::start().await;
    let none = NodeLimits::default;
    let plain = key_with(&tollgate, "Plain", none()).await;
    let rate = NodeLimits {
        requests_per_minute: Some(1),
        ..none()
    };
    let rate = key_with(&tollgate, "Rate", rate).await;
    let tokens = NodeLimits {
        total_tokens_per_minute: Some(90),
        ..none()
    };
    let tokens = key_with(&tollgate, "Tokens", tokens).await;
    let budget = NodeLimits {
        monthly_cost: Some(Nanos(1)),
        ..none()
    };
    let budget = key_with(&tollgate, "Budget", budget).await;
    let cap = NodeLimits {
        request_output_tokens: Some(OUTPUT_CAP - 1),
        requests_per_minute: Some(10),
        ..none()
    };
    let cap = key_with(&tollgate, "Cap", cap).await;
    let at_once = NodeLimits {
        concurrency: Some(1),
        ..none()
    };
    let at_once = key_with(&tollgate, "At once", at_once).await;
    tollgate.in_force().await;

    let admitted = compared(&tollgate, &plain, MODEL, None).await;
    assert_eq!(admitted.upstream.as_deref(), Some("simulator"));
    compared(&tollgate, &rate, MODEL, None).await;
    compared(&tollgate, &rate, MODEL, Some("rate_limit_exceeded")).await;
    compared(&tollgate, &tokens, MODEL, None).await;
    compared(&tollgate, &tokens, MODEL, Some("rate_limit_exceeded")).await;
    compared(&tollgate, &budget, MODEL, Some("budget_exhausted")).await;
    compared(&tollgate, &cap, MODEL, Some("request_too_large")).await;

    let mut stream = tollgate
        .chat_stream(at_once.text.reveal(), "Hello. [[sim: tokens=20 hold-after-chunks=2]]")
        .await;
    assert!(stream.next().await.is_some());
    let actor = tollgate.actor();
    let explained = tollgate
        .control()
        .explain(&actor, &question(at_once.row.id, MODEL))
        .await;
    let refusal = explained.expect("an explanation").refusal.expect("a refusal");
    let answer = tollgate
        .browser()
        .post_json("/v1/chat/completions", at_once.text.reveal(), &body(MODEL))
        .await;
    assert_eq!(refusal.code.as_str(), "concurrency_limit_exceeded");
    assert_eq!(answer.code(), "concurrency_limit_exceeded");
    tollgate.simulator.release_all();
    stream.rest().await;
    compared(&tollgate, &at_once, MODEL, None).await;

    // Shared limits last: from here on they refuse everybody.
    let gated = LimitDraft {
        gates: Some(Gates {
            lower_percent: 10,
            upper_percent: 20,
            upper_waits: false,
        }),
        ..requests(10)
    };
    limit(&tollgate, Target::Node(Scope::Model(MODEL.into())), &gated).await;
    tollgate.in_force().await;
    compared(&tollgate, &plain, MODEL, None).await;
    compared(&tollgate, &plain, MODEL, None).await;
    compared(&tollgate, &plain, MODEL, Some("priority_gated")).await;
    let account = Target::Node(Scope::Upstream(
        tollgate.control().upstreams(&actor).await.expect("upstreams")[0].id,
    ));
    limit(&tollgate, account, &requests(1)).await;
    let mut open = gated.clone();
    open.gates = None;
    open.value = 100;
    let node = Target::Node(Scope::Model(MODEL.into()));
    let version = tollgate
        .control()
        .limits_of(&actor, &node)
        .await
        .expect("limits")
        .version;
    tollgate
        .control()
        .set_limit(&actor, &node, version, &open, Utc::now())
        .await
        .expect("the limit is changed");
    tollgate.in_force().await;
    compared(&tollgate, &plain, MODEL, None).await;
    let full = compared(&tollgate, &plain, MODEL, Some("rate_limit_exceeded")).await;
    assert_eq!(full.upstream, None);
    assert_eq!(full.asked.last().map(|asked| asked.name.as_str()), Some("simulator"));
}

#[tokio::test]
async fn a_priority_that_is_asked_for_decides_at_the_gates() {
    let tollgate = Tollgate::start().await;
    let key = key_with(&tollgate, "Research", NodeLimits::default()).await;
    let gated = LimitDraft {
        gates: Some(Gates {
            lower_percent: 10,
            upper_percent: 90,
            upper_waits: false,
        }),
        ..requests(10)
    };
    limit(&tollgate, Target::Node(Scope::Global), &gated).await;
    tollgate.in_force().await;
    assert_eq!(send(&tollgate, &key, MODEL).await.status, 200);
    let bearer = format!("Bearer {}", key.text.reveal());
    for (priority, runs_at, code) in [
        (Priority::Low, Priority::Low, "priority_gated"),
        // It may be lowered, never raised.
        (Priority::Critical, Priority::Default, ""),
    ] {
        let asked = Question {
            priority: Some(priority),
            ..question(key.row.id, MODEL)
        };
        let explained = tollgate.control().explain(&tollgate.actor(), &asked).await;
        let explained = explained.expect("an explanation");
        assert_eq!(explained.priority, runs_at);
        let said = explained.refusal.map_or("", |refusal| refusal.code.as_str());
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("x-tollgate-priority", priority.as_str()),
        ];
        let answer = tollgate
            .browser()
            .send(
                http::Method::POST,
                "/v1/chat/completions",
                &headers,
                bytes::Bytes::from(body(MODEL).to_string()),
            )
            .await;
        let told = if answer.status == 200 {
            String::new()
        } else {
            answer.code()
        };
        assert_eq!((said, told.as_str()), (code, code));
    }
}

#[tokio::test]
async fn an_explanation_says_what_the_request_is_then_told_before_any_limit() {
    let tollgate = Tollgate::start().await;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let upstream = control.upstreams(&actor).await.expect("upstreams").remove(0);
    tollgate.model("no-price", upstream.id, None).await;
    let away = tollgate.upstream("away", "http://127.0.0.1:9/v1").await;
    tollgate.model("nobody-serves", away, Some(Rates::flat(1, 1))).await;
    let disabled = control::upstreams::UpstreamDraft {
        name: "away".into(),
        dialect: domain::policy::Dialect::Openai,
        base_url: "http://127.0.0.1:9/v1".into(),
        credential: control::upstreams::CredentialChange::Keep,
        is_disabled: true,
    };
    let version = control.upstream(&actor, away).await.expect("the upstream").version;
    control
        .edit_upstream(&actor, away, version, &disabled, Utc::now())
        .await
        .expect("it is disabled");
    let tenant = tollgate.tenant("Research", NodeLimits::default()).await;
    let draft = |name: &str| KeyDraft {
        name: name.to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let issue = async |draft: KeyDraft| {
        control
            .issue_key(&actor, tenant, KeyOwner::Service, &draft, Utc::now())
            .await
            .expect("a key")
    };
    let all = issue(draft("all")).await;
    let one = issue(KeyDraft {
        allowed_models: Some(vec![MODEL.to_owned()]),
        ..draft("one")
    })
    .await;
    let revoked = issue(draft("revoked")).await;
    control
        .revoke_key(&actor, revoked.row.id, Utc::now())
        .await
        .expect("it is revoked");
    tollgate.in_force().await;

    let mut operator = Window::operator(&tollgate).await;
    for (key, model, code) in [
        (&all, "nothing", "model_not_found"),
        (&one, "no-price", "model_not_allowed"),
        (&all, "no-price", "model_unpriced"),
        (&all, "nobody-serves", "upstream_unavailable"),
        (&revoked, MODEL, "key_revoked"),
    ] {
        let explained = compared(&tollgate, key, model, Some(code)).await;
        assert_eq!(explained.asked, []);
        let page = ask(&mut operator, &key.row.name, model).await;
        assert_eq!(page.fact("Code"), code, "{}", page.content());
        assert!(page.content().contains("It would be refused"));
    }
    // Whoever names users without being allowed to.
    let naming = Question {
        user: Some("anna".into()),
        ..question(all.row.id, MODEL)
    };
    let refusal = control.explain(&actor, &naming).await.expect("an explanation").refusal;
    let bearer = format!("Bearer {}", all.text.reveal());
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-tollgate-user", "anna"),
    ];
    let answer = tollgate
        .browser()
        .send(
            http::Method::POST,
            "/v1/chat/completions",
            &headers,
            bytes::Bytes::from(body(MODEL).to_string()),
        )
        .await;
    let refusal = refusal.expect("a refusal");
    assert_eq!(
        (answer.code().as_str(), refusal.code.as_str()),
        ("invalid_request", "invalid_request")
    );
    assert_eq!(answer.json()["error"]["message"], refusal.message);

    let version = control
        .tenant(&actor, tenant, Utc::now())
        .await
        .expect("the tenant")
        .row
        .version;
    control
        .suspend_tenant(&actor, tenant, version, Utc::now())
        .await
        .expect("it is suspended");
    tollgate.in_force().await;
    compared(&tollgate, &all, MODEL, Some("tenant_suspended")).await;
}

#[tokio::test]
async fn what_a_request_needs_is_what_a_real_one_is_estimated_at() {
    let tollgate = Tollgate::start().await;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let upstream = control.upstreams(&actor).await.expect("upstreams").remove(0);
    let exact = ModelDraft {
        name: "exact".into(),
        group: None,
        context_tokens: 128_000,
        output_cap_tokens: 4_096,
        output_default_tokens: 500,
        encoding: Encoding::O200kBase,
        is_disabled: false,
        routes: vec![Route {
            upstream_id: upstream.id,
            upstream_model: "exact".into(),
            position: 0,
            weight: 1,
        }],
    };
    control.create_model(&actor, &exact, Utc::now()).await.expect("a model");
    let price = PriceDraft {
        valid_from: Some(Utc::now() - chrono::Duration::days(1)),
        rates: Rates::flat(1_000_000_000, 2_000_000_000),
        tiers: Vec::new(),
    };
    control
        .add_price(&actor, "exact", &price, Utc::now())
        .await
        .expect("a price");
    let limits = NodeLimits {
        request_output_tokens: Some(1),
        ..NodeLimits::default()
    };
    let key = key_with(&tollgate, "Research", limits).await;
    tollgate.in_force().await;
    assert_eq!(send(&tollgate, &key, "exact").await.code(), "request_too_large");
    let row = last_rejection(&tollgate, key.row.id).await;
    let asked = Question {
        input_tokens: row.expected_input_tokens,
        ..question(key.row.id, "exact")
    };
    let estimate = control.explain(&actor, &asked).await.expect("an explanation").estimate;
    let expected = estimate.expect("an estimate").expected;
    assert_eq!(
        (expected.input_tokens, expected.output_tokens, expected.cost),
        (
            row.expected_input_tokens,
            row.expected_output_tokens,
            row.expected_cost_nanos
        )
    );
    assert_eq!(expected.output_tokens, OUTPUT_CAP);
}

#[tokio::test]
async fn the_page_names_the_verdict_and_marks_the_limit_that_is_told() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        concurrency: Some(5),
        ..NodeLimits::default()
    };
    let key = key_with(&tollgate, "Research", limits).await;
    let rehearsed = LimitDraft {
        mode: Mode::Rehearse,
        ..requests(0)
    };
    limit(&tollgate, Target::Node(Scope::Global), &rehearsed).await;
    tollgate.in_force().await;
    let mut operator = Window::operator(&tollgate).await;

    // Asking takes nothing, however often.
    for _ in 0..EXPLANATIONS {
        let page = ask(&mut operator, "application", MODEL).await;
        assert!(
            page.content()
                .contains("It would be admitted, by the upstream simulator")
        );
        assert!(
            page.notices()[0].contains("1 limit in rehearsal would refuse it"),
            "{:?}",
            page.notices()
        );
    }
    let page = operator.page.clone();
    let table = page.table(&["Scope", "Limit", "Value", "Used now", "Needs", "After it", "Answer"]);
    let by_limit: BTreeMap<_, _> = table.rows.iter().map(|row| (row[1].clone(), row.clone())).collect();
    assert_eq!(by_limit["Requests at once"][2..], ["5", "0", "1", "1", "room"]);
    assert!(
        table.rows[0][6].starts_with("rehearsed would refuse"),
        "{:?}",
        table.rows
    );
    assert_eq!(page.texts(".row-told"), [] as [&str; 0]);
    assert_eq!(send(&tollgate, &key, MODEL).await.status, 200);

    let page = ask(&mut operator, "application", MODEL).await;
    assert!(
        page.content().contains("It would be refused rate limit exceeded"),
        "{}",
        page.content()
    );
    assert_eq!(page.fact("Status"), "429 Too Many Requests");
    assert!(
        page.fact("Retry after").ends_with("s, and up to 30 % more"),
        "{}",
        page.fact("Retry after")
    );
    assert!(page.fact("Key").starts_with("application of Research"));
    let told = page.texts(".row-told > *");
    assert_eq!(
        told[..6],
        ["Research tenant", "Requests per minute", "1", "1", "1", "2"]
    );
    assert!(
        told[6].starts_with("rate limit exceeded told to the caller room in"),
        "{told:?}"
    );
    // The address says it all.
    let again = page.address.clone();
    assert_eq!(operator.visit(&again).await.fact("Code"), "rate_limit_exceeded");
}

#[tokio::test]
async fn people_of_a_tenant_ask_about_their_own_keys_and_see_no_shared_limit() {
    let tollgate = Tollgate::start().await;
    let own = tollgate.tenant("Research", NodeLimits::default()).await;
    let application = tollgate.issue(own).await;
    let foreign = key_with(&tollgate, "Support", NodeLimits::default()).await;
    limit(&tollgate, Target::Node(Scope::Global), &requests(1)).await;
    limit(&tollgate, Target::Node(Scope::Tenant(own)), &requests(70)).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(own)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(own)).await;
    member.issue_key("", "notebook").await;
    tollgate.in_force().await;

    let content = |page: &Page| page.content();
    let page = ask(&mut manager, "application", MODEL).await;
    assert!(
        content(&page).contains("It would be admitted room"),
        "{}",
        content(&page)
    );
    assert!(content(&page).contains("Beyond your own limits the service has room."));
    assert_eq!(send(&tollgate, &foreign, MODEL).await.status, 200);
    for (window, key) in [(&mut manager, "application"), (&mut member, "notebook")] {
        let page = ask(window, key, MODEL).await;
        assert!(
            content(&page).contains("Beyond your own limits the service is busy."),
            "{}",
            content(&page)
        );
        assert_eq!(page.fact("Code"), "rate_limit_exceeded");
        let table = page.table(&["Scope", "Limit", "Answer"]);
        assert_eq!(table.column("Scope"), ["Research tenant"]);
        for hidden in ["simulator", "The installation", "Support"] {
            assert!(!content(&page).contains(hidden), "{hidden}");
        }
    }
    let people = tollgate.control().people(&tollgate.actor(), Some(own)).await;
    for person in people.expect("people") {
        let actor = Actor::person(&person, None);
        let refused = tollgate
            .control()
            .explain(&actor, &question(foreign.row.id, MODEL))
            .await;
        assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
    }
    // Keys of others are not there, whichever way they are named.
    let strangers = |id: KeyId| [id.to_string(), "application".to_owned()];
    for key in strangers(application.row.id) {
        let page = ask(&mut member, &key, MODEL).await;
        assert_eq!(page.text("#key-error"), "no key has this in its name or public id");
    }
    for key in [
        foreign.row.id.to_string(),
        foreign.row.public_id.clone(),
        "Support".to_owned(),
    ] {
        let page = ask(&mut manager, &key, MODEL).await;
        assert_eq!(page.text("#key-error"), "no key has this in its name or public id");
        assert_eq!(page.find_table(&["Scope", "Limit"]), None);
    }
}

#[tokio::test]
async fn a_key_is_found_by_name_owner_tenant_or_public_id() {
    let tollgate = Tollgate::start().await;
    let research = key_with(&tollgate, "Research", NodeLimits::default()).await;
    let support = key_with(&tollgate, "Support", NodeLimits::default()).await;
    tollgate.in_force().await;
    let mut operator = Window::operator(&tollgate).await;

    let page = ask(&mut operator, "appl", MODEL).await;
    assert_eq!(page.text("#key-error"), "several keys match; choose one of those below");
    let choice = page.table(&["Name", "Key", "Tenant", "Owner"]);
    assert_eq!(choice.rows.len(), 2);
    let of_support = choice.rows.iter().position(|row| row[2] == "Support").expect("a row");
    let page = operator.visit(&choice.links[of_support]).await.clone();
    assert_eq!(page.fact("Key"), "application of Support");
    let form = page.form("/explain");
    assert_eq!((form.value("model"), form.value("input_tokens")), (MODEL, "20"));

    let masked = domain::key_text::masked(&research.row.public_id);
    for text in [
        "research".to_owned(),
        research.row.public_id.clone(),
        masked,
        research.row.id.to_string(),
    ] {
        let page = ask(&mut operator, &text, MODEL).await;
        assert_eq!(page.fact("Key"), "application of Research", "{text}");
    }
    // A link may fill in the key alone; then nothing is asked yet, and nothing is wrong.
    let page = operator.visit(&format!("/explain?key={}", support.row.id)).await;
    assert_eq!(page.texts(".error"), [] as [&str; 0]);
    assert_eq!(page.find_table(&["Scope", "Limit"]), None);
    assert!(page.form("/explain").value("key").contains(&support.row.public_id));

    let form = page.form("/explain").fill("model", " ").fill("input_tokens", "many");
    let page = operator.send(&form).await;
    assert_eq!(page.text("#model-error"), "name a model");
    assert!(!page.text("#input_tokens-error").is_empty());
}

#[tokio::test]
async fn a_rehearsed_limit_says_when_it_would_have_room() {
    let tollgate = Tollgate::start().await;
    let key = key_with(&tollgate, "Research", NodeLimits::default()).await;
    let rehearsed = LimitDraft {
        mode: Mode::Rehearse,
        ..requests(1)
    };
    limit(&tollgate, Target::Node(Scope::Global), &rehearsed).await;
    tollgate.in_force().await;
    assert_eq!(send(&tollgate, &key, MODEL).await.status, 200);
    let mut operator = Window::operator(&tollgate).await;
    let page = ask(&mut operator, "application", MODEL).await;
    let answer = page.table(&["Scope", "Answer"]).cell("The installation", "Answer");
    let told = "rehearsed would refuse: rate limit exceeded, room in ";
    assert!(answer.starts_with(told), "{answer}");
}

#[tokio::test]
async fn without_keys_the_page_says_what_comes_first() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    assert_eq!(operator.visit("/explain").await.link("Issue a key"), "/keys/new");
    let tenant: TenantId = tollgate.tenant("Research", NodeLimits::default()).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let page = auditor.visit("/explain").await;
    assert!(
        page.content().contains("there is none yet"),
        "{tenant}: {}",
        page.content()
    );
    assert!(!page.links().contains(&"/keys/new".to_owned()));
}
