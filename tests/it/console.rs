//! The console's smaller promises: who may write, what a browser is told, what a form says, and that no page says too much.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use control::limits::NodeLimits;
use domain::people::Role;
use http::Method;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::html::{Form, Page};
use test_support::tollgate::{CREDENTIAL, MODEL, Options, Tollgate, chat_body};

/// Failed sign-ins of one account after which it has to wait.
const FAILURES_MAX: usize = 5;

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

/// A tenant with a key, a request that ran and one that was refused; the key's secret.
async fn used() -> (Tollgate, String) {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);
    tollgate.shipped().await;
    (tollgate, key)
}

/// Whether a form is about nothing but the sender's own account, as everybody's is.
fn is_own(action: &str) -> bool {
    action == "/console/sign-out" || action.starts_with("/console/account/")
}

#[tokio::test]
async fn a_write_that_no_page_of_ours_sent_is_refused() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/tenants/new").await.form("/console/tenants/create");
    let form = form.fill("name", "Planted");
    let body = Bytes::from(
        form.data()
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("&"),
    );
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let origin = tollgate.url();
    let own = ("origin", origin.as_str());
    for headers in [
        vec![kind],
        vec![kind, ("origin", "https://evil.example")],
        vec![kind, ("origin", "null")],
        vec![kind, own, ("sec-fetch-site", "cross-site")],
        vec![kind, own, ("sec-fetch-site", "same-site")],
        vec![kind, own, ("sec-fetch-site", "none")],
    ] {
        for action in [form.action.as_str(), "/console/sign-out", "/console/sign-in"] {
            let answer = operator
                .browser
                .send(Method::POST, action, &headers, body.clone())
                .await;
            assert_eq!(answer.status, 403, "{action} with {headers:?}");
        }
    }
    assert_eq!(operator.visit("/tenants").await.find_table(&["Name", "State"]), None);
    for headers in [vec![kind, own], vec![kind, ("sec-fetch-site", "same-origin")]] {
        let answer = operator
            .browser
            .send(Method::POST, &form.action, &headers, body.clone())
            .await;
        assert_eq!(answer.status, 303, "{headers:?}");
    }
    assert_eq!(
        operator
            .visit("/tenants")
            .await
            .table(&["Name", "State"])
            .column("Name")[0],
        "Planted"
    );
}

#[tokio::test]
async fn the_sessions_cookie_is_out_of_reach_and_new_at_each_sign_in() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    window.sign_out().await;
    // A refused form comes back by way of a session of nobody.
    window.sign_in(OPERATOR, "a wrong sentence").await;
    let form = window.page.form("/console/sign-in").fill("password", PASSWORD);
    let mut cookies = BTreeSet::new();
    for _ in 0..2 {
        let answer = window.browser.post_form(&form.action, &form.data()).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/"));
        let cookie = answer.header("set-cookie").to_owned();
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        assert!(cookies.insert(cookie), "a session from before the sign-in goes on");
    }
    let answer = window.browser.post_form("/console/sign-out", &[]).await;
    assert!(
        answer.header("set-cookie").contains("Max-Age=0"),
        "{}",
        answer.header("set-cookie")
    );
}

