//! People: what their keys count as, who changes whom, and what goes with somebody who leaves.

use bytes::Bytes;
use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::management_tokens::{ManagementTokenDraft, ShownToken};
use control::people::{Kept, PersonDraft, PersonEdit};
use control::rows::Person;
use control::{Actor, ControlError};
use domain::ids::{PersonId, TenantId};
use domain::key_rotation::Overlap;
use domain::limits::{Dimension, Scope, Target};
use domain::management_tokens::Permission;
use domain::people::Role;
use domain::priority::Priority;
use http::Method;
use serde_json::{Value, json};
use test_support::console::{PASSWORD, Window};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body, limit};

fn key_draft() -> KeyDraft {
    KeyDraft {
        name: "laptop".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    }
}

/// Somebody who was invited and has not been there yet.
async fn invited(tollgate: &Tollgate, role: Role, tenant_id: Option<TenantId>, name: &str) -> PersonId {
    let draft = draft(role, tenant_id, name);
    let control = tollgate.control();
    let invited = control.invite_person(&tollgate.actor(), &draft, Utc::now()).await;
    invited.expect("an invitation").person.id
}

#[tokio::test]
async fn whoever_owns_a_key_cannot_name_somebody_else_to_escape_the_own_limits() {
    let tollgate = Tollgate::start().await;
    let (control, actor) = (tollgate.control(), tollgate.actor());
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let owner = invited(&tollgate, Role::Member, Some(tenant), "mia").await;
    let of = KeyOwner::Person(owner);
    let naming = KeyDraft {
        may_name_users: true,
        ..key_draft()
    };
    let refused = control.issue_key(&actor, tenant, of, &naming, Utc::now()).await;
    let fields = refused.expect_err("a person's key names nobody");
    assert_eq!(fields.fields()[0].field, "may_name_users");

    // A key from before the rule.
    let issued = control
        .issue_key(&actor, tenant, of, &key_draft(), Utc::now())
        .await
        .expect("a key");
    sqlx::query("update keys set may_name_users = true where id = $1")
        .bind(issued.row.id.0)
        .execute(&mut tollgate.sql().await)
        .await
        .expect("an update");
    let user = Target::Node(Scope::User(tenant, owner.to_string().into()));
    tollgate.set_limit(user, 0, &limit(Dimension::Requests, 2)).await;

    let key = issued.text.reveal();
    for (name, status) in [("anna", 200), ("berta", 200), ("carla", 429)] {
        let mut body = chat_body("Hello.");
        body["user"] = name.into();
        let answer = tollgate.browser().post_json(CHAT_PATH, key, &body).await;
        assert_eq!(answer.status, status, "for {name}: {}", answer.text());
    }
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-tollgate-user", "dora"),
    ];
    let body = Bytes::from(chat_body("Hello.").to_string());
    let answer = tollgate.browser().send(Method::POST, CHAT_PATH, &headers, body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "invalid_request")
    );

    // Such a key is saved without the right only.
    let row = control.key(&actor, issued.row.id).await.expect("the key");
    let kept = control.edit_key(&actor, row.id, row.version, &naming, Utc::now()).await;
    assert!(matches!(kept, Err(ControlError::Invalid(_))), "{kept:?}");
    let edited = control
        .edit_key(&actor, row.id, row.version, &key_draft(), Utc::now())
        .await
        .expect("saved");
    assert!(!edited.may_name_users);
}

fn draft(role: Role, tenant_id: Option<TenantId>, name: &str) -> PersonDraft {
    PersonDraft {
        name: name.to_owned(),
        email: format!("{name}@example.com"),
        role,
        tenant_id,
    }
}

fn edit(person: PersonDraft) -> PersonEdit {
    PersonEdit {
        person,
        revokes_keys: None,
        kept: Kept::default(),
    }
}

/// Somebody who can sign in, as they act.
async fn somebody(tollgate: &Tollgate, role: Role, tenant_id: Option<TenantId>, name: &str) -> Actor {
    let control = tollgate.control();
    let made = control
        .create_person(&tollgate.actor(), &draft(role, tenant_id, name), PASSWORD, Utc::now())
        .await;
    Actor::person(&made.expect("a person"), None)
}

