//! The whole chain as people walk it, through pages and forms: from the set-up link to a month that adds up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::money::Nanos;
use http::Method;
use serde_json::{Value, json};
use test_support::clock::zone_at_noon;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::html::Page;
use test_support::http::Answer;
use test_support::tollgate::{CREDENTIAL, Options, Tollgate};

const MODEL: &str = "chat-large";
/// Per million tokens, so dear that a request costs cents, and so crooked that each one is rounded.
const INPUT_PRICE: &str = "300.000001";
const OUTPUT_PRICE: &str = "1500.000003";
/// For about eight calls.
const BUDGET: &str = "0.50";
/// Refused calls after which a test knows that the budget is closed.
const REFUSALS: usize = 3;
/// Calls after which even a generous budget must be spent.
const CALLS_MAX: usize = 20;
/// A change is in force within a second; a slow machine gets some more.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(5);

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

/// Adds the simulator as upstream, and a model with a price that it serves.
async fn add_model(tollgate: &Tollgate, operator: &mut Window) {
    operator.visit("/upstreams/new").await;
    let form = operator
        .page
        .form("/console/upstreams/create")
        .fill("name", "Simulator")
        .fill("base_url", &tollgate.simulator.base_url())
        .fill("credential", CREDENTIAL);
    let page = operator.send(&form).await;
    assert_eq!(
        page.table(&["Name", "Credential"]).cell("Simulator", "Credential"),
        "set"
    );

    operator.visit("/models/new").await;
    let form = operator
        .page
        .form("/console/models/create")
        .fill("name", MODEL)
        .fill("context_tokens", "128000")
        .fill("output_cap_tokens", "4096")
        .fill("output_default_tokens", "500")
        .choose_nth("route_upstream[]", 0, "Simulator")
        .fill_nth("route_model[]", 0, "sim-large");
    operator.send(&form).await;

    let form = operator
        .page
        .form("/console/models/prices/add")
        .fill("input", INPUT_PRICE)
        .fill("output", OUTPUT_PRICE);
    let page = operator.send(&form).await;
    let prices = page.table(&["In force", "Input", "Output"]);
    assert_eq!(prices.column("In force"), ["now"]);
    assert_eq!(money(&prices.column("Output")[0]), money(OUTPUT_PRICE));
}

/// Adds a tenant; its id is in the address of its page.
async fn add_tenant(operator: &mut Window, name: &str, budget: &str) -> String {
    operator.visit("/tenants/new").await;
    let form = operator
        .page
        .form("/console/tenants/create")
        .fill("name", name)
        .fill("monthly_cost", budget);
    let page = operator.send(&form).await;
    assert_eq!(page.heading(), name);
    let id = page.path().strip_prefix("/tenants/").expect("the tenant's page");
    id.to_owned()
}

/// Waits until the key may use the model.
async fn in_force(tollgate: &Tollgate, key: &str) {
    let (mut caller, bearer) = (tollgate.browser(), format!("Bearer {key}"));
    let started = Instant::now();
    loop {
        let headers = [("authorization", bearer.as_str())];
        let answer = caller
            .send(Method::GET, "/v1/models", &headers, bytes::Bytes::new())
            .await;
        if answer.status == 200 {
            assert_eq!(answer.json()["data"][0]["id"], MODEL);
            return;
        }
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(started.elapsed() < IN_FORCE_WITHIN, "the key is not in force");
    }
}

fn body() -> Value {
    json!({
        "model": MODEL,
        "max_completion_tokens": 40,
        "messages": [{ "role": "user", "content": "Tell me about gates. [[sim: tokens=37]]" }],
    })
}

/// What one whole call costs by the usage it was told; the refusal if there was one.
async fn call(tollgate: &Tollgate, key: &str) -> Result<Nanos, Answer> {
    let answer = tollgate.browser().post_json("/v1/chat/completions", key, &body()).await;
    tollgate.shipped().await;
    if answer.status == 200 {
        Ok(cost_of(&answer.json()["usage"]))
    } else {
        Err(answer)
    }
}

/// The same as a stream.
async fn call_streamed(tollgate: &Tollgate, key: &str) -> Result<Nanos, String> {
    let mut body = body();
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let stream = tollgate.browser().stream_json("/v1/chat/completions", key, &body).await;
    let status = stream.status;
    let text = stream.rest().await;
    tollgate.shipped().await;
    if status != 200 {
        return Err(text);
    }
    let usage = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .map(|chunk| chunk["usage"].clone())
        .find(|usage| !usage.is_null());
    Ok(cost_of(&usage.expect("the usage that was asked for")))
}