#[tokio::test]
async fn behind_tls_the_cookie_is_for_tls_and_links_lead_to_the_public_address() {
    let options = Options {
        public_url: Some("https://gate.example/".parse().expect("a URL")),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let mut operator = Window::operator(&tollgate).await;
    let sign_in = [("email", OPERATOR), ("password", PASSWORD)];
    let answer = operator.browser.post_form("/console/sign-in", &sign_in).await;
    assert!(
        answer.header("set-cookie").contains("Secure"),
        "{}",
        answer.header("set-cookie")
    );
    for path in ["/", "/favicon.svg"] {
        let answer = operator.browser.get(path).await;
        assert_eq!(answer.header("strict-transport-security"), "max-age=31536000", "{path}");
    }
    let without = empty().await;
    assert_eq!(
        without
            .browser()
            .get("/sign-in")
            .await
            .header("strict-transport-security"),
        ""
    );
    let page = operator.visit("/connect").await;
    assert!(page.content().contains("https://gate.example/v1"), "{}", page.content());
    let form = operator.visit("/people/new").await.form("/console/people/invite");
    let form = form.fill("name", "Ann").fill("email", "ann@example.com");
    let link = operator
        .send(&form.choose("role", "Auditor: reads everything, changes nothing"))
        .await;
    assert!(
        link.text("#secret")
            .starts_with("https://gate.example/invitation?token=")
    );
}

#[tokio::test]
async fn failed_sign_ins_make_the_account_wait_and_say_so() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    let mut other = Window::person(&tollgate, Role::Auditor, None).await;
    window.sign_out().await;
    for _ in 0..FAILURES_MAX {
        let page = window.sign_in(OPERATOR, "a wrong sentence").await;
        assert_eq!(page.notices(), ["The e-mail address or the password is wrong."]);
        let form = page.form("/console/sign-in");
        assert_eq!((form.value("email"), form.value("password")), (OPERATOR, ""));
    }
    let page = window.sign_in(OPERATOR, PASSWORD).await;
    assert_eq!(page.path(), "/sign-in", "even the right one has to wait");
    assert!(
        page.notices()[0].contains("Try again in 15 minutes"),
        "{:?}",
        page.notices()
    );
    // Nobody learns which addresses exist.
    for _ in 0..FAILURES_MAX {
        window.sign_in("nobody@example.com", PASSWORD).await;
        assert_eq!(window.page.notices(), ["The e-mail address or the password is wrong."]);
    }
    window.sign_in("nobody@example.com", PASSWORD).await;
    assert!(
        window.page.notices()[0].contains("Try again in"),
        "{:?}",
        window.page.notices()
    );
    other.sign_out().await;
    assert_eq!(other.sign_in("auditor@example.com", PASSWORD).await.path(), "/");
}

#[tokio::test]
async fn the_sign_in_leads_to_pages_of_ours_only() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    for (next, to) in [
        ("/ledger%3Fkind%3Drejection", "/ledger?kind=rejection"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/%5Cevil.example/", "/"),
    ] {
        window.sign_out().await;
        window.visit(&format!("/sign-in?next={next}")).await;
        let form = window
            .page
            .form("/console/sign-in")
            .fill("email", OPERATOR)
            .fill("password", PASSWORD);
        let answer = window.browser.post_form(&form.action, &form.data()).await;
        assert_eq!(answer.header("location"), to);
        window.visit("/").await;
    }
}

#[tokio::test]
async fn a_form_after_the_session_leads_to_the_sign_in_and_says_that_nothing_was_saved() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/tenants/new").await.form("/console/tenants/create");
    let form = form.fill("name", "Too late");
    operator.sign_out().await;
    let page = operator.send(&form).await;
    assert_eq!((page.path(), page.heading().as_str()), ("/sign-in", "Sign in"));
    assert!(page.notices()[0].contains("nothing was saved"), "{:?}", page.notices());
    operator.sign_in(OPERATOR, PASSWORD).await;
    assert_eq!(operator.visit("/tenants").await.find_table(&["Name", "State"]), None);
}

#[tokio::test]
async fn a_refused_form_says_what_is_wrong_and_keeps_what_was_entered() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    operator.visit("/tenants/new").await;
    let form = operator.page.form("/console/tenants/create");
    let form = form
        .fill("name", "Research & Co")
        .fill("monthly_cost", "a lot")
        .fill("requests_per_minute", "12")
        .choose("priority_ceiling", "critical")
        .tick("has_strict_budgets", "on");
    let page = operator.send(&form).await.clone();
    assert_eq!((page.path(), page.status.as_u16()), ("/tenants/new", 200));
    assert!(!page.text("#monthly_cost-error").is_empty());
    assert_eq!(page.texts("[aria-invalid=true]").len(), 1);
    assert!(!page.notices().is_empty());
    let back = page.form("/console/tenants/create");
    assert_eq!(back.data(), form.data());

    // Once it is right, it is saved as entered.
    let page = operator
        .send(&back.fill("monthly_cost", "1,000.5".replace(',', "").as_str()))
        .await;
    assert_eq!(page.heading(), "Research & Co");
    let form = page.form("/console/tenants/edit");
    assert_eq!(
        (form.value("requests_per_minute"), form.choice("priority_ceiling")),
        ("12", "critical")
    );
    assert_eq!(form.value("monthly_cost").trim_end_matches('0'), "1000.5");
    // The page after it is fresh.
    let form = operator.visit("/tenants/new").await.form("/console/tenants/create");
    assert_eq!(form.value("name"), "");

    // Secrets do not come back.
    operator.visit("/upstreams/new").await;
    let form = operator.page.form("/console/upstreams/create");
    let form = form
        .fill("name", "Provider")
        .fill("base_url", "not an address")
        .fill("credential", CREDENTIAL);
    let page = operator.send(&form).await;
    assert!(!page.text("#base_url-error").is_empty());
    assert!(!page.source.contains(CREDENTIAL));
    let back = page.form("/console/upstreams/create");
    assert_eq!(
        (back.value("base_url"), back.value("credential")),
        ("not an address", "")
    );
}

