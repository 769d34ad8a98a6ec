//! What was booked wrongly is put right: beside the entry, by operators only, once, and everywhere it counts.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use control::ControlError;
use control::adjustments::{AdjustmentDraft, Booking, CorrectionDraft, TokensDraft, When};
use control::limits::NodeLimits;
use control::prices::PriceDraft;
use domain::adjustments::Figures;
use domain::ids::{AdjustmentId, RequestId, TenantId};
use domain::ledger::{Outcome, Settlement};
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::people::Role;
use domain::periods::{Month, Span};
use domain::prices::{Rates, Unpriced};
use futures_util::future::join_all;
use store::entries::EntryFilter;
use store::ledger::{ShipBatch, Shipped};
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::fleet::{Fleet, until};
use test_support::html::Form;
use test_support::tollgate::{Options, Tollgate, chat_body};
use uuid::Uuid;

use crate::fleet::shared;

/// What a request of [`ask`] costs, in nano-units: 37 tokens of output at 2 units per million, and its input at 1.
const OUTPUT: u64 = 37;

async fn start() -> Tollgate {
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

/// A request that ran, as it was settled.
async fn ask(tollgate: &Tollgate, key: &str) -> Settlement {
    let answer = tollgate.chat(key, &format!("Hello. [[sim: tokens={OUTPUT}]]")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    tollgate.shipped().await;
    latest(tollgate).await
}

async fn latest(tollgate: &Tollgate) -> Settlement {
    let page = tollgate
        .running
        .store
        .settlements(&EntryFilter::default(), None, 1)
        .await
        .expect("entries");
    page.entries.into_iter().next().expect("an entry").entry
}

fn everything() -> Span {
    Span {
        start: DateTime::UNIX_EPOCH,
        end: "2200-01-01T00:00:00Z".parse().expect("an instant"),
    }
}

/// Every roll-up is what the entries add up to.
async fn adds_up(tollgate: &Tollgate) {
    let differences = tollgate.running.store.rollup_differences(everything()).await;
    assert_eq!(differences.expect("an answer"), []);
}

fn by(input_tokens: i64, output_tokens: i64, cost: i64) -> Figures {
    Figures {
        input_tokens,
        output_tokens,
        cost_nanos: Nanos(cost),
    }
}

fn booking(number: u128, reason: &str) -> Booking {
    Booking {
        id: AdjustmentId(Uuid::from_u128(number)),
        reason: reason.to_owned(),
        reference: String::new(),
    }
}

/// An adjustment of the tenant's account, at this moment.
async fn adjust(tollgate: &Tollgate, tenant: TenantId, number: u128, figures: Figures) {
    let draft = AdjustmentDraft {
        tenant_id: tenant,
        user: None,
        key_id: None,
        model: None,
        when: When::At(Utc::now()),
        figures,
    };
    let booked = tollgate
        .control()
        .book_adjustment(&tollgate.actor(), &draft, &booking(number, "test"), Utc::now())
        .await;
    booked.expect("it is booked");
}

fn money(shown: &str) -> Nanos {
    let amount: String = shown
        .replace('\u{2212}', "-")
        .chars()
        .filter(|character| character.is_ascii_digit() || ['-', '.'].contains(character))
        .collect();
    amount.parse().unwrap_or_else(|error| panic!("`{shown}`: {error}"))
}

/// The lines of the file behind the page's button by column, the line of totals last.
async fn download(window: &mut Window, address: &str) -> Vec<BTreeMap<String, String>> {
    window.visit(address).await;
    let answer = window.browser.get(&window.page.link("Download CSV")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut reader = csv::Reader::from_reader(answer.body.as_ref());
    let columns = reader.headers().expect("a header").clone();
    let line = |line: csv::StringRecord| {
        let names = columns.iter().map(str::to_owned);
        names.zip(line.iter().map(str::to_owned)).collect()
    };
    reader.records().map(|record| line(record.expect("cells"))).collect()
}

/// The form that books what the first step has asked for.
async fn second_step(window: &mut Window, address: &str) -> Form {
    let page = window.visit(address).await;
    assert_eq!(page.status, 200, "{}", page.content());
    let action = if address.contains("/correct") {
        "/console/ledger/correct"
    } else {
        "/console/ledger/adjust"
    };
    let found = page.forms(action).pop();
    found.unwrap_or_else(|| panic!("nothing to book: {:?} {}", page.notices(), page.content()))
}

#[tokio::test]
async fn a_wrong_request_is_put_right_in_the_console_and_every_sum_follows() {
    let tollgate = start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let wrong = ask(&tollgate, &key).await;
    let other = ask(&tollgate, &key).await;
    let mut operator = Window::operator(&tollgate).await;
    let entry = format!("/ledger/{}", wrong.identity.id);
    let correct = operator.visit(&entry).await.link("Correct this request");

    // The provider says that 7 tokens were put out: the cost follows from the price that was charged.
    let form = second_step(&mut operator, &format!("{correct}?output=7&cost=&price=&input_by=")).await;
    let table = operator
        .page
        .table(&["Figure", "Settled", "This adjustment", "Afterwards"]);
    assert_eq!(table.cell("Output tokens", "Settled"), OUTPUT.to_string());
    assert_eq!(table.cell("Output tokens", "This adjustment"), "\u{2212}30");
    assert_eq!(money(&table.cell("Cost", "This adjustment")), Nanos(-60_000));
    let right = wrong.cost_nanos - Nanos(60_000);
    assert_eq!(money(&table.cell("Cost", "Afterwards")), right);
    assert!(operator.page.content().contains("in budgets and in the report"));

    // Without a reason nothing is booked, and what was entered stays.
    let page = operator
        .send(&form.clone().fill("reference", "CN-7").fill("reason", " "))
        .await
        .clone();
    assert!(!page.text("#reason-error").is_empty(), "{}", page.content());
    let again = page.form("/console/ledger/correct");
    assert_eq!((again.value("reference"), again.value("output")), ("CN-7", "7"));
    let page = operator.send(&again.fill("reason", "The provider counted 7.")).await;
    assert_eq!(
        (page.path(), page.notices()),
        (entry.as_str(), vec!["The adjustment was booked.".to_owned()])
    );

    // The entry stays, and says what it amounts to.
    assert_eq!(money(&page.fact("Cost")), wrong.cost_nanos);
    assert_eq!(money(&page.fact("Corrected cost")), right);
    assert_eq!(page.fact("Corrected output"), "7");
    let made = page.table(&["Made", "Amount", "Reason"]);
    assert_eq!(made.column("Reason"), ["The provider counted 7. (CN-7)"]);
    assert_eq!(money(&made.column("Amount")[0]), Nanos(-60_000));
    let listed = operator
        .visit("/ledger/adjustments")
        .await
        .table(&["Made", "Amount", "By"]);
    assert_eq!(listed.column("By"), ["olga@example.com"]);
    assert_eq!(listed.rows.len(), 1);
    assert!(operator.page.links().contains(&entry), "{:?}", operator.page.links());

    // So do report and file, however they are divided.
    let cost = wrong.cost_nanos + other.cost_nanos;
    for divided in ["tenant", "user", "key", "model", "priority", "key&by=model&by=user"] {
        let lines = download(&mut operator, &format!("/reports?by={divided}")).await;
        assert_eq!(lines.len(), 2, "one row and the totals: {lines:?}");
        for line in lines {
            let amount = |column: &str| line[column].parse::<Nanos>().expect("an amount");
            assert_eq!(amount("cost_usd"), cost, "{divided}");
            assert_eq!(amount("adjusted_cost_usd"), Nanos(-60_000), "{divided}");
            assert_eq!(amount("charged_usd"), cost - Nanos(60_000), "{divided}");
            assert_eq!(
                (
                    line["adjusted_input_tokens"].as_str(),
                    line["adjusted_output_tokens"].as_str()
                ),
                ("0", "-30")
            );
        }
    }
    // An amount that the page, which rounds to cents, shows, too.
    adjust(&tollgate, tenant, 9, by(0, 0, -3_000_000_000)).await;
    let report = operator
        .visit("/reports")
        .await
        .table(&["Tenant", "Adjusted", "Charged"]);
    assert_eq!(money(&report.cell("Tenant", "Adjusted")), Nanos::from_units(-3));
    assert_eq!(money(&report.sum("Charged")), Nanos::from_units(-3));
    adds_up(&tollgate).await;

    // Who did it stands in the audit log, with what it was before.
    let (subject, before): (String, serde_json::Value) =
        sqlx::query_as("select subject, before from audit_log where action = 'adjustment.book' order by at limit 1")
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("a note");
    assert_eq!(subject, format!("request:{}", wrong.identity.id));
    assert_eq!(before["cost_nanos"], wrong.cost_nanos.0);
}

#[tokio::test]
async fn a_form_that_is_sent_twice_is_booked_once() {
    let tollgate = start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let request = ask(&tollgate, &key).await;
    let mut operator = Window::operator(&tollgate).await;
    let correct = format!("/ledger/{}/correct?cost_by=-0.000001", request.identity.id);
    let account = format!("/ledger/adjustments/new?tenant={tenant}&month=2026-03&cost=-1");
    for address in [correct, account] {
        let form = second_step(&mut operator, &address).await.fill("reason", "Twice.");
        for _ in 0..2 {
            let page = operator.send(&form).await;
            assert_eq!(page.notices(), ["The adjustment was booked."], "{address}");
        }
        // The same form with something else in it is not the same adjustment.
        let page = operator.send(&form.clone().fill("reason", "Something else.")).await;
        assert!(
            page.notices().join(" ").contains("booked already"),
            "{:?}",
            page.notices()
        );
    }
    let listed = operator.visit("/ledger/adjustments").await.table(&["Made", "Reason"]);
    assert_eq!(listed.column("Reason"), ["Twice.", "Twice."]);
    let month = operator.visit("/ledger/adjustments?month=2026-03").await;
    assert_eq!(month.table(&["Made", "Reason"]).rows.len(), 1);
    adds_up(&tollgate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_at_once_do_not_take_a_request_below_zero() {
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let request = ask(&tollgate, &key).await;
    let id = request.identity.id;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    // Each takes back two thirds, of what it believes that nobody has corrected yet.
    let part = CorrectionDraft::By(by(0, 0, -request.cost_nanos.0 * 2 / 3));
    let tries = (1..=8).map(|number| {
        let (actor, part) = (&actor, &part);
        async move {
            let why = booking(number, "too dear");
            control.correct_request(actor, id, 0, part, &why, Utc::now()).await
        }
    });
    let outcomes = join_all(tries).await;
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        1,
        "{outcomes:?}"
    );
    for outcome in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(
            matches!(
                outcome,
                ControlError::Conflict {
                    read: 0,
                    current: 1,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
    // Who knows of the first is told that it is too much.
    let why = booking(20, "too dear");
    let refused = control.correct_request(&actor, id, 1, &part, &why, Utc::now()).await;
    let fields = refused.expect_err("it would be below zero");
    assert!(fields.to_string().contains("below zero"), "{fields}");
    let all = CorrectionDraft::Right {
        tokens: TokensDraft {
            input_fresh: Some(0),
            cache_read: Some(0),
            cache_write_5m: Some(0),
            cache_write_1h: Some(0),
            output: Some(0),
        },
        price: None,
        cost: None,
    };
    let booked = control.correct_request(&actor, id, 1, &all, &why, Utc::now()).await;
    booked.expect("down to nothing");
    let sums: (i64, i64, i64) = sqlx::query_as(
        "select sum(cost_nanos + adjusted_cost_nanos)::bigint, sum(output_tokens + adjusted_output_tokens)::bigint,
                sum(input_fresh_tokens + adjusted_input_tokens)::bigint
         from settlement_rollups",
    )
    .fetch_one(&mut tollgate.sql().await)
    .await
    .expect("sums");
    assert_eq!(sums, (0, 0, 0));
    adds_up(&tollgate).await;
}

#[tokio::test]
async fn what_was_charged_for_a_request_that_never_ran_is_taken_back() {
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    // What a gateway leaves that was killed before it heard of an ending.
    let mut abandoned = ask(&tollgate, &key).await;
    abandoned.identity.id = RequestId(Uuid::from_u128(77));
    abandoned.outcome = Outcome::Abandoned;
    let batch = ShipBatch {
        last_seq: 1,
        settlements: vec![&abandoned],
        ..ShipBatch::default()
    };
    let shipped = tollgate.running.store.ship_ledger("killed", &batch).await;
    assert!(
        matches!(shipped, Ok(Shipped::Committed { settlements: 1, .. })),
        "{shipped:?}"
    );

    let mut operator = Window::operator(&tollgate).await;
    let address = format!("/ledger/{}/correct?input_fresh=0&output=0", abandoned.identity.id);
    let form = second_step(&mut operator, &address)
        .await
        .fill("reason", "It never ran.");
    let page = operator.send(&form).await;
    assert_eq!(money(&page.fact("Corrected cost")), Nanos::ZERO);
    assert_eq!(
        (page.fact("Corrected input"), page.fact("Corrected output")),
        ("0".into(), "0".into())
    );
    // Nothing is left to take, and the form says so.
    let page = operator.visit(&address).await;
    assert!(page.notices()[0].contains("nothing to correct"), "{:?}", page.notices());
    let page = operator
        .visit(&address.replace("input_fresh=0&output=0", "cost_by=-1"))
        .await;
    assert!(page.notices()[0].contains("below zero"), "{:?}", page.notices());
    adds_up(&tollgate).await;
}

#[tokio::test]
async fn a_request_without_a_price_is_charged_at_the_one_that_came_later() {
    let tollgate = start().await;
    let upstream = tollgate.upstream("new", &tollgate.simulator.base_url()).await;
    tollgate.model("new-model", upstream, None).await;
    let fallback = Unpriced::Charge(Rates::flat(90_000_000_000, 90_000_000_000));
    let version = tollgate.control().settings().await.expect("settings").version;
    let changed = tollgate
        .control()
        .set_unpriced(&tollgate.actor(), version, fallback, Utc::now())
        .await;
    changed.expect("a fallback");
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut body = chat_body("Hello.");
    body["model"] = "new-model".into();
    let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    tollgate.shipped().await;
    let unpriced = latest(&tollgate).await;
    assert!(unpriced.is_unpriced);

    // Nobody kept what was charged per token, so tokens alone do not tell the cost.
    let mut operator = Window::operator(&tollgate).await;
    let path = format!("/ledger/{}/correct", unpriced.identity.id);
    let page = operator.visit(&format!("{path}?output=1")).await;
    assert!(
        page.text("#cost-error").contains("choose a price"),
        "{}",
        page.content()
    );
    let price = PriceDraft {
        valid_from: None,
        rates: Rates::flat(1_000_000_000, 2_000_000_000),
        tiers: Vec::new(),
    };
    let price = tollgate
        .control()
        .add_price(&tollgate.actor(), "new-model", &price, Utc::now())
        .await;
    let price = price.expect("a price");
    let form = second_step(&mut operator, &format!("{path}?price={price}")).await;
    let page = operator.send(&form.fill("reason", "Priced since.")).await;
    let usage = unpriced.usage;
    let right = Nanos((usage.input_tokens() * 1_000 + usage.output_tokens * 2_000) as i64);
    assert_eq!(money(&page.fact("Corrected cost")), right);
    adds_up(&tollgate).await;
}

#[tokio::test]
async fn a_credit_opens_a_spent_budget_at_once_and_a_debit_closes_it() {
    let tollgate = start().await;
    let limits = NodeLimits {
        monthly_cost: Some(Nanos::from_units(1)),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    ask(&tollgate, &key).await;
    let refused = async || {
        let answer = tollgate.chat(&key, "Hello.").await;
        answer.status == 429 && answer.code() == "budget_exhausted"
    };
    let admitted = async || tollgate.chat(&key, "Hello.").await.status == 200;

    adjust(&tollgate, tenant, 1, by(0, 0, 1_000_000_000)).await;
    until("the debit closes the budget", refused).await;
    adjust(&tollgate, tenant, 2, by(0, 0, -2_000_000_000)).await;
    until("the credit opens it", admitted).await;
    // What counts in another month is of no concern to this one.
    let draft = AdjustmentDraft {
        tenant_id: tenant,
        user: None,
        key_id: None,
        model: None,
        when: When::Month(Month::containing(Utc::now(), zone_at_noon()).previous()),
        figures: by(0, 0, 50_000_000_000),
    };
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let why = booking(3, "last month");
    let booked = control.book_adjustment(&actor, &draft, &why, Utc::now()).await;
    booked.expect("it is booked");
    tollgate.in_force().await;
    for _ in 0..3 {
        assert!(admitted().await);
    }
    tollgate.shipped().await;
    let node = Scope::Tenant(tenant);
    let spent = async || {
        let readings = tollgate.running.gateway.readings(std::slice::from_ref(&node)).await;
        let limits = readings.expect("a policy").limits;
        let cost = limits
            .iter()
            .find(|live| live.reading.dimension == Dimension::BudgetCost);
        cost.expect("a budget").reading.used
    };
    assert!(spent().await < 0, "{}", spent().await);
    adds_up(&tollgate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_gateway_hears_of_an_adjustment_before_it_reads_its_budgets_again() {
    let redis = RedisServer::start().await;
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..shared(redis.url())
    };
    let fleet = Fleet::start(3, options).await;
    let limits = NodeLimits {
        monthly_cost: Some(Nanos::from_units(1)),
        ..NodeLimits::default()
    };
    let (tenant, key) = fleet.tenant_with_key(limits).await;
    let statuses = async || {
        let browsers = fleet.browsers();
        let body = chat_body("Hello.");
        let asked = browsers
            .iter()
            .map(|browser| browser.post_json("/v1/chat/completions", &key, &body));
        join_all(asked)
            .await
            .iter()
            .map(|answer| answer.status.as_u16())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses().await, [200, 200, 200]);
    for (number, amount, status) in [
        (1, 1_000_000_000, 429),
        (2, -1_500_000_000, 200),
        (3, 1_500_000_000, 429),
    ] {
        adjust(&fleet.first, tenant, number, by(0, 0, amount)).await;
        until("all gateways have heard of it", async || {
            statuses().await == [status; 3]
        })
        .await;
    }
    fleet.shipped().await;
    adds_up(&fleet.first).await;
}

#[tokio::test]
async fn operators_book_and_everybody_sees_what_is_theirs() {
    let tollgate = start().await;
    let (research, key) = tollgate.named_tenant_with_key("Research", NodeLimits::default()).await;
    let (sales, sales_key) = tollgate.named_tenant_with_key("Sales", NodeLimits::default()).await;
    let mut operator = Window::operator(&tollgate).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(research)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(research)).await;
    let own_key = member.issue_key("", "notebook").await;
    tollgate.in_force().await;
    let mut requests = Vec::new();
    for key in [&key, &sales_key, &own_key] {
        let request = ask(&tollgate, key).await;
        let address = format!("/ledger/{}/correct?output=1", request.identity.id);
        let form = second_step(&mut operator, &address).await;
        let why = ["of research", "of sales", "of the member"][requests.len()];
        operator.send(&form.fill("reason", why)).await;
        requests.push(request);
    }
    // A member's own by their address, without any key.
    let address = format!("/ledger/adjustments/new?tenant={research}&month=2026-02&cost=-2&user=member%40example.com");
    let form = second_step(&mut operator, &address).await;
    assert_eq!(operator.page.fact("User"), "The member");
    assert!(
        operator.page.content().contains("report is final"),
        "{}",
        operator.page.content()
    );
    operator.send(&form.fill("reason", "a credit")).await;

    let reasons = async |window: &mut Window, address: &str| {
        let table = window.visit(address).await.find_table(&["Made", "Reason"]);
        table.map(|table| table.column("Reason")).unwrap_or_default()
    };
    let list = "/ledger/adjustments";
    let all = ["a credit", "of the member", "of sales", "of research"];
    assert_eq!(reasons(&mut operator, list).await, all);
    assert_eq!(reasons(&mut auditor, list).await, all);
    assert_eq!(
        reasons(&mut auditor, &format!("{list}?tenant={sales}")).await,
        ["of sales"]
    );
    assert_eq!(
        reasons(&mut auditor, &format!("{list}?month=2026-02")).await,
        ["a credit"]
    );
    assert_eq!(
        reasons(&mut manager, list).await,
        ["a credit", "of the member", "of research"]
    );
    assert_eq!(reasons(&mut member, list).await, ["a credit", "of the member"]);
    assert_eq!(manager.visit(&format!("{list}?tenant={sales}")).await.status, 403);

    // The file says the same, and adds up.
    let file = download(&mut manager, &format!("{list}?month=2026-02")).await;
    assert_eq!(file.len(), 2);
    assert_eq!(
        (
            file[0]["reason"].as_str(),
            file[0]["user"].as_str(),
            file[0]["amount_usd"].as_str()
        ),
        ("a credit", "The member", "-2.000000000")
    );
    assert_eq!(file[1]["amount_usd"], "-2.000000000");
    for (window, rows) in [(&mut operator, 4), (&mut manager, 3), (&mut member, 2)] {
        let lines = download(window, list).await;
        let (total, lines) = lines.split_last().expect("a total");
        assert_eq!((lines.len(), total["rows"].as_str()), (rows, rows.to_string().as_str()));
        let sum = |column: &str| {
            lines
                .iter()
                .map(|line| line[column].parse::<i64>().expect("tokens"))
                .sum::<i64>()
        };
        assert_eq!(total["output_tokens"], sum("output_tokens").to_string());
    }
    assert_eq!(manager.visit(&format!("{list}.csv?tenant={sales}")).await.status, 403);

    // On the request's own page, too, without a way to change anything.
    let address = format!("/ledger/{}", requests[2].identity.id);
    for window in [&mut auditor, &mut manager, &mut member] {
        let page = window.visit(&address).await.clone();
        assert_eq!(page.fact("Corrected output"), "1");
        assert!(
            !page.links().iter().any(|link| link.ends_with("/correct")),
            "{}",
            page.address
        );
        let page = window.visit(list).await;
        assert!(!page.links().iter().any(|link| link.ends_with("/new")));
        assert_eq!(window.visit(&format!("{address}/correct?output=2")).await.status, 403);
        assert_eq!(window.visit(&format!("{list}/new")).await.status, 403);
    }
    assert_eq!(
        member
            .visit(&format!("/ledger/{}", requests[0].identity.id))
            .await
            .status,
        404
    );

    // Their forms, made by hand, change nothing.
    let correct = second_step(&mut operator, &format!("{address}/correct?output=2")).await;
    let account = second_step(
        &mut operator,
        &format!("/ledger/adjustments/new?tenant={research}&month=2026-02&cost=-2"),
    )
    .await;
    for form in [correct.fill("reason", "x"), account.fill("reason", "x")] {
        for window in [&mut auditor, &mut manager, &mut member] {
            let answer = window.browser.post_form(&form.action, &form.data()).await;
            assert_eq!(answer.status, 403, "{}", form.action);
        }
    }
    assert_eq!(reasons(&mut operator, list).await, all);
    adds_up(&tollgate).await;
}

#[tokio::test]
async fn a_form_that_cannot_be_booked_says_what_to_do() {
    let tollgate = start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let foreign = tollgate.issue(other).await.row.id;
    let request = ask(&tollgate, &key).await;
    let mut operator = Window::operator(&tollgate).await;
    let account = format!("/ledger/adjustments/new?tenant={tenant}");
    let correct = format!("/ledger/{}/correct", request.identity.id);
    for (address, field, says) in [
        (format!("{account}&month=2026-02"), "cost", "amount of money, or tokens"),
        (format!("{account}&month=2026-02&cost=1,5"), "cost", "write an amount"),
        (
            format!("{account}&month=2026-02&cost=100000001"),
            "cost",
            "more than one adjustment",
        ),
        (
            format!("{account}&month=2026-02&at=2026-02-01&cost=1"),
            "month",
            "one of both",
        ),
        (format!("{account}&month=February&cost=1"), "month", "2026-11"),
        (format!("{account}&at=2199-01-01&cost=1"), "at", "in the future"),
        (format!("{account}&month=2199-01&cost=1"), "month", "in the future"),
        (
            format!("{account}&month=2026-02&cost=1&key={foreign}"),
            "key",
            "no such key",
        ),
        (format!("{account}&month=2026-02&cost=1&key=mine"), "key", "whole id"),
        (
            format!("{account}&month=2026-02&cost=1&model=none"),
            "model",
            "no such model",
        ),
        (
            format!("{account}&month=2026-02&cost=1&user={}", "x".repeat(129)),
            "user",
            "at most 128",
        ),
        (
            "/ledger/adjustments/new?month=2026-02&cost=1".to_owned(),
            "tenant",
            "from the list",
        ),
        (format!("{correct}?output=many"), "output", "whole number"),
        (format!("{correct}?output=2000000000000"), "output", "so many tokens"),
        (format!("{correct}?cost=-1"), "cost", "below zero"),
        (format!("{correct}?price=dear"), "price", "from the list"),
        (format!("{correct}?price={tenant}&cost=1"), "price", "not both"),
        (format!("{correct}?price={tenant}"), "cost", "choose a price"),
        (format!("{correct}?output_by=less"), "output_by", "whole number"),
        (format!("{correct}?output_by=1&output=2"), "", "not both"),
        (format!("{correct}?cost_by=999999999"), "", "more than one adjustment"),
    ] {
        let page = operator.visit(&address).await;
        assert_eq!(page.status, 200, "{address}");
        let said = match field {
            "" => page.notices().join(" "),
            field => page.text(&format!("#{field}-error")),
        };
        assert!(
            said.to_lowercase().contains(&says.to_lowercase()),
            "{address}: `{said}`, {:?}",
            page.notices()
        );
        assert!(page.forms("/console/ledger/correct").is_empty() && page.forms("/console/ledger/adjust").is_empty());
    }
    for reason in [" ", &"x".repeat(501), "a\u{7}b"] {
        let form = second_step(&mut operator, &format!("{account}&month=2026-02&cost=1")).await;
        let page = operator.send(&form.fill("reason", reason)).await;
        assert!(!page.text("#reason-error").is_empty(), "{reason}");
    }
    // Only what ran can be corrected.
    for id in [Uuid::nil().to_string(), "nothing".to_owned()] {
        assert_eq!(operator.visit(&format!("/ledger/{id}/correct")).await.status, 404);
    }
    assert_eq!(operator.visit("/ledger/adjustments").await.find_table(&["Made"]), None);
}

#[tokio::test]
async fn many_adjustments_are_listed_page_by_page() {
    let tollgate = start().await;
    let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
    for number in 1..=120 {
        adjust(&tollgate, tenant, number, by(number as i64, 0, 0)).await;
    }
    let mut operator = Window::operator(&tollgate).await;
    let mut seen = Vec::new();
    let mut address = format!("/ledger/adjustments?tenant={tenant}");
    for rows in [50, 50, 20] {
        let page = operator.visit(&address).await;
        let inputs = page.table(&["Made", "Input"]).column("Input");
        assert_eq!(inputs.len(), rows);
        seen.extend(inputs);
        if rows == 50 {
            address = page.link("Older adjustments");
        } else {
            assert!(!page.content().contains("Older adjustments"));
        }
    }
    let expected: Vec<String> = (1..=120).rev().map(|number| format!("+{number}")).collect();
    assert_eq!(seen, expected);
    adds_up(&tollgate).await;
}
