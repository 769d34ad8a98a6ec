//! What one decision costs: in memory and in Redis, alone and under contention, with few and with very many live scopes.
//!
//! `cargo xtask bench limits` runs this and prints one table; `cargo bench -p limits --bench decision -- memory` only the
//! part in memory. Each figure is the median of several rounds that take turns,
//! so that a busy machine disturbs all of them alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chrono::Utc;
use chrono_tz::Tz;
use domain::budget_events::Thresholds;
use domain::estimate::{Amounts, Estimate};
use domain::ids::{KeyId, LimitId, RequestId, TenantId, UpstreamId};
use domain::limits::{Dimension, Gates, Limit, Mode, Scope, Target};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use futures_util::future::join_all;
use limits::{Admission, BudgetKey, LifeSigns, Limits, Now, RedisSettings, ScopeLimits, Settings, UpstreamCandidate};
use test_redis::RedisServer;
use uuid::Uuid;

const ROUNDS: usize = 5;
/// Decisions of one round in memory.
const IN_MEMORY: u64 = 50_000;
/// Decisions of one round in Redis, one after the other.
const IN_REDIS: u64 = 2_000;
/// Decisions at once in Redis.
const AT_ONCE: usize = 64;
const KEYS_MANY: u64 = 1_000_000;

/// Every dimension that is counted.
const DIMENSIONS: [Dimension; 7] = [
    Dimension::Requests,
    Dimension::InputTokens,
    Dimension::OutputTokens,
    Dimension::TotalTokens,
    Dimension::Concurrency,
    Dimension::BudgetTokens,
    Dimension::BudgetCost,
];

fn limit(dimension: Dimension) -> Limit {
    Limit {
        id: LimitId(Uuid::from_u128(dimension as u128 + 1)),
        target: Target::Node(Scope::Global),
        dimension,
        value: 1 << 50,
        increase: None,
        window_seconds: 60,
        burst: Some(1 << 40),
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: Some(Gates {
            lower_percent: 70,
            upper_percent: 90,
            upper_waits: false,
        }),
        thresholds: Thresholds::default(),
    }
}

/// The tree of one request: every scope with every dimension, 49 counters with the upstream's.
struct Tree {
    tenant: TenantId,
    all: Arc<[Limit]>,
}

impl Tree {
    fn new() -> Self {
        Self {
            tenant: TenantId(Uuid::from_u128(1)),
            all: DIMENSIONS.map(limit).into(),
        }
    }

    fn scopes(&self, key: u64) -> Vec<ScopeLimits> {
        let node = |scope| ScopeLimits::new(scope, Arc::clone(&self.all));
        vec![
            node(Scope::Global),
            node(Scope::ModelGroup("group".into())),
            node(Scope::Model("model".into())),
            node(Scope::Tenant(self.tenant)),
            node(Scope::User(self.tenant, "user".into())),
            ScopeLimits::of_key(
                KeyId(Uuid::from_u128(u128::from(key))),
                self.tenant,
                Arc::clone(&self.all),
            ),
        ]
    }

    fn upstreams(&self) -> Vec<UpstreamCandidate> {
        let scope = Scope::Upstream(UpstreamId(Uuid::from_u128(1)));
        vec![UpstreamCandidate {
            scope: ScopeLimits::new(scope, Arc::clone(&self.all)),
            index: 0,
        }]
    }
}

/// What a key of a busy installation has: requests and concurrency of its own under the shared scopes.
fn key_alone(tree: &Tree, key: u64) -> Vec<ScopeLimits> {
    let own: Arc<[Limit]> = [Dimension::Requests, Dimension::Concurrency].map(limit).into();
    vec![ScopeLimits::of_key(
        KeyId(Uuid::from_u128(u128::from(key))),
        tree.tenant,
        own,
    )]
}

fn admission<'a>(id: u64, scopes: &'a [ScopeLimits], upstreams: &'a [UpstreamCandidate]) -> Admission<'a> {
    let each = Amounts {
        input_tokens: 1_000,
        output_tokens: 500,
        cost: Nanos(3_000_000),
    };
    Admission {
        id: RequestId(Uuid::from_u128(u128::from(id) << 64)),
        model: "model",
        priority: Priority::Default,
        gate_priority: Priority::Default,
        estimate: Estimate {
            expected: each,
            ceiling: each,
        },
        scopes,
        upstreams,
        time_zone: Tz::UTC,
        rehearsal_percent: None,
    }
}

const ACTUAL: Amounts = Amounts {
    input_tokens: 900,
    output_tokens: 400,
    cost: Nanos(2_000_000),
};

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Now {
        Now {
            monotonic_ms: 1_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap_or(0),
            wall: Utc::now(),
        }
    }
}

