//! A person's key never exceeds what the tenant and whoever is above its owner allow: not when it is issued, changed or
//! rotated, and not at a request.

use chrono::{DateTime, Duration, Utc};
use control::keys::{Expiry, IssuedKey, KeyDraft, KeyOwner, RotationDraft};
use control::limits::NodeLimits;
use control::rows::KeyRow;
use control::{Actor, ControlError};
use domain::ids::TenantId;
use domain::key_rotation::Overlap;
use domain::key_rules::KeyRules;
use domain::people::Role;
use domain::priority::Priority;
use serde_json::json;
use test_support::console::{PASSWORD, Window};
use test_support::http::Answer;
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
        self.renew(&self.member, key, None).await.expect("rotated").row
    }

    /// Rotates with a day's overlap, and with another end if there is one.
    async fn renew(&self, actor: &Actor, key: &KeyRow, expiry: Option<Expiry>) -> Result<IssuedKey, ControlError> {
        let control = self.tollgate.control();
        let version = control.key(actor, key.id).await.expect("a key").version;
        let draft = RotationDraft {
            overlap: Overlap::default(),
            expiry,
        };
        let rotated = control.rotate_key(actor, key.id, version, draft, self.now()).await;
        self.tollgate.in_force().await;
        rotated
    }

    async fn chat(&self, key: &IssuedKey) -> Answer {
        self.tollgate.chat(key.text.reveal(), "Hello.").await
    }

    /// It is so long ago for gateways and operations; the console goes by the machine's clock.
    fn go_back(&self, days: i64) {
        self.tollgate.clock.set(Utc::now() - Duration::days(days));
    }

    /// The member, just signed in.
    async fn member_window(&self) -> Window {
        let mut window = Window::open(&self.tollgate, "/sign-in").await;
        window.sign_in("member@example.com", PASSWORD).await;
        window
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
    manager.sign_in("manager@example.com", PASSWORD).await;
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
    let mut member = world.member_window().await;
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

#[tokio::test]
async fn a_key_whose_longest_life_is_over_comes_back_with_another_secret() {
    let world = World::start().await;
    world.rule(&narrow()).await;
    let within = KeyDraft {
        expiry: Expiry::Months(3),
        ..draft()
    };
    let issued = world.issue(&within).await.expect("a key");
    let key = &issued.row;
    assert_eq!(world.chat(&issued).await.status, 200);
    let ended = key.expires_at.expect("it ends") + Duration::days(1);
    world.tollgate.clock.set(ended);
    assert_eq!(world.chat(&issued).await.code(), "key_expired");

    // Its secret has had its life: no edit prolongs that, and nor does a rotation that leaves the end as it is.
    let later = KeyDraft {
        expiry: Expiry::At(ended + Duration::days(10)),
        ..draft()
    };
    let (member, manager) = (&world.member, &world.manager);
    for actor in [member, manager] {
        assert_eq!(refused_fields(world.edit(actor, key, &later).await), ["expiry"]);
    }
    assert_eq!(refused_fields(world.renew(member, key, None).await), ["key"]);
    // A new life is within the rules, too, and begins in the future.
    let past = Expiry::At(ended - Duration::hours(1));
    for beyond in [Expiry::Never, Expiry::Months(4), past] {
        for actor in [member, manager] {
            let refused = world.renew(actor, key, Some(beyond)).await;
            assert_eq!(refused_fields(refused), ["expiry"], "{beyond:?}");
        }
    }
    assert_eq!(world.chat(&issued).await.code(), "key_expired");

    let back = world
        .renew(member, key, Some(Expiry::Months(3)))
        .await
        .expect("it is back");
    assert_eq!((back.row.id, &back.row.public_id), (key.id, &key.public_id));
    assert!(back.row.expires_at > Some(ended + Duration::days(80)), "{:?}", back.row);
    assert_eq!(back.row.old_secret_until, None);
    assert_eq!(world.chat(&back).await.status, 200);
    assert_eq!(world.chat(&issued).await.status, 401, "what had expired stays so");
    let entry: (String, serde_json::Value) = sqlx::query_as(
        "select action, after from audit_log where action like 'key.%' order by at desc, id desc limit 1",
    )
    .fetch_one(&mut world.tollgate.sql().await)
    .await
    .expect("an entry");
    assert_eq!(entry.0, "key.rotate");
    assert_eq!(entry.1["expires_at"], json!(back.row.expires_at));
}

#[tokio::test]
async fn a_living_key_gets_a_new_life_with_its_new_secret() {
    let world = World::start().await;
    world.rule(&narrow()).await;
    let within = KeyDraft {
        expiry: Expiry::Months(3),
        ..draft()
    };
    let issued = world.issue(&within).await.expect("a key");
    world.tollgate.clock.set(world.now() + Duration::days(40));
    let renewed = world.renew(&world.member, &issued.row, Some(Expiry::Months(3))).await;
    let renewed = renewed.expect("rotated");
    assert!(renewed.row.expires_at > issued.row.expires_at);
    for key in [&issued, &renewed] {
        assert_eq!(world.chat(key).await.status, 200, "the overlap runs");
    }
}

#[tokio::test]
async fn an_expired_key_comes_back_where_there_is_room_and_its_end_is_its_owners() {
    let world = World::start().await;
    let (member, manager) = (&world.member, &world.manager);
    let one_each = KeyRules {
        keys_per_person: Some(1),
        ..narrow()
    };
    world.rule(&one_each).await;
    world.go_back(34);
    let short = KeyDraft {
        expiry: Expiry::Months(1),
        ..draft()
    };
    let key = world.issue(&short).await.expect("a key").row;
    world.tollgate.clock.set(world.now() + Duration::days(32));
    let other = world.issue(&short).await.expect("in its place").row;
    let month = Some(Expiry::Months(1));
    assert_eq!(refused_fields(world.renew(member, &key, month).await), ["key"]);
    let control = world.tollgate.control();
    control
        .revoke_key(member, other.id, world.now())
        .await
        .expect("revoked");
    let back = world.renew(member, &key, month).await.expect("there is room").row;

    // What a manager has ended, a manager brings back.
    let ended = KeyDraft {
        expiry: Expiry::At(world.now() + Duration::days(1)),
        ..draft()
    };
    world.edit(manager, &back, &ended).await.expect("ended");
    world.tollgate.clock.set(world.now() + Duration::days(2));
    assert_eq!(refused_fields(world.renew(member, &key, month).await), ["expiry"]);
    let choices = control.choices_for_rotation(member, key.id, world.now()).await;
    assert!(!choices.expect("choices").ends.is_any(world.now()));
    let mut window = world.member_window().await;
    window.visit(&format!("/keys/{}", key.id)).await;
    let says = window.page.content();
    assert!(says.contains("This key expired at"), "{says}");
    assert!(says.contains("A manager of your tenant has set the end"), "{says}");
    window.visit(&format!("/keys/{}/rotate", key.id)).await;
    assert!(window.page.forms("/console/keys/rotate").is_empty());
    let back = world.renew(manager, &key, month).await.expect("brought back").row;
    assert_eq!(back.bounds.expires_at, back.expires_at);
    let longer = world.renew(member, &key, Some(Expiry::Months(3))).await;
    assert_eq!(refused_fields(longer), ["expiry"]);
}

#[tokio::test]
async fn the_page_of_an_expired_key_leads_to_what_brings_it_back() {
    let world = World::start().await;
    world.rule(&narrow()).await;
    let within = KeyDraft {
        expiry: Expiry::Months(3),
        ..draft()
    };
    let issued = world.issue(&within).await.expect("a key");
    // A page that was opened before its key expired says what is missing, and the next one asks for it.
    let mut window = world.member_window().await;
    let page = format!("/keys/{}", issued.row.id);
    window.visit(&format!("{page}/rotate")).await;
    let stale = window.page.form("/console/keys/rotate");
    assert!(
        stale.choice("expiry").starts_with("As before: "),
        "{}",
        stale.choice("expiry")
    );
    let expired = sqlx::query("update keys set expires_at = now() - interval '1 hour' where id = $1")
        .bind(issued.row.id.0)
        .execute(&mut world.tollgate.sql().await)
        .await;
    assert_eq!(expired.expect("expired").rows_affected(), 1);
    window.send(&stale).await;
    let told = window.page.notices().concat();
    assert!(told.contains("This key has expired"), "{told}");
    let asked = window.page.form("/console/keys/rotate");
    assert!(asked.choice("expiry").starts_with("In "), "{}", asked.choice("expiry"));
    window.visit(&page).await;
    let says = window.page.content();
    assert!(
        says.contains("choose a later expiry below"),
        "its life is not over: {says}"
    );

    world.go_back(95);
    let issued = world.issue(&within).await.expect("a key");
    world.go_back(0);
    let page = format!("/keys/{}", issued.row.id);
    window.visit(&page).await;
    let says = window.page.content();
    assert!(says.contains("This key expired at"), "{says}");
    assert!(!says.contains("choose a later expiry below"), "{says}");
    let rotate = window.page.link("Rotate it");
    window.visit(&rotate).await;
    let form = window.page.form("/console/keys/rotate");
    assert_eq!(
        form.options("expiry").len(),
        3,
        "1 month, 3 months, a time of one's own"
    );
    assert!(
        form.choice("expiry").starts_with("In 3 months"),
        "{}",
        form.choice("expiry")
    );
    window.send(&form).await;
    assert_eq!(window.page.heading(), "Key rotated: key", "{}", window.page.content());
    let secret = window.page.text("#secret");
    world.tollgate.in_force().await;
    assert_eq!(world.tollgate.chat(&secret, "Hello.").await.status, 200);
    window.visit(&page).await;
    assert!(!window.page.content().contains("This key expired"));
}

#[tokio::test]
async fn what_is_offered_is_what_is_allowed() {
    let world = World::start().await;
    let (member, manager) = (&world.member, &world.manager);
    let rules = KeyRules {
        models: None,
        ..narrow()
    };
    world.rule(&rules).await;
    let key = world
        .issue(&KeyDraft {
            expiry: Expiry::Months(3),
            ..draft()
        })
        .await;
    let key = key.expect("a key").row;
    let narrower = KeyDraft {
        priority: Priority::Low,
        allowed_models: models(&[MODEL]),
        expiry: Expiry::At(world.now() + Duration::days(40)),
        ..draft()
    };
    world.edit(manager, &key, &narrower).await.expect("narrowed");
    let control = world.tollgate.control();
    // Everything within the manager's bounds, then whatever the rules allow: a superior's choices become the bounds.
    for actor in [member, manager, &world.tollgate.actor()] {
        let base = KeyDraft {
            expiry: Expiry::Months(1),
            ..narrower.clone()
        };
        let priorities = Priority::ALL.map(|priority| KeyDraft {
            priority,
            ..base.clone()
        });
        let names = [None, models(&[MODEL]), models(&[OTHER_MODEL])];
        let names = names.map(|allowed_models| KeyDraft {
            allowed_models,
            ..base.clone()
        });
        let lives = [1, 3, 6, 12].map(Expiry::Months).into_iter().chain([Expiry::Never]);
        let lives = lives.map(|expiry| KeyDraft { expiry, ..base.clone() });
        let wanted = priorities
            .into_iter()
            .map(|draft| ("priority", draft))
            .chain(names.into_iter().map(|draft| ("allowed_models", draft)))
            .chain(lives.map(|draft| ("expiry", draft)));
        for (field, draft) in wanted {
            let offered = control.choices_for_key(actor, key.id, world.now()).await;
            let offered = offered.expect("choices");
            let is_offered = match (field, &draft.allowed_models, draft.expiry) {
                ("priority", ..) => offered.priorities.contains(&draft.priority),
                ("allowed_models", None, _) => offered.is_any_model,
                ("allowed_models", Some(names), _) => names.iter().all(|name| offered.models.contains(name)),
                (_, _, Expiry::Months(months)) => offered.ends.lifetimes.iter().any(|(offer, _)| *offer == months),
                _ => offered.ends.is_endless,
            };
            let edited = world.edit(actor, &key, &draft).await;
            if is_offered {
                assert!(edited.is_ok(), "{draft:?} was offered: {edited:?}");
            } else {
                assert_eq!(refused_fields(edited), [field], "{draft:?} of {offered:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_lost_all_its_models_says_so_and_is_saved_as_it_is() {
    let world = World::start().await;
    let member = &world.member;
    let other = KeyDraft {
        allowed_models: models(&[OTHER_MODEL]),
        ..draft()
    };
    let issued = world.issue(&other).await.expect("a key");
    let page = format!("/keys/{}", issued.row.id);
    world.rule(&narrow()).await;
    let mut window = world.member_window().await;
    window.visit(&format!("{page}/rotate")).await;
    let says = window.page.content();
    assert!(
        says.contains("it may not use other-model any more. None of the tenant's models"),
        "{says}"
    );
    let rotated = world.renew(member, &issued.row, None).await.expect("rotated");
    assert_eq!(rotated.row.allowed_models, models(&[]));
    assert_eq!(
        world.chat(&rotated).await.code(),
        "model_not_allowed",
        "none is not all"
    );

    window.visit(&page).await;
    assert_eq!(window.page.fact("Models"), "none of the tenant's models");
    let form = window.page.form("/console/keys/edit");
    assert_eq!(form.choice("model_access"), "Only those chosen below");
    window.send(&form.fill("name", "renamed")).await;
    assert_eq!(window.page.notices(), ["Saved."]);
    let stored = world
        .tollgate
        .control()
        .key(member, issued.row.id)
        .await
        .expect("a key");
    assert_eq!(
        (stored.name.as_str(), &stored.allowed_models),
        ("renamed", &models(&[]))
    );
    world.tollgate.in_force().await;
    assert_eq!(world.chat(&rotated).await.code(), "model_not_allowed");

    let form = window.page.form("/console/keys/edit");
    window.send(&form.tick("allowed_models[]", MODEL)).await;
    assert_eq!(window.page.notices(), ["Saved."]);
    world.tollgate.in_force().await;
    assert_eq!(world.chat(&rotated).await.status, 200);
    // Once it has some, none is no choice.
    let none = KeyDraft {
        allowed_models: models(&[]),
        expiry: Expiry::Months(1),
        ..draft()
    };
    assert_eq!(
        refused_fields(world.edit(member, &issued.row, &none).await),
        ["allowed_models"]
    );
}
