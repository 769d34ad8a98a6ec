//! A person's key never exceeds what the tenant and whoever is above its owner allow: not when it is issued, changed or
//! rotated, and not at a request.

use chrono::{DateTime, Duration, Utc};
use control::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::rows::KeyRow;
use control::{Actor, ControlError};
use domain::ids::TenantId;
use domain::key_rotation::Overlap;
use domain::key_rules::KeyRules;
use domain::people::Role;
use domain::priority::Priority;
use serde_json::json;
use test_support::console::Window;
use test_support::tollgate::{CHAT_PATH, MODEL, Tollgate};

const OTHER_MODEL: &str = "other-model";

struct World {
    tollgate: Tollgate,
    tenant: TenantId,
    member: Actor,
    manager: Actor,
}

impl World {
    /// Two models, and a tenant with a manager and a member.
    async fn start() -> Self {
        let tollgate = Tollgate::start().await;
        let upstream = tollgate.upstream("another", &tollgate.simulator.base_url()).await;
        let rates = domain::prices::Rates::flat(1, 1);
        tollgate.model(OTHER_MODEL, upstream, Some(rates)).await;
        let tenant = tollgate.tenant("Tenant", NodeLimits::default()).await;
        let mut people = Vec::new();
        for role in [Role::Member, Role::Manager] {
            Window::person(&tollgate, role, Some(tenant)).await;
            let all = tollgate
                .control()
                .people(&tollgate.actor(), Some(tenant))
                .await
                .expect("people");
            let person = all.into_iter().find(|person| person.role == role).expect("the person");
            people.push(Actor::person(&person, None));
        }
        let manager = people.pop().expect("a manager");
        let member = people.pop().expect("a member");
        tollgate.in_force().await;
        Self {
            tollgate,
            tenant,
            member,
            manager,
        }
    }

    fn now(&self) -> DateTime<Utc> {
        self.tollgate.clock.wall()
    }

    async fn rule(&self, rules: &KeyRules) {
        let control = self.tollgate.control();
        let row = control
            .own_tenant(&self.manager)
            .await
            .expect("read")
            .expect("a tenant");
        let set = control
            .set_key_rules(&self.manager, self.tenant, row.version, rules, self.now())
            .await;
        set.expect("ruled");
        self.tollgate.in_force().await;
    }

    /// By the member's own hand.
    async fn issue(&self, draft: &KeyDraft) -> Result<IssuedKey, ControlError> {
        self.issue_by(&self.member, draft).await
    }

    /// For the member.
    async fn issue_by(&self, actor: &Actor, draft: &KeyDraft) -> Result<IssuedKey, ControlError> {
        let owner = KeyOwner::Person(self.member.person_id().expect("a person"));
        let control = self.tollgate.control();
        let issued = control.issue_key(actor, self.tenant, owner, draft, self.now()).await;
        self.tollgate.in_force().await;
        issued
    }

    async fn edit(&self, actor: &Actor, key: &KeyRow, draft: &KeyDraft) -> Result<KeyRow, ControlError> {
        let control = self.tollgate.control();
        let version = control.key(actor, key.id).await.expect("a key").version;
        let edited = control.edit_key(actor, key.id, version, draft, self.now()).await;
        self.tollgate.in_force().await;
        edited
    }

    async fn rotate(&self, key: &KeyRow) -> KeyRow {
        let control = self.tollgate.control();
        let version = control.key(&self.member, key.id).await.expect("a key").version;
        let rotated = control
            .rotate_key(&self.member, key.id, version, Overlap::AT_ONCE, self.now())
            .await;
        rotated.expect("rotated").row
    }
}

fn draft() -> KeyDraft {
    KeyDraft {
        name: "key".to_owned(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    }
}

fn models(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(ToString::to_string).collect())
}

fn refused_fields<T: std::fmt::Debug>(result: Result<T, ControlError>) -> Vec<String> {
    match result {
        Err(ControlError::Invalid(errors)) => errors.into_iter().map(|error| error.field.into_owned()).collect(),
        other => panic!("not refused: {other:?}"),
    }
}

fn narrow() -> KeyRules {
    KeyRules {
        keys_per_person: Some(2),
        months_max: Some(3),
        priority_ceiling: Some(Priority::Default),
        models: models(&[MODEL]),
    }
}

