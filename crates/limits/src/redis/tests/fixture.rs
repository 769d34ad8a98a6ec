//! Shared counters that go by the test's clock, and a gateway's signs of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use test_redis::{RedisCluster, RedisServer};

use crate::fixture::at;
use crate::redis::{LifeSigns, RedisSettings, TimeOf};
use crate::{Limits, Now, Settings};

/// How long anything that must happen may take.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// Patient ones: what is tested here is not how long anything takes.
pub(crate) fn settings_of(url: String) -> RedisSettings {
    RedisSettings {
        connect_timeout_ms: 5_000,
        command_timeout_ms: 5_000,
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

    pub(crate) async fn flush(&self) {
        match self {
            Self::One(server) => {
                server.command(&["FLUSHALL"]).await;
            }
            Self::Cluster(cluster) => {
                for node in 0..3 {
                    cluster.node(node).command(&["FLUSHALL"]).await;
                }
            }
        }
    }

    /// Counters here that go by the caller's time.
    pub(crate) async fn limits(&self, instance: &str, settings: Settings, signs: &Arc<Signs>) -> Limits {
        let limits = Limits::redis_by(settings, &settings_of(self.url()), instance, TimeOf::Caller).expect("settings");
        let signs: Arc<dyn LifeSigns> = Arc::<Signs>::clone(signs);
        assert!(limits.start(signs, PATIENCE).await, "the server answers");
        limits
    }
}