#[tokio::test]
async fn of_two_people_who_edit_one_tenant_the_second_is_told() {
    let tollgate = empty().await;
    let tenant = tollgate.tenant("Research", NodeLimits::default()).await;
    let address = format!("/tenants/{tenant}");
    let mut first = Window::operator(&tollgate).await;
    let mut second = Window::person(&tollgate, Role::Operator, None).await;
    let form = first.visit(&address).await.form("/console/tenants/edit");
    let late = second.visit(&address).await.form("/console/tenants/edit");
    first.save(&form.fill("monthly_cost", "20")).await;
    assert_eq!(first.page.notices(), ["Saved."]);

    // Another field, and yet: the form would put back the budget that was there before.
    let page = second.send(&late.fill("requests_per_minute", "30")).await.clone();
    assert!(
        page.notices()[0].contains("Somebody else changed this"),
        "{:?}",
        page.notices()
    );
    let stored = first.visit(&address).await.form("/console/tenants/edit");
    assert_eq!(
        (stored.value("monthly_cost"), stored.value("requests_per_minute")),
        ("20.00", "")
    );
    let again = page.form("/console/tenants/edit");
    assert_eq!(
        (again.value("monthly_cost"), again.value("requests_per_minute")),
        ("", "30")
    );
    // What is stored stands beside what was entered, so that the second save undoes nothing unseen.
    assert_eq!(page.texts(".now"), ["Now: 20.00", "Now: empty"]);
    assert_eq!(page.text("#monthly_cost-now"), "Now: 20.00");

    // Knowing that, the second may replace it.
    let asked = second.send(&again).await;
    let changes = asked.table(&["Limit", "Now", "Then"]);
    assert_eq!(changes.cell("Budget per month", "Now"), "USD 20.00");
    assert_eq!(changes.cell("Budget per month", "Then"), "no limit");
    let confirm = asked.forms(&again.action).swap_remove(0);
    second.send(&confirm).await;
    assert_eq!(second.page.notices(), ["Saved."]);
    let stored = first.visit(&address).await.form("/console/tenants/edit");
    assert_eq!(
        (stored.value("monthly_cost"), stored.value("requests_per_minute")),
        ("", "30")
    );
}

#[tokio::test]
async fn routes_that_somebody_else_saved_stand_beside_those_that_were_entered() {
    let tollgate = Tollgate::start().await;
    let (address, action) = (format!("/models/edit?name={MODEL}"), "/console/models/edit");
    let mut first = Window::operator(&tollgate).await;
    let mut second = Window::person(&tollgate, Role::Operator, None).await;
    let form = first.visit(&address).await.form(action);
    let upstream = form.choice("route_upstream[]").to_owned();
    let late = second.visit(&address).await.form(action);
    first.send(&form.fill_nth("route_weight[]", 0, "7")).await;
    assert_eq!(first.page.notices(), ["Saved."]);

    let page = second.send(&late.fill_nth("route_weight[]", 0, "3")).await;
    let notices = page.notices();
    assert!(notices[0].contains("Somebody else changed this"), "{notices:?}");
    let now = page.text("#routes-now");
    assert!(now.starts_with("Now:"), "{now}");
    assert!(now.contains(&format!(" at {upstream} (")), "{now}");
    assert!(now.contains("weight 7)") && !now.contains("weight 3)"), "{now}");
    let again = page.form(action);
    assert_eq!(again.value("route_weight[]"), "3", "what was entered stays");
    second.send(&again).await;
    assert_eq!(second.page.notices(), ["Saved."]);

    // Where they are the same, nothing is said of them.
    let form = first.visit(&address).await.form(action);
    let late = second.visit(&address).await.form(action);
    first.send(&form.fill("group", "chat")).await;
    let page = second.send(&late.fill("group", "talk")).await;
    assert_eq!(page.texts(".now"), ["Now: chat"]);
}