#[tokio::test]
async fn nobody_gives_a_persons_key_more_than_the_rules_by_any_path() {
    let world = World::start().await;
    world.rule(&narrow()).await;
    let within = KeyDraft {
        expiry: Expiry::Months(3),
        ..draft()
    };
    let beyond = [
        ("expiry", draft()),
        (
            "expiry",
            KeyDraft {
                expiry: Expiry::Months(4),
                ..draft()
            },
        ),
        (
            "priority",
            KeyDraft {
                priority: Priority::High,
                ..within.clone()
            },
        ),
        (
            "allowed_models",
            KeyDraft {
                allowed_models: models(&[MODEL, OTHER_MODEL]),
                ..within.clone()
            },
        ),
    ];
    let key = world.issue(&within).await.expect("a key").row;
    for (field, draft) in &beyond {
        for actor in [&world.member, &world.manager, &world.tollgate.actor()] {
            assert_eq!(refused_fields(world.issue_by(actor, draft).await), [*field]);
            assert_eq!(refused_fields(world.edit(actor, &key, draft).await), [*field]);
        }
    }
    // Life counts from the secret: an edit a month later does not prolong it, a rotation lets it begin anew.
    world.tollgate.clock.set(world.now() + Duration::days(40));
    let edited = world.edit(&world.member, &key, &within).await;
    let edited = edited.expect("three months, of which one is over");
    assert_eq!(edited.expires_at, key.expires_at);
    let rotated = world.rotate(&key).await;
    assert_eq!(
        rotated.expires_at, key.expires_at,
        "a rotation prolongs nothing by itself"
    );
    let edited = world.edit(&world.member, &key, &within).await.expect("a new life");
    assert!(edited.expires_at > key.expires_at);
    // A manager's service account's key is under no rule.
    let control = world.tollgate.control();
    let service = control.issue_key(
        &world.manager,
        world.tenant,
        KeyOwner::Service,
        &beyond[2].1,
        world.now(),
    );
    service.await.expect("a service account's key");
    // The manager's own one is.
    let own = KeyOwner::Person(world.manager.person_id().expect("a person"));
    let own = control
        .issue_key(&world.manager, world.tenant, own, &beyond[2].1, world.now())
        .await;
    assert_eq!(refused_fields(own), ["priority"]);
}

#[tokio::test]
async fn a_person_has_so_many_keys_and_none_comes_back_to_life_beside_them() {
    let world = World::start().await;
    world.rule(&narrow()).await;
    let short = KeyDraft {
        expiry: Expiry::Months(1),
        ..draft()
    };
    let first = world.issue(&short).await.expect("the first").row;
    world.issue(&short).await.expect("the second");
    assert_eq!(refused_fields(world.issue(&short).await), ["name"]);
    // Both expire, and make room for two others.
    world.tollgate.clock.set(world.now() + Duration::days(32));
    world.issue(&short).await.expect("the third");
    world.issue(&short).await.expect("the fourth");
    assert_eq!(
        refused_fields(world.edit(&world.member, &first, &short).await),
        ["name"]
    );
}

