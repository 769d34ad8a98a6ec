//! What people may do, through `control`, against a real Postgres.

use std::sync::Arc;

use chrono::{DateTime, Duration, TimeZone, Utc};
use control::actor::PersonActor;
use control::catalogue::{CatalogueLoad, Presence};
use control::keys::{Expiry, IssuedKey, KEYS_PER_PERSON_MAX, KeyDraft, KeyOwner};
use control::limits::{LimitDraft, NodeLimits};
use control::models::ModelDraft;
use control::people::{Kept, PersonDraft};
use control::prices::PriceDraft;
use control::reports::{MonthlyQuery, ReportFilter};
use control::rows::{AuditFilter, EntryFilter, KeyFilter, KeyRow, LedgerEntry, Person};
use control::sign_in::{ACCOUNT_FAILURES_MAX, PEER_FAILURES_MAX, SignInError};
use control::tags::MonthlyTagQuery;
use control::tenants::{TenantDraft, TenantVersions};
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control, ControlError, SystemRandom};
use domain::budget_events::Thresholds;
use domain::ids::{KeyId, PersonId, RequestId, TenantId, UpstreamId};
use domain::ledger::{Identity, Outcome, Settlement};
use domain::limits::{Class, Dimension, Gates, Mode, Scope, Target};
use domain::money::Nanos;
use domain::people::Role;
use domain::periods::{Month, Period};
use domain::policy::{Dialect, Encoding, Route, Settings};
use domain::prices::{Rates, Unpriced};
use domain::priority::Priority;
use domain::reports::{Grouping, TagTotals};
use domain::usage::{TokenUsage, UsageSource};
use futures_util::StreamExt;
use futures_util::future::join_all;
use store::Store;
use store::ledger::ShipBatch;
use store::sealing::{Purpose, SecretKey};
use test_support::postgres::{TestDatabase, database};
use uuid::Uuid;

const PASSWORD: &str = "correct horse battery";
const CREDENTIAL: &str = "credential-at-the-provider";
const SYSTEM: Actor = Actor::System { name: "test" };
const NO_TENANT: TenantId = TenantId(Uuid::nil());

fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 15, 12, 0, 0).unwrap()
}

fn later(minutes: i64) -> DateTime<Utc> {
    now() + Duration::minutes(minutes)
}

/// An installation with nobody in it.
struct Empty {
    database: TestDatabase,
    store: Store,
    control: Control,
}

async fn empty() -> Empty {
    let database = database().await;
    let store = Store::connect_lazily(database.url()).unwrap();
    let key = SecretKey::from_bytes([7; 32]);
    let settings = Settings {
        time_zone: chrono_tz::Europe::Berlin,
        currency: "EUR".to_owned(),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    };
    let control = Control::new(store.clone(), key, Arc::new(SystemRandom));
    control.create_settings(&SYSTEM, &settings, now()).await.unwrap();
    Empty {
        database,
        store,
        control,
    }
}

/// Two tenants, somebody of each role, one model at one upstream.
struct House {
    database: TestDatabase,
    store: Store,
    control: Control,
    acme: TenantId,
    upstream: UpstreamId,
    operator: Actor,
    auditor: Actor,
    manager: Actor,
    member: Actor,
    colleague: Actor,
    stranger: Actor,
    foreign_manager: Actor,
}

async fn house() -> House {
    let Empty {
        database,
        store,
        control,
    } = empty().await;
    let acme = control.create_tenant(&SYSTEM, &tenant("Acme"), now()).await.unwrap();
    let other = control.create_tenant(&SYSTEM, &tenant("Other"), now()).await.unwrap();
    let mut actors = Vec::new();
    for (role, tenant_id, name) in [
        (Role::Operator, None, "olga"),
        (Role::Auditor, None, "audrey"),
        (Role::Manager, Some(acme), "manuel"),
        (Role::Member, Some(acme), "mia"),
        (Role::Member, Some(acme), "cora"),
        (Role::Member, Some(other), "stan"),
        (Role::Manager, Some(other), "fred"),
    ] {
        let invited = control
            .invite_person(&SYSTEM, &person(role, tenant_id, name), now())
            .await
            .unwrap();
        actors.push(Actor::person(&invited.person, Some("192.0.2.7".to_owned())));
    }
    let upstream = control
        .create_upstream(&SYSTEM, &upstream_draft("Provider"), now())
        .await
        .unwrap();
    control
        .create_model(&SYSTEM, &model("gpt", upstream), now())
        .await
        .unwrap();
    let mut actors = actors.into_iter();
    let mut next = || actors.next().unwrap();
    House {
        database,
        store,
        control,
        acme,
        upstream,
        operator: next(),
        auditor: next(),
        manager: next(),
        member: next(),
        colleague: next(),
        stranger: next(),
        foreign_manager: next(),
    }
}

impl House {
    async fn issue(&self, actor: &Actor, priority: Priority) -> Result<IssuedKey, ControlError> {
        let owner = KeyOwner::Person(actor.person_id().unwrap());
        self.control
            .issue_key(actor, self.acme, owner, &key(priority), now())
            .await
    }

    async fn audited(&self) -> Vec<String> {
        let filter = AuditFilter {
            count: 200,
            ..AuditFilter::default()
        };
        let entries = self.control.audit_entries(&SYSTEM, filter).await.unwrap();
        entries.into_iter().map(|entry| entry.action).collect()
    }

    async fn person(&self, actor: &Actor) -> Person {
        self.store
            .find_person(actor.person_id().unwrap())
            .await
            .unwrap()
            .unwrap()
    }
}

fn tenant(name: &str) -> TenantDraft {
    TenantDraft {
        name: name.to_owned(),
        plan_id: None,
        priority_ceiling: None,
        has_strict_budgets: false,
        limits: NodeLimits::default(),
    }
}

fn person(role: Role, tenant_id: Option<TenantId>, name: &str) -> PersonDraft {
    PersonDraft {
        name: name.to_owned(),
        email: format!("{name}@example.com"),
        role,
        tenant_id,
    }
}

fn key(priority: Priority) -> KeyDraft {
    KeyDraft {
        name: "laptop".to_owned(),
        priority,
        allowed_models: None,
        may_name_users: false,
        degrades: false,
        expiry: Expiry::Never,
    }
}

fn upstream_draft(name: &str) -> UpstreamDraft {
    UpstreamDraft {
        name: name.to_owned(),
        dialect: Dialect::Openai,
        base_url: "https://api.example.com/v1/".to_owned(),
        credential: CredentialChange::Replace(CREDENTIAL.to_owned()),
        is_disabled: false,
    }
}

fn model(name: &str, upstream: UpstreamId) -> ModelDraft {
    ModelDraft {
        name: name.to_owned(),
        group: None,
        context_tokens: 128_000,
        output_cap_tokens: 16_000,
        output_default_tokens: 1_000,
        encoding: Encoding::Ratio,
        is_disabled: false,
        routes: vec![Route {
            upstream_id: upstream,
            upstream_model: name.to_owned(),
            position: 0,
            weight: 1,
        }],
    }
}

fn price(valid_from: Option<DateTime<Utc>>, rate: i64) -> PriceDraft {
    PriceDraft {
        valid_from,
        rates: Rates::flat(rate, rate),
        tiers: Vec::new(),
    }
}

/// That the answer is a refusal for want of a right, and what was refused.
#[track_caller]
fn assert_refused<T>(what: &str, answer: Result<T, ControlError>) {
    match answer {
        Err(ControlError::Forbidden | ControlError::NotFound { .. }) => {}
        Err(error) => panic!("{what}: refused for another reason: {error}"),
        Ok(_) => panic!("{what}: was allowed"),
    }
}

#[track_caller]
fn assert_conflict<T>(answer: Result<T, ControlError>) {
    match answer {
        Err(ControlError::Conflict { .. }) => {}
        Err(error) => panic!("no conflict but: {error}"),
        Ok(_) => panic!("was written over"),
    }
}

#[track_caller]
fn assert_field<T>(field: &str, answer: Result<T, ControlError>) {
    match answer {
        Err(ControlError::Invalid(fields)) => {
            assert!(fields.iter().any(|error| error.field == field), "{fields:?}");
        }
        Err(error) => panic!("not a field's error: {error}"),
        Ok(_) => panic!("{field} was accepted"),
    }
}

