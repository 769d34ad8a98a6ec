//! Shared counters on real servers, gateways that use them, and ways between the two that can be cut.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use chrono_tz::Tz;
use domain::estimate::{Amounts, Estimate};
use domain::ids::RequestId;
use domain::limits::Dimension;
use domain::priority::Priority;
use domain::readings::Reading;
use parking_lot::Mutex;
use test_redis::{RedisCluster, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::fixture::{amounts, at};
use crate::hold::Parts;
use crate::redis::{LifeSigns, RedisSettings, RedisStore, TimeOf};
use crate::{Admission, BudgetKey, Denial, Hold, Limits, Mode, Now, ScopeLimits, Settings, UpstreamCandidate};

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// What a call may take where tests let it fail: longer than a busy machine needs, short enough to wait for.
const SHORT_MS: u64 = 250;

/// What a gateway would say of itself.
pub(crate) struct Signs {
    now: Mutex<Now>,
    pub(crate) last_settled: AtomicU64,
    pub(crate) policy_version: AtomicI64,
}

impl Signs {
    pub(crate) fn at(now: Now) -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(now),
            last_settled: AtomicU64::new(0),
            policy_version: AtomicI64::new(1),
        })
    }

    pub(crate) fn pass_to(&self, now: Now) {
        *self.now.lock() = now;
    }

    pub(crate) fn pass(&self, milliseconds: u64) {
        let mut now = self.now.lock();
        now.monotonic_ms += milliseconds;
        now.wall += chrono::Duration::milliseconds(milliseconds.cast_signed());
    }
}

impl LifeSigns for Signs {
    fn now(&self) -> Now {
        *self.now.lock()
    }

    fn last_settled(&self) -> u64 {
        self.last_settled.load(Ordering::SeqCst)
    }

    fn policy_version(&self) -> i64 {
        self.policy_version.load(Ordering::SeqCst)
    }
}

pub(crate) fn noon() -> Now {
    Now {
        monotonic_ms: 1_000_000,
        wall: at("2026-11-29T12:00:00Z"),
    }
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(POLL).await;
    }
}

/// Patient ones: what is tested here is not how long anything takes.
pub(crate) fn patient(url: String) -> RedisSettings {
    RedisSettings {
        connect_timeout_ms: 5_000,
        command_timeout_ms: 5_000,
        ..RedisSettings::new(url)
    }
}

/// Short ones: a server that says nothing is given up soon.
pub(crate) fn short(url: String) -> RedisSettings {
    RedisSettings {
        connect_timeout_ms: SHORT_MS,
        command_timeout_ms: SHORT_MS,
        ..RedisSettings::new(url)
    }
}

/// One server, or a cluster of three.
pub(crate) enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
}

impl Servers {
    pub(crate) async fn one() -> Self {
        Self::One(RedisServer::start().await)
    }

    pub(crate) async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(crate) fn nodes(&self) -> Vec<&RedisServer> {
        match self {
            Self::One(server) => vec![server],
            Self::Cluster(cluster) => (0..3).map(|node| cluster.node(node)).collect(),
        }
    }

    pub(crate) async fn flush(&self) {
        for node in self.nodes() {
            node.command(&["FLUSHALL"]).await;
        }
    }

    /// The names of all keys.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for node in self.nodes() {
            let found = node.command(&["KEYS", "*"]).await;
            keys.extend(found.lines().map(str::to_owned));
        }
        keys
    }

    /// Counters here that go by the caller's time.
    pub(crate) async fn limits(&self, instance: &str, settings: Settings, signs: &Arc<Signs>) -> Limits {
        let limits = Limits::redis_by(settings, &patient(self.url()), instance, TimeOf::Caller).expect("settings");
        let signs: Arc<dyn LifeSigns> = Arc::<Signs>::clone(signs);
        assert!(limits.start(signs, PATIENCE).await, "the server answers");
        limits
    }
}

/// One gateway: its counters, and what runs beside them until it is dropped.
pub(crate) struct Gateway {
    pub(crate) name: &'static str,
    pub(crate) limits: Limits,
    pub(crate) signs: Arc<Signs>,
    keeping: Option<AbortHandle>,
}

