//! Several gateways of one installation, for what has to hold among all of them.

use std::sync::Arc;
use std::time::Duration;

use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope};
use domain::readings::Reading;
use futures_util::future::join_all;
use gateway::Gateway;
use limits::Mode;
use serde_json::Value;
use server::wiring::Running;
use tokio::time::{Instant, sleep};

use crate::booked::Booked;
use crate::http::{Answer, Browser};
use crate::instance::Instance;
use crate::tollgate::{CHAT_PATH, Options, Tollgate, shipped};

/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
/// Which gateway takes which of the requests that are sent unevenly.
const UNEVEN: [usize; 9] = [0, 0, 1, 0, 0, 1, 2, 0, 1];

/// The first gateway, with database and provider, and the others.
pub struct Fleet {
    /// The first.
    pub first: Tollgate,
    /// The others.
    pub others: Vec<Instance>,
}

impl Fleet {
    /// Starts so many gateways, each of which knows of all.
    ///
    /// # Panics
    /// When one does not start.
    pub async fn start(count: usize, options: Options) -> Self {
        let first = Tollgate::start_with(options).await;
        let mut others = Vec::new();
        for number in 2..=count {
            others.push(first.another(&format!("gateway-{number}")).await);
        }
        let fleet = Self { first, others };
        fleet.in_step().await;
        fleet
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Running> {
        std::iter::once(&self.first.running).chain(self.others.iter().map(|other| &other.running))
    }

    /// The data plane of each.
    pub fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.all().map(|running| &running.gateway)
    }

    /// A browser for each, which keeps its connections.
    pub fn browsers(&self) -> Vec<Browser> {
        self.all()
            .map(|running| Browser::new(&format!("http://{}", running.address)))
            .collect()
    }

    /// Waits until each of them knows of all, and admits by the shared counters.
    ///
    /// # Panics
    /// When that does not happen.
    pub async fn in_step(&self) {
        let count = self.all().count() as u64;
        until("all gateways know of each other", async || {
            self.gateways().all(|gateway| {
                let now = gateway::clock::Clock::now(&*self.first.clock);
                let limits = gateway.limits();
                limits.gateways() == count && limits.mode(now) == Mode::Normal
            })
        })
        .await;
    }

    /// Puts every change made so far in force everywhere.
    pub async fn in_force(&self) {
        let refreshed = join_all(self.gateways().map(|gateway| gateway.refresh_policy())).await;
        for refreshed in refreshed {
            refreshed.expect("the policy is read");
        }
    }

    /// A tenant with a key, in force everywhere, with its budgets open.
    pub async fn tenant_with_key(&self, limits: NodeLimits) -> (TenantId, String) {
        self.named_tenant_with_key("Tenant", limits).await
    }

    /// The same under a name of its own.
    pub async fn named_tenant_with_key(&self, name: &str, limits: NodeLimits) -> (TenantId, String) {
        let tenant = self.first.tenant(name, limits).await;
        let key = self.first.issue(tenant).await.text.reveal().to_owned();
        self.in_force().await;
        self.open(&Scope::Tenant(tenant)).await;
        (tenant, key)
    }

    /// Waits until every budget on this node is open everywhere.
    ///
    /// # Panics
    /// When that does not happen.
    pub async fn open(&self, scope: &Scope) {
        for place in 0..=self.others.len() {
            until("the budgets are open", async || {
                self.readings(place, scope).await.iter().all(|reading| reading.is_known)
            })
            .await;
        }
    }

    /// What the limits on this node say, asked of one gateway.
    ///
    /// # Panics
    /// When it has no policy.
    pub async fn readings(&self, place: usize, scope: &Scope) -> Vec<Reading> {
        let gateway = self.gateways().nth(place).expect("so many gateways");
        let readings = gateway.readings(std::slice::from_ref(scope)).await;
        let limits = readings.expect("a policy is in force").limits;
        limits.into_iter().map(|live| live.reading).collect()
    }

    /// What the limit of this dimension on this node says, asked of one gateway.
    ///
    /// # Panics
    /// When there is none.
    pub async fn reading(&self, place: usize, scope: &Scope, dimension: Dimension) -> Reading {
        let readings = self.readings(place, scope).await;
        let found = readings.into_iter().find(|reading| reading.dimension == dimension);
        found.expect("a limit of this dimension")
    }

    /// Waits until a tenant's budget of tokens says everywhere what the ledger does, with nothing held. Never less; more
    /// than once, perhaps, of what was settled while it was read, until it is read again: soon, as another one begins.
    ///
    /// # Panics
    /// When it says less, or goes on saying more.
    pub async fn agrees(&self, tenant: TenantId, booked: &Booked) {
        let node = Scope::Tenant(tenant);
        for place in 0..=self.others.len() {
            let reading = self.reading(place, &node, Dimension::BudgetTokens).await;
            assert!(reading.used >= booked.tokens, "{reading:?} of {booked:?}");
        }
        let another = NodeLimits {
            monthly_tokens: Some(1),
            ..NodeLimits::default()
        };
        self.first.tenant("Another", another).await;
        for place in 0..=self.others.len() {
            until("the budget is what the ledger says", async || {
                let reading = self.reading(place, &node, Dimension::BudgetTokens).await;
                (reading.used, reading.held) == (booked.tokens, 0)
            })
            .await;
        }
    }

    /// Waits until every request has ended everywhere, shared counters have heard of it, and everything journalled is in
    /// Postgres.
    ///
    /// # Panics
    /// When that does not happen.
    pub async fn shipped(&self) {
        for running in self.all() {
            shipped(running).await;
            until("the shared counters have heard of every end", async || {
                running.gateway.limits().unheard() == 0
            })
            .await;
        }
    }

    /// What the ledger says of this tenant once everything has ended.
    pub async fn booked(&self, tenant: TenantId) -> Booked {
        self.shipped().await;
        Booked::of(tenant, &mut self.first.sql().await).await
    }
}

/// Sends so many chat requests at once, unevenly: most of them to the first gateway, the fewest to the third.
pub async fn flood(browsers: &[Browser], key: &str, count: usize, body: &Value) -> Vec<Answer> {
    let requests = (0..count).map(|number| {
        let place = UNEVEN[number % UNEVEN.len()] % browsers.len();
        browsers[place].post_json(CHAT_PATH, key, body)
    });
    join_all(requests).await
}

/// How many of them have this status.
pub fn count_of(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

/// Asks again until it is so.
///
/// # Panics
/// When it never is.
pub async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, is_so).await;
}

/// The same with a bound of its own.
///
/// # Panics
/// When it is not so within the bound.
pub async fn until_within(bound: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        sleep(POLL).await;
    }
}