async fn row(tollgate: &Tollgate, id: PersonId) -> Person {
    tollgate
        .control()
        .person(&tollgate.actor(), id)
        .await
        .expect("somebody")
}

fn id(actor: &Actor) -> PersonId {
    actor.person_id().expect("a person")
}

async fn changed(
    tollgate: &Tollgate,
    actor: &Actor,
    person: PersonId,
    edit: &PersonEdit,
) -> Result<Person, ControlError> {
    let version = row(tollgate, person).await.version;
    let control = tollgate.control();
    control.edit_person(actor, person, version, edit, Utc::now()).await
}

#[track_caller]
fn assert_field<T: std::fmt::Debug>(field: &str, answer: Result<T, ControlError>) -> String {
    match answer {
        Err(ControlError::Invalid(fields)) if fields[0].field == field => fields[0].message.to_string(),
        other => panic!("{field} was not refused: {other:?}"),
    }
}

/// The audit entries of an action: subject, tenant, before, after.
async fn entries(tollgate: &Tollgate, action: &str) -> Vec<(String, Option<uuid::Uuid>, Value, Value)> {
    sqlx::query_as(
        "select subject, tenant_id, coalesce(before, 'null'), coalesce(after, 'null') from audit_log
         where action = $1 order by at, id",
    )
    .bind(action)
    .fetch_all(&mut tollgate.sql().await)
    .await
    .expect("entries")
}

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

#[tokio::test]
async fn operators_change_people_and_nobody_writes_over_a_newer_version() {
    let tollgate = empty().await;
    let control = tollgate.control();
    let operator = somebody(&tollgate, Role::Operator, None, "olga").await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let mia = id(&somebody(&tollgate, Role::Member, Some(acme), "mia").await);

    let renamed = PersonDraft {
        name: "Mia Married".into(),
        email: "mia@other.example".into(),
        ..draft(Role::Member, Some(acme), "mia")
    };
    let read = row(&tollgate, mia).await.version;
    let after = control
        .edit_person(&operator, mia, read, &edit(renamed.clone()), Utc::now())
        .await
        .expect("changed");
    assert_eq!(
        (after.name.as_str(), after.email.as_str()),
        ("Mia Married", "mia@other.example")
    );
    let late = control
        .edit_person(
            &operator,
            mia,
            read,
            &edit(draft(Role::Manager, Some(acme), "mia")),
            Utc::now(),
        )
        .await;
    assert!(matches!(late, Err(ControlError::Conflict { .. })), "{late:?}");
    let signed_in = control.sign_in("mia@other.example", PASSWORD, None, Utc::now()).await;
    assert_eq!(signed_in.expect("the new address").id, mia);

    assert_field(
        "email",
        changed(
            &tollgate,
            &operator,
            mia,
            &edit(draft(Role::Member, Some(acme), "olga")),
        )
        .await,
    );
    assert_field(
        "tenant_id",
        changed(&tollgate, &operator, mia, &edit(draft(Role::Member, None, "mia"))).await,
    );
    assert_field(
        "tenant_id",
        changed(
            &tollgate,
            &operator,
            mia,
            &edit(draft(Role::Auditor, Some(acme), "mia")),
        )
        .await,
    );
    let nowhere = TenantId(uuid::Uuid::nil());
    assert_field(
        "tenant_id",
        changed(
            &tollgate,
            &operator,
            mia,
            &edit(draft(Role::Member, Some(nowhere), "mia")),
        )
        .await,
    );

    let noted = entries(&tollgate, "person.edit").await;
    assert_eq!(noted.len(), 1, "what was refused left no entry");
    let (subject, tenant, before, after) = &noted[0];
    assert_eq!(
        (subject.as_str(), *tenant),
        (format!("person:{mia}").as_str(), Some(acme.0))
    );
    assert_eq!(
        (&before["email"], &after["email"]),
        (&json!("mia@example.com"), &json!("mia@other.example"))
    );
    // Saving what is there already changes nothing.
    changed(&tollgate, &operator, mia, &edit(renamed)).await.expect("saved");
    assert_eq!(entries(&tollgate, "person.edit").await.len(), 1);
}

