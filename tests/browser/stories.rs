//! Whole stories in a browser, with scripts and without: an operator's first day, a member from invitation to first call,
//! the end of a month, and a request that was refused and nobody knows why.

use std::time::{Duration, Instant};

use chrono::{Days, NaiveDate, Utc};
use control::limits::NodeLimits;
use domain::money::Nanos;
use domain::people::Role;
use serde_json::Value;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::tollgate::{CHAT_PATH, CREDENTIAL, MODEL, Tollgate, chat_body};

use crate::chromium::{Chromium, Scripts};
use crate::installation;

/// A change is in force within a second; a slow machine gets some more.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(5);
/// An answer of 25 tokens.
const ASKED: &str = "Tell me. [[sim: tokens=25]]";
/// What a page says it has done.
const DONE: &str = "p.notice-good";
/// The second step of a form that shows what it changes.
const CONFIRM: &str = "#confirm button.button-primary";

#[tokio::test]
async fn an_operator_sets_up_an_installation_on_the_first_day() {
    first_day(Scripts::On).await;
}

#[tokio::test]
async fn an_operator_without_scripts_sets_up_an_installation_on_the_first_day() {
    first_day(Scripts::Off).await;
}

async fn first_day(scripts: Scripts) {
    let tollgate = installation::empty().await;
    let token = tollgate.control().create_setup_link(Utc::now()).await;
    let token = token.expect("a link").expect("nobody is set up yet");
    let chromium = Chromium::start(&tollgate.url(), scripts).await;

    // By the link that the log shows.
    chromium.open(&format!("/setup?token={}", token.reveal())).await;
    for (field, value) in [("name", "Olga Operator"), ("email", OPERATOR), ("password", PASSWORD)] {
        chromium.fill("/console/setup", field, value).await;
    }
    chromium.send("/console/setup", DONE).await;
    let first_step = chromium.find("main .empty a[href='/upstreams/new']").await;
    first_step.click().await.expect("a click");

    // An upstream, a model that it serves, and the model's price.
    let form = "/console/upstreams/create";
    chromium.fill(form, "name", "Simulator").await;
    chromium.fill(form, "base_url", &tollgate.simulator.base_url()).await;
    chromium.fill(form, "credential", CREDENTIAL).await;
    chromium.send(form, DONE).await;
    chromium.go("/models").await;
    let form = "/console/models/create";
    chromium
        .click("main a[href='/models/new']", &format!("form[action='{form}']"))
        .await;
    for (field, value) in [
        ("name", "chat-large"),
        ("context_tokens", "128000"),
        ("output_cap_tokens", "4096"),
        ("output_default_tokens", "500"),
        ("route_model[]", "sim-large"),
    ] {
        chromium.fill(form, field, value).await;
    }
    chromium.choose(form, "route_upstream[]", "Simulator").await;
    let form = "/console/models/prices/add";
    chromium
        .send("/console/models/create", &format!("form[action='{form}']"))
        .await;
    chromium.fill(form, "input", "2.50").await;
    chromium.fill(form, "output", "10").await;
    chromium
        .send(form, "form[action='/console/models/prices/remove']")
        .await;

    // A tenant with a budget, which is then lowered: what changes is shown before it is saved.
    chromium.open("/tenants/new").await;
    let form = "/console/tenants/create";
    chromium.fill(form, "name", "Research").await;
    chromium.fill(form, "monthly_cost", "500").await;
    let form = "/console/tenants/edit";
    chromium
        .send("/console/tenants/create", &format!("form[action='{form}']"))
        .await;
    chromium.fill(form, "monthly_cost", "100").await;
    let change = chromium.send(form, "#confirm tbody tr").await;
    let change = change.text().await.expect("the row");
    assert!(change.contains("500.00") && change.contains("100.00"), "{change}");
    chromium.click(CONFIRM, DONE).await;

    // A key, tested before any program has it.
    let issue = "/console/keys/issue";
    chromium
        .click("main a[href^='/keys/new']", &format!("form[action='{issue}']"))
        .await;
    chromium.fill(issue, "name", "nightly summaries").await;
    let key = chromium.send(issue, "#secret").await.text().await.expect("the secret");
    for example in ["#curl", "#python", "#node", "#environment"] {
        let example = chromium.find(example).await.text().await.expect("an example");
        assert!(example.contains(&key) && example.contains(&tollgate.url()), "{example}");
    }
    chromium
        .click("main .copy-row a[href^='/keys/']", "form[action='/console/keys/edit']")
        .await;
    works(&chromium).await;

    // The first call, and where it is seen.
    call(&tollgate, &key).await;
    tollgate.shipped().await;
    chromium.go("/").await;
    assert_eq!(figure(&chromium, "Requests").await, "1");
    chromium.go("/ledger").await;
    assert_eq!(chromium.count("main tbody tr").await, 1);

    // What is left to do before production.
    chromium.go("/settings").await;
    chromium
        .find_path("//h2[normalize-space()='Production checklist']/following::*[self::li or self::summary][1]")
        .await;
    chromium.end().await;
}