/// Tokens times price, rounded up once.
fn cost_of(usage: &Value) -> Nanos {
    let part = |tokens: &str, price: &str| {
        let tokens = i128::from(usage[tokens].as_u64().expect("a count"));
        let price: Nanos = price.parse().expect("a price");
        tokens * i128::from(price.0)
    };
    let sum = part("prompt_tokens", INPUT_PRICE) + part("completion_tokens", OUTPUT_PRICE);
    let cost = sum / 1_000_000 + i128::from(sum % 1_000_000 > 0);
    assert!(sum % 1_000_000 > 0, "a cost that needs no rounding shows nothing");
    Nanos(i64::try_from(cost).expect("a small cost"))
}

/// An amount as a page writes it, with the currency or below a heading that names it.
fn money(shown: &str) -> Nanos {
    let amount = shown.trim_start_matches("USD").trim().replace(',', "");
    amount.parse().unwrap_or_else(|error| panic!("`{shown}`: {error}"))
}

/// A sum as pages write it: to the cent.
fn cents(sum: Nanos) -> Nanos {
    money(&sum.to_decimal(2))
}

/// The file behind the report's button: its lines by column, the line of totals last.
async fn download(window: &mut Window) -> Vec<BTreeMap<String, String>> {
    let answer = window.browser.get(&window.page.link("Download CSV")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("content-type").starts_with("text/csv"));
    assert!(
        answer
            .header("content-disposition")
            .starts_with("attachment; filename=\"tollgate-usage-")
    );
    let mut reader = csv::Reader::from_reader(answer.body.as_ref());
    let columns = reader.headers().expect("a header").clone();
    reader
        .records()
        .map(|line| {
            let line = line.expect("as many cells as columns");
            columns
                .iter()
                .map(str::to_owned)
                .zip(line.iter().map(str::to_owned))
                .collect()
        })
        .collect()
}

/// The exact costs of the entries that the list links to, by way of their pages.
async fn costs_of_entries(window: &mut Window, links: Vec<String>) -> Vec<Nanos> {
    let mut costs = Vec::new();
    for link in links {
        costs.push(money(&window.visit(&link).await.fact("Cost")));
    }
    costs
}