#[tokio::test]
async fn there_is_an_operator_always_and_nobody_raises_themselves() {
    let tollgate = empty().await;
    let operator = somebody(&tollgate, Role::Operator, None, "olga").await;
    let olga = id(&operator);
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let as_auditor = edit(draft(Role::Auditor, None, "olga"));
    assert_field("role", changed(&tollgate, &operator, olga, &as_auditor).await);
    let last = changed(&tollgate, &tollgate.actor(), olga, &as_auditor).await;
    assert_field("role", last);
    // One's own name and address are one's own to change.
    let renamed = PersonDraft {
        name: "Olga Other".into(),
        ..draft(Role::Operator, None, "olga")
    };
    changed(&tollgate, &operator, olga, &edit(renamed))
        .await
        .expect("renamed");
    let second = somebody(&tollgate, Role::Operator, None, "otto").await;
    changed(&tollgate, &second, olga, &as_auditor).await.expect("demoted");
    // Whoever was an operator when the request came in and is none any more.
    let token = ManagementTokenDraft {
        name: "export".into(),
        tenant_id: None,
        permissions: vec![Permission::ReportsRead],
        lifetime_days: 1,
    };
    let control = tollgate.control();
    let late = control.issue_management_token(&operator, &token, Utc::now()).await;
    assert!(matches!(late, Err(ControlError::Forbidden)), "{late:?}");

    // Managers say who of their people is a manager, and nothing else.
    let manager = somebody(&tollgate, Role::Manager, Some(acme), "manuel").await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mia = id(&somebody(&tollgate, Role::Member, Some(acme), "mia").await);
    let stan = id(&somebody(&tollgate, Role::Member, Some(other), "stan").await);
    let up = edit(draft(Role::Manager, Some(acme), "mia"));
    changed(&tollgate, &manager, mia, &up).await.expect("a manager");
    let down = edit(draft(Role::Member, Some(acme), "mia"));
    changed(&tollgate, &manager, mia, &down).await.expect("a member");
    let refused = [
        (mia, draft(Role::Operator, None, "mia")),
        (mia, draft(Role::Auditor, None, "mia")),
        (mia, draft(Role::Member, Some(other), "mia")),
        (mia, draft(Role::Member, Some(acme), "renamed")),
        (stan, draft(Role::Manager, Some(other), "stan")),
        (stan, draft(Role::Member, Some(acme), "stan")),
        (id(&manager), draft(Role::Member, Some(acme), "manuel")),
        (id(&second), draft(Role::Member, Some(acme), "otto")),
    ];
    for (person, wanted) in refused {
        let answer = changed(&tollgate, &manager, person, &edit(wanted.clone())).await;
        let is_refused = matches!(answer, Err(ControlError::Forbidden | ControlError::NotFound { .. }));
        assert!(is_refused, "{wanted:?}: {answer:?}");
    }
    for actor in [
        Actor::person(&row(&tollgate, mia).await, None),
        Actor::person(&row(&tollgate, olga).await, None),
    ] {
        let answer = changed(
            &tollgate,
            &actor,
            stan,
            &edit(draft(Role::Manager, Some(other), "stan")),
        )
        .await;
        assert!(matches!(answer, Err(ControlError::Forbidden)), "{answer:?}");
    }
}