#[tokio::test]
async fn a_member_goes_from_an_invitation_to_the_first_call() {
    self_serve(Scripts::On).await;
}

#[tokio::test]
async fn a_member_without_scripts_goes_from_an_invitation_to_the_first_call() {
    self_serve(Scripts::Off).await;
}

async fn self_serve(scripts: Scripts) {
    let tollgate = installation::start().await;
    let operator = Chromium::start(&tollgate.url(), scripts).await;
    operator.sign_in(OPERATOR, PASSWORD).await;

    // The link that the operator passes on.
    operator.go("/people").await;
    let invite = "/console/people/invite";
    operator
        .click("main a[href='/people/new']", &format!("form[action='{invite}']"))
        .await;
    operator.fill(invite, "name", "Mo Member").await;
    operator.fill(invite, "email", "mo@example.com").await;
    operator.choose(invite, "role", "Member: own keys and usage").await;
    operator.choose(invite, "tenant_id", "Research").await;
    let link = operator.send(invite, "#secret").await.text().await.expect("the link");
    operator.end().await;

    // The member's own browser.
    let member = Chromium::start(&tollgate.url(), scripts).await;
    let link = link.strip_prefix(&tollgate.url()).expect("a link to this console");
    member.open(link).await;
    member.fill("/console/invitation", "password", PASSWORD).await;
    member
        .send("/console/invitation", "nav a[href='/'][aria-current='page']")
        .await;

    // A key of one's own, held lower than the tenant allows.
    member.go("/keys").await;
    let issue = "/console/keys/issue";
    member
        .click("main a[href='/keys/new']", &format!("form[action='{issue}']"))
        .await;
    member.fill(issue, "name", "notebook").await;
    let key = member.send(issue, "#secret").await.text().await.expect("the secret");
    let own = "/console/keys/own-limits";
    member
        .click("main .copy-row a[href^='/keys/']", &format!("form[action='{own}']"))
        .await;
    // Enough for two answers of 25 tokens with their questions, of which each holds 40 for its answer, and not for three.
    member.fill(own, "monthly_tokens", "130").await;
    member.send(own, DONE).await;
    call(&tollgate, &key).await;
    tollgate.shipped().await;
    member.go("/").await;
    assert_eq!(figure(&member, "Requests").await, "1");

    // Rotated, both secrets work until the old one ends; revoked, none does.
    member.go("/keys").await;
    member
        .click("main tbody a[href^='/keys/']", "main a[href$='/rotate']")
        .await;
    let rotate = "/console/keys/rotate";
    member
        .click("main a[href$='/rotate']", &format!("form[action='{rotate}']"))
        .await;
    let rotated = member.send(rotate, "#secret").await.text().await.expect("the secret");
    assert_ne!(rotated, key);
    call(&tollgate, &rotated).await;
    let third = tollgate
        .browser()
        .post_json(CHAT_PATH, &key, &body(&tollgate).await)
        .await;
    assert_eq!(
        (third.status.as_u16(), third.code().as_str()),
        (429, "budget_exhausted")
    );
    member
        .click("main .copy-row a[href^='/keys/']", "main a[href$='/revoke']")
        .await;
    member
        .click("main a[href$='/revoke']", "form[action='/console/keys/revoke']")
        .await;
    member.send("/console/keys/revoke", DONE).await;
    tollgate.in_force().await;
    for secret in [&key, &rotated] {
        let refused = tollgate
            .browser()
            .post_json(CHAT_PATH, secret, &body(&tollgate).await)
            .await;
        assert_eq!(refused.code(), "key_revoked");
    }
    member.end().await;
}

