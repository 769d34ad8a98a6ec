//! The data plane: routes, pipeline, policy snapshot, budgets.
//!
//! Read [`pipeline`] first: a request from the door to the provider. [`relay`](crate::relay) brings the answer back,
//! and a [`flight`](crate::flight) sees to it that every request leaves one row and every hold ends. Nothing on that way
//! waits for Postgres: [`policy`] and [`budgets`] are kept current beside it, by the tasks of [`background`].

mod abandoned;
pub mod alerts;
mod asked;
pub mod authenticate;
pub mod background;
pub mod body;
pub(crate) mod budget_events;
pub mod budgets;
mod case;
pub mod clock;
mod comments;
mod end_users;
mod error;
mod estimates;
pub mod explain;
mod flight;
mod idempotency;
mod jobs;
mod kept;
mod kept_policy;
mod key_uses;
pub mod metrics;
mod outgoing;
mod own_key;
pub mod pipeline;
pub mod policy;
mod pricing;
mod queue;
mod quirks;
mod refusal;
mod rejections;
pub mod relay;
mod room;
mod routes;
mod status;
mod upstream_health;
mod waiting;
mod waits;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use domain::error_chain::chain;
use domain::ids::{KeyId, RequestId};
use domain::instances::Setup;
use http::HeaderMap;
use ledger::Journal;
use limits::{Admission, Denial, Hold, Limits, Now};
use store::Store;
use store::random::{self, Random};
use store::sealing::{Purpose, SecretKey};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upstream::RetryBudget;
use upstream::breaker::Breakers;

pub use jobs::JOBS_RUNNING_MAX;
pub use kept_policy::KEPT_POLICY_FILE;
pub use queue::QueueSettings;
pub use routes::router;

use alerts::Alerts;
use authenticate::{Caller, Unauthenticated, authenticate};
use budget_events::BudgetEvents;
use budgets::Budgets;
use clock::Clock;
use end_users::EndUsers;
use estimates::Estimates;
use jobs::Jobs;
use kept_policy::KeptPolicy;
use key_uses::KeyUses;
use policy::{OpenCredential, PolicyKeeper};
use queue::Queue;
use quirks::Quirks;
use rejections::Rejections;
use room::Room;
use status::Surroundings;

/// Called at every [`Step`] of a request that was admitted. Tests fail here on purpose.
pub type AfterAdmission = Arc<dyn Fn(RequestId, Step) + Send + Sync>;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is admitted, and its hold is not journalled yet.
    Admitted,
    /// It is about to go to the provider.
    Sending,
    /// An event of its answer was passed on.
    Streaming,
}

/// What a gateway is made of.
pub struct Parts {
    /// Its name, unique among those on one database.
    pub instance: String,
    /// Where the last policy is kept.
    pub data_dir: PathBuf,
    /// The installation's secret key.
    pub secret_key: Arc<SecretKey>,
    /// Postgres.
    pub store: Store,
    /// The open journal.
    pub journal: Arc<Journal>,
    /// The counters.
    pub limits: Limits,
    /// The way to providers.
    pub client: upstream::Client,
    /// Bounds of the queue.
    pub queue: QueueSettings,
    /// How the gateway was set up, for its status.
    pub setup: Setup,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// The last entry that the journal held when it was opened.
    pub recovered_seq: u64,
    /// See [`AfterAdmission`]; none in production.
    pub after_admission: Option<AfterAdmission>,
}

/// One gateway, shared by its requests and its background tasks.
pub struct Gateway {
    pub(crate) instance: String,
    pub(crate) store: Store,
    pub(crate) journal: Arc<Journal>,
    pub(crate) limits: Limits,
    pub(crate) client: upstream::Client,
    pub(crate) breakers: Breakers,
    pub(crate) retries: RetryBudget,
    pub(crate) queue: Arc<Queue>,
    pub(crate) jobs: Jobs,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: PolicyKeeper,
    pub(crate) refreshing: tokio::sync::Mutex<()>,
    pub(crate) budgets: Budgets,
    pub(crate) estimates: Estimates,
    pub(crate) room: Room,
    pub(crate) end_users: EndUsers,
    pub(crate) quirks: Quirks,
    pub(crate) sendings: idempotency::Sendings,
    pub(crate) orphans: idempotency::Orphans,
    pub(crate) rejections: Rejections,
    pub(crate) alerts: Alerts,
    pub(crate) budget_events: Arc<BudgetEvents>,
    pub(crate) key_uses: KeyUses,
    pub(crate) keys_looked_at: Semaphore,
    pub(crate) secret_key: Arc<SecretKey>,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the grace of a stop is over: answers still under way end at once, as the gateway's own error.
    pub(crate) ending: CancellationToken,
    pub(crate) flights: Flights,
    /// Budgets of the policy without a base, when last counted.
    pub(crate) closed_budgets: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) setup: Setup,
    pub(crate) surroundings: Mutex<Surroundings>,
    started_at: DateTime<Utc>,
    random: Arc<dyn Random>,
    after_admission: Option<AfterAdmission>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// Requests on their way.
#[derive(Default)]
pub(crate) struct Flights(AtomicU64);