#[tokio::test]
async fn whoever_leaves_a_tenant_loses_its_keys_once_the_editor_knows_how_many() {
    let tollgate = empty().await;
    let control = tollgate.control();
    let operator = somebody(&tollgate, Role::Operator, None, "olga").await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let member = somebody(&tollgate, Role::Member, Some(acme), "mia").await;
    let mia = id(&member);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let issued = control
            .issue_key(&member, acme, KeyOwner::Person(mia), &key_draft(), Utc::now())
            .await;
        keys.push(issued.expect("a key").row.id);
    }
    // Another role in the tenant costs nothing.
    let up = edit(draft(Role::Manager, Some(acme), "mia"));
    changed(&tollgate, &operator, mia, &up).await.expect("a manager");
    assert_eq!(control.key(&operator, keys[0]).await.expect("a key").revoked_at, None);

    for moved in [
        draft(Role::Manager, Some(other), "mia"),
        draft(Role::Operator, None, "mia"),
    ] {
        for revokes_keys in [None, Some(1), Some(3)] {
            let unsure = PersonEdit {
                revokes_keys,
                ..edit(moved.clone())
            };
            let message = assert_field("revokes_keys", changed(&tollgate, &operator, mia, &unsure).await);
            assert!(message.contains("2 keys"), "{message}");
        }
    }
    let moved = PersonEdit {
        revokes_keys: Some(2),
        ..edit(draft(Role::Member, Some(other), "mia"))
    };
    changed(&tollgate, &operator, mia, &moved).await.expect("moved");
    for key in &keys {
        assert!(control.key(&operator, *key).await.expect("a key").revoked_at.is_some());
    }
    let revoked = entries(&tollgate, "key.revoke").await;
    assert_eq!(revoked.len(), 2);
    assert!(revoked.iter().all(|(_, tenant, _, _)| *tenant == Some(acme.0)));
    // Each tenant's manager reads their side.
    let left = entries(&tollgate, "person.leave").await;
    assert_eq!((left.len(), left[0].1), (1, Some(acme.0)));
    let came = entries(&tollgate, "person.edit").await;
    assert_eq!(came.last().expect("an entry").1, Some(other.0));
    assert_eq!(came.last().expect("an entry").3["revoked_keys"], json!(keys));
}

#[tokio::test]
async fn what_somebody_issued_goes_with_their_right_to_issue_it_unless_it_is_kept() {
    let tollgate = empty().await;
    let control = tollgate.control();
    let boss = somebody(&tollgate, Role::Operator, None, "boss").await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let token = ManagementTokenDraft {
        name: "export".into(),
        tenant_id: None,
        permissions: vec![Permission::ReportsRead],
        lifetime_days: 1,
    };
    // An operator with a service account's key in both tenants and a token.
    let issue_all = async |actor: &Actor| {
        let mut keys = Vec::new();
        for tenant in [acme, other] {
            let issued = control
                .issue_key(actor, tenant, KeyOwner::Service, &key_draft(), Utc::now())
                .await;
            keys.push(issued.expect("a key").row.id);
        }
        let token = control.issue_management_token(actor, &token, Utc::now()).await;
        (keys[0], keys[1], token.expect("a token").row.id)
    };
    let is_live = async |(one, two, token)| {
        let key = async |id| control.key(&boss, id).await.expect("a key").revoked_at.is_none();
        let token = control.management_token(&boss, token).await.expect("a token");
        (key(one).await, key(two).await, token.revoked_at.is_none())
    };

    let otto = somebody(&tollgate, Role::Operator, None, "otto").await;
    let of_otto = issue_all(&otto).await;
    let view = control.person_view(&boss, id(&otto), Utc::now()).await.expect("a page");
    assert_eq!(
        (view.issued.service_keys.len(), view.issued.management_tokens.len()),
        (2, 1)
    );
    // As a manager they may go on with their own tenant's.
    let demoted = edit(draft(Role::Manager, Some(acme), "otto"));
    changed(&tollgate, &boss, id(&otto), &demoted).await.expect("demoted");
    assert_eq!(is_live(of_otto).await, (true, false, false));
    // Their tenant's manager closes them: what is there goes, too.
    let manuel = somebody(&tollgate, Role::Manager, Some(acme), "manuel").await;
    let version = row(&tollgate, id(&otto)).await.version;
    control
        .disable_person(&manuel, id(&otto), version, Kept::default(), Utc::now())
        .await
        .expect("closed");
    assert_eq!(is_live(of_otto).await, (false, false, false));

    let petra = somebody(&tollgate, Role::Operator, None, "petra").await;
    let of_petra = issue_all(&petra).await;
    let version = row(&tollgate, id(&petra)).await.version;
    let kept = Kept {
        service_keys: true,
        management_tokens: false,
    };
    control
        .disable_person(&boss, id(&petra), version, kept, Utc::now())
        .await
        .expect("closed");
    assert_eq!(is_live(of_petra).await, (true, true, false));
    assert_eq!(entries(&tollgate, "management_token.revoke").await.len(), 2);
    let closed = entries(&tollgate, "person.disable").await;
    let (_, _, before, after) = closed.last().expect("an entry");
    assert_eq!(before["disabled_at"], Value::Null);
    assert!(after["disabled_at"].is_string());
    assert_eq!(after["revoked_management_tokens"], json!([of_petra.2]));
}