impl Gateway {
    /// By the server's time.
    pub(crate) async fn start(redis: &RedisSettings, name: &'static str) -> Self {
        Self::start_by(redis, name, TimeOf::Server).await
    }

    /// By its own time, which stands still until the test moves it.
    pub(crate) async fn start_by(redis: &RedisSettings, name: &'static str, time: TimeOf) -> Self {
        let limits = Limits::redis_by(Settings::default(), redis, name, time).expect("settings");
        let signs = Signs::at(noon());
        let as_signs: Arc<dyn LifeSigns> = Arc::<Signs>::clone(&signs);
        assert!(
            limits.start(Arc::clone(&as_signs), PATIENCE).await,
            "the server answers"
        );
        let kept = limits.clone();
        let keeping = tokio::spawn(async move { kept.keep(as_signs).await });
        Self {
            name,
            limits,
            signs,
            keeping: Some(keeping.abort_handle()),
        }
    }

    /// Nothing runs beside it any more, as in a process that hangs.
    pub(crate) fn fall_silent(&mut self) {
        if let Some(keeping) = self.keeping.take() {
            keeping.abort();
        }
    }

    pub(crate) fn store(&self) -> &Arc<RedisStore> {
        self.limits.in_redis().expect("counters in Redis")
    }

    pub(crate) fn now(&self) -> Now {
        self.signs.now()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.limits.mode(self.now())
    }

    pub(crate) fn is_degraded(&self) -> bool {
        matches!(self.mode(), Mode::Degraded { .. })
    }

    /// Beats faster than it does by itself until it goes by its own counters.
    pub(crate) async fn until_degraded(&self) {
        until("it goes by its own counters", async || {
            self.store().beat_now().await;
            self.is_degraded()
        })
        .await;
    }

    /// The same until it goes by the shared ones.
    pub(crate) async fn until_back(&self) {
        until("it goes by the shared counters", async || {
            self.store().beat_now().await && !self.is_degraded()
        })
        .await;
    }

    /// The server has heard of everything that has ended here.
    pub(crate) async fn until_told(&self) {
        until("the server has heard of everything", async || {
            self.limits.unheard() == 0
        })
        .await;
    }

    pub(crate) async fn admit(&self, asking: &Asking) -> Result<Hold, Box<Denial>> {
        self.limits.admit(&asking.admission(), self.now()).await
    }

    /// The same, where there is room.
    pub(crate) async fn admitted(&self, asking: &Asking) -> Hold {
        let answer = self.admit(asking).await;
        answer.unwrap_or_else(|denial| panic!("{} has room: {denial:?}", self.name))
    }

    pub(crate) async fn settle(&self, hold: Hold, actual: Amounts, seq: u64) {
        self.signs.last_settled.fetch_max(seq, Ordering::SeqCst);
        hold.settle(actual, Some(seq), self.now()).await;
    }

    pub(crate) async fn refund(&self, hold: Hold) {
        hold.refund(self.now()).await;
    }

    pub(crate) async fn peek(&self, asking: &Asking) -> Vec<Reading> {
        let nodes = asking.nodes();
        self.limits.peek(&nodes, None, None, Tz::UTC, self.now()).await
    }

    /// The first limit of this dimension.
    pub(crate) async fn reading(&self, asking: &Asking, dimension: Dimension) -> Reading {
        let readings = self.peek(asking).await;
        let found = readings.into_iter().find(|reading| reading.dimension == dimension);
        found.expect("a limit of the dimension")
    }

    /// Reads the budgets' bases as the gateway does, from a ledger in which so much is spent of each and that contains
    /// these gateways' journals so far; whether all of them are open then.
    pub(crate) async fn read_budgets(&self, asking: &Asking, spent: i64, marks: &[(&str, u64)]) -> bool {
        let keys = asking.budgets(self.now());
        let last_settled = || self.signs.last_settled();
        let begun = self
            .limits
            .begin_budgets(&keys, last_settled, self.name, 1, Tz::UTC, self.now())
            .await;
        let marks: BTreeMap<String, u64> = marks.iter().map(|(name, mark)| ((*name).to_owned(), *mark)).collect();
        let contains = |(name, least): (&String, &u64)| marks.get(name).copied().unwrap_or(0) >= *least;
        let is_complete = begun.least_marks.iter().all(contains);
        for key in &begun.wanted {
            if is_complete || !begun.closed.contains(key) {
                self.limits
                    .set_budget(key, spent, &marks, self.name, Tz::UTC, self.now())
                    .await;
            }
        }
        self.limits.closed_budgets(&keys, Tz::UTC, self.now()).await.is_empty()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.fall_silent();
    }
}

