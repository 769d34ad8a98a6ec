//! Who may do what, asked of everything that is mounted: pages, forms and calls, a new one too. Strangers get nowhere, an
//! auditor changes nothing, and nobody changes what is another tenant's.

use std::collections::BTreeMap;

use bytes::Bytes;
use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::people::Role;
use test_support::console::Window;
use test_support::html::Form;
use test_support::tollgate::Tollgate;

/// What is open to everybody, so that they can come in.
const DOOR: [&str; 3] = ["/sign-in", "/setup", "/invitation"];
/// Forms by which people change what is their own.
const OWN: [&str; 2] = ["/console/sign-out", "/console/account"];
/// Tables that change without anybody's doing: by time, by gateways, by coming and going.
const RESTLESS: [&str; 13] = [
    "alert_deliveries",
    "alerts",
    "audit_log",
    "billing_calendar",
    "billing_days",
    "budget_events",
    "instances",
    "key_uses",
    "key_warnings",
    "ledger_progress",
    "policy_version",
    "sessions",
    "sign_in_failures",
];
/// The others.
const TABLES: &str = "
    select tablename::text from pg_tables
    where schemaname = 'public' and tablename <> all($1::text[]) and tablename not like '%rollups%'
    order by 1";

/// A tenant with a key, a request that ran and one that was refused.
async fn used() -> (Tollgate, Window) {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);
    tollgate.shipped().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/plans/new").await.form("/console/plans/create");
    operator.send(&form.fill("name", "Free")).await;
    (tollgate, operator)
}

/// What each table holds, as a digest; without what is a tenant's that may change its own.
async fn holdings(tollgate: &Tollgate, except: Option<TenantId>) -> BTreeMap<String, String> {
    let mut sql = tollgate.sql().await;
    let tables: Vec<String> = sqlx::query_scalar(TABLES)
        .bind(RESTLESS.as_slice())
        .fetch_all(&mut sql)
        .await
        .expect("tables");
    let mut holdings = BTreeMap::new();
    for table in tables {
        let text = format!(
            "select coalesce(md5(string_agg(row::text, '|' order by row::text)), '') from (
                select to_jsonb(held) - 'last_used_at' - 'seen_at' as row from \"{table}\" as held) as rows
            where coalesce(row ->> 'tenant_id', '') <> $1
                and coalesce(row ->> 'key_id', '') not in (select id::text from keys where tenant_id::text = $1)
                and coalesce(row ->> 'person_id', '') not in (select id::text from people where tenant_id::text = $1)"
        );
        let digest: String = sqlx::query_scalar(sqlx::AssertSqlSafe(text))
            .bind(except.map(|tenant| tenant.to_string()).unwrap_or_default())
            .fetch_one(&mut sql)
            .await
            .expect("a digest");
        holdings.insert(table, digest);
    }
    assert!(holdings.len() > 15, "{:?}", holdings.keys());
    holdings
}

/// Each form of the console as the operator's pages send it; those that no page had, empty.
async fn forms(operator: &mut Window) -> BTreeMap<String, Option<Form>> {
    let mut forms: BTreeMap<String, Option<Form>> =
        admin::router::forms().into_iter().map(|path| (path, None)).collect();
    assert!(forms.len() > 40, "{forms:?}");
    for page in operator.walk().await {
        for action in page.writes() {
            let known = forms.get_mut(&action);
            let known = known.unwrap_or_else(|| panic!("{} sends to {action}, which is nothing", page.address));
            if let Some(form) = page.forms(&action).pop() {
                *known = Some(form.fill_required());
            }
        }
    }
    let seen = forms.values().filter(|form| form.is_some()).count();
    assert!(seen > 30, "{seen} of {} forms are on a page", forms.len());
    forms
}

fn is_open(path: &str) -> bool {
    let path = path.strip_prefix("/console").unwrap_or(path);
    DOOR.contains(&path)
}

