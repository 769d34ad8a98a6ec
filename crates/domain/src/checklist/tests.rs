use super::*;
use crate::instances::QueueStatus;

fn now() -> DateTime<Utc> {
    "2026-12-01T12:00:00Z".parse().expect("an instant")
}

fn gateway(name: &str) -> Gateway {
    Gateway {
        name: name.to_owned(),
        seen_at: now(),
        status: InstanceStatus {
            counters: "redis".to_owned(),
            queue: QueueStatus {
                timeout_ms: 10_000,
                ..QueueStatus::default()
            },
            setup: Some(Setup {
                has_private_postgres: false,
                data_dir: DataDirKind::Disk,
                has_given_secret_key: true,
                public_origin: Some("https://tollgate.example.com".to_owned()),
                request_timeout_ms: 600_000,
            }),
            clock_ahead_ms: Some(-3),
            redis_eviction: Some("noeviction".to_owned()),
            ..InstanceStatus::default()
        },
    }
}

fn facts(gateways: Vec<Gateway>) -> Facts {
    Facts {
        now: now(),
        gateways,
        webhook: Webhook::Delivered,
        backups: Backups::Archived,
    }
}

fn to_do(facts: &Facts) -> Vec<(Subject, String)> {
    checklist(facts)
        .into_iter()
        .filter(|item| item.state == State::ToDo)
        .map(|item| (item.subject, item.found.to_string()))
        .collect()
}

/// What is to be done once one of two gateways is different.
fn with(change: impl FnOnce(&mut InstanceStatus)) -> Vec<(Subject, String)> {
    let mut other = gateway("b");
    change(&mut other.status);
    to_do(&facts(vec![gateway("a"), other]))
}

fn setup(change: impl FnOnce(&mut Setup)) -> Vec<(Subject, String)> {
    with(|status| change(status.setup.as_mut().expect("a setup")))
}

#[test]
fn an_installation_that_is_fit_has_nothing_to_do() {
    let items = checklist(&facts(vec![gateway("a"), gateway("b")]));
    assert_eq!(items.len(), 10);
    for item in &items {
        assert_eq!(item.state, State::Good, "{item:?}");
        assert!(!item.subject.advice().to_string().is_empty() && !item.subject.meaning().to_string().is_empty());
    }
}

#[test]
fn each_fault_is_named_with_the_gateway_that_has_it() {
    let cases = [
        (
            with(|status| status.counters = "memory".to_owned()),
            Subject::Counters,
            "2 gateways run, and one counts in memory: b.",
        ),
        (
            with(|status| status.redis_eviction = Some("allkeys-lru".to_owned())),
            Subject::Eviction,
            "Redis drops keys when its memory is full: its maxmemory-policy is allkeys-lru.",
        ),
        (
            with(|status| status.clock_ahead_ms = Some(-2_340)),
            Subject::Clocks,
            "The clock of b is 2.3 s behind Postgres's.",
        ),
        (
            with(|status| status.queue.timeout_ms = 600_000),
            Subject::Queue,
            "At b requests may wait 600 s, and take 600 s altogether.",
        ),
        (
            setup(|setup| setup.has_private_postgres = true),
            Subject::Postgres,
            "b runs on the private Postgres of its data directory.",
        ),
        (
            setup(|setup| setup.data_dir = DataDirKind::Overlay),
            Subject::DataDirectory,
            "The data directory of b lies in its container's own layer (overlay).",
        ),
        (
            setup(|setup| setup.has_given_secret_key = false),
            Subject::SecretKey,
            "b runs with a key that was made in its data directory.",
        ),
        (
            setup(|setup| setup.public_origin = Some("http://10.0.0.7:8080".to_owned())),
            Subject::PublicUrl,
            "A gateway was told that people reach the console at http://10.0.0.7:8080.",
        ),
        (
            setup(|setup| setup.public_origin = None),
            Subject::PublicUrl,
            "A gateway was not told how people reach the console.",
        ),
    ];
    for (found, subject, text) in cases {
        assert_eq!(found, [(subject, text.to_owned())]);
    }
}

#[test]
fn of_several_gateways_each_has_its_own_data_directory() {
    let bad = |name: &str| {
        let mut gateway = gateway(name);
        let setup = gateway.status.setup.as_mut().expect("a setup");
        (setup.has_private_postgres, setup.has_given_secret_key) = (true, false);
        gateway
    };
    assert_eq!(
        to_do(&facts(vec![bad("a"), bad("b")])),
        [
            (
                Subject::Postgres,
                "a, b run on the private Postgres of their data directories.".to_owned()
            ),
            (
                Subject::SecretKey,
                "a, b run with keys that were made in their data directories.".to_owned()
            ),
        ]
    );
}

#[test]
fn one_gateway_may_count_in_memory_and_is_not_asked_about_redis() {
    let mut alone = gateway("a");
    alone.status.counters = "memory".to_owned();
    alone.status.redis_eviction = None;
    let mut gone = gateway("gone");
    gone.seen_at = now() - chrono::Duration::minutes(1);
    gone.status.setup = None;
    let facts = facts(vec![alone, gone]);
    assert_eq!(to_do(&facts), []);
    let items = checklist(&facts);
    assert!(items.iter().all(|item| item.subject != Subject::Eviction));
}

#[test]
fn what_nobody_tells_is_not_known_and_what_does_not_apply_is_left_out() {
    let mut silent = facts(Vec::new());
    silent.backups = Backups::Unknown;
    let items = checklist(&silent);
    assert!(items.iter().all(|item| item.subject != Subject::Backups));
    let known: Vec<Subject> = items
        .iter()
        .filter(|item| item.state != State::Unknown)
        .map(|item| item.subject)
        .collect();
    assert_eq!(known, [Subject::Webhook]);
    // A gateway from before it told of its setup.
    let mut old = gateway("old");
    old.status.setup = None;
    old.status.clock_ahead_ms = None;
    assert_eq!(to_do(&facts(vec![old])), []);
}

#[test]
fn alerts_have_to_reach_somebody() {
    for (webhook, state) in [
        (Webhook::Missing, State::ToDo),
        (Webhook::Unused, State::ToDo),
        (Webhook::Failed, State::ToDo),
        (Webhook::Delivered, State::Good),
    ] {
        let facts = Facts {
            webhook,
            ..facts(vec![gateway("a")])
        };
        let items = checklist(&facts);
        let item = items
            .iter()
            .find(|item| item.subject == Subject::Webhook)
            .expect("an item");
        assert_eq!(item.state, state, "{webhook:?}");
    }
}