#[tokio::test]
async fn from_the_set_up_link_to_a_month_that_adds_up() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let again = tollgate.control().create_setup_link(chrono::Utc::now()).await;
    assert!(again.expect("an answer").is_none(), "an installation is set up once");
    assert_eq!(operator.sign_out().await.path(), "/sign-in");
    assert_eq!(operator.sign_in(OPERATOR, PASSWORD).await.heading(), "Overview");

    add_model(&tollgate, &mut operator).await;
    let research = add_tenant(&mut operator, "Research", BUDGET).await;
    let sales = add_tenant(&mut operator, "Sales", "1000").await;
    let key = operator.issue_key(&research, "nightly summaries").await;
    assert!(key.starts_with("sk-tg-"), "{key}");
    let look = operator.visit("/keys/issued").await;
    assert!(
        look.status == 200 && !look.source.contains(&key),
        "the secret is shown twice"
    );
    let sales_key = operator.issue_key(&sales, "letters").await;
    in_force(&tollgate, &key).await;
    in_force(&tollgate, &sales_key).await;

    // Whole and streamed in turns, until there is no room for another.
    let mut costs = Vec::new();
    let refused = loop {
        assert!(costs.len() < CALLS_MAX, "the budget refuses nothing");
        if costs.len() % 2 == 1 {
            costs.push(
                call_streamed(&tollgate, &key)
                    .await
                    .unwrap_or_else(|text| panic!("{text}")),
            );
        }
        match call(&tollgate, &key).await {
            Ok(cost) => costs.push(cost),
            Err(answer) => break answer,
        }
    };
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "budget_exhausted")
    );
    for _ in 1..REFUSALS {
        assert!(call(&tollgate, &key).await.is_err());
    }
    let sales_cost = call(&tollgate, &sales_key)
        .await
        .expect("another tenant is not concerned");
    let spent: Nanos = costs.iter().copied().sum();
    assert!(costs.len() >= 4 && spent <= BUDGET.parse().expect("an amount"));

    // The ledger lists every call, and its pages give the costs to the last digit.
    let address = format!("/ledger?tenant={research}");
    let listed = operator.visit(&address).await.table(&["Time", "Ending", "Cost"]);
    let endings = |ending: &str| {
        let rows = listed.column("Ending").into_iter().zip(&listed.links);
        let links = rows.filter(|(shown, _)| shown == ending).map(|(_, link)| link.clone());
        links.collect::<Vec<_>>()
    };
    let (ran, refusals) = (endings("completed"), endings("budget exhausted"));
    assert_eq!(
        (ran.len(), refusals.len(), listed.rows.len()),
        (costs.len(), REFUSALS, costs.len() + REFUSALS)
    );
    let mut entries = costs_of_entries(&mut operator, ran.clone()).await;
    entries.reverse();
    assert_eq!(entries, costs, "each entry costs what its caller was told");

    // The refusal was right, and says why.
    let ceiling = money(&operator.visit(&ran[0]).await.fact("Ceiling held"));
    assert!(
        spent + ceiling + Nanos(1_000) > BUDGET.parse().expect("an amount"),
        "there was room"
    );
    let page = operator.visit(refusals.last().expect("a refusal")).await;
    assert_eq!(page.fact("Code"), "budget_exhausted");
    let chain = page.table(&["Scope", "Dimension", "Limit", "Used", "Verdict"]);
    let scope = format!("tenant:{research}");
    assert_eq!(chain.cell(&scope, "Verdict"), "refused");
    assert_eq!(
        (
            chain.cell(&scope, "Dimension").as_str(),
            money(&chain.cell(&scope, "Limit"))
        ),
        ("budget cost", money(BUDGET))
    );

    // Every page that shows the sum shows the same one.
    let page = operator.visit(&format!("/tenants/{research}")).await;
    assert_eq!(money(&page.figure("Spent this month")), cents(spent));
    let page = operator.visit("/tenants").await;
    assert_eq!(
        money(&page.table(&["Name", "Spent"]).cell("Research", "Spent")),
        cents(spent)
    );
    let all = spent + sales_cost;
    let requests = (costs.len() + 1).to_string();
    let page = operator.visit("/").await;
    assert_eq!(money(&page.figure("Spent")), cents(all));
    assert_eq!(page.figure("Requests"), requests);
    assert_eq!(page.figure("Refused"), REFUSALS.to_string());
    assert_eq!(
        money(&page.table(&["Tenant", "Spent", "Budget"]).cell("Research", "Spent")),
        cents(spent)
    );
    assert_eq!(
        page.table(&["Reason", "Requests"]).cell("budget exhausted", "Requests"),
        REFUSALS.to_string()
    );
    let by_day = page.table(&["Day", "Spent"]).column("Spent");
    assert_eq!(by_day.iter().map(|day| money(day)).sum::<Nanos>(), cents(all));

    let report = operator
        .visit("/reports")
        .await
        .table(&["Tenant", "Requests", "Cost", "Charged"]);
    assert_eq!(report.column("Tenant"), ["Research", "Sales"]);
    assert_eq!(money(&report.cell("Research", "Charged")), cents(spent));
    assert_eq!(report.cell("Research", "Refused"), REFUSALS.to_string());
    assert_eq!(money(&report.cell("Sales", "Charged")), cents(sales_cost));
    assert_eq!(
        (money(&report.sum("Charged")), report.sum("Requests")),
        (cents(all), requests.clone())
    );

    // The file says the same, to the last digit, however it is divided.
    for (divided, rows) in [
        ("tenant", 2),
        ("tenant&by=key&by=model&by=user&by=priority", 2),
        ("model", 1),
    ] {
        operator.visit(&format!("/reports?by={divided}")).await;
        let lines = download(&mut operator).await;
        let (total, lines) = lines.split_last().expect("a line of totals");
        assert_eq!(
            (total["row"].as_str(), total["rows"].as_str()),
            ("total", rows.to_string().as_str())
        );
        assert_eq!(lines.len(), rows, "divided by {divided}");
        let charged = |line: &BTreeMap<String, String>| line["charged_usd"].parse::<Nanos>().expect("an amount");
        assert_eq!(charged(total), all, "divided by {divided}");
        assert_eq!(lines.iter().map(charged).sum::<Nanos>(), all, "divided by {divided}");
        assert_eq!(
            (&total["requests"], &total["refused_requests"]),
            (&requests, &REFUSALS.to_string())
        );
        if let Some(line) = lines
            .iter()
            .find(|line| line.get("tenant").is_some_and(|name| name == "Research"))
        {
            assert_eq!(charged(line), spent);
            assert_eq!(line["tenant_id"], research);
        }
    }

    // Behind the door again, nothing is left to see.
    operator.sign_out().await;
    for address in [
        "/",
        "/tenants",
        "/keys",
        "/ledger",
        "/reports",
        &ran[0],
        "/reports/monthly.csv",
    ] {
        let page = operator.visit(address).await;
        assert_eq!(page.path(), "/sign-in", "{address} is open");
    }
    operator.visit(&address).await;
    let page = operator.sign_in(OPERATOR, PASSWORD).await;
    assert_eq!(page.address, address, "the sign-in leads to where one wanted to go");
}