#[tokio::test]
async fn every_page_of_an_empty_installation_opens() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let pages = operator.walk().await;
    for page in &pages {
        assert_eq!(page.status, 200, "{}", page.address);
    }
    let paths: BTreeSet<&str> = pages.iter().map(Page::path).collect();
    for path in [
        "/",
        "/tenants",
        "/tenants/new",
        "/keys",
        "/keys/new",
        "/models",
        "/models/catalogue",
        "/models/new",
        "/quota-tree",
        "/explain",
        "/upstreams",
        "/upstreams/new",
        "/priorities",
        "/rehearsal",
        "/ledger",
        "/ledger/adjustments",
        "/ledger/adjustments/new",
        "/reports",
        "/reports/monthly.csv",
        "/people",
        "/people/new",
        "/account",
        "/connect",
        "/status",
    ] {
        assert!(paths.contains(path), "no link leads to {path}");
    }
    for address in ["/keys/issued", "/people/link"] {
        assert_eq!(operator.visit(address).await.status, 200, "{address}");
    }
    for address in [
        "/nowhere",
        "/keys/nothing",
        "/tenants/nothing",
        "/models/edit?name=nothing",
    ] {
        assert_eq!(operator.visit(address).await.status, 404, "{address}");
    }
}

#[tokio::test]
async fn no_page_shows_a_secret_and_no_link_leads_to_where_one_may_not_go() {
    let (tollgate, key) = used().await;
    let mut operator = Window::operator(&tollgate).await;
    operator.visit("/tenants").await;
    let tenant = operator.page.table(&["Name", "State"]).links[0]
        .trim_start_matches("/tenants/")
        .parse();
    let tenant = tenant.expect("the tenant's id");
    let mut member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let own_key = member.issue_key("", "notebook").await;
    let [secret, own_secret] = [&key, &own_key].map(|key| key.rsplit('-').next().unwrap_or_default());
    assert!(secret.len() > 20, "a key ends with its secret");
    let roles = [
        operator,
        Window::person(&tollgate, Role::Auditor, None).await,
        Window::person(&tollgate, Role::Manager, Some(tenant)).await,
        member,
    ];
    for mut window in roles {
        let who = window.page.text(".who");
        for page in window.walk().await {
            assert_eq!(page.status, 200, "{who} was led to {}", page.address);
            for hidden in [secret, own_secret, CREDENTIAL, "$argon2"] {
                assert!(
                    !page.source.contains(hidden),
                    "{} shows `{hidden}` to {who}",
                    page.address
                );
            }
        }
    }
}

#[tokio::test]
async fn every_answer_tells_browsers_to_run_and_frame_nothing_else() {
    let (tollgate, _) = used().await;
    let mut operator = Window::operator(&tollgate).await;
    let mut pages = operator.walk().await;
    for address in ["/pkg/nothing.js", "/nowhere", "/keys/issued"] {
        pages.push(operator.visit(address).await.clone());
    }
    pages.push(operator.sign_out().await.clone());
    let mut nonces = BTreeSet::new();
    for page in &pages {
        let header = |name: &str| {
            let value = page.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_else(|| panic!("{} has no {name}", page.address))
        };
        let policy: BTreeMap<&str, Vec<&str>> = header("content-security-policy")
            .split(';')
            .filter_map(|directive| {
                let mut words = directive.split_whitespace();
                Some((words.next()?, words.collect()))
            })
            .collect();
        assert_eq!(policy["default-src"], ["'none'"], "{}", page.address);
        assert_eq!(policy["frame-ancestors"], ["'none'"]);
        assert_eq!(policy["base-uri"], ["'none'"]);
        assert_eq!(policy["form-action"], ["'self'"]);
        let nonce = policy.get("script-src").into_iter().flatten().find_map(|source| {
            let nonce = source.strip_prefix("'nonce-")?;
            nonce.strip_suffix('\'')
        });
        let sources = policy.values().flatten();
        for source in sources.filter(|source| !source.starts_with("'nonce-")) {
            assert!(
                ["'none'", "'self'", "'wasm-unsafe-eval'"].contains(source),
                "{source} at {}",
                page.address
            );
        }
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("referrer-policy"), "same-origin");
        if !page.path().starts_with("/pkg/") {
            assert_eq!(header("cache-control"), "no-store", "{}", page.address);
        }
        // What the policy forbids would not work.
        let carried = nonce.unwrap_or("none");
        let scripts = page.texts("script").len();
        assert_eq!(
            page.texts(&format!("script[nonce='{carried}']")).len(),
            scripts,
            "{}",
            page.address
        );
        for forbidden in [
            "[style]",
            "style",
            "[onclick]",
            "[onsubmit]",
            "[onload]",
            "base",
            "iframe",
        ] {
            assert!(page.texts(forbidden).is_empty(), "{} has {forbidden}", page.address);
        }
        if let Some(nonce) = nonce {
            assert!(nonces.insert(nonce.to_owned()), "a nonce is used once");
        }
    }
    assert!(nonces.len() > 10);
}