#[tokio::test]
async fn the_set_up_link_makes_one_operator_once() {
    let Empty {
        database: _database,
        control,
        store,
    } = empty().await;
    assert!(control.needs_setup().await.unwrap());
    let mut links = Vec::new();
    for _ in 0..6 {
        links.push(control.create_setup_link(now()).await.unwrap().unwrap());
    }
    let accept = |token: &str, name: String, at| {
        let (control, token) = (control.clone(), token.to_owned());
        let email = format!("{name}@example.com");
        async move { control.accept_setup(&token, &name, &email, PASSWORD, None, at).await }
    };

    let wrong = accept("AAAA", "ada".to_owned(), now()).await;
    assert!(matches!(wrong, Err(ControlError::LinkEnded)), "{wrong:?}");
    let late = accept(links[0].reveal(), "ada".to_owned(), later(24 * 60)).await;
    assert!(matches!(late, Err(ControlError::LinkEnded)), "{late:?}");
    let weak = control.accept_setup(links[0].reveal(), "Ada", "ada", "short", None, now());
    assert_field("password", weak.await);

    // All at once; connections are made first, so that none is late for that.
    join_all(links.iter().map(|_| control.ping())).await;
    let answers = links.iter().enumerate();
    let answers = join_all(answers.map(|(at, link)| accept(link.reveal(), format!("ada{at}"), now()))).await;
    let made: Vec<&Person> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    assert_eq!(made[0].role, Role::Operator);
    for link in &links {
        let again = accept(link.reveal(), "bob".to_owned(), now()).await;
        assert!(matches!(again, Err(ControlError::LinkEnded)), "{again:?}");
    }
    assert!(control.create_setup_link(now()).await.unwrap().is_none());
    assert!(!control.needs_setup().await.unwrap());
    assert_eq!(store.people(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_invitation_is_accepted_once_and_then_its_password_signs_in() {
    let house = house().await;
    let control = &house.control;
    let draft = person(Role::Member, Some(house.acme), "nina");
    let invited = control.invite_person(&house.manager, &draft, now()).await.unwrap();
    let info = control.find_link(invited.token.reveal(), now()).await.unwrap();
    assert_eq!(info.person.unwrap().email, "nina@example.com");
    let before = control.sign_in("nina@example.com", PASSWORD, None, now()).await;
    assert!(matches!(before, Err(SignInError::Refused)), "{before:?}");

    let accept = || control.accept_invitation(invited.token.reveal(), PASSWORD, None, later(1));
    assert!(accept().await.unwrap().has_password);
    assert!(matches!(accept().await, Err(ControlError::LinkEnded)));
    let signed_in = control
        .sign_in("Nina@Example.com", PASSWORD, None, later(2))
        .await
        .unwrap();
    assert_eq!(signed_in.id, invited.person.id);

    // A link for another password ends the earlier one.
    let one = control
        .create_password_link(&house.manager, signed_in.id, later(3))
        .await
        .unwrap();
    let two = control
        .create_password_link(&house.manager, signed_in.id, later(3))
        .await
        .unwrap();
    let answer = control
        .accept_invitation(one.token.reveal(), "another long password", None, later(4))
        .await;
    assert!(matches!(answer, Err(ControlError::LinkEnded)), "{answer:?}");
    control
        .accept_invitation(two.token.reveal(), "another long password", None, later(4))
        .await
        .unwrap();
    let old = control.sign_in("nina@example.com", PASSWORD, None, later(5)).await;
    assert!(matches!(old, Err(SignInError::Refused)), "{old:?}");
}

#[tokio::test]
async fn an_account_waits_after_failures_even_with_the_right_password() {
    let Empty {
        database: _database,
        control,
        ..
    } = empty().await;
    control
        .create_operator(&SYSTEM, "Ada", "ada@example.com", PASSWORD, now())
        .await
        .unwrap();
    for attempt in 0..ACCOUNT_FAILURES_MAX {
        let peer = Some(format!("192.0.2.{attempt}"));
        let answer = control.sign_in("ada@example.com", "wrong password!", peer, now()).await;
        assert!(matches!(answer, Err(SignInError::Refused)), "{answer:?}");
    }
    let peer = Some("192.0.2.99".to_owned());
    match control
        .sign_in("ADA@example.com", PASSWORD, peer.clone(), later(5))
        .await
    {
        Err(SignInError::Throttled { retry_after_seconds }) => assert_eq!(retry_after_seconds, 601),
        other => panic!("not throttled: {other:?}"),
    }
    let person = control
        .sign_in("ada@example.com", PASSWORD, peer, later(16))
        .await
        .unwrap();
    assert_eq!(person.email, "ada@example.com");
}

#[tokio::test]
async fn many_attempts_at_once_do_not_get_past_the_bound() {
    let Empty {
        database: _database,
        control,
        ..
    } = empty().await;
    control
        .create_operator(&SYSTEM, "Ada", "ada@example.com", PASSWORD, now())
        .await
        .unwrap();
    let attempts = (0..12).map(|_| {
        let control = control.clone();
        async move { control.sign_in("ada@example.com", "wrong password!", None, now()).await }
    });
    let answers = join_all(attempts).await;
    let checked = answers
        .iter()
        .filter(|answer| matches!(answer, Err(SignInError::Refused)))
        .count();
    let throttled = answers
        .iter()
        .filter(|answer| matches!(answer, Err(SignInError::Throttled { .. })))
        .count();
    assert_eq!(
        (checked as i64, throttled),
        (ACCOUNT_FAILURES_MAX, 12 - checked),
        "{answers:?}"
    );
}

#[tokio::test]
async fn an_address_waits_after_failures_of_many_accounts() {
    let Empty {
        database: _database,
        control,
        ..
    } = empty().await;
    control
        .create_operator(&SYSTEM, "Ada", "ada@example.com", PASSWORD, now())
        .await
        .unwrap();
    let peer = Some("192.0.2.1".to_owned());
    for attempt in 0..PEER_FAILURES_MAX {
        // A sign-in that succeeds does not give the address its failures back.
        if attempt == 10 {
            control
                .sign_in("ada@example.com", PASSWORD, peer.clone(), now())
                .await
                .unwrap();
        }
        let email = format!("nobody{attempt}@example.com");
        let answer = control.sign_in(&email, PASSWORD, peer.clone(), now()).await;
        assert!(matches!(answer, Err(SignInError::Refused)), "{attempt}: {answer:?}");
    }
    let answer = control.sign_in("ada@example.com", PASSWORD, peer, now()).await;
    assert!(matches!(answer, Err(SignInError::Throttled { .. })), "{answer:?}");
    let elsewhere = Some("192.0.2.2".to_owned());
    control
        .sign_in("ada@example.com", PASSWORD, elsewhere, now())
        .await
        .unwrap();
    while control.delete_expired(later(60)).await.unwrap() > 0 {}
}

#[tokio::test]
async fn only_operators_change_what_concerns_the_whole_installation() {
    let house = house().await;
    let control = &house.control;
    let tenant_row = control.tenant(&SYSTEM, house.acme, now()).await.unwrap();
    let model_row = control.model(&SYSTEM, "gpt", now()).await.unwrap();
    let price_id = control.add_price(&SYSTEM, "gpt", &price(None, 1), now()).await.unwrap();
    let limits = NodeLimits::default();
    let everyone_else = [
        ("auditor", &house.auditor),
        ("manager", &house.manager),
        ("member", &house.member),
        ("member of another tenant", &house.stranger),
        ("manager of another tenant", &house.foreign_manager),
    ];
    let before = house.audited().await;
    for (who, actor) in everyone_else {
        let versions = tenant_row.versions();
        let node = Target::Node(Scope::Tenant(house.acme));
        assert_refused(who, control.create_tenant(actor, &tenant("New"), now()).await);
        assert_refused(
            who,
            control
                .edit_tenant(actor, house.acme, versions, &tenant("X"), now())
                .await,
        );
        assert_refused(
            who,
            control.suspend_tenant(actor, house.acme, versions.tenant, now()).await,
        );
        assert_refused(
            who,
            control.resume_tenant(actor, house.acme, versions.tenant, now()).await,
        );
        assert_refused(
            who,
            control.set_limits(actor, &node, versions.limits, &limits, now()).await,
        );
        assert_refused(
            who,
            control
                .set_limit(actor, &node, versions.limits, &hourly(1), now())
                .await,
        );
        assert_refused(who, control.create_upstream(actor, &upstream_draft("U"), now()).await);
        assert_refused(
            who,
            control
                .edit_upstream(actor, house.upstream, 1, &upstream_draft("U"), now())
                .await,
        );
        assert_refused(
            who,
            control.create_model(actor, &model("new", house.upstream), now()).await,
        );
        let edit = control
            .edit_model(actor, model_row.version, &model("gpt", house.upstream), now())
            .await;
        assert_refused(who, edit);
        assert_refused(who, control.add_price(actor, "gpt", &price(None, 2), later(1)).await);
        assert_refused(who, control.remove_price(actor, price_id, now()).await);
        assert_refused(who, control.set_unpriced(actor, 1, Unpriced::Refuse, now()).await);
        let operator = person(Role::Operator, None, "mallory");
        assert_refused(who, control.invite_person(actor, &operator, now()).await);
        assert_refused(who, control.create_person(actor, &operator, PASSWORD, now()).await);
        let id = house.operator.person_id().unwrap();
        assert_refused(who, control.disable_person(actor, id, 1, Kept::default(), now()).await);
        assert_refused(who, control.create_password_link(actor, id, now()).await);
    }
    assert_eq!(house.audited().await, before, "what was refused left no entry");
}

fn hourly(value: u64) -> LimitDraft {
    LimitDraft {
        dimension: Dimension::Requests,
        value,
        window_seconds: 3_600,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Rehearse,
        gates: Some(Gates {
            lower_percent: 70,
            upper_percent: 90,
            upper_waits: false,
        }),
        thresholds: Thresholds::default(),
    }
}

#[tokio::test]
async fn members_have_their_own_keys_and_managers_those_of_their_tenant() {
    let house = house().await;
    let control = &house.control;
    let mine = house.issue(&house.member, Priority::Default).await.unwrap().row;
    let theirs = house.issue(&house.colleague, Priority::Default).await.unwrap().row;
    let service = control
        .issue_key(
            &house.manager,
            house.acme,
            KeyOwner::Service,
            &key(Priority::Low),
            now(),
        )
        .await
        .unwrap()
        .row;

    // Issuing for somebody or somewhere else.
    let for_colleague = KeyOwner::Person(house.colleague.person_id().unwrap());
    let draft = key(Priority::Default);
    let member = &house.member;
    let answer = control
        .issue_key(member, house.acme, for_colleague, &draft, now())
        .await;
    assert_refused("member for a colleague", answer);
    let answer = control
        .issue_key(member, house.acme, KeyOwner::Service, &draft, now())
        .await;
    assert_refused("member for the tenant", answer);
    assert_refused(
        "member of another tenant",
        house.issue(&house.stranger, Priority::Default).await,
    );
    assert_refused("auditor", house.issue(&house.auditor, Priority::Default).await);
    let answer = control
        .issue_key(&house.foreign_manager, house.acme, KeyOwner::Service, &draft, now())
        .await;
    assert_refused("manager of another tenant", answer);
    let stranger = KeyOwner::Person(house.stranger.person_id().unwrap());
    let answer = control
        .issue_key(&house.manager, house.acme, stranger, &draft, now())
        .await;
    assert_field("owner", answer);

    // Seeing, changing, revoking.
    let may = |actor: &Actor, id: KeyId| {
        let (control, actor, draft) = (control.clone(), actor.clone(), draft.clone());
        async move {
            let row = control.key(&SYSTEM, id).await.unwrap();
            let sees = control.key(&actor, id).await.is_ok();
            let edits = control.edit_key(&actor, id, row.version, &draft, now()).await.is_ok();
            (sees, edits)
        }
    };
    assert_eq!(may(member, mine.id).await, (true, true));
    assert_eq!(may(member, theirs.id).await, (false, false));
    assert_eq!(may(member, service.id).await, (false, false));
    assert_eq!(may(&house.manager, theirs.id).await, (true, true));
    assert_eq!(may(&house.operator, service.id).await, (true, true));
    assert_eq!(may(&house.auditor, mine.id).await, (true, false));
    assert_eq!(may(&house.stranger, mine.id).await, (false, false));
    assert_eq!(may(&house.foreign_manager, mine.id).await, (false, false));
    for actor in [
        &house.auditor,
        &house.stranger,
        &house.foreign_manager,
        &house.colleague,
    ] {
        assert_refused("revoke", control.revoke_key(actor, mine.id, now()).await);
    }
    control.revoke_key(member, mine.id, now()).await.unwrap();
    assert!(control.key(member, mine.id).await.unwrap().revoked_at.is_some());

    let seen = |actor: &Actor, filter: KeyFilter| {
        let (control, actor) = (control.clone(), actor.clone());
        async move { control.keys(&actor, filter).await.map(|keys| keys.len()) }
    };
    let all = KeyFilter {
        includes_revoked: true,
        count: 100,
        ..KeyFilter::default()
    };
    assert_eq!(seen(member, all.clone()).await.unwrap(), 1);
    assert_eq!(seen(&house.manager, all.clone()).await.unwrap(), 3);
    assert_eq!(seen(&house.auditor, all.clone()).await.unwrap(), 3);
    assert_eq!(seen(&house.foreign_manager, all.clone()).await.unwrap(), 0);
    let of_colleague = KeyFilter {
        owner_id: house.colleague.person_id(),
        ..all.clone()
    };
    assert_refused("keys of a colleague", seen(member, of_colleague).await);
    let of_acme = KeyFilter {
        tenant_id: Some(house.acme),
        ..all
    };
    assert_refused("keys of another tenant", seen(&house.foreign_manager, of_acme).await);
}

#[tokio::test]
async fn no_key_runs_above_its_tenants_ceiling() {
    let house = house().await;
    let control = &house.control;
    assert_field("priority", house.issue(&house.member, Priority::Critical).await);
    let issued = house.issue(&house.member, Priority::High).await.unwrap().row;
    for actor in [&house.member, &house.manager, &house.operator] {
        let answer = control
            .edit_key(actor, issued.id, issued.version, &key(Priority::Critical), now())
            .await;
        assert_field("priority", answer);
    }
    let read = control.tenant(&SYSTEM, house.acme, now()).await.unwrap().versions();
    let draft = TenantDraft {
        priority_ceiling: Some(Priority::Low),
        ..tenant("Acme")
    };
    control
        .edit_tenant(&house.operator, house.acme, read, &draft, now())
        .await
        .unwrap();
    assert_field("priority", house.issue(&house.member, Priority::Default).await);
    let edit = |priority| {
        let (control, member) = (control.clone(), house.member.clone());
        async move {
            control
                .edit_key(&member, issued.id, issued.version, &key(priority), now())
                .await
        }
    };
    assert_field("priority", edit(Priority::High).await);
    assert_eq!(edit(Priority::Low).await.unwrap().priority, Priority::Low);
}

#[tokio::test]
async fn a_key_is_checked_before_it_is_issued() {
    let house = house().await;
    let control = &house.control;
    let owner = KeyOwner::Person(house.member.person_id().unwrap());
    let issue = |draft: KeyDraft, at| {
        let (control, member, acme) = (control.clone(), house.member.clone(), house.acme);
        async move { control.issue_key(&member, acme, owner, &draft, at).await }
    };
    let with = |change: fn(&mut KeyDraft)| {
        let mut draft = key(Priority::Default);
        change(&mut draft);
        draft
    };
    assert_field("name", issue(with(|draft| draft.name = " ".to_owned()), now()).await);
    let unknown = with(|draft| draft.allowed_models = Some(vec!["gpt".to_owned(), "no-model".to_owned()]));
    assert_field("allowed_models", issue(unknown, now()).await);
    let none = with(|draft| draft.allowed_models = Some(Vec::new()));
    assert_field("allowed_models", issue(none, now()).await);
    let past = with(|draft| draft.expiry = Expiry::At(now() - Duration::seconds(1)));
    assert_field("expiry", issue(past, now()).await);
    assert_field(
        "expiry",
        issue(with(|draft| draft.expiry = Expiry::Months(0)), now()).await,
    );
    let users = with(|draft| draft.may_name_users = true);
    assert_field("may_name_users", issue(users, now()).await);

    // A month counts from the day it was made, and ends with a shorter month.
    let january = Utc.with_ymd_and_hms(2027, 1, 31, 12, 0, 0).unwrap();
    let month = with(|draft| draft.expiry = Expiry::Months(1));
    let issued = issue(month, january).await.unwrap();
    let february = Utc.with_ymd_and_hms(2027, 2, 28, 12, 0, 0).unwrap();
    assert_eq!(issued.row.expires_at, Some(february));
    assert_eq!(issued.row.public_id, issued.text.public_id());

    for _ in 1..KEYS_PER_PERSON_MAX {
        issue(key(Priority::Low), now()).await.unwrap();
    }
    assert_field("name", issue(key(Priority::Low), now()).await);
}

#[tokio::test]
async fn whoever_saves_over_a_newer_version_is_told_and_writes_nothing() {
    let house = house().await;
    let control = &house.control;
    let operator = &house.operator;
    let read = control.tenant(operator, house.acme, now()).await.unwrap().versions();
    let with_budget = TenantDraft {
        limits: NodeLimits {
            monthly_cost: Some(Nanos::from_units(5)),
            ..NodeLimits::default()
        },
        ..tenant("Acme")
    };
    control
        .edit_tenant(operator, house.acme, read, &with_budget, now())
        .await
        .unwrap();
    // The other editor had read the tenant before the budget was set, and changes the name alone.
    assert_conflict(
        control
            .edit_tenant(operator, house.acme, read, &tenant("Renamed"), now())
            .await,
    );
    let view = control.tenant(operator, house.acme, now()).await.unwrap();
    assert_eq!(view.row.tenant.name, "Acme");
    assert_eq!(view.limits.plain.monthly_cost, Some(Nanos::from_units(5)));
    let stale = TenantVersions {
        tenant: view.row.version - 1,
        ..view.versions()
    };
    assert_conflict(
        control
            .edit_tenant(operator, house.acme, stale, &tenant("Renamed"), now())
            .await,
    );
    assert_conflict(control.suspend_tenant(operator, house.acme, stale.tenant, now()).await);

    let node = Target::Node(Scope::Global);
    let version = control.set_limit(operator, &node, 0, &hourly(10), now()).await.unwrap();
    assert_conflict(control.set_limit(operator, &node, 0, &hourly(20), now()).await);
    assert_conflict(
        control
            .set_limits(operator, &node, 0, &NodeLimits::default(), now())
            .await,
    );
    let limit = control.limits_of(operator, &node).await.unwrap().limits[0].clone();
    assert_conflict(control.clear_limit(operator, &node, 0, limit.id, now()).await);
    let cleared = control
        .clear_limit(operator, &node, version, limit.id, now())
        .await
        .unwrap();
    assert_conflict(control.set_limit(operator, &node, version, &hourly(20), now()).await);
    control
        .set_limit(operator, &node, cleared, &hourly(20), now())
        .await
        .unwrap();

    let issued = house.issue(&house.member, Priority::Low).await.unwrap().row;
    let edit = |version| {
        let (control, member) = (control.clone(), house.member.clone());
        async move {
            control
                .edit_key(&member, issued.id, version, &key(Priority::Default), now())
                .await
        }
    };
    let edited = edit(issued.version).await.unwrap();
    assert_conflict(edit(issued.version).await);
    edit(edited.version).await.unwrap();

    let draft = model("gpt", house.upstream);
    control.edit_model(operator, 1, &draft, now()).await.unwrap();
    assert_conflict(control.edit_model(operator, 1, &draft, now()).await);
    let draft = upstream_draft("Provider");
    control
        .edit_upstream(operator, house.upstream, 1, &draft, now())
        .await
        .unwrap();
    assert_conflict(control.edit_upstream(operator, house.upstream, 1, &draft, now()).await);
    control
        .set_unpriced(operator, 1, Unpriced::Refuse, now())
        .await
        .unwrap();
    assert_conflict(control.set_unpriced(operator, 1, Unpriced::Refuse, now()).await);
    let member = house.member.person_id().unwrap();
    assert_conflict(
        control
            .disable_person(operator, member, 99, Kept::default(), now())
            .await,
    );
}

#[tokio::test]
async fn a_cleared_limit_is_gone_and_zero_is_a_limit() {
    let house = house().await;
    let control = &house.control;
    let operator = &house.operator;
    let node = Target::Node(Scope::Tenant(house.acme));
    let wanted = NodeLimits {
        requests_per_minute: Some(0),
        monthly_tokens: Some(1_000),
        ..NodeLimits::default()
    };
    let version = control.set_limits(operator, &node, 0, &wanted, now()).await.unwrap();
    let view = control.limits_of(operator, &node).await.unwrap();
    assert_eq!((view.plain.clone(), view.version), (wanted.clone(), version));

    // Saying the same again changes nothing.
    let entries = house.audited().await.len();
    let same = control
        .set_limits(operator, &node, version, &wanted, now())
        .await
        .unwrap();
    assert_eq!(same, version);
    assert_eq!(house.audited().await.len(), entries);

    // Refinements of a limit survive the plain form.
    let refined = LimitDraft {
        window_seconds: 60,
        ..hourly(7)
    };
    let version = control
        .set_limit(operator, &node, version, &refined, now())
        .await
        .unwrap();
    let cleared = NodeLimits {
        requests_per_minute: Some(8),
        ..NodeLimits::default()
    };
    let version = control
        .set_limits(operator, &node, version, &cleared, now())
        .await
        .unwrap();
    let view = control.limits_of(operator, &node).await.unwrap();
    assert_eq!(view.version, version);
    assert_eq!(view.limits.len(), 1);
    assert_eq!(view.limits[0].value, 8);
    assert_eq!(view.limits[0].mode, Mode::Rehearse);
    assert!(view.limits[0].gates.is_some());

    // What gateways hear.
    let changes = house.store.policy_changes(0).await.unwrap().unwrap();
    let in_force: Vec<_> = changes.limits.iter().filter(|row| row.removed_at.is_none()).collect();
    assert_eq!(in_force.len(), 1);
    assert_eq!(in_force[0].limit.value, 8);
}

#[tokio::test]
async fn limits_sit_on_nodes_that_exist_and_are_seen_by_those_they_concern() {
    let house = house().await;
    let control = &house.control;
    let issued = house.issue(&house.member, Priority::Low).await.unwrap().row;
    let limits = NodeLimits {
        concurrency: Some(3),
        ..NodeLimits::default()
    };
    let member_id = house.member.person_id().unwrap().to_string();
    let own_key = Target::Node(Scope::Key(issued.id));
    let own_user = Target::Node(Scope::User(house.acme, member_id.as_str().into()));
    let of_tenant = Target::Node(Scope::Tenant(house.acme));
    for target in [
        own_key.clone(),
        own_user.clone(),
        of_tenant.clone(),
        Target::Node(Scope::Global),
        Target::Node(Scope::Model("gpt".into())),
        Target::Node(Scope::Upstream(house.upstream)),
        Target::OfTenant(house.acme, Class::Key),
    ] {
        control
            .set_limits(&house.operator, &target, 0, &limits, now())
            .await
            .unwrap();
        assert_eq!(control.limits_of(&house.auditor, &target).await.unwrap().plain, limits);
        assert_refused("stranger", control.limits_of(&house.stranger, &target).await);
        assert_refused(
            "other manager",
            control.limits_of(&house.foreign_manager, &target).await,
        );
        let of_member = control.limits_of(&house.member, &target).await;
        let of_colleague = control.limits_of(&house.colleague, &target).await;
        assert_eq!(of_member.is_ok(), target == own_key || target == own_user, "{target:?}");
        assert!(of_colleague.is_err(), "{target:?}");
    }
    for missing in [
        Target::Node(Scope::Key(KeyId(Uuid::nil()))),
        Target::Node(Scope::Tenant(NO_TENANT)),
        Target::Node(Scope::Model("none".into())),
        Target::Node(Scope::ModelGroup("none".into())),
        Target::Node(Scope::Upstream(UpstreamId(Uuid::nil()))),
    ] {
        let answer = control.set_limits(&house.operator, &missing, 0, &limits, now()).await;
        assert!(
            matches!(answer, Err(ControlError::NotFound { .. })),
            "{missing:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_tenants_form_is_saved_whole_or_not_at_all() {
    let house = house().await;
    let control = &house.control;
    let read = control.tenant(&SYSTEM, house.acme, now()).await.unwrap().versions();
    let taken = TenantDraft {
        limits: NodeLimits {
            concurrency: Some(5),
            ..NodeLimits::default()
        },
        ..tenant("oTHER")
    };
    assert_field(
        "name",
        control.edit_tenant(&SYSTEM, house.acme, read, &taken, now()).await,
    );
    let view = control.tenant(&SYSTEM, house.acme, now()).await.unwrap();
    assert_eq!(view.versions(), read);
    assert_eq!(view.limits.plain, NodeLimits::default());
    assert_field("name", control.create_tenant(&SYSTEM, &tenant("acme"), now()).await);
    let out_of_range = TenantDraft {
        limits: NodeLimits {
            request_seconds: Some(0),
            ..NodeLimits::default()
        },
        ..tenant("")
    };
    let answer = control.create_tenant(&SYSTEM, &out_of_range, now()).await.unwrap_err();
    assert_eq!(answer.fields().len(), 2, "every field is told at once: {answer}");

    control
        .suspend_tenant(&house.operator, house.acme, read.tenant, now())
        .await
        .unwrap();
    let view = control.tenant(&house.manager, house.acme, now()).await.unwrap();
    assert_eq!(view.row.tenant.suspended_at, Some(now()));
    control
        .resume_tenant(&house.operator, house.acme, view.row.version, now())
        .await
        .unwrap();
    assert_refused(
        "other manager",
        control.tenant(&house.foreign_manager, house.acme, now()).await,
    );
    assert_eq!(control.tenants(&house.manager, now()).await.unwrap().len(), 1);
    assert_eq!(control.tenants(&house.auditor, now()).await.unwrap().len(), 2);
    assert_refused("member", control.tenants(&house.member, now()).await);
}

#[tokio::test]
async fn shutting_somebody_out_ends_their_keys_and_links_but_never_the_last_operator() {
    let house = house().await;
    let control = &house.control;
    let issued = house.issue(&house.member, Priority::Low).await.unwrap().row;
    let mia = house.person(&house.member).await;
    let link = control
        .create_password_link(&house.manager, mia.id, now())
        .await
        .unwrap();
    control
        .disable_person(&house.manager, mia.id, mia.version, Kept::default(), now())
        .await
        .unwrap();
    assert!(control.person_by_id(mia.id).await.unwrap().is_none());
    assert!(control.key(&SYSTEM, issued.id).await.unwrap().revoked_at.is_some());
    let answer = control
        .accept_invitation(link.token.reveal(), PASSWORD, None, now())
        .await;
    assert!(matches!(answer, Err(ControlError::LinkEnded)), "{answer:?}");
    assert_field("owner", house.issue(&house.member, Priority::Low).await);
    let mia = house.person(&house.member).await;
    control
        .enable_person(&house.manager, mia.id, mia.version, now())
        .await
        .unwrap();
    assert!(control.person_by_id(mia.id).await.unwrap().is_some());

    let cora = house.person(&house.colleague).await;
    for actor in [&house.foreign_manager, &house.member, &house.auditor] {
        assert_refused(
            "disable",
            control
                .disable_person(actor, cora.id, cora.version, Kept::default(), now())
                .await,
        );
    }
    let manuel = house.person(&house.manager).await;
    let own = control
        .disable_person(&house.manager, manuel.id, manuel.version, Kept::default(), now())
        .await;
    assert_field("person", own);

    let root = control
        .create_operator(&SYSTEM, "Root", "root@example.com", PASSWORD, now())
        .await
        .unwrap();
    assert_field(
        "person",
        control
            .disable_person(&SYSTEM, root.id, root.version, Kept::default(), now())
            .await,
    );
    control
        .create_operator(&SYSTEM, "Second", "second@example.com", PASSWORD, now())
        .await
        .unwrap();
    control
        .disable_person(&SYSTEM, root.id, root.version, Kept::default(), now())
        .await
        .unwrap();
    let answer = control.sign_in("root@example.com", PASSWORD, None, now()).await;
    assert!(matches!(answer, Err(SignInError::Refused)), "{answer:?}");
}

#[tokio::test]
async fn a_manager_invites_into_their_own_tenant_only() {
    let house = house().await;
    let control = &house.control;
    let new = |role, tenant| person(role, tenant, "newcomer");
    let other = control.own_tenant(&house.stranger).await.unwrap().unwrap().tenant.id;
    for draft in [
        new(Role::Member, Some(other)),
        new(Role::Auditor, None),
        new(Role::Operator, None),
    ] {
        assert_refused("manager", control.invite_person(&house.manager, &draft, now()).await);
    }
    let draft = new(Role::Member, Some(house.acme));
    assert_refused("member", control.invite_person(&house.member, &draft, now()).await);
    control.invite_person(&house.manager, &draft, now()).await.unwrap();
    assert_field("email", control.invite_person(&house.manager, &draft, now()).await);
    assert_field(
        "tenant_id",
        control
            .invite_person(&house.operator, &new(Role::Member, None), now())
            .await,
    );
    let missing = new(Role::Member, Some(NO_TENANT));
    assert_field(
        "tenant_id",
        control.invite_person(&house.operator, &missing, now()).await,
    );
    assert_eq!(control.people(&house.manager, None).await.unwrap().len(), 4);
    assert_refused("other tenant", control.people(&house.manager, Some(other)).await);
    assert_refused("member", control.people(&house.member, None).await);
}

#[tokio::test]
async fn prices_follow_each_other_without_gap_or_overlap() {
    let house = house().await;
    let control = &house.control;
    let operator = &house.operator;
    let validity = || async {
        let prices = control.prices(operator, "gpt").await.unwrap();
        prices
            .iter()
            .map(|stored| {
                let price = &stored.price;
                let hours = |at: DateTime<Utc>| (at - now()).num_hours();
                (
                    price.rates.input_nanos_per_mtok,
                    hours(price.valid_from),
                    price.valid_until.map(hours),
                )
            })
            .collect::<Vec<_>>()
    };
    let at = |hours| Some(now() + Duration::hours(hours));
    control
        .add_price(operator, "gpt", &price(None, 1), now())
        .await
        .unwrap();
    control
        .add_price(operator, "gpt", &price(at(10), 3), now())
        .await
        .unwrap();
    let middle = control
        .add_price(operator, "gpt", &price(at(5), 2), now())
        .await
        .unwrap();
    assert_eq!(validity().await, [(3, 10, None), (2, 5, Some(10)), (1, 0, Some(5))]);
    assert_field(
        "valid_from",
        control.add_price(operator, "gpt", &price(at(5), 9), now()).await,
    );
    assert_field(
        "valid_from",
        control.add_price(operator, "gpt", &price(at(-1), 9), now()).await,
    );
    control.remove_price(operator, middle, now()).await.unwrap();
    assert_eq!(validity().await, [(3, 10, None), (1, 0, Some(10))]);
    let row = control
        .model(&house.auditor, "gpt", now() + Duration::hours(11))
        .await
        .unwrap();
    assert_eq!(row.price.unwrap().rates.input_nanos_per_mtok, 3);
    let for_members = control.models(&house.member, now()).await.unwrap();
    assert_eq!(for_members[0].price.as_ref().unwrap().rates.input_nanos_per_mtok, 1);
    assert!(
        for_members[0].model.routes.is_empty(),
        "routes are none of a member's business"
    );
}

fn load(models: &[&str], exchange: &str) -> CatalogueLoad {
    CatalogueLoad {
        models: models.iter().map(|name| (*name).to_owned()).collect(),
        exchange: (!exchange.is_empty()).then(|| exchange.parse().unwrap()),
        ..CatalogueLoad::default()
    }
}

#[tokio::test]
async fn the_catalogue_adds_what_is_missing_and_prices_what_is_there() {
    let house = house().await;
    let control = &house.control;
    let operator = &house.operator;
    let presence = async |name: &str, at: DateTime<Utc>| {
        let exchange = Some("0.92".parse().unwrap());
        let view = control.catalogue(&house.auditor, exchange, at).await.unwrap();
        let entry = view.entries.into_iter().find(|entry| entry.model.name == name);
        entry.unwrap().presence
    };
    let there = model("gpt-4o-mini", house.upstream);
    control.create_model(operator, &there, now()).await.unwrap();
    assert_eq!(presence("gpt-4o", now()).await, Presence::Absent);
    assert_eq!(presence("gpt-4o-mini", now()).await, Presence::Unpriced);

    let before = house.audited().await.len();
    let asked = CatalogueLoad {
        openai_upstream: Some(house.upstream),
        ..load(&["gpt-4o-mini", "claude-haiku-5-5", "gpt-4o"], "0.92")
    };
    let loaded = control.load_catalogue(operator, &asked, now()).await.unwrap();
    assert_eq!(loaded.created, ["gpt-4o", "claude-haiku-5-5"]);
    assert_eq!(loaded.priced, ["gpt-4o-mini"]);
    assert_eq!(house.audited().await.len(), before + 5, "two models and three prices");

    let row = control.model(operator, "gpt-4o", now()).await.unwrap();
    let price = row.price.unwrap();
    assert_eq!(price.valid_from, now());
    assert_eq!(price.rates.input_nanos_per_mtok, 2_300_000_000);
    assert_eq!(price.rates.cache_read_nanos_per_mtok, 1_150_000_000);
    assert_eq!(row.model.routes[0].upstream_id, house.upstream);
    let routeless = control.model(operator, "claude-haiku-5-5", now()).await.unwrap();
    assert!(routeless.model.routes.is_empty());
    assert_eq!(
        routeless.price.unwrap().tiers[0].rates.output_nanos_per_mtok,
        2_300_000_000
    );
    let kept = control.model(operator, "gpt-4o-mini", now()).await.unwrap();
    assert_eq!((kept.model.context_tokens, kept.version), (there.context_tokens, 1));
    assert_eq!(presence("gpt-4o", now()).await, Presence::SamePrice);

    let again = control.load_catalogue(operator, &asked, later(1)).await.unwrap();
    assert_eq!(again.unchanged, ["gpt-4o", "gpt-4o-mini", "claude-haiku-5-5"]);
    assert_eq!(house.audited().await.len(), before + 5);
    control
        .add_price(operator, "gpt-4o", &price_of(later(2)), later(2))
        .await
        .unwrap();
    assert!(matches!(presence("gpt-4o", later(3)).await, Presence::OtherPrice(_)));
    let again = control.load_catalogue(operator, &asked, later(3)).await.unwrap();
    assert_eq!(again.priced, ["gpt-4o"]);
}

fn price_of(valid_from: DateTime<Utc>) -> PriceDraft {
    price(Some(valid_from), 1)
}

#[tokio::test]
async fn the_catalogue_is_loaded_whole_or_not_at_all_and_by_operators_only() {
    let house = house().await;
    let control = &house.control;
    let before = house.audited().await.len();
    let refused = async |actor: &Actor, asked: CatalogueLoad| control.load_catalogue(actor, &asked, now()).await;
    let anthropic = CatalogueLoad {
        anthropic_upstream: Some(house.upstream),
        ..load(&["claude-opus-5-5"], "0.92")
    };
    for (field, asked) in [
        ("exchange", load(&["gpt-4o"], "")),
        ("models", load(&[], "0.92")),
        ("models", load(&["gpt-4o", "made-up"], "0.92")),
        ("anthropic_upstream", anthropic),
    ] {
        assert_field(field, refused(&house.operator, asked).await);
    }
    for actor in [&house.auditor, &house.manager, &house.member] {
        assert_refused("load", refused(actor, load(&["gpt-4o"], "0.92")).await);
    }
    for actor in [&house.manager, &house.member] {
        assert_refused("list", control.catalogue(actor, None, now()).await);
    }
    // The second of three cannot have another price at this very time.
    control
        .create_model(&house.operator, &model("gpt-4.1", house.upstream), now())
        .await
        .unwrap();
    control
        .add_price(&house.operator, "gpt-4.1", &price_of(now()), now())
        .await
        .unwrap();
    let all = load(&["gpt-5.1", "gpt-4.1", "gpt-4o"], "0.92");
    assert_field("valid_from", refused(&house.operator, all).await);
    let view = control.catalogue(&house.operator, None, now()).await.unwrap();
    assert_eq!((view.currency.as_str(), view.exchange), ("EUR", None));
    let there = view.entries.iter().filter(|entry| entry.presence != Presence::Absent);
    assert_eq!(there.count(), 1, "gpt-4.1, which was there before");
    assert_eq!(house.audited().await.len(), before + 2);
}

#[tokio::test]
async fn a_model_is_checked_with_its_routes() {
    let house = house().await;
    let control = &house.control;
    let operator = &house.operator;
    let upstream = house.upstream;
    assert_field(
        "name",
        control.create_model(operator, &model("gpt", upstream), now()).await,
    );
    assert_field(
        "name",
        control
            .create_model(operator, &model("two words", upstream), now())
            .await,
    );
    let lost = model("lost", UpstreamId(Uuid::nil()));
    assert_field("routes", control.create_model(operator, &lost, now()).await);
    let mut twice = model("twice", upstream);
    twice.routes.push(twice.routes[0].clone());
    assert_field(
        "routes.1.upstream_model",
        control.create_model(operator, &twice, now()).await,
    );
    let mut large = model("large", upstream);
    large.output_cap_tokens = large.context_tokens + 1;
    assert_field("output_cap_tokens", control.create_model(operator, &large, now()).await);

    let mut hidden = model("gpt", upstream);
    hidden.is_disabled = true;
    hidden.group = Some("GPT-class".to_owned());
    control.edit_model(operator, 1, &hidden, now()).await.unwrap();
    assert!(control.models(&house.member, now()).await.unwrap().is_empty());
    let changes = house.store.policy_changes(0).await.unwrap().unwrap();
    assert_eq!(changes.models[0].disabled_at, Some(now()));
    assert_eq!(changes.models[0].routes.len(), 1);
    let group = Target::Node(Scope::ModelGroup("GPT-class".into()));
    control
        .set_limits(operator, &group, 0, &NodeLimits::default(), now())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_credential_stays_with_its_address_and_opens_only_with_the_secret_key() {
    let house = house().await;
    let control = &house.control;
    let id = house.upstream;
    let opened = || async {
        let upstreams = house.store.policy_changes(0).await.unwrap().unwrap().upstreams;
        let sealed = upstreams[0].credential_sealed.clone()?;
        let key = SecretKey::from_bytes([7; 32]);
        Some(String::from_utf8(key.open(Purpose::UpstreamCredential, &id.to_string(), &sealed).unwrap()).unwrap())
    };
    assert_eq!(opened().await.as_deref(), Some(CREDENTIAL));
    let edit = |version, base_url: &str, credential| {
        let draft = UpstreamDraft {
            base_url: base_url.to_owned(),
            credential,
            ..upstream_draft("Renamed")
        };
        let (control, operator) = (control.clone(), house.operator.clone());
        async move { control.edit_upstream(&operator, id, version, &draft, now()).await }
    };
    edit(1, "https://api.example.com/v2", CredentialChange::Keep)
        .await
        .unwrap();
    assert_eq!(opened().await.as_deref(), Some(CREDENTIAL));
    let moved = edit(2, "https://evil.example/v2", CredentialChange::Keep).await;
    assert_field("credential", moved);
    let replaced = CredentialChange::Replace("another".to_owned());
    edit(2, "https://new.example/v2", replaced).await.unwrap();
    assert_eq!(opened().await.as_deref(), Some("another"));
    edit(3, "https://new.example/v2", CredentialChange::Clear)
        .await
        .unwrap();
    assert_eq!(opened().await, None);
    assert!(!control.upstream(&house.auditor, id).await.unwrap().has_credential);
    assert_refused("member", control.upstreams(&house.member).await);
    let draft = UpstreamDraft {
        base_url: "https://user:secret@example.com".to_owned(),
        ..upstream_draft("provider two")
    };
    assert_field(
        "base_url",
        control.create_upstream(&house.operator, &draft, now()).await,
    );
}

#[tokio::test]
async fn no_secret_is_in_the_database_and_every_change_is_in_the_audit_log() {
    let house = house().await;
    let control = &house.control;
    let issued = house.issue(&house.member, Priority::Low).await.unwrap();
    let invited = control
        .invite_person(&house.manager, &person(Role::Member, Some(house.acme), "nina"), now())
        .await
        .unwrap();
    control
        .accept_invitation(invited.token.reveal(), PASSWORD, Some("192.0.2.8".to_owned()), now())
        .await
        .unwrap();
    let link = control
        .create_password_link(&house.manager, invited.person.id, now())
        .await
        .unwrap();

    let text = everything_stored(&house.database).await;
    assert!(text.contains(issued.text.public_id()), "the search finds what is there");
    let secret = issued.text.reveal().rsplit('-').next().unwrap();
    for secret in [
        secret,
        invited.token.reveal(),
        link.token.reveal(),
        PASSWORD,
        CREDENTIAL,
    ] {
        assert!(!text.contains(secret), "in clear: {secret}");
        let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.to_lowercase().contains(&hexadecimal), "as bytes: {secret}");
    }

    let filter = AuditFilter {
        count: 200,
        ..AuditFilter::default()
    };
    let entries = control.audit_entries(&house.auditor, filter.clone()).await.unwrap();
    let issue = entries.iter().find(|entry| entry.action == "key.issue").unwrap();
    assert_eq!(issue.actor, "mia@example.com");
    assert_eq!(issue.peer.as_deref(), Some("192.0.2.7"));
    assert_eq!(issue.tenant_id, Some(house.acme));
    assert_eq!(issue.subject, format!("key:{}", issued.row.id));
    assert_eq!(issue.after.as_ref().unwrap()["priority"], "low");
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    for action in [
        "tenant.create",
        "person.invite",
        "person.choose_password",
        "person.link",
        "upstream.create",
        "model.create",
        "key.issue",
    ] {
        assert!(actions.contains(&action), "{action} is missing in {actions:?}");
    }
    let for_manager = control.audit_entries(&house.manager, filter.clone()).await.unwrap();
    assert!(!for_manager.is_empty());
    assert!(for_manager.iter().all(|entry| entry.tenant_id == Some(house.acme)));
    assert_refused("member", control.audit_entries(&house.member, filter.clone()).await);

    // Pages follow each other without loss.
    let mut seen = 0;
    let mut before = None;
    loop {
        let page = AuditFilter {
            before,
            count: 3,
            ..AuditFilter::default()
        };
        let page = control.audit_entries(&house.auditor, page).await.unwrap();
        seen += page.len();
        match page.last() {
            Some(last) => before = Some((last.at, last.id)),
            None => break,
        }
    }
    assert_eq!(seen, entries.len());
}

/// Every row of every table as text, bytes as hexadecimal digits.
async fn everything_stored(database: &TestDatabase) -> String {
    let mut connection = database.connect().await;
    sqlx::query("set xmlbinary to hex")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query_scalar("select database_to_xml(true, false, '')::text")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

/// A request of the given key's owner that cost so much.
fn settlement(tenant: TenantId, owner: Option<PersonId>, key: KeyId, cost: i64, seq: u8) -> Settlement {
    Settlement {
        identity: Identity {
            id: RequestId::new(now(), [seq; 10]),
            tenant_id: tenant,
            user_id: owner.map(|owner| owner.to_string()),
            key_id: key,
            model: Some("gpt".into()),
            dialect: Dialect::Openai,
            endpoint: "chat/completions".to_owned(),
            priority: Priority::Default,
            is_streamed: false,
            tags: Default::default(),
            instance: "one".to_owned(),
            user_agent: None,
            job_id: None,
        },
        admitted_at: now(),
        settled_at: now(),
        upstream_id: None,
        upstream_model: None,
        upstream_request_id: None,
        outcome: Outcome::Completed,
        status: Some(200),
        attempts: Vec::new(),
        usage: TokenUsage {
            input_fresh_tokens: 10,
            output_tokens: 5,
            ..TokenUsage::default()
        },
        usage_source: UsageSource::Reported,
        expected_input_tokens: 10,
        expected_output_tokens: 5,
        expected_cost_nanos: Nanos(cost),
        ceiling_input_tokens: 10,
        ceiling_output_tokens: 5,
        ceiling_cost_nanos: Nanos(cost),
        cost_nanos: Nanos(cost),
        overrun_nanos: Nanos::ZERO,
        price_id: None,
        is_unpriced: false,
        queue_ms: 0,
        first_byte_ms: Some(1),
        total_ms: 2,
        rehearsed: Vec::new(),
    }
}

#[tokio::test]
async fn everybody_reads_only_what_is_theirs() {
    let house = house().await;
    let control = &house.control;
    let mine = house.issue(&house.member, Priority::Default).await.unwrap().row;
    let theirs = house.issue(&house.colleague, Priority::Default).await.unwrap().row;
    let other = control.own_tenant(&house.stranger).await.unwrap().unwrap().tenant.id;
    let foreign_owner = KeyOwner::Person(house.stranger.person_id().unwrap());
    let foreign = control
        .issue_key(&house.stranger, other, foreign_owner, &key(Priority::Low), now())
        .await
        .unwrap()
        .row;
    let entries = [
        settlement(house.acme, mine.owner_id, mine.id, 1_000_000_001, 1),
        settlement(house.acme, theirs.owner_id, theirs.id, 2_000_000_002, 2),
        settlement(other, foreign.owner_id, foreign.id, 4_000_000_004, 3),
    ];
    let batch = ShipBatch {
        previous_seq: 0,
        last_seq: 3,
        settlements: entries.iter().collect(),
        rejections: Vec::new(),
    };
    house.store.ensure_partitions(now()).await.unwrap();
    house.store.ship_ledger("one", &batch).await.unwrap();

    let expected = [
        ("operator", &house.operator, 7_000_000_007, 3),
        ("auditor", &house.auditor, 7_000_000_007, 3),
        ("manager", &house.manager, 3_000_000_003, 2),
        ("member", &house.member, 1_000_000_001, 1),
        ("colleague", &house.colleague, 2_000_000_002, 1),
        ("stranger", &house.stranger, 4_000_000_004, 1),
    ];
    let query = MonthlyQuery {
        month: Month::containing(now(), chrono_tz::Europe::Berlin),
        filter: ReportFilter::default(),
        grouping: Grouping {
            key: true,
            ..Grouping::NONE
        },
    };
    for (who, actor, charged, count) in expected {
        let view = control
            .overview(actor, &ReportFilter::default(), later(1))
            .await
            .unwrap();
        assert_eq!(view.overview.totals.charged(), Nanos(charged), "{who}");
        let report = control.monthly_report(actor, &query, later(1)).await.unwrap();
        assert_eq!(report.report.rows.len(), count, "{who}");
        assert_eq!(report.report.totals.charged(), Nanos(charged), "{who}");
        let page = control
            .ledger_entries(actor, &EntryFilter::default(), None, 50)
            .await
            .unwrap();
        assert_eq!(page.entries.len(), count, "{who}");

        // The file says the same as the page and the ledger, to the last digit.
        let mut csv = control.monthly_csv(actor, &query, later(1)).await.unwrap();
        assert_eq!(csv.file_name, "tollgate-usage-2026-11-open-by-key.csv");
        let mut text = Vec::new();
        while let Some(piece) = csv.bytes.next().await {
            text.extend(piece.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = lines[0].iter().position(|name| *name == "charged_eur").unwrap();
        let (last, rows) = lines[1..].split_last().unwrap();
        let amount = |line: &Vec<&str>| line[column].parse::<Nanos>().unwrap();
        assert_eq!(rows.iter().map(amount).sum::<Nanos>(), Nanos(charged), "{who}");
        assert_eq!((last[0], last[1]), ("total", count.to_string().as_str()), "{who}");
        assert_eq!(amount(last), Nanos(charged), "{who}");
    }

    // Asking for somebody else's.
    let of_acme = ReportFilter {
        tenant: Some(house.acme),
        ..ReportFilter::default()
    };
    let of_colleague = ReportFilter {
        owner: house.colleague.person_id(),
        ..ReportFilter::default()
    };
    assert_refused(
        "overview",
        control.overview(&house.foreign_manager, &of_acme, now()).await,
    );
    assert_refused("overview", control.overview(&house.member, &of_colleague, now()).await);
    let of_key = ReportFilter {
        key: Some(theirs.id),
        ..ReportFilter::default()
    };
    let view = control.overview(&house.member, &of_key, now()).await.unwrap();
    assert_eq!(view.overview.totals.requests, 0);
    let id = entries[1].identity.id;
    assert_refused("entry", control.ledger_entry(&house.member, id).await);
    control.ledger_entry(&house.manager, id).await.unwrap();
    assert_refused("instances", control.instances(&house.manager).await);
    let summaries = control.tenants(&house.operator, later(1)).await.unwrap();
    let spent: Nanos = summaries.iter().map(|summary| summary.spent.cost).sum();
    assert_eq!(spent, Nanos(7_000_000_007));
}

#[tokio::test]
async fn reports_by_tag_agree_with_the_month_and_with_what_each_may_see() {
    let house = house().await;
    let control = &house.control;
    let mine = house.issue(&house.member, Priority::Default).await.unwrap().row;
    let theirs = house.issue(&house.colleague, Priority::Default).await.unwrap().row;
    let other = control.own_tenant(&house.stranger).await.unwrap().unwrap().tenant.id;
    let foreign_owner = KeyOwner::Person(house.stranger.person_id().unwrap());
    let foreign = control
        .issue_key(&house.stranger, other, foreign_owner, &key(Priority::Low), now())
        .await
        .unwrap()
        .row;
    let tagged = |tenant, key: &KeyRow, cost, seq, tags: &[(&str, &str)]| {
        let mut entry = settlement(tenant, key.owner_id, key.id, cost, seq);
        let tags = tags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        entry.identity.tags = tags.collect();
        entry
    };
    let search = ("project", "search");
    let entries = [
        tagged(house.acme, &mine, 1_000_000_000, 1, &[search, ("team", "web")]),
        tagged(house.acme, &mine, 2_000_000_000, 2, &[]),
        tagged(house.acme, &theirs, 4_000_000_000, 3, &[search]),
        tagged(house.acme, &theirs, 8_000_000_000, 4, &[("project", "")]),
        tagged(other, &foreign, 16_000_000_000, 5, &[("secret-plan", "merger")]),
    ];
    let batch = ShipBatch {
        previous_seq: 0,
        last_seq: 5,
        settlements: entries.iter().collect(),
        rejections: Vec::new(),
    };
    house.store.ensure_partitions(now()).await.unwrap();
    house.store.ship_ledger("one", &batch).await.unwrap();

    let month = Month::containing(now(), chrono_tz::Europe::Berlin);
    let by_project = MonthlyTagQuery {
        month,
        tenant: None,
        name: "project".to_owned(),
    };
    let whole_month = MonthlyQuery {
        month,
        filter: ReportFilter::default(),
        grouping: Grouping::NONE,
    };
    // Values with what they cost in units, and what has no project.
    type Values<'a> = &'a [(&'a str, i64)];
    let expected: [(_, _, Values<'_>, i64, &[&str]); 6] = [
        (
            "operator",
            &house.operator,
            &[("", 8), ("search", 5)],
            18,
            &["project", "secret-plan", "team"],
        ),
        (
            "auditor",
            &house.auditor,
            &[("", 8), ("search", 5)],
            18,
            &["project", "secret-plan", "team"],
        ),
        (
            "manager",
            &house.manager,
            &[("", 8), ("search", 5)],
            2,
            &["project", "team"],
        ),
        ("member", &house.member, &[("search", 1)], 2, &["project", "team"]),
        (
            "colleague",
            &house.colleague,
            &[("", 8), ("search", 4)],
            0,
            &["project"],
        ),
        ("stranger", &house.stranger, &[], 16, &["secret-plan"]),
    ];
    for (who, actor, values, without, names) in expected {
        let report = control
            .monthly_tag_report(actor, &by_project, later(1))
            .await
            .unwrap()
            .report;
        let found: Vec<_> = report
            .rows
            .iter()
            .map(|row| (row.value.as_str(), row.totals.cost))
            .collect();
        let wanted: Vec<_> = values
            .iter()
            .map(|(value, units)| (*value, Nanos::from_units(*units)))
            .collect();
        assert_eq!(found, wanted, "{who}");
        assert_eq!(report.without.cost, Nanos::from_units(without), "{who}");
        let sum: Nanos = report.rows.iter().map(|row| row.totals.cost).sum();
        assert_eq!(sum + report.without.cost, report.totals.cost, "{who}");
        let requests: u64 = report.rows.iter().map(|row| row.totals.requests).sum();
        assert_eq!(requests + report.without.requests, report.totals.requests, "{who}");
        let month_total = control
            .monthly_report(actor, &whole_month, later(1))
            .await
            .unwrap()
            .report
            .totals;
        assert_eq!(report.totals, TagTotals::of(&month_total), "{who}");
        assert_eq!(control.tag_names(actor, month, None).await.unwrap(), names, "{who}");

        let csv = control.monthly_tag_csv(actor, &by_project, later(1)).await.unwrap();
        assert_eq!(csv.file_name, "tollgate-usage-2026-11-open-by-tag-project.csv");
        let text = csv.bytes.map(Result::unwrap).concat().await;
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let cost = lines[0].iter().position(|name| *name == "cost_eur").unwrap();
        let costs: Vec<Nanos> = lines[1..].iter().map(|line| line[cost].parse().unwrap()).collect();
        let (total, rows) = costs.split_last().unwrap();
        assert_eq!(rows.len(), values.len() + 1, "{who}");
        assert_eq!(rows.iter().copied().sum::<Nanos>(), *total, "{who}");
        assert_eq!(*total, report.totals.cost, "{who}");

        let filter = EntryFilter {
            tag: Some(("project".to_owned(), "search".to_owned())),
            ..EntryFilter::default()
        };
        let page = control.ledger_entries(actor, &filter, None, 50).await.unwrap();
        let cost: Nanos = page
            .entries
            .iter()
            .map(|named| match &named.entry {
                LedgerEntry::Settlement(entry) => entry.cost_nanos,
                LedgerEntry::Rejection(_) => Nanos::ZERO,
            })
            .sum();
        let of_search = wanted.iter().find(|(value, _)| *value == "search");
        assert_eq!(cost, of_search.map_or(Nanos::ZERO, |(_, cost)| *cost), "{who}");
    }

    let of_acme = MonthlyTagQuery {
        tenant: Some(house.acme),
        ..by_project.clone()
    };
    assert_refused(
        "report",
        control.monthly_tag_report(&house.stranger, &of_acme, now()).await,
    );
    assert_refused(
        "file",
        control.monthly_tag_csv(&house.foreign_manager, &of_acme, now()).await,
    );
    assert_refused(
        "names",
        control.tag_names(&house.stranger, month, Some(house.acme)).await,
    );
    let report = control
        .monthly_tag_report(&house.operator, &of_acme, later(1))
        .await
        .unwrap()
        .report;
    assert_eq!(report.totals.cost, Nanos::from_units(15));
}

#[tokio::test]
async fn a_manager_or_member_without_a_tenant_may_nothing() {
    let house = house().await;
    let Actor::Person(mia) = &house.member else { panic!() };
    for role in [Role::Manager, Role::Member] {
        let lost = Actor::Person(PersonActor {
            role,
            tenant_id: None,
            ..mia.clone()
        });
        let control = &house.control;
        assert_refused("keys", control.keys(&lost, KeyFilter::default()).await);
        assert_refused("tenants", control.tenants(&lost, now()).await);
        assert_refused("models", control.models(&lost, now()).await);
        assert_refused("people", control.people(&lost, None).await);
        let answer = control.ledger_entries(&lost, &EntryFilter::default(), None, 1).await;
        assert_refused("ledger", answer);
    }
}