impl Flights {
    pub(crate) fn started(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gateway {
    /// Puts the parts together. Nothing runs yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let keeper = PolicyKeeper::new(
            parts.store.clone(),
            Arc::clone(&parts.clock),
            open_credentials(Arc::clone(&parts.secret_key)),
            KeptPolicy::new(&parts.data_dir, Arc::clone(&parts.secret_key)),
        );
        let budget_events = Arc::new(BudgetEvents::default());
        let budgets = Budgets::new(
            parts.store.clone(),
            parts.limits.clone(),
            Arc::clone(&parts.journal),
            Arc::clone(&parts.clock),
            parts.instance.clone(),
            parts.recovered_seq,
        )
        .noting(Arc::clone(&budget_events), Arc::clone(&parts.random));
        let alerts = Alerts::new(Arc::clone(&parts.clock), Arc::clone(&parts.random));
        Arc::new(Self {
            started_at: parts.clock.now().wall,
            instance: parts.instance,
            store: parts.store,
            journal: parts.journal,
            limits: parts.limits,
            client: parts.client,
            breakers: Breakers::default(),
            retries: RetryBudget::default(),
            queue: Queue::new(parts.queue),
            jobs: Jobs::default(),
            clock: parts.clock,
            keeper,
            refreshing: tokio::sync::Mutex::default(),
            budgets,
            estimates: Estimates::default(),
            room: Room::default(),
            end_users: EndUsers::default(),
            quirks: Quirks::default(),
            sendings: idempotency::Sendings::default(),
            orphans: idempotency::Orphans::default(),
            rejections: Rejections::default(),
            alerts,
            budget_events,
            key_uses: KeyUses::default(),
            keys_looked_at: Semaphore::new(own_key::LOOKED_AT_ONCE),
            secret_key: parts.secret_key,
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
            flights: Flights::default(),
            closed_budgets: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
            setup: parts.setup,
            surroundings: Mutex::default(),
            random: parts.random,
            after_admission: parts.after_admission,
        })
    }

    /// Waits for every answer under way, then books what was folded. New requests must have been stopped before.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.book_folded();
        if let Err(error) = self.write_key_uses().await {
            tracing::warn!(
                error = chain(&error),
                "when keys were last used is not written for the last minute"
            );
        }
    }

    /// Tells those that share the counters that this gateway goes. After [`Gateway::finish`].
    pub async fn leave_counters(&self) {
        self.limits.leave().await;
    }

    /// Ends every answer still under way: for when the grace of a stop is over.
    pub fn end_answers(&self) {
        self.ending.cancel();
    }

    /// Books what was folded so far, without waiting for its minute to end.
    pub fn book_folded(&self) {
        self.rejections.flush(&self.journal, None);
    }

    /// Requests on their way.
    pub fn in_flight(&self) -> u64 {
        self.flights.count()
    }

    /// Requests that wait for room.
    pub fn waiting(&self) -> usize {
        self.queue.depth()
    }

    /// Holds that have not ended.
    pub fn open_holds(&self) -> u64 {
        self.limits.open_holds()
    }

    /// The counters, for the quota tree and for tests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The policy in force.
    pub fn policy(&self) -> Option<Arc<policy::PolicySnapshot>> {
        self.keeper.current()
    }

    pub(crate) fn authenticate(&self, headers: &HeaderMap, at: DateTime<Utc>) -> Result<Caller, Unauthenticated> {
        let caller = authenticate(headers, self.keeper.current(), self.keeper.can_tell_unknown_keys(), at)?;
        if let Some(secret) = &caller.secret {
            self.key_uses.note(secret.hash, caller.key.id, at);
        }
        Ok(caller)
    }

    /// The caller with this key, whatever its secrets.
    pub(crate) fn caller_of(&self, key: KeyId) -> Option<Caller> {
        let policy = self.keeper.current()?;
        let key = Arc::clone(policy.find_key_by_id(key)?);
        let tenant = Arc::clone(policy.find_tenant(key.tenant_id)?);
        Some(Caller {
            policy,
            key,
            tenant,
            secret: None,
        })
    }

    /// Admission, which also asks for the budgets it did not know.
    pub(crate) async fn admit(&self, admission: &Admission<'_>, now: Now) -> Result<Hold, Box<Denial>> {
        let answer = self.limits.admit(admission, now).await;
        match &answer {
            Ok(hold) => self.budgets.want(hold.unknown_budgets()),
            Err(denial) => self.budgets.want(&denial.unknown_budgets),
        }
        answer
    }

    pub(crate) fn after_admission(&self, id: RequestId, step: Step) {
        if let Some(hook) = &self.after_admission {
            hook(id, step);
        }
    }

    pub(crate) fn random(&self) -> [u8; 10] {
        random::bytes(&*self.random)
    }

    pub(crate) fn random_u64(&self) -> u64 {
        u64::from_le_bytes(random::bytes(&*self.random))
    }

    /// Between 0 and 1.
    pub(crate) fn random_unit(&self) -> f64 {
        f64::from(u32::from_le_bytes(random::bytes(&*self.random))) / f64::from(u32::MAX)
    }
}

fn open_credentials(secret_key: Arc<SecretKey>) -> OpenCredential {
    Arc::new(move |upstream| {
        let sealed = upstream.credential_sealed.as_ref()?;
        let opened = secret_key.open(Purpose::UpstreamCredential, &upstream.id.to_string(), sealed);
        match opened.ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(credential) => Some(credential.into()),
            None => {
                tracing::error!(
                    upstream = upstream.name,
                    "an upstream's credential cannot be opened; set it again"
                );
                None
            }
        }
    })
}