#[tokio::test]
async fn whatever_a_form_can_do_is_refused_to_an_auditor() {
    let (tollgate, _) = used().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/plans/new").await.form("/console/plans/create");
    operator.send(&form.fill("name", "Free")).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let mut forms: BTreeMap<String, Form> = BTreeMap::new();
    for page in operator.walk().await {
        for action in page.writes() {
            if !is_own(&action)
                && let Some(form) = page.forms(&action).pop()
            {
                // The first: the operator's own page among the people comes before the auditor's, who may end their own session.
                forms.entry(action).or_insert(form);
            }
        }
    }
    for action in [
        "keys/check",
        "keys/edit",
        "keys/issue",
        "keys/own-limits",
        "keys/revoke",
        "keys/rotate",
        "limits/add",
        "limits/edit",
        "limits/remove",
        "limits/set",
        "models/catalogue/load",
        "models/create",
        "models/edit",
        "models/prices/add",
        "models/prices/remove",
        "people/disable",
        "people/edit",
        "people/end-session",
        "people/end-sessions",
        "people/invite",
        "people/link",
        "plans/create",
        "plans/edit",
        "plans/remove",
        "settings/rehearsal",
        "settings/unpriced",
        "tenants/create",
        "tenants/edit",
        "tenants/key-rules",
        "tenants/suspend",
        "upstreams/create",
        "upstreams/edit",
    ] {
        assert!(
            forms.contains_key(&format!("/console/{action}")),
            "nothing sends {action}"
        );
    }
    let notes = async || {
        let count: i64 = sqlx::query_scalar("select count(*) from audit_log")
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("a count");
        count
    };
    let before = notes().await;
    for form in forms.into_values().map(Form::fill_required) {
        let answer = auditor.browser.post_form(&form.action, &form.data()).await;
        assert_eq!(answer.status, 403, "{}", form.action);
    }
    assert_eq!(notes().await, before, "something was done");
    for page in auditor.walk().await.iter().filter(|page| page.is_html()) {
        let others: Vec<_> = page.writes().into_iter().filter(|action| !is_own(action)).collect();
        assert!(others.is_empty(), "{} has {others:?}", page.address);
    }
}

#[tokio::test]
async fn what_people_write_is_shown_and_not_run() {
    let tollgate = Tollgate::start().await;
    let name = "<script>alert(1)</script>\"><img src=x>";
    let tenant = tollgate.tenant(name, NodeLimits::default()).await;
    let key = tollgate.issue(tenant).await.text.reveal().to_owned();
    tollgate.in_force().await;
    let mut body = chat_body("Hello.");
    body["user"] = serde_json::json!("</td><script>alert(2)</script>");
    let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    tollgate.shipped().await;
    let mut operator = Window::operator(&tollgate).await;
    assert_eq!(operator.visit(&format!("/tenants/{tenant}")).await.heading(), name);
    for page in operator.walk().await.iter().filter(|page| page.is_html()) {
        assert!(page.texts("img").is_empty(), "{}", page.address);
        assert!(
            !page.texts("script").iter().any(|script| script.contains("alert")),
            "{}",
            page.address
        );
    }
    let report = operator.visit("/reports?by=user").await.table(&["User", "Requests"]);
    assert_eq!(report.column("User"), ["</td><script>alert(2)</script>"]);
}