#[tokio::test]
async fn a_rule_that_becomes_narrower_holds_for_keys_that_are_there() {
    let world = World::start().await;
    let tollgate = &world.tollgate;
    let free = KeyDraft {
        priority: Priority::High,
        ..draft()
    };
    let issued = world.issue(&free).await.expect("a key");
    let key = issued.text.reveal();
    let ask = async |model: &str| {
        let mut body = test_support::tollgate::chat_body("Hello.");
        body["model"] = json!(model);
        tollgate.browser().post_json(CHAT_PATH, key, &body).await
    };
    let listed = async || {
        let headers = [("authorization", format!("Bearer {key}"))];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = tollgate
            .browser()
            .send(http::Method::GET, "/v1/models", &headers, bytes::Bytes::new())
            .await;
        let models = answer.json()["data"].as_array().expect("models").clone();
        models
            .iter()
            .map(|model| model["id"].as_str().expect("an id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(OTHER_MODEL).await.status, 200);
    assert_eq!(listed().await, [OTHER_MODEL, MODEL]);

    world.rule(&narrow()).await;
    assert_eq!(ask(OTHER_MODEL).await.code(), "model_not_allowed");
    assert_eq!(ask(MODEL).await.status, 200);
    assert_eq!(listed().await, [MODEL]);
    tollgate.shipped().await;
    let ran_at: Vec<String> = sqlx::query_scalar("select priority from settlements order by admitted_at")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("rows");
    assert_eq!(ran_at, ["high", "default"]);

    // A rotation brings the key itself within them; its limit of life is counted from then.
    let rotated = world.rotate(&issued.row).await;
    assert_eq!(rotated.priority, Priority::Default);
    let latest = domain::periods::months_after(world.now(), 3, chrono_tz::UTC);
    let expires_at = rotated.expires_at.expect("it ends");
    assert!(
        (latest - expires_at).num_seconds().abs() < 60,
        "{expires_at} for {latest}"
    );

    // What is widened again is had again.
    world.rule(&KeyRules::default()).await;
    let service = tollgate.issue(world.tenant).await;
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(service.text.reveal(), "Hello.").await.status, 200);
}

#[tokio::test]
async fn a_member_does_not_undo_what_a_manager_made_narrower() {
    let world = World::start().await;
    let (member, manager) = (&world.member, &world.manager);
    let key = world.issue(&draft()).await.expect("a key").row;
    let end = world.now() + Duration::days(10);
    let narrower = KeyDraft {
        priority: Priority::Low,
        allowed_models: models(&[MODEL]),
        expiry: Expiry::At(end),
        ..draft()
    };
    world.edit(manager, &key, &narrower).await.expect("narrowed");
    for (field, wider) in [
        (
            "priority",
            KeyDraft {
                priority: Priority::Default,
                ..narrower.clone()
            },
        ),
        (
            "allowed_models",
            KeyDraft {
                allowed_models: None,
                ..narrower.clone()
            },
        ),
        (
            "allowed_models",
            KeyDraft {
                allowed_models: models(&[MODEL, OTHER_MODEL]),
                ..narrower.clone()
            },
        ),
        (
            "expiry",
            KeyDraft {
                expiry: Expiry::At(end + Duration::days(1)),
                ..narrower.clone()
            },
        ),
        (
            "expiry",
            KeyDraft {
                expiry: Expiry::Never,
                ..narrower.clone()
            },
        ),
    ] {
        assert_eq!(refused_fields(world.edit(member, &key, &wider).await), [field]);
    }
    let rotated = world.rotate(&key).await;
    assert_eq!(rotated.powers().priority, Priority::Low);
    assert!(rotated.expires_at.is_some_and(|at| (at - end).num_seconds().abs() < 1));
    // A new name is the member's to give, and does not loosen anything; the manager gives back.
    let renamed = KeyDraft {
        name: "renamed".to_owned(),
        ..narrower.clone()
    };
    world.edit(member, &key, &renamed).await.expect("renamed");
    assert_eq!(refused_fields(world.edit(member, &key, &draft()).await).len(), 3);
    world.edit(manager, &key, &draft()).await.expect("given back");
    world.edit(member, &key, &narrower).await.expect("narrower by own will");
    world.edit(member, &key, &draft()).await.expect("and back");

    // What a manager issues for a member is theirs to decide, too.
    let given = world.issue_by(manager, &narrower).await.expect("a key").row;
    assert_eq!(refused_fields(world.edit(member, &given, &draft()).await).len(), 3);
}

#[tokio::test]
async fn rules_are_set_on_the_tenants_page_by_who_runs_it() {
    let world = World::start().await;
    let (control, tenant) = (world.tollgate.control(), world.tenant);
    let row = control
        .own_tenant(&world.manager)
        .await
        .expect("read")
        .expect("a tenant");
    let by_member = control
        .set_key_rules(&world.member, tenant, row.version, &narrow(), world.now())
        .await;
    assert!(
        matches!(by_member, Err(ControlError::NotFound { .. } | ControlError::Forbidden)),
        "{by_member:?}"
    );
    let unknown = KeyRules {
        keys_per_person: Some(51),
        months_max: Some(0),
        models: models(&["no-such-model"]),
        ..KeyRules::default()
    };
    let refused = control
        .set_key_rules(&world.manager, tenant, row.version, &unknown, world.now())
        .await;
    assert_eq!(refused_fields(refused), ["keys_per_person", "months_max", "models"]);

    let mut manager = Window::open(&world.tollgate, "/sign-in").await;
    manager
        .sign_in("manager@example.com", test_support::console::PASSWORD)
        .await;
    manager.visit(&format!("/tenants/{tenant}")).await;
    let form = manager.page.form("/console/tenants/key-rules");
    let form = form
        .fill("keys_per_person", "2")
        .fill("months_max", "3")
        .choose("people_priority", "default")
        .choose("model_access", "Only those chosen below")
        .tick("models[]", MODEL);
    manager.send(&form).await;
    assert_eq!(manager.page.notices(), ["Saved."]);
    let row = control
        .own_tenant(&world.manager)
        .await
        .expect("read")
        .expect("a tenant");
    assert_eq!(row.tenant.key_rules, narrow());

    // A member is offered what there is.
    let mut member = Window::open(&world.tollgate, "/sign-in").await;
    member
        .sign_in("member@example.com", test_support::console::PASSWORD)
        .await;
    member.visit("/keys/new").await;
    let form = member.page.form("/console/keys/issue");
    assert_eq!(form.options("priority"), ["low", "default"]);
    assert_eq!(
        form.options("expiry").len(),
        3,
        "1 month, 3 months, a time of one's own"
    );
    let form = form.fill("name", "mine");
    member.send(&form).await;
    assert_eq!(member.page.path(), "/keys/issued", "{}", member.page.content());
}