#[tokio::test]
async fn nobody_gets_past_the_door() {
    let (tollgate, mut operator) = used().await;
    let forms = forms(&mut operator).await;
    let before = holdings(&tollgate, None).await;
    let mut stranger = tollgate.browser();
    for page in admin::router::pages() {
        let address = page.replace(":id", "00000000-0000-7000-8000-000000000001");
        let answer = stranger.get(&address).await;
        if is_open(&address) {
            assert!(!answer.status.is_redirection(), "{address}");
        } else {
            assert_eq!(answer.status, 303, "{address}");
            assert!(answer.header("location").starts_with("/sign-in"), "{address}");
        }
    }
    for (action, form) in forms.iter().filter(|(action, _)| !is_open(action)) {
        let data = form.as_ref().map(Form::data).unwrap_or_default();
        let answer = stranger.post_form(action, &data).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("location")),
            (303, "/sign-in?ended=1"),
            "{action}"
        );
    }
    for (method, path, is_open) in control::api::calls() {
        let address = path.replace("{id}", "00000000-0000-7000-8000-000000000001");
        for token in ["", "Bearer sk-tg-made-up", "Bearer tg-mgmt-made-up"] {
            let headers = [("authorization", token), ("content-type", "application/json")];
            let answer = stranger
                .send(method.clone(), &address, &headers, Bytes::from("{}"))
                .await;
            assert_eq!(
                answer.status,
                if is_open { 200 } else { 401 },
                "{method} {address} with {token:?}"
            );
        }
    }
    let live = stranger.get("/console/live?page=%2F").await;
    assert!(
        live.text().contains("event: ended") && !live.text().contains("<main"),
        "{}",
        live.text()
    );
    assert_eq!(holdings(&tollgate, None).await, before);
}

#[tokio::test]
async fn an_auditor_changes_nothing() {
    let (tollgate, mut operator) = used().await;
    let forms = forms(&mut operator).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let before = holdings(&tollgate, None).await;
    for (action, form) in others_forms(&forms) {
        let data = form.map(Form::data).unwrap_or_default();
        let answer = auditor.browser.post_form(action, &data).await;
        // What was sent from a page could be understood, so that nothing but the refusal is left to say.
        if form.is_some() {
            assert_eq!(answer.status, 403, "{action}");
        }
        assert_eq!(
            changed(&before, &holdings(&tollgate, None).await),
            Vec::<&str>::new(),
            "{action}"
        );
    }
}

#[tokio::test]
async fn people_of_another_tenant_change_nothing_of_this_one() {
    let (tollgate, mut operator) = used().await;
    let forms = forms(&mut operator).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(other)).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(other)).await;
    let before = holdings(&tollgate, Some(other)).await;
    for (action, form) in others_forms(&forms) {
        let data = form.map(Form::data).unwrap_or_default();
        for window in [&mut manager, &mut member] {
            let answer = window.browser.post_form(action, &data).await;
            if form.is_some() {
                assert!(
                    matches!(answer.status.as_u16(), 303 | 403 | 404),
                    "{action}: {}",
                    answer.status
                );
            }
        }
        assert_eq!(
            changed(&before, &holdings(&tollgate, Some(other)).await),
            Vec::<&str>::new(),
            "{action}"
        );
    }
}

/// Forms that change what is somebody else's.
fn others_forms(forms: &BTreeMap<String, Option<Form>>) -> impl Iterator<Item = (&str, Option<&Form>)> {
    let is_own = |action: &str| is_open(action) || OWN.iter().any(|own| action.starts_with(own));
    let others = forms.iter().filter(move |(action, _)| !is_own(action));
    others.map(|(action, form)| (action.as_str(), form.as_ref()))
}

/// Tables that hold something else now.
fn changed<'a>(before: &'a BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<&'a str> {
    let tables = before
        .iter()
        .filter(|(table, digest)| after.get(*table) != Some(digest));
    tables.map(|(table, _)| table.as_str()).collect()
}