#[tokio::test]
async fn a_form_larger_than_any_of_ours_is_refused_with_a_page() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/tenants/new").await.form("/console/tenants/create");
    let page = operator.send(&form.fill("name", &"x".repeat(64 * 1024))).await;
    assert_eq!(
        (page.status.as_u16(), page.heading().as_str()),
        (413, "That was too much at once")
    );
}

#[tokio::test]
async fn a_revoked_key_stays_in_sight_and_a_closed_account_is_out_at_once() {
    let (tollgate, key) = used().await;
    let mut operator = Window::operator(&tollgate).await;
    let keys = operator.visit("/keys").await.table(&["Name", "State"]);
    let revoke = operator.visit(&keys.links[0]).await.link("Revoke");
    let form = operator.visit(&revoke).await.form("/console/keys/revoke");
    let page = operator.send(&form).await;
    assert_eq!(
        (page.notices(), page.fact("State").as_str()),
        (vec!["Revoked.".to_owned()], "revoked")
    );
    tollgate.in_force().await;
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "key_revoked"));
    assert_eq!(operator.visit("/keys").await.find_table(&["Name", "State"]), None);
    let all = operator.visit("/keys?revoked=on").await.table(&["Name", "State"]);
    assert_eq!(all.column("State"), ["revoked"]);

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let people = operator.visit("/people").await.table(&["Name", "Role"]);
    let audrey = people.column("Role").iter().position(|role| role == "auditor");
    let audrey = people.links[audrey.expect("the auditor")].clone();
    let form = operator.visit(&audrey).await.form("/console/people/disable");
    operator.send(&form).await;
    assert_eq!(auditor.visit("/").await.path(), "/sign-in");
    let page = auditor.sign_in("auditor@example.com", PASSWORD).await;
    assert_eq!(page.path(), "/sign-in");
}

#[tokio::test]
async fn pages_are_compressed_but_those_that_show_a_secret_or_are_for_strangers() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", NodeLimits::default()).await;
    let accepts = [("accept-encoding", "gzip")];
    let encoding = async |window: &mut Window, address: &str| {
        let browser = &mut window.browser;
        let answer = browser.send(Method::GET, address, &accepts, Bytes::new()).await;
        assert_eq!(answer.status, 200, "{address}");
        answer.header("content-encoding").to_owned()
    };
    for address in ["/", "/tenants", "/tenants?find=research", "/audit", "/settings"] {
        assert_eq!(encoding(&mut operator, address).await, "gzip", "{address}");
    }
    let form = operator
        .visit(&format!("/keys/new?tenant={tenant}"))
        .await
        .form("/console/keys/issue");
    let form = form.fill("name", "ci");
    operator.browser.post_form(&form.action, &form.data()).await;
    for address in ["/keys/issued", "/settings/webhook"] {
        assert_eq!(encoding(&mut operator, address).await, "", "{address}");
    }
    let mut stranger = Window::open(&tollgate, "/sign-in").await;
    assert_eq!(encoding(&mut stranger, "/sign-in").await, "");
}

#[tokio::test]
async fn what_cannot_be_taken_back_at_once_says_first_what_happens() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let tenant = tollgate.tenant("Research", NodeLimits::default()).await;
    let page = operator.visit(&format!("/tenants/{tenant}")).await;
    let told = page.text("details:has(form[action='/console/tenants/suspend'])");
    assert!(
        told.contains("tenant_suspended") && told.contains("Suspend Research"),
        "{told}"
    );
    assert_eq!(page.texts(".consequences > li").len(), 4);
    let upstreams = operator.visit("/upstreams").await.links();
    let upstream = upstreams
        .into_iter()
        .find(|link| link.starts_with("/upstreams/0"))
        .expect("an upstream");
    let told = operator
        .visit(&upstream)
        .await
        .text("details:has(input[name=is_disabled])");
    // The only model of the installation has no other upstream.
    assert!(told.contains("1 model is routed to it."), "{told}");
    assert!(told.contains("have no other upstream in use"), "{told}");
    let models = operator.visit("/models").await.links();
    let model = models
        .into_iter()
        .find(|link| link.starts_with("/models/edit"))
        .expect("a model");
    let told = operator
        .visit(&model)
        .await
        .text("details:has(input[name=is_disabled])");
    assert!(told.contains("hidden from callers"), "{told}");
}