#[tokio::test]
async fn finance_closes_a_month() {
    month_end(Scripts::On).await;
}

#[tokio::test]
async fn finance_without_scripts_closes_a_month() {
    month_end(Scripts::Off).await;
}

async fn month_end(scripts: Scripts) {
    let tollgate = installation::used().await;
    Window::person(&tollgate, Role::Auditor, None).await;

    // A provider has billed a request at less than was settled; an operator corrects it.
    let operator = Chromium::start(&tollgate.url(), scripts).await;
    operator.sign_in(OPERATOR, PASSWORD).await;
    operator.open("/ledger?ending=outcome%3Acompleted").await;
    operator
        .click("main tbody tr a[href^='/ledger/']", "main a[href$='/correct']")
        .await;
    let settled = amount(&operator.fact("Cost").await);
    operator
        .click("main a[href$='/correct']", "form[method='get'] [name='cost']")
        .await;
    let (corrected, reason) = (Nanos(settled.0 / 2), "billed at half");
    let form = operator.find("form[method='get'] [name='cost']").await;
    form.send_keys(&corrected.to_decimal(9)).await.expect("a filled field");
    let book = "/console/ledger/correct";
    operator
        .click(
            "form[method='get'] button[type='submit']",
            &format!("form[action='{book}']"),
        )
        .await;
    operator.fill(book, "reason", reason).await;
    operator.send(book, DONE).await;
    operator.end().await;

    // Finance reads everything and changes nothing.
    let finance = Chromium::start(&tollgate.url(), scripts).await;
    finance.sign_in("auditor@example.com", PASSWORD).await;
    finance.go("/reports").await;
    finance
        .click(
            "main a[href*='show=money']",
            "main a[href*='show=money'][aria-current='page']",
        )
        .await;
    finance
        .find("a[href^='/reports/monthly.csv']")
        .await
        .click()
        .await
        .expect("a click");
    let (_, file) = finance.downloaded().await;
    let mut reader = csv::Reader::from_reader(file.as_slice());
    let columns = reader.headers().expect("a header").clone();
    let column = columns
        .iter()
        .position(|column| column == "charged_usd")
        .expect("the column");
    let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.expect("a line")).collect();
    let total = lines.last().expect("a line of totals");
    assert_eq!(&total[column], corrected.to_decimal(9), "of {settled:?}");
    finance.go("/ledger").await;
    finance.open("/ledger/adjustments").await;
    let adjustment = finance.find("main tbody tr").await.text().await.expect("the row");
    assert!(adjustment.contains(reason), "{adjustment}");
    assert_eq!(
        finance.count("main a[href$='/adjustments/new']").await,
        0,
        "an auditor cannot adjust"
    );

    // The month before is empty, and one step away.
    finance.go("/reports").await;
    finance.click("main a[rel='prev']", "main a[rel='next']").await;
    finance.end().await;
}

#[tokio::test]
async fn an_operator_finds_out_why_a_request_was_refused() {
    incident(Scripts::On).await;
}

#[tokio::test]
async fn an_operator_without_scripts_finds_out_why_a_request_was_refused() {
    incident(Scripts::Off).await;
}

