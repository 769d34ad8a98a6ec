//! What operators configure, by the API: each noun is read, made, changed and taken away as in the console, by the same
//! operations; what is wrong is said, and no secret is.

use std::collections::BTreeSet;

use bytes::Bytes;
use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::people::{Kept, PersonDraft, PersonEdit};
use control::{Actor, ControlError};
use domain::ids::{PersonId, TenantId};
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::priority::Priority;
use http::Method;
use serde_json::{Value, json};
use test_support::http::Answer;
use test_support::tollgate::{CREDENTIAL, MODEL, Tollgate};

use super::{EVERYTHING, ids, problem, read, send, start, token};

/// Every list of what operators configure.
const LISTS: [&str; 10] = [
    "tenants",
    "plans",
    "people",
    "keys",
    "limits",
    "models",
    "prices",
    "upstreams",
    "jobs",
    "audit",
];
const NOBODY: &str = "0198c5e2-1b5a-7c3e-9d0f-2a4b6c8d0e1f";

/// A token's calls.
struct Caller<'a> {
    tollgate: &'a Tollgate,
    token: String,
}

impl<'a> Caller<'a> {
    async fn with(tollgate: &'a Tollgate, tenant: Option<TenantId>, may: &[Permission]) -> Self {
        Self {
            tollgate,
            token: token(tollgate, tenant, may).await,
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.send_with(method, path, &[], body).await
    }

    async fn send_with(&self, method: Method, path: &str, more: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let path = format!("/api/v1/{path}");
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        send(self.tollgate, &self.token, method, &path, more, body).await
    }

    async fn get(&self, path: &str) -> Value {
        read(self.tollgate, &self.token, &format!("/api/v1/{path}")).await
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.send(Method::POST, path, Some(body)).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        answer.json()
    }

    async fn patch(&self, path: &str, body: &Value) -> Value {
        let answer = self.send(Method::PATCH, path, Some(body)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    async fn delete(&self, path: &str) {
        let answer = self.send(Method::DELETE, path, None).await;
        assert_eq!(answer.status, 204, "{path}: {}", answer.text());
    }

    /// The fields that are refused.
    async fn refused(&self, method: Method, path: &str, body: &Value) -> BTreeSet<String> {
        let answer = self.send(method, path, Some(body)).await;
        problem(&answer, 422).1
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn named(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn tenants_and_plans_are_made_changed_and_taken_away() {
    let tollgate = start().await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let plan = all
        .post("plans", &json!({ "name": "Paid", "priority_ceiling": "default" }))
        .await;
    let plan_path = format!("plans/{}", text(&plan, "id"));
    let tenant = all
        .post("tenants", &json!({ "name": " Acme ", "plan_id": plan["id"] }))
        .await;
    assert_eq!(tenant["name"], "Acme");
    assert_eq!(tenant["priority_ceiling_in_force"], "default", "the plan's");
    let path = format!("tenants/{}", text(&tenant, "id"));
    assert_eq!(all.get(&path).await, tenant);

    // A call whose answer was lost is sent again.
    let again = all
        .send(Method::POST, "tenants", Some(&json!({ "name": "ACME" })))
        .await;
    problem(&again, 409);
    assert_eq!(again.json()["existing"], tenant["id"]);
    let again = all
        .send(
            Method::POST,
            "plans",
            Some(&json!({ "name": "paid", "priority_ceiling": "low" })),
        )
        .await;
    assert_eq!(again.json()["existing"], plan["id"]);

    // What is absent stays; null takes away.
    let changed = all
        .patch(
            &path,
            &json!({ "version": tenant["version"], "priority_ceiling": "high" }),
        )
        .await;
    assert_eq!(
        (&changed["plan_id"], &changed["priority_ceiling_in_force"]),
        (&plan["id"], &json!("high"))
    );
    let stale = all
        .send(
            Method::PATCH,
            &path,
            Some(&json!({ "version": tenant["version"], "name": "B" })),
        )
        .await;
    problem(&stale, 409);
    assert_eq!(stale.json()["version"], changed["version"]);
    let in_use = all
        .send(
            Method::DELETE,
            &format!("{plan_path}?version={}", plan["version"]),
            None,
        )
        .await;
    assert_eq!(problem(&in_use, 422).1, named(&["plan"]));
    let freed = all
        .patch(&path, &json!({ "version": changed["version"], "plan_id": null }))
        .await;
    assert_eq!((&freed["plan_id"], &freed["name"]), (&Value::Null, &json!("Acme")));

    let rules = json!({ "version": freed["version"], "keys_per_person": 2, "months_max": 6 });
    let freed = all.post(&format!("{path}/key_rules"), &rules).await;
    assert_eq!(
        (&freed["key_rules"]["months_max"], &freed["key_rules"]["models"]),
        (&json!(6), &Value::Null)
    );

    let suspended = all
        .post(&format!("{path}/suspend"), &json!({ "version": freed["version"] }))
        .await;
    assert!(suspended["suspended_at"].is_string());
    let resumed = all
        .post(&format!("{path}/resume"), &json!({ "version": suspended["version"] }))
        .await;
    assert!(resumed["suspended_at"].is_null());

    let plan = all
        .patch(&plan_path, &json!({ "version": plan["version"], "name": "Gold" }))
        .await;
    assert_eq!(
        (&plan["name"], &plan["priority_ceiling"]),
        (&json!("Gold"), &json!("default"))
    );
    problem(&all.send(Method::DELETE, &plan_path, None).await, 422);
    all.delete(&format!("{plan_path}?version={}", plan["version"])).await;
    problem(&all.send(Method::GET, &plan_path, None).await, 404);

    // Every change is in the audit log under the token's name.
    let log = all.get(&format!("audit?tenant={}", text(&tenant, "id"))).await;
    let actions: Vec<&str> = log["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| text(entry, "action"))
        .collect();
    assert_eq!(
        actions,
        [
            "tenant.resume",
            "tenant.suspend",
            "tenant.key_rules",
            "tenant.edit",
            "tenant.edit",
            "tenant.create"
        ]
    );
    let first = &log["entries"][0];
    assert!(text(first, "actor").starts_with("Finance (tg-mgmt-"), "{first}");
    assert_eq!(all.get(&format!("audit/{}", text(first, "id"))).await, *first);
    let of_suspension = all.get("audit?action=tenant.suspend&actor=Finance").await;
    assert_eq!(ids(&of_suspension), [text(&log["entries"][1], "id")]);
}

#[tokio::test]
async fn people_are_invited_and_shut_out_but_no_operator_by_a_program() {
    let tollgate = start().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let ada = json!({ "name": "Ada", "email": "ada@acme.example", "role": "member", "tenant_id": tenant });
    let invited = all.post("people", &ada).await;
    let link = text(&invited, "link_path").to_owned();
    let page = tollgate.browser().get(&link).await;
    assert!(
        page.text().contains("ada@acme.example"),
        "the link works: {}",
        page.text()
    );
    let path = format!("people/{}", text(&invited["person"], "id"));
    let person = all.get(&path).await;
    assert_eq!(person, invited["person"]);

    let again = all.send(Method::POST, "people", Some(&ada)).await;
    problem(&again, 409);
    assert_eq!(again.json()["existing"], person["id"]);
    let another = all.send(Method::POST, &format!("{path}/link"), None).await;
    assert_eq!(another.status, 201, "{}", another.text());
    assert_ne!(text(&another.json(), "link_path"), link);

    let out = all
        .patch(&path, &json!({ "version": person["version"], "is_disabled": true }))
        .await;
    assert!(out["disabled_at"].is_string());
    let back = all
        .patch(&path, &json!({ "version": out["version"], "is_disabled": false }))
        .await;
    assert!(back["disabled_at"].is_null());

    // A program that could make an operator, or open one's account, would be one.
    let mut root = ada.clone();
    root["role"] = json!("operator");
    assert_eq!(all.refused(Method::POST, "people", &root).await, named(&["role"]));
    let operator = tollgate
        .control()
        .create_operator(
            &tollgate.actor(),
            "Root",
            "root@example.com",
            "correct horse battery",
            Utc::now(),
        )
        .await
        .expect("an operator");
    for (method, path, body) in [
        (Method::POST, format!("people/{}/link", operator.id), None),
        (
            Method::PATCH,
            format!("people/{}", operator.id),
            Some(json!({ "version": operator.version, "is_disabled": true })),
        ),
    ] {
        problem(&all.send(method, &path, body.as_ref()).await, 403);
    }
    let listed = all.get(&format!("people?tenant={tenant}")).await;
    assert_eq!(ids(&listed), [text(&person, "id")]);
}

#[tokio::test]
async fn people_are_changed_field_by_field_and_lose_what_they_may_not_have_any_more() {
    let tollgate = start().await;
    let (control, now) = (tollgate.control(), Utc::now());
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let person = |name: &str| json!({ "name": name, "email": format!("{name}@acme.example"), "role": "manager", "tenant_id": acme });
    let ada = all.post("people", &person("Ada")).await["person"].clone();
    all.post("people", &person("Bo")).await;
    let path = format!("people/{}", text(&ada, "id"));

    // What is absent stays.
    let renamed = all
        .patch(&path, &json!({ "version": ada["version"], "name": " Ada L. " }))
        .await;
    let mut expected = ada.clone();
    expected["name"] = json!("Ada L.");
    expected["version"] = renamed["version"].clone();
    assert_eq!(renamed, expected);
    assert_eq!(all.get(&path).await, expected);
    let stale = all
        .send(
            Method::PATCH,
            &path,
            Some(&json!({ "version": ada["version"], "name": "A" })),
        )
        .await;
    problem(&stale, 409);
    assert_eq!(stale.json()["version"], renamed["version"]);
    let version = &renamed["version"];
    for (wrong, field) in [
        (json!({ "version": version }), "version"),
        (json!({ "version": version, "revokes_keys": 0 }), "version"),
        (json!({ "version": version, "email": "BO@acme.example" }), "email"),
        (json!({ "version": version, "role": "operator" }), "role"),
        (json!({ "version": version, "role": "auditor" }), "tenant_id"),
        (json!({ "version": version, "tenant_id": null }), "tenant_id"),
        (json!({ "version": version, "tenant_id": NOBODY }), "tenant_id"),
        (json!({ "version": version, "nmae": "Ada" }), "nmae"),
        (json!({ "version": version, "is_disabled": true, "name": "A" }), "name"),
        (
            json!({ "version": version, "is_disabled": true, "revokes_keys": 1 }),
            "revokes_keys",
        ),
        (
            json!({ "version": version, "is_disabled": false, "keeps_service_keys": true }),
            "keeps_service_keys",
        ),
    ] {
        assert_eq!(
            all.refused(Method::PATCH, &path, &wrong).await,
            named(&[field]),
            "{wrong}"
        );
    }
    assert_eq!(all.get(&path).await, expected, "nothing was changed");

    // What she issued as a manager goes with that, unless it is kept.
    let id: PersonId = text(&ada, "id").parse().expect("an id");
    let row = control.person(&tollgate.actor(), id).await.expect("somebody");
    let draft = KeyDraft {
        name: "Service".to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    };
    let service = control
        .issue_key(&Actor::person(&row, None), acme, KeyOwner::Service, &draft, now)
        .await
        .expect("a key");
    let service = format!("keys/{}", service.row.id);
    let own = json!({ "id": NOBODY, "tenant_id": acme, "owner_id": id, "name": "Laptop" });
    all.post("keys", &own).await;
    let member = json!({ "version": version, "role": "member", "keeps_service_keys": true });
    let member = all.patch(&path, &member).await;
    assert_eq!((&member["role"], &member["name"]), (&json!("member"), &json!("Ada L.")));
    assert_eq!(all.get(&service).await["revoked_at"], Value::Null);

    // Keys stay with their tenant: whoever moves somebody says how many that takes from them.
    let mut moved = json!({ "version": member["version"], "tenant_id": other });
    for count in [None, Some(0), Some(2)] {
        if let Some(count) = count {
            moved["revokes_keys"] = json!(count);
        }
        let answer = all.send(Method::PATCH, &path, Some(&moved)).await;
        assert_eq!(problem(&answer, 422).1, named(&["revokes_keys"]));
        let message = answer.json()["errors"][0]["message"].to_string();
        assert!(message.contains("these are: 1"), "{message}");
    }
    moved["revokes_keys"] = json!(1);
    let moved = all.patch(&path, &moved).await;
    assert_eq!(
        (&moved["tenant_id"], &moved["tenant_name"]),
        (&json!(other), &json!("Other"))
    );
    assert!(all.get(&format!("keys/{NOBODY}")).await["revoked_at"].is_string());
    let out = all
        .patch(&path, &json!({ "version": moved["version"], "is_disabled": true }))
        .await;
    assert!(out["disabled_at"].is_string());

    let log = all.get(&format!("audit?subject=person:{id}&action=person.edit")).await;
    let entries = log["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 3, "{log}");
    assert!(text(&entries[0], "actor").starts_with("Finance (tg-mgmt-"), "{log}");
}

#[tokio::test]
async fn a_program_changes_people_within_the_powers_with_which_it_invites_them() {
    let tollgate = start().await;
    let (control, now) = (tollgate.control(), Utc::now());
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let one = Caller::with(&tollgate, Some(acme), &[Permission::PeopleWrite]).await;
    let invited = async |name: &str, tenant: TenantId| {
        let new = json!({
            "name": name, "email": format!("{name}@example.com"), "role": "member", "tenant_id": tenant,
        });
        all.post("people", &new).await["person"].clone()
    };
    let (ada, bo) = (invited("ada", acme).await, invited("bo", other).await);
    let change = async |caller: &Caller<'_>, person: &Value, mut change: Value| {
        let path = format!("people/{}", text(person, "id"));
        change["version"] = all.get(&path).await["version"].clone();
        caller.send(Method::PATCH, &path, Some(&change)).await
    };

    // Of one tenant: as its manager, and nobody else's.
    let up = change(&one, &ada, json!({ "role": "manager" })).await;
    assert_eq!((up.status.as_u16(), &up.json()["role"]), (200, &json!("manager")));
    for beyond in [
        json!({ "name": "Eve" }),
        json!({ "email": "eve@example.com" }),
        json!({ "tenant_id": other }),
        json!({ "role": "auditor", "tenant_id": null }),
    ] {
        problem(&change(&one, &ada, beyond).await, 403);
    }
    problem(&change(&one, &bo, json!({ "role": "manager" })).await, 404);
    let reader = Caller::with(&tollgate, None, &[Permission::PeopleRead]).await;
    problem(&change(&reader, &ada, json!({ "role": "member" })).await, 403);

    // Of all tenants: whomever it could have invited so, auditors among them, and no operator.
    let auditor = change(&all, &bo, json!({ "role": "auditor", "tenant_id": null })).await;
    assert_eq!(auditor.status, 200, "{}", auditor.text());
    assert_eq!(change(&all, &bo, json!({ "name": "Bo B." })).await.status, 200);
    let root = PersonDraft {
        name: "Root".to_owned(),
        email: "root@example.com".to_owned(),
        role: Role::Operator,
        tenant_id: None,
    };
    let operator = control.invite_person(&tollgate.actor(), &root, now).await;
    let operator = json!({ "id": operator.expect("an invitation").person.id });
    for beyond in [
        json!({ "email": "eve@example.com" }),
        json!({ "role": "member", "tenant_id": acme }),
    ] {
        problem(&change(&all, &operator, beyond).await, 403);
    }
    // Not the schema alone says so.
    let shown = domain::management_tokens::TokenText::parse(&all.token).expect("a token");
    let shown = control
        .shown_management_token(&shown, None, now)
        .await
        .expect("an answer");
    let control::management_tokens::ShownToken::Works(program) = shown else {
        panic!("{shown:?}");
    };
    let id: PersonId = text(&ada, "id").parse().expect("an id");
    let row = control.person(&program, id).await.expect("somebody");
    let edit = PersonEdit {
        person: PersonDraft {
            email: "ada@example.com".to_owned(),
            ..root
        },
        revokes_keys: None,
        kept: Kept::default(),
    };
    let made = control.edit_person(&program, id, row.version, &edit, now).await;
    assert!(matches!(made, Err(ControlError::Forbidden)), "{made:?}");
}

#[tokio::test]
async fn the_own_limits_of_a_service_accounts_key_hold_and_a_persons_are_theirs() {
    let tollgate = start().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let issued = tollgate.issue(tenant).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let path = format!("keys/{}/own_limits", issued.row.id);
    let set = |version: &Value, own: Value| json!({ "version": version, "own_limits": own });
    let key = all.get(&format!("keys/{}", issued.row.id)).await;
    let wanted = json!([{ "dimension": "budget_cost", "cost": "2.5" }, { "dimension": "requests", "value": 1 }]);
    let held = all.post(&path, &set(&key["version"], wanted.clone())).await;
    let of = |key: &Value, dimension: &str| {
        let mut own = key["own_limits"].as_array().expect("limits").iter();
        own.find(|limit| limit["dimension"] == dimension).cloned()
    };
    assert_eq!(
        of(&held, "budget_cost"),
        Some(json!({ "dimension": "budget_cost", "value": null, "cost": "2.500000000" }))
    );
    assert_eq!(of(&held, "requests").expect("it")["value"], 1);
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(issued.text.reveal(), "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(issued.text.reveal(), "Hello.").await.status, 429);

    let stale = all.send(Method::POST, &path, Some(&set(&key["version"], wanted))).await;
    problem(&stale, 409);
    for (wrong, fields) in [
        (
            json!([{ "dimension": "requests", "value": 1 }, { "dimension": "requests", "value": 2 }]),
            &["own_limits.1.dimension"][..],
        ),
        (
            json!([{ "dimension": "requests", "cost": "1" }]),
            &["own_limits.0.cost", "own_limits.0.value"],
        ),
        (
            json!([{ "dimension": "budget_cost", "value": 1 }]),
            &["own_limits.0.cost", "own_limits.0.value"],
        ),
        (
            json!([{ "dimension": "requests", "value": 1 }, { "dimension": "request_seconds", "value": 0 }]),
            &["own_limits.1.value"],
        ),
        (
            json!([{ "dimension": "colours", "value": 1 }]),
            &["own_limits.0.dimension"],
        ),
        (
            json!([{ "dimension": "requests", "value": 1, "window_seconds": 5 }]),
            &["own_limits.0.window_seconds"],
        ),
    ] {
        let body = set(&held["version"], wrong);
        assert_eq!(all.refused(Method::POST, &path, &body).await, named(fields), "{body}");
    }
    // What was read can be sent back; all at once means that what is absent is taken away.
    let again = all
        .post(&path, &set(&held["version"], held["own_limits"].clone()))
        .await;
    assert_eq!(again["own_limits"], held["own_limits"]);
    let lifted = all.post(&path, &set(&again["version"], json!([]))).await;
    assert_eq!(lifted["own_limits"], json!([]));
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(issued.text.reveal(), "Hello.").await.status, 200);
    let log = all
        .get(&format!("audit?subject=key:{}&action=key.own_limits", issued.row.id))
        .await;
    assert_eq!(ids(&log).len(), 3);

    // A person's key is held by that person alone, and another tenant's is not seen.
    let ada = json!({ "name": "Ada", "email": "ada@acme.example", "role": "member", "tenant_id": tenant });
    let ada = all.post("people", &ada).await;
    let own = json!({ "id": NOBODY, "tenant_id": tenant, "owner_id": ada["person"]["id"], "name": "Laptop" });
    let own = all.post("keys", &own).await;
    let lift = set(&own["version"], json!([]));
    let refused = all
        .send(Method::POST, &format!("keys/{NOBODY}/own_limits"), Some(&lift))
        .await;
    assert!(
        problem(&refused, 403).0.contains("that person alone"),
        "{}",
        refused.text()
    );
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let stranger = Caller::with(&tollgate, Some(other), &[Permission::KeysWrite]).await;
    let refused = stranger
        .send(Method::POST, &path, Some(&set(&lifted["version"], json!([]))))
        .await;
    problem(&refused, 404);
}

#[tokio::test]
async fn keys_are_issued_once_however_often_the_call_is_sent() {
    let tollgate = start().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let new = json!({ "tenant_id": tenant, "name": "Search", "allowed_models": [MODEL] });
    let once = [("idempotency-key", "deploy-17")];
    let issued = all.send_with(Method::POST, "keys", &once, Some(&new)).await;
    assert_eq!(issued.status, 201, "{}", issued.text());
    let issued = issued.json();
    let secret = text(&issued, "text").to_owned();
    let again = all.send_with(Method::POST, "keys", &once, Some(&new)).await;
    problem(&again, 409);
    assert_eq!(again.json()["existing"], issued["id"]);
    assert_eq!(all.refused(Method::POST, "keys", &new).await, named(&["id"]));
    let mut with_id = new.clone();
    with_id["id"] = json!(NOBODY);
    assert_eq!(all.post("keys", &with_id).await["id"], NOBODY);

    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&secret, "Hello.").await.status, 200);
    let path = format!("keys/{}", text(&issued, "id"));
    let key = all.get(&path).await;
    assert_eq!(key["allowed_models"], json!([MODEL]));
    assert!(key.get("text").is_none());
    let page = all
        .get(&format!("keys?tenant={tenant}&containing=sEarch&limit=1"))
        .await;
    assert_eq!(ids(&page), [NOBODY], "the latest issued first");
    let next = text(&page, "next_cursor");
    let page = all
        .get(&format!("keys?tenant={tenant}&containing=sEarch&limit=1&cursor={next}"))
        .await;
    assert_eq!(ids(&page), [text(&issued, "id")]);
    assert_eq!(page["next_cursor"], Value::Null);

    let change = json!({ "version": key["version"], "priority": "low", "allowed_models": null });
    let changed = all.patch(&path, &change).await;
    assert_eq!(
        (&changed["priority"], &changed["allowed_models"]),
        (&json!("low"), &Value::Null)
    );
    assert_eq!(changed["name"], "Search");
    problem(&all.send(Method::PATCH, &path, Some(&change)).await, 409);
    // Rotated, both secrets work; then the new one alone.
    let rotation = json!({ "version": changed["version"], "overlap_seconds": 3_600 });
    let rotated = all.post(&format!("{path}/rotate"), &rotation).await;
    let renewed = text(&rotated, "text").to_owned();
    assert_eq!((&rotated["id"], renewed == secret), (&issued["id"], false));
    problem(
        &all.send(Method::POST, &format!("{path}/rotate"), Some(&rotation)).await,
        409,
    );
    tollgate.in_force().await;
    for secret in [&secret, &renewed] {
        assert_eq!(tollgate.chat(secret, "Hello.").await.status, 200);
    }
    let changed = all
        .post(
            &format!("{path}/end_overlap"),
            &json!({ "version": rotated["version"] }),
        )
        .await;
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&secret, "Hello.").await.status, 401);
    let secret = renewed;
    let unknown = json!({ "version": changed["version"], "allowed_models": ["nothing"] });
    assert_eq!(
        all.refused(Method::PATCH, &path, &unknown).await,
        named(&["allowed_models"])
    );
    for _ in 0..2 {
        all.delete(&path).await;
    }
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&secret, "Hello.").await.status, 403);
    assert_eq!(ids(&all.get("keys").await), [NOBODY]);
    assert_eq!(ids(&all.get("keys?includes_revoked=true").await).len(), 2);
}

#[tokio::test]
async fn a_key_that_has_expired_comes_back_with_an_end_of_its_own() {
    let tollgate = start().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let hours = |hours| Utc::now() + chrono::Duration::hours(hours);
    let draft = KeyDraft {
        name: "Search".to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::At(hours(-1)),
    };
    let issued = tollgate
        .control()
        .issue_key(&tollgate.actor(), tenant, KeyOwner::Service, &draft, hours(-2))
        .await
        .expect("a key");
    let secret = issued.text.reveal();
    let issued = all.get(&format!("keys/{}", issued.row.id)).await;
    let path = format!("keys/{}/rotate", text(&issued, "id"));
    let mut rotation = json!({ "version": issued["version"], "overlap_seconds": 3_600 });
    assert_eq!(all.refused(Method::POST, &path, &rotation).await, named(&["key"]));
    rotation["expires_at"] = json!(hours(-1));
    assert_eq!(
        all.refused(Method::POST, &path, &rotation).await,
        named(&["expires_at"])
    );
    rotation["expires_at"] = json!(hours(1));
    let back = all.post(&path, &rotation).await;
    assert_eq!(back["id"], issued["id"]);
    assert_eq!(back["old_secret_until"], Value::Null);
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(text(&back, "text"), "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(secret, "Hello.").await.status, 401);
    // The end of one that lives is another one, too.
    let rotation = json!({ "version": back["version"], "overlap_seconds": 0, "expires_at": null });
    assert_eq!(all.post(&path, &rotation).await["expires_at"], Value::Null);
}

#[tokio::test]
async fn a_budget_set_by_the_api_refuses_and_is_raised_for_a_while() {
    let tollgate = start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let scope = format!("tenant:{tenant}");
    let budget = json!({ "scope": scope, "dimension": "budget_cost", "cost": "0", "thresholds": [100, 50] });
    let made = all.post("limits", &budget).await;
    assert_eq!((&made["cost"], &made["value"]), (&json!("0.000000000"), &Value::Null));
    assert_eq!(
        (&made["period"], &made["thresholds"]),
        (&json!("month"), &json!([50, 100]))
    );
    let again = all.send(Method::POST, "limits", Some(&budget)).await;
    problem(&again, 409);
    assert_eq!(again.json()["existing"], made["id"]);
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);

    let path = format!("limits/{}", text(&made, "id"));
    let day = (Utc::now() + chrono::Duration::days(20)).date_naive();
    let raise = json!({ "version": made["version"], "cost": "5", "last_day": day, "reason": "Launch" });
    let raised = all.post(&format!("{path}/increase"), &raise).await;
    assert_eq!(raised["increase"]["cost"], "5.000000000");
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    problem(
        &all.send(Method::POST, &format!("{path}/increase"), Some(&raise)).await,
        409,
    );
    all.delete(&format!("{path}/increase?version={}", raised["version"]))
        .await;
    let now = all.get(&path).await;
    assert_eq!(now["increase"], Value::Null);
    let changed = all
        .patch(
            &path,
            &json!({ "version": now["version"], "cost": "7.5", "mode": "rehearse" }),
        )
        .await;
    assert_eq!(
        (&changed["cost"], &changed["mode"]),
        (&json!("7.500000000"), &json!("rehearse"))
    );

    // A class, a second dimension, and what belongs to no dimension.
    let class = json!({
        "scope": scope, "class": "key", "dimension": "requests", "value": 60, "window_seconds": 60,
        "gates": { "lower_percent": 70, "upper_percent": 90, "upper_waits": false },
    });
    let per_key = all.post("limits", &class).await;
    assert_eq!((&per_key["class"], &per_key["value"]), (&json!("key"), &json!(60)));
    for (more, fields) in [
        (
            json!({ "scope": scope, "dimension": "requests", "cost": "5" }),
            &["cost", "value"][..],
        ),
        (
            json!({ "scope": scope, "dimension": "budget_cost", "value": 5, "period": "day" }),
            &["value", "cost"],
        ),
        (
            json!({ "scope": scope, "dimension": "concurrency", "value": 5, "period": "day" }),
            &["period"],
        ),
        (
            json!({ "scope": "nowhere", "dimension": "requests", "value": 5 }),
            &["scope"],
        ),
        (
            json!({ "scope": "global", "class": "key", "dimension": "requests", "value": 5 }),
            &["class"],
        ),
        (
            json!({ "scope": scope, "dimension": "requests", "value": 5, "windows": 5 }),
            &["windows"],
        ),
        (
            json!({ "scope": scope, "dimension": "requests", "value": 1e30 }),
            &["value"],
        ),
    ] {
        assert_eq!(
            all.refused(Method::POST, "limits", &more).await,
            named(fields),
            "{more}"
        );
    }
    let nowhere = json!({ "scope": format!("key:{NOBODY}"), "dimension": "requests", "value": 5 });
    problem(&all.send(Method::POST, "limits", Some(&nowhere)).await, 404);

    assert_eq!(ids(&all.get(&format!("limits?tenant={tenant}")).await).len(), 2);
    assert_eq!(
        ids(&all.get(&format!("limits?scope={scope}")).await),
        [text(&made, "id")]
    );
    assert_eq!(
        ids(&all.get(&format!("limits?scope={scope}&class=key")).await),
        [text(&per_key, "id")]
    );
    assert_eq!(
        ids(&all.get(&format!("limits?scope={scope}&dimension=requests")).await),
        Vec::<String>::new()
    );
    all.delete(&format!("{path}?version={}", changed["version"])).await;
    problem(&all.send(Method::GET, &path, None).await, 404);
}

#[tokio::test]
async fn a_model_with_price_and_upstream_serves_and_its_credential_is_never_shown() {
    let tollgate = start().await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let upstream = json!({
        "name": "Second", "dialect": "openai", "base_url": tollgate.simulator.base_url(), "credential": CREDENTIAL,
    });
    let made = all.post("upstreams", &upstream).await;
    assert_eq!(made["has_credential"], true);
    let again = all.send(Method::POST, "upstreams", Some(&upstream)).await;
    assert_eq!((problem(&again, 409), &again.json()["existing"]).1, &made["id"]);
    let route = json!({ "upstream_id": made["id"], "upstream_model": MODEL, "position": 0, "weight": 1 });
    let new = json!({
        "name": "acme/large", "context_tokens": 8000, "output_cap_tokens": 1000, "output_default_tokens": 100,
        "routes": [route],
    });
    let model = all.post("models", &new).await;
    assert_eq!(
        (&model["dialects"], &model["price_id"]),
        (&json!(["openai"]), &Value::Null)
    );
    let again = all.send(Method::POST, "models", Some(&new)).await;
    assert_eq!(again.json()["existing"], "acme/large");

    let price = json!({
        "id": NOBODY, "model": "acme/large", "rates": { "input": "1.25", "output": "10" },
        "tiers": [{ "above_input_tokens": 200_000, "rates": { "input": "2.5", "output": "15" } }],
    });
    let priced = all.post("prices", &price).await;
    assert_eq!(priced["rates"]["cache_read"], "1.250000000");
    assert_eq!(priced["tiers"][0]["rates"]["output"], "15.000000000");
    let again = all.send(Method::POST, "prices", Some(&price)).await;
    assert_eq!(again.json()["existing"], NOBODY);
    let ask = async || {
        tollgate.in_force().await;
        let mut body = test_support::tollgate::chat_body("Hello.");
        body["model"] = json!("acme/large");
        let answer = tollgate.browser().post_json("/v1/chat/completions", &key, &body).await;
        answer.status.as_u16()
    };
    assert_eq!(ask().await, 200);

    let model = all.get("models/acme%2Flarge").await;
    assert_eq!(model["price_id"], NOBODY);
    let off = all
        .patch(
            "models/acme%2Flarge",
            &json!({ "version": model["version"], "is_disabled": true }),
        )
        .await;
    assert_eq!(
        (&off["routes"], &off["context_tokens"]),
        (&json!([route]), &json!(8000))
    );
    assert_eq!(ask().await, 404);
    let larger = json!({ "version": off["version"], "output_cap_tokens": 9_000 });
    assert_eq!(
        all.refused(Method::PATCH, "models/acme%2Flarge", &larger).await,
        named(&["output_cap_tokens"])
    );
    problem(&all.send(Method::GET, "models/nothing", None).await, 404);

    let path = format!("upstreams/{}", text(&made, "id"));
    let elsewhere = json!({ "version": made["version"], "base_url": "http://127.0.0.1:1/v1" });
    assert_eq!(
        all.refused(Method::PATCH, &path, &elsewhere).await,
        named(&["credential"])
    );
    let bare = all
        .patch(&path, &json!({ "version": made["version"], "credential": null }))
        .await;
    assert_eq!(
        (&bare["has_credential"], &bare["name"]),
        (&json!(false), &json!("Second"))
    );

    assert_eq!(ids(&all.get("prices?model=acme%2Flarge").await), [NOBODY]);
    all.delete(&format!("prices/{NOBODY}")).await;
    problem(&all.send(Method::GET, &format!("prices/{NOBODY}"), None).await, 404);
    for list in LISTS {
        let answer = all.send(Method::GET, list, None).await;
        assert!(!answer.text().contains(CREDENTIAL), "{list}");
    }
}

#[tokio::test]
async fn a_request_is_explained_and_a_job_is_called_off() {
    let tollgate = start().await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let tenant = tollgate.tenant("Acme", limits).await;
    let issued = tollgate.issue(tenant).await;
    let key = issued.text.reveal();
    tollgate.in_force().await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let question = json!({ "key_id": issued.row.id, "model": MODEL, "input_tokens": 100 });
    let told = all.post("explain", &question).await;
    assert_eq!(told["is_admitted"], true, "{told}");
    assert_eq!(tollgate.chat(key, "Hello.").await.status, 200);
    let told = all.post("explain", &question).await;
    assert_eq!(told["refusal"]["code"], "rate_limit_exceeded");
    let limits = told["limits"].as_array().expect("limits");
    let refusing: Vec<&str> = limits
        .iter()
        .filter(|limit| limit["is_told"] == true)
        .map(|limit| text(limit, "dimension"))
        .collect();
    assert_eq!(refusing, ["requests"]);
    assert_eq!(
        all.refused(Method::POST, "explain", &json!({ "model": MODEL })).await,
        named(&["key_id", "input_tokens"])
    );

    let later = tollgate
        .browser()
        .send(
            Method::POST,
            "/v1/chat/completions",
            &[
                ("authorization", &format!("Bearer {key}")),
                ("content-type", "application/json"),
                ("prefer", "respond-async"),
            ],
            test_support::tollgate::chat_body("Hello.").to_string().into(),
        )
        .await;
    assert_eq!(later.status, 202, "{}", later.text());
    let jobs = all.get(&format!("jobs?tenant={tenant}&status=waiting")).await;
    let [id] = &ids(&jobs)[..] else { panic!("{jobs}") };
    assert_eq!(all.get(&format!("jobs/{id}")).await, jobs["entries"][0]);
    for _ in 0..2 {
        let answer = all.send(Method::POST, &format!("jobs/{id}/cancel"), None).await;
        assert_eq!(answer.json()["status"], "cancelled", "{}", answer.text());
    }
    problem(
        &all.send(Method::POST, &format!("jobs/{NOBODY}/cancel"), None).await,
        404,
    );
}

#[tokio::test]
async fn a_tenants_token_stays_within_its_tenant() {
    let tollgate = start().await;
    let (own, _) = tollgate.named_tenant_with_key("Acme", NodeLimits::default()).await;
    let limits = NodeLimits {
        concurrency: Some(5),
        ..NodeLimits::default()
    };
    let (other, _) = tollgate.named_tenant_with_key("Other", limits).await;
    let others = tollgate.issue(other).await;
    let may: Vec<Permission> = EVERYTHING
        .into_iter()
        .filter(|permission| !permission.is_for_operators())
        .collect();
    let tenant = Caller::with(&tollgate, Some(own), &may).await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let strange = all
        .post(
            "people",
            &json!({ "name": "Bo", "email": "bo@other.example", "role": "member", "tenant_id": other }),
        )
        .await;
    let limit = ids(&all.get(&format!("limits?tenant={other}")).await).remove(0);

    assert_eq!(ids(&tenant.get("tenants").await), [own.to_string()]);
    assert_eq!(ids(&tenant.get("keys").await).len(), 1);
    assert_eq!(ids(&tenant.get("limits").await), Vec::<String>::new());
    assert_eq!(tenant.get(&format!("models/{MODEL}")).await["routes"], json!([]));
    for list in ["plans", "prices", "upstreams"] {
        problem(&tenant.send(Method::GET, list, None).await, 403);
    }
    for list in ["keys", "people", "limits", "jobs", "audit"] {
        problem(
            &tenant.send(Method::GET, &format!("{list}?tenant={other}"), None).await,
            403,
        );
    }
    for one in [
        format!("tenants/{other}"),
        format!("keys/{}", others.row.id),
        format!("people/{}", text(&strange["person"], "id")),
        format!("limits/{limit}"),
    ] {
        problem(&tenant.send(Method::GET, &one, None).await, 404);
    }
    problem(
        &tenant
            .send(Method::DELETE, &format!("keys/{}", others.row.id), None)
            .await,
        404,
    );
    let question = json!({ "key_id": others.row.id, "model": MODEL, "input_tokens": 1 });
    problem(&tenant.send(Method::POST, "explain", Some(&question)).await, 404);

    // What its manager may, it may.
    let key = json!({ "id": NOBODY, "tenant_id": own, "name": "Own" });
    tenant.post("keys", &key).await;
    let key = json!({ "id": NOBODY, "tenant_id": other, "name": "Theirs" });
    problem(&tenant.send(Method::POST, "keys", Some(&key)).await, 403);
    let member =
        |of: TenantId, email: &str| json!({ "name": "Ada", "email": email, "role": "member", "tenant_id": of });
    tenant.post("people", &member(own, "ada@acme.example")).await;
    problem(
        &tenant
            .send(Method::POST, "people", Some(&member(other, "cy@acme.example")))
            .await,
        403,
    );
    // Whose address this is, is another tenant's business.
    let taken = tenant
        .send(Method::POST, "people", Some(&member(own, "bo@other.example")))
        .await;
    assert_eq!(problem(&taken, 422).1, named(&["email"]));
}

#[tokio::test]
async fn each_permission_lets_in_to_its_own_noun_alone() {
    let tollgate = start().await;
    for permission in Permission::ALL {
        let caller = Caller::with(&tollgate, None, &[permission]).await;
        for list in LISTS {
            let answer = caller.send(Method::GET, list, None).await;
            let may = permission.as_str() == format!("{list}:read");
            assert_eq!(answer.status, if may { 200 } else { 403 }, "{permission} {list}");
        }
    }
    // Who may write and not read is told what was written.
    let writer = Caller::with(&tollgate, None, &[Permission::TenantsWrite]).await;
    let made = writer.post("tenants", &json!({ "name": "Acme" })).await;
    let path = format!("tenants/{}", text(&made, "id"));
    problem(&writer.send(Method::GET, &path, None).await, 403);
    let changed = writer
        .patch(&path, &json!({ "version": made["version"], "name": "Acme Ltd" }))
        .await;
    assert_eq!(changed["name"], "Acme Ltd");
    // The operations ask, not the routes alone.
    let reader = token(&tollgate, None, &[Permission::ReportsRead]).await;
    let reader = domain::management_tokens::TokenText::parse(&reader).expect("a token");
    let control = tollgate.control();
    let shown = control
        .shown_management_token(&reader, None, Utc::now())
        .await
        .expect("an answer");
    let control::management_tokens::ShownToken::Works(actor) = shown else {
        panic!("{shown:?}");
    };
    assert!(control.tenants(&actor, Utc::now()).await.is_err());
    assert!(control.people(&actor, None).await.is_err());
    assert!(control.catalogue(&actor, None, Utc::now()).await.is_err());
}

#[tokio::test]
async fn a_word_that_a_newer_program_gave_takes_nothing_away() {
    let tollgate = start().await;
    let caller = Caller::with(&tollgate, None, &[Permission::TenantsRead]).await;
    sqlx::query("update management_tokens set permissions = permissions || '{dreams:read}'")
        .execute(&mut tollgate.sql().await)
        .await
        .expect("a newer program's token");
    caller.get("tenants").await;
    let tokens = tollgate
        .control()
        .management_tokens(&tollgate.actor(), Utc::now())
        .await
        .expect("tokens");
    assert_eq!(tokens[0].permissions, [Permission::TenantsRead]);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_never_a_fault() {
    let tollgate = start().await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let raw = async |method: Method, path: &str, body: &str| {
        send(
            &tollgate,
            &all.token,
            method,
            &format!("/api/v1/{path}"),
            &[],
            Bytes::from(body.to_owned()),
        )
        .await
    };
    for body in [
        r#"{ "name": "A", "name": "B" }"#,
        "{ \"name\": \"A\\u0000\" }",
        r#"["name"]"#,
        "",
        "{ \"name\": \"\u{7}\" }",
    ] {
        problem(&raw(Method::POST, "tenants", body).await, 422);
    }
    for path in [
        "tenants/%00",
        "tenants/%FF",
        "models/%00",
        "models/%0A",
        "models/%FF",
        "keys/0198c5e21b5a7c3e9d0f2a4b6c8d0e1f",
        "audit/first",
        "settlements/%00",
    ] {
        problem(&raw(Method::GET, path, "").await, 404);
    }
    for (path, field) in [
        ("tenants?limit=101", "limit"),
        ("tenants?limit=", "limit"),
        ("tenants?cursor=MQ", "cursor"),
        ("models?cursor=AA", "cursor"),
        ("keys?owner=", "owner"),
        ("keys?containing=%00", "containing"),
        ("keys?includes_revoked=yes", "includes_revoked"),
        ("jobs?status=lost", "status"),
        ("limits?class=key", "scope"),
        ("limits?scope=tenant%3A1", "scope"),
        ("audit?form=2026-11-01", "form"),
        ("audit?from=yesterday", "from"),
    ] {
        assert_eq!(
            problem(&raw(Method::GET, path, "").await, 422).1,
            named(&[field]),
            "{path}"
        );
    }
    let long = format!(r#"{{ "name": "{}" }}"#, "x".repeat(70_000));
    problem(&raw(Method::POST, "tenants", &long).await, 413);
    let answer = raw(Method::PUT, "tenants", "").await;
    problem(&answer, 405);
    let allowed: BTreeSet<&str> = answer.header("allow").split(',').collect();
    assert_eq!(allowed, BTreeSet::from(["GET", "HEAD", "POST"]));
}

#[tokio::test]
async fn pages_of_tenants_meet_each_once_while_others_are_made() {
    let tollgate = start().await;
    let all = Caller::with(&tollgate, None, &EVERYTHING).await;
    let mut made = BTreeSet::new();
    for number in 0..7 {
        let tenant = all
            .post("tenants", &json!({ "name": format!("Tenant {number}") }))
            .await;
        made.insert(text(&tenant, "id").to_owned());
    }
    let mut met = Vec::new();
    let mut cursor = String::new();
    for number in 0.. {
        let page = all.get(&format!("tenants?limit=3{cursor}")).await;
        met.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
        all.post("tenants", &json!({ "name": format!("Late {number}") })).await;
        assert!(number < 20, "it ends");
    }
    assert_eq!(
        met.iter().collect::<BTreeSet<_>>().len(),
        met.len(),
        "each once: {met:?}"
    );
    assert!(met.iter().cloned().collect::<BTreeSet<_>>().is_superset(&made));
}