/// What all requests of a test have in common.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) scopes: Vec<ScopeLimits>,
    pub(crate) upstreams: Vec<UpstreamCandidate>,
    pub(crate) estimate: Estimate,
}

impl Asking {
    /// Each expects 100 input and 100 output tokens for 1,000,000 nano-units; its ceiling is the same.
    pub(crate) fn of(scopes: Vec<ScopeLimits>) -> Self {
        let each = amounts(100, 100, 1_000_000);
        Self {
            scopes,
            upstreams: Vec::new(),
            estimate: Estimate {
                expected: each,
                ceiling: each,
            },
        }
    }

    /// The next request.
    pub(crate) fn admission(&self) -> Admission<'_> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Admission {
            id: RequestId(Uuid::from_u128(u128::from(NEXT_ID.fetch_add(1, Ordering::Relaxed)))),
            model: "m",
            priority: Priority::Default,
            gate_priority: Priority::Default,
            estimate: self.estimate,
            scopes: &self.scopes,
            upstreams: &self.upstreams,
            time_zone: Tz::UTC,
            rehearsal_percent: None,
        }
    }

    fn nodes(&self) -> Vec<ScopeLimits> {
        let upstreams = self.upstreams.iter().map(|candidate| candidate.scope.clone());
        self.scopes.iter().cloned().chain(upstreams).collect()
    }

    pub(crate) fn budgets(&self, now: Now) -> Vec<BudgetKey> {
        let mut keys = Vec::new();
        for node in self.nodes() {
            for limit in node.limits.iter().filter(|limit| limit.dimension.is_budget()) {
                keys.push(BudgetKey::of(&node, limit, now.wall, Tz::UTC));
            }
        }
        keys
    }
}

/// Whether a gateway's own counters have admitted it.
pub(crate) fn is_local(hold: &Hold) -> bool {
    matches!(&hold.parts, Parts::Shared(parts) if parts.local.is_some())
}

/// What passes a way.
#[derive(Clone, Copy, Debug, Default)]
struct Passage {
    /// New connections are closed at once.
    is_cut: bool,
    /// How often those there were broken.
    breaks: u64,
}

/// A way to one server. Ends with its value.
pub(crate) struct Way {
    port: u16,
    target: Arc<Mutex<u16>>,
    passage: watch::Sender<Passage>,
    accepting: AbortHandle,
}

impl Way {
    pub(crate) async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let target = Arc::new(Mutex::new(server.port()));
        let (passage, seen) = watch::channel(Passage::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&target), seen));
        Self {
            port,
            target,
            passage,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Breaks all connections, and lets none through until it is mended.
    pub(crate) fn cut(&self) {
        self.passage.send_modify(|passage| {
            passage.is_cut = true;
            passage.breaks += 1;
        });
    }

    pub(crate) fn mend(&self) {
        self.passage.send_modify(|passage| {
            passage.is_cut = false;
        });
    }

    /// Breaks all connections; new ones lead to another server.
    pub(crate) fn lead_to(&self, server: &RedisServer) {
        *self.target.lock() = server.port();
        self.passage.send_modify(|passage| passage.breaks += 1);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<u16>>, mut passage: watch::Receiver<Passage>) {
    let mut open = JoinSet::new();
    let mut breaks = 0;
    loop {
        tokio::select! {
            changed = passage.changed() => {
                let now = *passage.borrow_and_update();
                if changed.is_err() {
                    return;
                }
                if now.breaks > breaks {
                    breaks = now.breaks;
                    open.abort_all();
                }
            }
            Ok((near, _)) = listener.accept() => {
                if passage.borrow().is_cut {
                    continue;
                }
                let port = *target.lock();
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                    continue;
                };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                open.spawn(async move {
                    tokio::select! {
                        () = pass(near_in, far_out) => {}
                        () = pass(far_in, near_out) => {}
                    }
                });
            }
            Some(_) = open.join_next() => {}
        }
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut bytes = vec![0; 16 * 1_024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