#[tokio::test]
async fn a_service_key_goes_with_whoever_gave_it_its_secret() {
    let tollgate = empty().await;
    let control = tollgate.control();
    let boss = somebody(&tollgate, Role::Operator, None, "boss").await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let manuel = somebody(&tollgate, Role::Manager, Some(acme), "manuel").await;
    let issued = control
        .issue_key(&boss, acme, KeyOwner::Service, &key_draft(), Utc::now())
        .await;
    let key = issued.expect("a key").row;
    let rotated = control
        .rotate_key(&manuel, key.id, key.version, Overlap::AT_ONCE, Utc::now())
        .await;
    rotated.expect("rotated");
    let view = control
        .person_view(&boss, id(&manuel), Utc::now())
        .await
        .expect("a page");
    assert_eq!(view.issued.service_keys.len(), 1, "they have seen its secret");
    let version = row(&tollgate, id(&manuel)).await.version;
    control
        .disable_person(&boss, id(&manuel), version, Kept::default(), Utc::now())
        .await
        .expect("closed");
    let key = control.key(&boss, key.id).await.expect("a key");
    assert!(key.revoked_at.is_some());
}

#[tokio::test]
async fn a_manager_who_closes_somebody_ends_the_management_tokens_that_they_issued() {
    let tollgate = empty().await;
    let control = tollgate.control();
    let boss = somebody(&tollgate, Role::Operator, None, "boss").await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let manuel = somebody(&tollgate, Role::Manager, Some(acme), "manuel").await;
    let otto = somebody(&tollgate, Role::Operator, None, "otto").await;
    let mut texts = Vec::new();
    for tenant_id in [None, Some(acme)] {
        let token = ManagementTokenDraft {
            name: "automation".into(),
            tenant_id,
            permissions: vec![Permission::PeopleWrite],
            lifetime_days: 1,
        };
        let issued = control.issue_management_token(&otto, &token, Utc::now()).await;
        texts.push(issued.expect("a token").text);
    }
    let working = async || {
        let mut working = 0;
        for text in &texts {
            let shown = control
                .shown_management_token(text, None, Utc::now())
                .await
                .expect("an answer");
            working += usize::from(matches!(shown, ShownToken::Works(_)));
        }
        working
    };

    // An operator lets them go on when their issuer becomes a manager, and another role is no reason to end them.
    let demoted = PersonEdit {
        kept: Kept {
            service_keys: false,
            management_tokens: true,
        },
        ..edit(draft(Role::Manager, Some(acme), "otto"))
    };
    changed(&tollgate, &boss, id(&otto), &demoted).await.expect("demoted");
    let member = edit(draft(Role::Member, Some(acme), "otto"));
    changed(&tollgate, &manuel, id(&otto), &member).await.expect("a member");
    assert_eq!(working().await, 2);

    // The manager learns how many there are, and cannot keep them.
    let view = control
        .person_view(&manuel, id(&otto), Utc::now())
        .await
        .expect("a page");
    assert_eq!(
        (view.issued.management_tokens.len(), view.issued.management_token_count),
        (0, 2)
    );
    let mut window = Window::open(&tollgate, "/sign-in").await;
    window.sign_in("manuel@example.com", PASSWORD).await;
    let page = window.visit(&format!("/people/{}", id(&otto))).await;
    let told = page.texts(".consequences > li");
    assert!(
        told.iter()
            .any(|sentence| sentence.starts_with("2 management tokens that they issued are revoked")),
        "{told:?}"
    );
    assert_eq!(page.texts("input[name=keeps_management_tokens]").len(), 0);
    let version = view.row.version;
    let close = async |kept: Kept| {
        control
            .disable_person(&manuel, id(&otto), version, kept, Utc::now())
            .await
    };
    let kept = close(demoted.kept).await;
    assert!(matches!(kept, Err(ControlError::Forbidden)), "{kept:?}");
    assert_eq!(working().await, 2);

    close(Kept::default()).await.expect("closed");
    assert_eq!(working().await, 0);
    let revoked = entries(&tollgate, "management_token.revoke").await;
    let whose: Vec<_> = revoked.iter().map(|(_, tenant, _, _)| *tenant).collect();
    assert!(
        whose.len() == 2 && whose.contains(&None) && whose.contains(&Some(acme.0)),
        "{whose:?}"
    );
    let closed = entries(&tollgate, "person.disable").await;
    let (_, _, _, after) = closed.last().expect("an entry");
    let count = after["revoked_management_tokens"].as_array().map(Vec::len);
    assert_eq!(count, Some(2));
}