#[tokio::test]
async fn a_member_comes_by_a_link_issues_a_key_and_sees_what_is_theirs() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    add_model(&tollgate, &mut operator).await;
    let research = add_tenant(&mut operator, "Research", "10").await;
    let sales = add_tenant(&mut operator, "Sales", "10").await;
    let service_key = operator.issue_key(&research, "nightly summaries").await;
    let sales_key = operator.issue_key(&sales, "letters").await;

    operator.visit("/people/new").await;
    let form = operator
        .page
        .form("/console/people/invite")
        .fill("name", "Mo Member")
        .fill("email", "mo@example.com")
        .choose("role", "Member: own keys and usage")
        .choose("tenant_id", "Research");
    let link = operator.send(&form).await.text("#secret");
    assert!(link.starts_with(&tollgate.url()), "{link}");
    assert!(
        !operator.visit("/people/link").await.source.contains(&link),
        "the link is shown twice"
    );

    let mut member = Window::open(&tollgate, &link).await;
    let form = member.page.form("/console/invitation");
    assert_eq!(
        member.send(&form.clone().fill("password", PASSWORD)).await.heading(),
        "My usage"
    );
    let mut stranger = Window::open(&tollgate, &link).await;
    assert_eq!(stranger.page.heading(), "This link has ended");
    stranger.send(&form.fill("password", "another long sentence")).await;
    assert_ne!(stranger.page.path(), "/", "a link works once");

    let key = member.issue_key("", "notebook").await;
    for key in [&key, &service_key, &sales_key] {
        in_force(&tollgate, key).await;
    }
    let cost = call(&tollgate, &key).await.expect("an answer");
    call(&tollgate, &service_key).await.expect("an answer");
    call(&tollgate, &sales_key).await.expect("an answer");

    // Their own, and nothing else.
    let page = member.visit("/").await;
    assert_eq!(
        (page.figure("Requests").as_str(), money(&page.figure("Spent"))),
        ("1", cents(cost))
    );
    let keys = member.visit("/keys").await.table(&["Name", "State"]);
    assert_eq!(keys.column("Name"), ["notebook"]);
    let listed = member.visit("/ledger").await.table(&["Time", "Ending", "Cost"]);
    assert_eq!(costs_of_entries(&mut member, listed.links.clone()).await, [cost]);
    member.visit("/reports").await;
    let lines = download(&mut member).await;
    assert_eq!(
        lines.last().map(|total| total["charged_usd"].clone()),
        Some(cost.to_decimal(9))
    );

    // What is others' does not exist for them; what is the operators' is not for them.
    let entries = operator.visit("/ledger").await.table(&["Time", "Ending"]).links;
    let foreign = entries.iter().filter(|entry| !listed.links.contains(entry));
    let keys = operator.visit("/keys").await.table(&["Name", "State"]);
    let foreign_keys = keys
        .links
        .iter()
        .zip(keys.column("Name"))
        .filter(|(_, name)| name != "notebook");
    let hidden: Vec<String> = foreign.chain(foreign_keys.map(|(link, _)| link)).cloned().collect();
    assert_eq!(hidden.len(), 4);
    for address in hidden {
        assert_eq!(member.visit(&address).await.status, 404, "{address}");
    }
    let closed = [
        "/tenants",
        "/tenants/new",
        &format!("/tenants/{research}"),
        &format!("/tenants/{sales}"),
        "/models",
        "/models/new",
        "/upstreams",
        "/upstreams/new",
        "/people/new",
        "/status",
        &format!("/ledger?tenant={sales}"),
        &format!("/reports?tenant={sales}"),
    ];
    for address in closed {
        let status = member.visit(address).await.status.as_u16();
        assert!([403, 404].contains(&status), "{address}: {status}");
    }
    for (form, page) in operators_forms(&mut operator, &research).await {
        let data = form.data();
        let answer = member.browser.post_form(&form.action, &data).await;
        let status = answer.status.as_u16();
        assert!([403, 404].contains(&status), "{} of {page}: {status}", form.action);
    }
    let page = operator.visit(&format!("/tenants/{research}")).await;
    assert_eq!(page.heading(), "Research", "and nothing has changed");
}

/// Forms that only operators have, filled in so that an operator's would be accepted, and the pages they are on.
async fn operators_forms(operator: &mut Window, tenant: &str) -> Vec<(test_support::html::Form, String)> {
    let mut forms = Vec::new();
    let take = |page: &Page, action: &str| (page.form(action), page.address.clone());
    let page = operator.visit(&format!("/tenants/{tenant}")).await;
    for action in ["/console/tenants/edit", "/console/tenants/suspend"] {
        forms.push(take(page, action));
    }
    let page = operator.visit(&format!("/models/edit?name={MODEL}")).await;
    for action in ["/console/models/edit", "/console/models/prices/remove"] {
        forms.push(take(page, action));
    }
    let (form, page) = take(operator.visit("/tenants/new").await, "/console/tenants/create");
    forms.push((form.fill("name", "Mine"), page));
    let (form, page) = take(operator.visit("/upstreams/new").await, "/console/upstreams/create");
    forms.push((
        form.fill("name", "Mine").fill("base_url", "http://127.0.0.1:9/v1"),
        page,
    ));
    forms
}