async fn incident(scripts: Scripts) {
    let tollgate = installation::start().await;
    let limits = NodeLimits {
        monthly_cost: Some(Nanos(1)),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.named_tenant_with_key("Sales", limits).await;
    let refused = tollgate.chat(&key, ASKED).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let id = refused.header("x-tollgate-request-id").to_owned();
    tollgate.shipped().await;

    // The caller has passed on the request's id.
    let chromium = Chromium::start(&tollgate.url(), scripts).await;
    chromium.sign_in(OPERATOR, PASSWORD).await;
    chromium.go("/ledger").await;
    let form = "/ledger";
    let more = chromium.find("form[action='/ledger'] summary").await;
    more.click().await.expect("a click");
    chromium.fill(form, "request", &id).await;
    chromium
        .send(
            form,
            &format!("form[action='/ledger'] input[name='request'][value='{id}']"),
        )
        .await;
    assert_eq!(chromium.count("main tbody tr").await, 1);
    chromium
        .click(&format!("main tbody tr a[href*='/ledger/{id}']"), "main dl dd")
        .await;
    assert_eq!(chromium.fact("Code").await, "budget_exhausted");
    assert_eq!(chromium.fact("Refused by").await, format!("tenant:{tenant}"));

    // It would be refused now, too.
    let public_id = chromium.find("main a[href^='/keys/']").await;
    public_id.click().await.expect("a click");
    let masked = chromium.fact("Key").await;
    let encoded: String = url::form_urlencoded::byte_serialize(masked.as_bytes()).collect();
    let question = format!("/explain?key={encoded}&model={MODEL}&input_tokens=20");
    chromium.open(&question).await;
    chromium
        .find_path("//h2[starts-with(normalize-space(), 'It would be refused')]")
        .await;

    // More for today, with a reason; then it is admitted.
    chromium.open(&format!("/limits?of=tenant%3A{tenant}")).await;
    let increase = "/console/limits/increase";
    chromium
        .click(
            "main a[href^='/limits/edit'][href*='limit=']",
            &format!("form[action='{increase}']"),
        )
        .await;
    chromium.fill(increase, "increase_value", "50").await;
    let day = (Utc::now() + Days::new(1)).date_naive();
    let field = format!("form[action='{increase}'] [name='increase_last_day']");
    write_day(&chromium, &field, day).await;
    chromium.fill(increase, "increase_reason", "a demonstration").await;
    let change = chromium.send(increase, "#confirm tbody tr").await;
    let change = change.text().await.expect("a text");
    assert!(change.contains("a demonstration"), "{change}");
    chromium.click(CONFIRM, DONE).await;
    call(&tollgate, &key).await;
    chromium.open(&question).await;
    chromium
        .find_path("//h2[starts-with(normalize-space(), 'It would be admitted')]")
        .await;
    chromium.go("/audit").await;
    let entries = chromium.find("main").await.text().await.expect("the page");
    assert!(entries.contains("Olga Operator"), "{entries}");
    chromium.end().await;
}

/// Types a day into a date field of an English Chromium: month, day, year.
async fn write_day(chromium: &Chromium, selector: &str, day: NaiveDate) {
    let typed = day.format("%m%d%Y").to_string();
    let field = chromium.find(selector).await;
    field.send_keys(&typed).await.expect("a filled field");
}

/// Presses "Test this key" until the gateway knows the key.
async fn works(chromium: &Chromium) {
    let started = Instant::now();
    loop {
        let button = chromium.find("form[action='/console/keys/check'] button").await;
        button.click().await.expect("a click");
        // The page before may still be there.
        let said = chromium.find("main p.notice").await.text().await.unwrap_or_default();
        if chromium.count(DONE).await > 0 && said.contains("chat-large") {
            return;
        }
        assert!(started.elapsed() < IN_FORCE_WITHIN, "{said}");
    }
}

/// Calls until the key is in force.
async fn call(tollgate: &Tollgate, key: &str) {
    let started = Instant::now();
    let body = body(tollgate).await;
    loop {
        tollgate.in_force().await;
        let answer = tollgate.browser().post_json(CHAT_PATH, key, &body).await;
        if answer.status == 200 {
            return;
        }
        // A budget is read when it is asked for first.
        assert!(started.elapsed() < IN_FORCE_WITHIN, "{}", answer.text());
    }
}

/// A question to the only model.
async fn body(tollgate: &Tollgate) -> Value {
    let models = tollgate.control().models(&tollgate.actor(), Utc::now()).await;
    let mut body = chat_body(ASKED);
    body["model"] = models.expect("models")[0].model.name.clone().into();
    body["max_tokens"] = 40.into();
    body
}

/// One of the overview's figures.
async fn figure(chromium: &Chromium, name: &str) -> String {
    let path = format!("//dt[normalize-space()='{name}']/following-sibling::dd//*[@class='figure']");
    chromium.find_path(&path).await.text().await.expect("a figure")
}

/// An amount as a page writes it.
fn amount(shown: &str) -> Nanos {
    let amount = shown.trim_start_matches("USD").trim().replace(',', "");
    amount.parse().unwrap_or_else(|error| panic!("`{shown}`: {error}"))
}