#[tokio::test]
async fn what_closing_an_account_does_is_listed_before_the_button() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(acme)).await;
    member.issue_key("", "notebook").await;
    let people = operator.visit("/people").await.table(&["Name", "Role"]);
    let place = people.column("Role").iter().position(|role| role == "member");
    let page = operator.visit(&people.links[place.expect("the member")]).await;
    assert_eq!(
        page.texts(".consequences > li"),
        [
            "They cannot sign in any more: 1 session ends, and so do links that they were sent.",
            "Their 1 key is revoked for good.",
            "What they did stays in the ledger and in the audit log.",
            "The account can be opened again; what was revoked stays revoked.",
        ]
    );
}

#[tokio::test]
async fn the_persons_page_changes_asks_and_closes() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(acme)).await;
    member.issue_key("", "notebook").await;
    let people = operator.visit("/people").await.table(&["Name", "Role"]);
    let place = people.column("Role").iter().position(|role| role == "member");
    let address = people.links[place.expect("the member")].clone();

    let page = operator.visit(&address).await;
    assert_eq!(
        (page.heading().as_str(), page.fact("Tenant").as_str()),
        ("The member", "Acme")
    );
    assert_eq!(page.table(&["Name", "Key"]).column("Name"), ["notebook"]);
    let form = page.form("/console/people/edit");
    assert_eq!(form.choice("role"), "Member: own keys and usage");
    let auditor = form
        .fill("name", "Mia")
        .choose("role", "Auditor: reads everything, changes nothing")
        .choose("tenant_id", "None");
    let page = operator.send(&auditor).await;
    assert!(
        page.text("#revokes_keys-error").contains("lose their key"),
        "{}",
        page.content()
    );
    let form = page.form("/console/people/edit");
    assert_eq!(form.value("name"), "Mia", "what was entered is there");
    let page = operator.send(&form.tick("revokes_keys", "on")).await;
    assert_eq!(page.notices(), ["Saved."]);
    assert_eq!(
        (page.heading().as_str(), page.find_table(&["Name", "Key"])),
        ("Mia", None)
    );
    assert_eq!(
        member.visit("/").await.path(),
        "/sign-in",
        "another role ends the sessions"
    );
    assert_eq!(member.sign_in("member@example.com", PASSWORD).await.path(), "/");
    assert_eq!(member.visit("/tenants").await.status, 200);

    let form = operator.visit(&address).await.form("/console/people/disable");
    let page = operator.send(&form).await;
    assert_eq!(page.fact("State"), "closed");
    let form = page.form("/console/people/enable");
    assert_eq!(operator.send(&form).await.fact("State"), "active");

    // A manager sees name and address, and changes neither.
    let mut manager = Window::person(&tollgate, Role::Manager, Some(acme)).await;
    assert_eq!(manager.visit(&address).await.status, 404, "gone from the tenant");
    let cora = invited(&tollgate, Role::Member, Some(acme), "cora").await;
    let page = manager.visit(&format!("/people/{cora}")).await;
    let form = page
        .form("/console/people/edit")
        .choose("role", "Manager: runs one tenant");
    assert_eq!(manager.send(&form).await.notices(), ["Saved."]);
    let form = manager.page.form("/console/people/edit");
    let renamed = form.data().into_iter().map(|(name, value)| match name {
        "name" => (name, "Renamed"),
        _ => (name, value),
    });
    let renamed: Vec<_> = renamed.collect();
    let answer = manager.browser.post_form(&form.action, &renamed).await;
    assert_eq!(answer.status, 403);
}