impl LifeSigns for Clock {
    fn now(&self) -> Now {
        Clock::now(self)
    }

    fn last_settled(&self) -> u64 {
        0
    }

    fn policy_version(&self) -> i64 {
        1
    }
}

async fn open_budgets(limits: &Limits, scopes: &[ScopeLimits], upstreams: &[UpstreamCandidate], now: Now) {
    let marks = std::collections::BTreeMap::from([("bench".to_owned(), 0)]);
    let upstreams = upstreams.iter().map(|candidate| &candidate.scope);
    for of in scopes.iter().chain(upstreams) {
        for limit in of.limits.iter().filter(|limit| limit.dimension.is_budget()) {
            let key = BudgetKey::of(of, limit, now.wall, Tz::UTC);
            let keys = std::slice::from_ref(&key);
            limits.begin_budgets(keys, || 0, "bench", 1, Tz::UTC, now).await;
            limits.set_budget(&key, 0, &marks, "bench", Tz::UTC, now).await;
        }
    }
}

/// One request from admission to settlement.
async fn decide(limits: &Limits, admission: &Admission<'_>, now: Now) {
    let hold = limits.admit(admission, now).await.expect("room");
    hold.settle(ACTUAL, None, now).await;
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn microseconds(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_secs_f64() * 1e6 / count as f64
}

struct Table(Vec<(String, Vec<f64>)>);

impl Table {
    fn add(&mut self, name: &str, figure: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, figures)) => figures.push(figure),
            None => self.0.push((name.to_owned(), vec![figure])),
        }
    }

    fn print(self) {
        println!("| what | us |\n|---|---|");
        for (name, figures) in self.0 {
            println!("| {name} | {:.2} |", median(figures));
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let is_memory_alone = std::env::args().any(|argument| argument == "memory");
    let (tree, clock) = (Tree::new(), Arc::new(Clock(Instant::now())));
    let mut table = Table(Vec::new());
    let ids = AtomicU64::new(1);
    let next_id = || ids.fetch_add(1, Ordering::Relaxed);

    let memory = Limits::memory(Settings::default());
    let upstreams = tree.upstreams();
    let scopes = tree.scopes(0);
    open_budgets(&memory, &scopes, &upstreams, clock.now()).await;

    let many = Limits::memory(Settings::default());
    for key in 0..KEYS_MANY {
        let own = key_alone(&tree, key);
        decide(&many, &admission(next_id(), &own, &[]), clock.now()).await;
    }
    let few = Limits::memory(Settings::default());

    let server = RedisServer::start().await;
    let settings = RedisSettings {
        command_timeout_ms: 1_000,
        ..RedisSettings::new(server.url())
    };
    let redis = Limits::redis(Settings::default(), &settings, "bench").expect("settings");
    let signs: Arc<dyn LifeSigns> = Arc::<Clock>::clone(&clock);
    assert!(redis.start(signs, Duration::from_secs(5)).await, "Redis answers");
    open_budgets(&redis, &scopes, &upstreams, clock.now()).await;

    let in_redis_alone = async |name: &str, table: &mut Table| {
        let (mut admitting, mut settling) = (Vec::new(), Vec::new());
        for _ in 0..IN_REDIS {
            let now = clock.now();
            let asked = admission(next_id(), &scopes, &upstreams);
            let began = Instant::now();
            let hold = redis.admit(&asked, now).await.expect("room");
            let admitted = Instant::now();
            hold.settle(ACTUAL, None, now).await;
            admitting.push((admitted - began).as_secs_f64() * 1e6);
            settling.push(admitted.elapsed().as_secs_f64() * 1e6);
        }
        table.add(&format!("{name}: admit, all scopes and dimensions"), median(admitting));
        table.add(&format!("{name}: settle, all scopes and dimensions"), median(settling));
    };

    for _ in 0..ROUNDS {
        // Memory, alone.
        let began = Instant::now();
        let mut settling = Duration::ZERO;
        for _ in 0..IN_MEMORY {
            let now = clock.now();
            let hold = memory
                .admit(&admission(next_id(), &scopes, &upstreams), now)
                .await
                .expect("room");
            let admitted = Instant::now();
            hold.settle(ACTUAL, None, now).await;
            settling += admitted.elapsed();
        }
        let both = began.elapsed();
        table.add(
            "memory: admit, all scopes and dimensions (49 counters)",
            microseconds(both - settling, IN_MEMORY),
        );
        table.add(
            "memory: settle, all scopes and dimensions (49 counters)",
            microseconds(settling, IN_MEMORY),
        );

        // A usual tree: five limits.
        let usual = usual_scopes(&tree);
        let began = Instant::now();
        for _ in 0..IN_MEMORY {
            let now = clock.now();
            decide(&few, &admission(next_id(), &usual, &[]), now).await;
        }
        table.add(
            "memory: admit and settle, a usual tree (5 counters)",
            microseconds(began.elapsed(), IN_MEMORY),
        );

        // Memory, contended: threads that share every scope.
        for threads in [1_u64, 2, 4, 8] {
            let began = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .build()
                            .expect("a runtime");
                        runtime.block_on(async {
                            for _ in 0..IN_MEMORY / threads {
                                decide(&memory, &admission(next_id(), &scopes, &upstreams), clock.now()).await;
                            }
                        });
                    });
                }
            });
            let name = format!("memory: per request, {threads} threads on the same scopes");
            table.add(&name, microseconds(began.elapsed(), IN_MEMORY));
        }

        // Memory, few and many live scopes, in no order.
        for (limits, keys, name) in [(&few, 1_000, "1 thousand"), (&many, KEYS_MANY, "1 million")] {
            let began = Instant::now();
            for step in 0..IN_MEMORY {
                let own = key_alone(&tree, step.wrapping_mul(2_654_435_761) % keys);
                decide(limits, &admission(next_id(), &own, &[]), clock.now()).await;
            }
            table.add(
                &format!("memory: a key alone, {name} keys live"),
                microseconds(began.elapsed(), IN_MEMORY),
            );
        }

        if is_memory_alone {
            continue;
        }
        // Redis, alone: one call there and back.
        in_redis_alone("Redis", &mut table).await;
        let usual = usual_scopes(&tree);
        let mut admitting = Vec::new();
        for _ in 0..IN_REDIS {
            let now = clock.now();
            let asked = admission(next_id(), &usual, &[]);
            let began = Instant::now();
            let hold = redis.admit(&asked, now).await.expect("room");
            admitting.push(began.elapsed().as_secs_f64() * 1e6);
            hold.settle(ACTUAL, None, now).await;
        }
        table.add("Redis: admit, a usual tree (5 counters)", median(admitting));
        for (asked, name) in [(&scopes, "all scopes and dimensions"), (&usual, "a usual tree")] {
            let began = Instant::now();
            join_all((0..AT_ONCE).map(|_| async {
                for _ in 0..IN_REDIS / 10 {
                    let upstreams: &[UpstreamCandidate] = if name == "a usual tree" { &[] } else { &upstreams };
                    decide(&redis, &admission(next_id(), asked, upstreams), clock.now()).await;
                }
            }))
            .await;
            let count = AT_ONCE as u64 * (IN_REDIS / 10);
            table.add(
                &format!("Redis: per request, {AT_ONCE} at once, {name}"),
                microseconds(began.elapsed(), count),
            );
        }
    }

    if is_memory_alone {
        return table.print();
    }
    // Redis with very many keys live.
    let began = Instant::now();
    let step = AT_ONCE as u64 * 4;
    for first in (0..KEYS_MANY).step_by(AT_ONCE * 4) {
        join_all((first..first + step).map(|key| {
            let own = key_alone(&tree, key);
            let (redis, clock, id) = (&redis, &clock, next_id());
            async move {
                let now = clock.now();
                let hold = redis.admit(&admission(id, &own, &[]), now).await.expect("room");
                hold.settle(ACTUAL, None, now).await;
            }
        }))
        .await;
    }
    eprintln!("one million keys made in {:.0} s", began.elapsed().as_secs_f64());
    in_redis_alone("Redis with 1 million keys live", &mut table).await;
    println!("Redis keys at the end: {}", server.command(&["DBSIZE"]).await);
    println!("Redis memory: {}", server.info("used_memory_human").await);
    table.print();
}

/// Requests and tokens a minute for the tenant, requests and concurrency for the key, tokens for the installation.
fn usual_scopes(tree: &Tree) -> Vec<ScopeLimits> {
    let of = |dimensions: &[Dimension]| dimensions.iter().map(|dimension| limit(*dimension)).collect();
    vec![
        ScopeLimits::new(Scope::Global, of(&[Dimension::TotalTokens])),
        ScopeLimits::new(
            Scope::Tenant(tree.tenant),
            of(&[Dimension::Requests, Dimension::TotalTokens]),
        ),
        ScopeLimits::of_key(
            KeyId(Uuid::from_u128(7)),
            tree.tenant,
            of(&[Dimension::Requests, Dimension::Concurrency]),
        ),
    ]
}
