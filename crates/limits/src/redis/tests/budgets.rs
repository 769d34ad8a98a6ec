//! No budget is passed by admission: by many at once, by several gateways, and whoever of them loses the server when.

use std::collections::BTreeMap;

use domain::estimate::Estimate;
use domain::limits::Dimension;
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, Servers, Way, is_local, patient, until};
use crate::Hold;
use crate::fixture::{amounts, limit, on, tenant};
use crate::redis::allowances::KEPT_MS;

const NAMES: [&str; 3] = ["one", "two", "three"];
/// What one request holds and spends of a budget, in nano-units.
const EACH: i64 = 1_000_000;
/// Requests that a budget is for.
const PLACES: usize = 100;
const CALLERS: usize = 1_000;

/// A tenant with a budget for so many requests.
fn asking(places: usize) -> Asking {
    let value = places as u64 * EACH.unsigned_abs();
    Asking::of(vec![on(tenant(1), vec![limit(Dimension::BudgetCost, value)])])
}

async fn admit_many(gateways: &[Gateway], asking: &Asking) -> Vec<Vec<Hold>> {
    let each = CALLERS / gateways.len();
    join_all(gateways.iter().map(async |gateway| {
        let answers = join_all((0..each).map(|_| gateway.admit(asking))).await;
        answers.into_iter().flatten().collect()
    }))
    .await
}

async fn check_many_at_once(servers: Servers, count: usize) {
    let asking = asking(PLACES);
    let mut gateways = Vec::new();
    for name in &NAMES[..count] {
        gateways.push(Gateway::start(&patient(servers.url()), name).await);
    }
    assert!(gateways[0].read_budgets(&asking, 0, &[]).await);
    let holds = admit_many(&gateways, &asking).await;
    let admitted: usize = holds.iter().map(Vec::len).sum();
    assert!(holds.iter().flatten().all(|hold| !is_local(hold)));
    assert!(admitted <= PLACES, "{admitted}");
    // A part may be set aside.
    assert!(admitted >= PLACES * 9 / 10, "{admitted}");
    let spend = amounts(100, 100, EACH);
    for (gateway, holds) in gateways.iter().zip(holds) {
        let settled = holds.into_iter().zip(1..);
        join_all(settled.map(|(hold, seq)| gateway.settle(hold, spend, seq))).await;
    }
    let budget = gateways[0].reading(&asking, Dimension::BudgetCost).await;
    assert_eq!((budget.used, budget.held), (admitted as i64 * EACH, 0));
    let more = admit_many(&gateways, &asking).await;
    let more: usize = more.iter().map(Vec::len).sum();
    assert!(admitted + more <= PLACES, "{admitted} and {more}");
}

#[tokio::test]
async fn a_thousand_at_once_on_two_gateways_do_not_pass_a_budget() {
    check_many_at_once(Servers::one().await, 2).await;
}

#[tokio::test]
async fn a_thousand_at_once_on_three_gateways_do_not_pass_a_budget() {
    check_many_at_once(Servers::one().await, 3).await;
}

#[tokio::test]
async fn a_thousand_at_once_do_not_pass_a_budget_in_a_cluster() {
    check_many_at_once(Servers::cluster().await, 3).await;
}

#[tokio::test]
async fn a_thousand_at_once_on_gateways_that_lose_the_server_do_not_pass_a_budget() {
    let mut server = RedisServer::start().await;
    let asking = asking(CALLERS);
    let mut gateways = Vec::new();
    for name in NAMES {
        gateways.push(Gateway::start(&patient(server.url()), name).await);
    }
    assert!(gateways[0].read_budgets(&asking, 0, &[]).await);
    let budget = &asking.budgets(gateways[0].now())[0];
    let mut before = Vec::new();
    for gateway in &gateways {
        before.push(gateway.admitted(&asking).await);
        until("a part is set aside", async || {
            gateway.store().allowance(budget, gateway.now()) > Some(0)
        })
        .await;
    }
    server.kill();
    let holds = admit_many(&gateways, &asking).await;
    for holds in &holds {
        assert!(holds.iter().all(is_local));
        assert!(!holds.is_empty());
    }
    let admitted: usize = holds.iter().map(Vec::len).sum();
    assert!(before.len() + admitted <= CALLERS, "{admitted}");
    for gateway in &gateways {
        gateway.until_degraded().await;
    }

    // The server is back and knows nothing but what the gateways tell it.
    server.restart().await;
    for gateway in &gateways {
        gateway.until_back().await;
    }
    until("it is read", async || gateways[0].read_budgets(&asking, 0, &[]).await).await;
    let held = gateways[1].reading(&asking, Dimension::BudgetCost).await.held;
    assert_eq!(held, (before.len() + admitted) as u64 * EACH.unsigned_abs());
}

/// One gateway that is about to lose the server, and one that is not.
struct Pair {
    server: RedisServer,
    way: Way,
    one: Gateway,
    other: Gateway,
    asking: Asking,
    holds: Vec<Hold>,
}

impl Pair {
    /// A part of a budget of [`CALLERS`] requests is set aside for the first.
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let way = Way::to(&server).await;
        let one = Gateway::start(&patient(way.url()), "one").await;
        let other = Gateway::start(&patient(server.url()), "other").await;
        let asking = asking(CALLERS);
        assert!(one.read_budgets(&asking, 0, &[]).await);
        let mut pair = Self {
            server,
            way,
            holds: vec![one.admitted(&asking).await],
            one,
            other,
            asking,
        };
        assert!(pair.part().await > 0);
        pair
    }

    /// What is set aside for the first by now, in requests.
    async fn part(&mut self) -> usize {
        let budget = &self.asking.budgets(self.one.now())[0];
        until("it is measured", async || {
            self.one.store().allowance(budget, self.one.now()).is_some()
        })
        .await;
        let part = self.one.store().allowance(budget, self.one.now());
        part.map_or(0, |micros| {
            usize::try_from(micros * 1_000).expect("small") / EACH as usize
        })
    }

    /// Until the budget refuses. All requests that were admitted are under way for the whole test.
    async fn admit_all(&mut self, gateway: impl Fn(&Self) -> &Gateway) -> usize {
        let mut count = 0;
        while let Ok(hold) = gateway(self).admit(&self.asking).await {
            count += 1;
            self.holds.push(hold);
        }
        count
    }

    async fn lose(&self) {
        self.way.cut();
        self.one.until_degraded().await;
    }

    async fn return_again(&self) {
        self.way.mend();
        self.one.until_back().await;
    }
}

#[tokio::test]
async fn what_was_spent_without_the_server_is_not_spent_again() {
    let mut pair = Pair::new().await;
    let part = pair.part().await;
    pair.admit_all(|pair| &pair.other).await;
    pair.lose().await;
    let before = pair.holds.len();
    assert_eq!(pair.admit_all(|pair| &pair.one).await, part);
    for (hold, seq) in pair.holds.drain(before..).zip(1..) {
        pair.one.settle(hold, amounts(100, 100, EACH), seq).await;
    }
    pair.return_again().await;
    pair.one.store().beat_now().await;
    pair.admit_all(|pair| &pair.other).await;
    pair.lose().await;
    pair.admit_all(|pair| &pair.one).await;
    assert!(pair.holds.len() + part <= CALLERS, "{} and {part}", pair.holds.len());
}

#[tokio::test]
async fn what_the_server_has_forgotten_is_not_set_aside_any_more() {
    for is_degraded in [false, true] {
        let mut pair = Pair::new().await;
        if is_degraded {
            pair.lose().await;
            let hold = pair.one.admitted(&pair.asking).await;
            pair.holds.push(hold);
        }
        pair.server.command(&["FLUSHALL"]).await;
        pair.return_again().await;
        until("it is read", async || {
            pair.other.read_budgets(&pair.asking, 0, &[]).await
        })
        .await;
        // It loses the server before anything is set aside anew.
        pair.way.cut();
        pair.admit_all(|pair| &pair.other).await;
        pair.admit_all(|pair| &pair.one).await;
        assert!(pair.holds.len() <= CALLERS, "{}", pair.holds.len());
    }
}

#[tokio::test]
async fn a_budget_that_is_raised_without_the_server_gives_no_more_than_was_set_aside() {
    let mut pair = Pair::new().await;
    let part = pair.part().await;
    pair.lose().await;
    let hold = pair.one.admitted(&pair.asking).await;
    pair.holds.push(hold);
    let id = pair.asking.scopes[0].limits[0].id;
    let raised = limit(Dimension::BudgetCost, 3 * CALLERS as u64 * EACH.unsigned_abs());
    pair.asking = Asking::of(vec![on(tenant(1), vec![domain::limits::Limit { id, ..raised }])]);
    assert_eq!(pair.admit_all(|pair| &pair.one).await, part - 1);
}

#[tokio::test]
async fn what_is_set_aside_is_spent_while_the_server_keeps_it_and_no_longer() {
    let mut pair = Pair::new().await;
    pair.lose().await;
    pair.one.signs.pass(KEPT_MS - 11 * 60_000);
    let hold = pair.one.admitted(&pair.asking).await;
    pair.holds.push(hold);
    pair.one.signs.pass(60_000);
    assert_eq!(pair.admit_all(|pair| &pair.one).await, 0);
}

#[tokio::test]
async fn what_the_ledger_knows_before_the_server_is_not_counted_again() {
    let mut pair = Pair::new().await;
    let hold = pair.holds.pop().expect("a hold");
    pair.lose().await;
    pair.one.settle(hold, amounts(100, 100, EACH), 1).await;
    assert!(pair.other.read_budgets(&pair.asking, EACH, &[("one", 1)]).await);
    let budget = pair.other.reading(&pair.asking, Dimension::BudgetCost).await;
    assert_eq!(
        (budget.used, budget.held),
        (EACH, EACH.unsigned_abs()),
        "it may still be under way"
    );
    pair.return_again().await;
    pair.one.until_told().await;
    let budget = pair.other.reading(&pair.asking, Dimension::BudgetCost).await;
    assert_eq!((budget.used, budget.held), (EACH, 0));
}

#[tokio::test]
async fn whoever_leaves_gives_back_what_was_set_aside() {
    let mut pair = Pair::new().await;
    until("they know of each other", async || pair.other.limits.gateways() == 2).await;
    pair.one.limits.leave().await;
    assert!(!pair.one.store().beat_now().await);
    pair.other.store().beat_now().await;
    assert_eq!(pair.other.limits.gateways(), 1);
    assert_eq!(pair.admit_all(|pair| &pair.other).await, CALLERS - 1);
}

#[derive(Clone, Debug)]
enum Step {
    /// One request on a gateway, for so many of [`EACH`].
    Admit(usize, i64),
    /// So many at once.
    AdmitMany(usize, usize),
    /// It ends, having used so many percent of what it held.
    Settle(prop::sample::Index, i64),
    Refund(prop::sample::Index),
    Drop(prop::sample::Index),
    /// A gateway loses the server, alone.
    Cut(usize),
    Mend(usize),
    /// All lose it, and all that it knows.
    Restart,
    Flush,
    /// Until a gateway that can has come back.
    Wait(usize),
    /// Its beat, before its time.
    Beat(usize),
    /// A gateway's journal is in the ledger.
    Ship(usize),
    /// A gateway reads the budget's base.
    Read(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let gateway = 0..NAMES.len();
    let index = any::<prop::sample::Index>;
    prop_oneof![
        14 => (gateway.clone(), 1_i64..8).prop_map(|(gateway, units)| Step::Admit(gateway, units)),
        8 => (gateway.clone(), 5_usize..60).prop_map(|(gateway, count)| Step::AdmitMany(gateway, count)),
        14 => (index(), 50_i64..=100).prop_map(|(index, percent)| Step::Settle(index, percent)),
        1 => index().prop_map(Step::Refund),
        2 => index().prop_map(Step::Drop),
        4 => gateway.clone().prop_map(Step::Cut),
        3 => gateway.clone().prop_map(Step::Mend),
        1 => Just(Step::Restart),
        1 => Just(Step::Flush),
        3 => gateway.clone().prop_map(Step::Wait),
        4 => gateway.clone().prop_map(Step::Beat),
        2 => gateway.clone().prop_map(Step::Ship),
        4 => gateway.prop_map(Step::Read),
        3 => (0_u64..30_000).prop_map(Step::Pass),
    ]
}

/// The ledger, and the gateways of one history.
struct World {
    server: RedisServer,
    ways: Vec<Way>,
    gateways: Vec<Gateway>,
    is_cut: [bool; 3],
    /// The server has forgotten everything, and has not heard of the gateway since.
    is_forgotten: [bool; 3],
    asking: Asking,
    /// What each request that is under way may spend.
    open: Vec<(usize, Hold, i64)>,
    /// What each gateway's journal says.
    journals: [Vec<i64>; 3],
    /// How much of it is in the ledger.
    shipped: [usize; 3],
}

impl World {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let (mut ways, mut gateways) = (Vec::new(), Vec::new());
        for name in NAMES {
            let way = Way::to(&server).await;
            gateways.push(Gateway::start(&patient(way.url()), name).await);
            ways.push(way);
        }
        let world = Self {
            server,
            ways,
            gateways,
            is_cut: [false; 3],
            is_forgotten: [false; 3],
            asking: asking(PLACES),
            open: Vec::new(),
            journals: Default::default(),
            shipped: [0; 3],
        };
        assert!(world.gateways[0].read_budgets(&world.asking, 0, &[]).await);
        world
    }

    fn at_stake(&self) -> i64 {
        let held: i64 = self.open.iter().map(|(_, _, units)| units).sum();
        held + self.journals.iter().flatten().sum::<i64>()
    }

    fn asking(&self, units: i64) -> Asking {
        let each = amounts(1, 1, units * EACH);
        Asking {
            estimate: Estimate {
                expected: each,
                ceiling: each,
            },
            ..self.asking.clone()
        }
    }

    fn take(&mut self, index: &prop::sample::Index) -> Option<(usize, Hold, i64)> {
        (!self.open.is_empty()).then(|| self.open.swap_remove(index.index(self.open.len())))
    }

    async fn read(&mut self, gateway: usize) {
        // A first base has to contain what was settled before; the gateway waits for the ledger to have it.
        let closed = self.gateways[gateway]
            .reading(&self.asking, Dimension::BudgetCost)
            .await;
        if !closed.is_known {
            for (shipped, journal) in self.shipped.iter_mut().zip(&self.journals) {
                *shipped = journal.len();
            }
        }
        let journals = self.journals.iter().zip(self.shipped);
        let spent: i64 = journals
            .map(|(journal, shipped)| journal[..shipped].iter().sum::<i64>())
            .sum();
        let marks: Vec<(&str, u64)> = NAMES.into_iter().zip(self.shipped.map(|mark| mark as u64)).collect();
        self.gateways[gateway]
            .read_budgets(&self.asking, spent * EACH, &marks)
            .await;
    }

    async fn run(&mut self, step: &Step) {
        match step {
            Step::Admit(gateway, units) => {
                if let Ok(hold) = self.gateways[*gateway].admit(&self.asking(*units)).await {
                    self.open.push((*gateway, hold, *units));
                }
            }
            Step::AdmitMany(gateway, count) => {
                let asking = self.asking(1);
                let answers = join_all((0..*count).map(|_| self.gateways[*gateway].admit(&asking))).await;
                let holds = answers.into_iter().flatten();
                self.open.extend(holds.map(|hold| (*gateway, hold, 1)));
            }
            Step::Settle(index, percent) => {
                if let Some((gateway, hold, units)) = self.take(index) {
                    let actual = units * percent / 100;
                    self.journals[gateway].push(actual);
                    let seq = self.journals[gateway].len() as u64;
                    self.gateways[gateway]
                        .settle(hold, amounts(1, 1, actual * EACH), seq)
                        .await;
                }
            }
            Step::Refund(index) => {
                if let Some((gateway, hold, _)) = self.take(index) {
                    self.gateways[gateway].refund(hold).await;
                }
            }
            Step::Drop(index) => drop(self.take(index)),
            Step::Cut(gateway) => {
                if self.is_forgotten[*gateway] {
                    self.wait(*gateway).await;
                }
                self.ways[*gateway].cut();
                self.is_cut[*gateway] = true;
            }
            Step::Mend(gateway) => {
                self.ways[*gateway].mend();
                self.is_cut[*gateway] = false;
            }
            // What is forgotten while a gateway is cut off is not known to anybody: not promised.
            Step::Restart if self.are_all_there() => {
                self.server.kill();
                for gateway in &self.gateways {
                    let _ = gateway.admit(&self.asking(1)).await;
                }
                self.server.restart().await;
                self.is_forgotten = [true; 3];
            }
            Step::Flush if self.are_all_there() => {
                self.server.command(&["FLUSHALL"]).await;
                self.is_forgotten = [true; 3];
            }
            Step::Restart | Step::Flush => {}
            Step::Wait(gateway) => self.wait(*gateway).await,
            Step::Beat(gateway) => {
                let is_heard = self.gateways[*gateway].store().beat_now().await;
                self.is_forgotten[*gateway] &= !is_heard;
            }
            Step::Ship(gateway) => self.shipped[*gateway] = self.journals[*gateway].len(),
            Step::Read(gateway) => self.read(*gateway).await,
            Step::Pass(ms) => self.gateways.iter().for_each(|gateway| gateway.signs.pass(*ms)),
        }
    }

    async fn wait(&mut self, index: usize) {
        if self.is_cut[index] {
            return;
        }
        self.gateways[index].until_back().await;
        self.is_forgotten[index] = false;
    }

    fn are_all_there(&self) -> bool {
        self.is_cut == [false; 3] && !self.gateways.iter().any(Gateway::is_degraded)
    }

    /// Everybody is back and has told everything: the counters agree with the ledger.
    async fn come_to_rest(&mut self) {
        for index in 0..NAMES.len() {
            self.ways[index].mend();
            self.is_cut[index] = false;
            self.wait(index).await;
            self.gateways[index].until_told().await;
        }
        // Somebody who was cut off may have been about to read it.
        until("it opens again", async || {
            self.read(0).await;
            self.gateways[0]
                .reading(&self.asking, Dimension::BudgetCost)
                .await
                .is_known
        })
        .await;
        // Entries are counted together with their neighbours until the ledger has all of them.
        self.shipped = self.journals.each_ref().map(Vec::len);
        self.read(0).await;
        let budget = self.gateways[2].reading(&self.asking, Dimension::BudgetCost).await;
        let held: i64 = self.open.iter().map(|(_, _, units)| units).sum();
        let spent: i64 = self.journals.iter().flatten().sum();
        assert_eq!(
            (budget.used, budget.held),
            (spent * EACH, held.unsigned_abs() * EACH.unsigned_abs())
        );
    }
}

async fn check_history(steps: &[Step]) -> Result<BTreeMap<bool, usize>, String> {
    let mut world = World::new().await;
    let mut admitted = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let before = world.open.len();
        world.run(step).await;
        for (_, hold, _) in world.open.iter().skip(before) {
            *admitted.entry(is_local(hold)).or_default() += 1;
        }
        let at_stake = world.at_stake();
        if at_stake > PLACES as i64 {
            return Err(format!("{at_stake} of {PLACES} at step {number} of {steps:?}"));
        }
    }
    world.come_to_rest().await;
    Ok(admitted)
}

#[tokio::test]
async fn no_history_of_losses_and_returns_passes_a_budget() {
    const AT_ONCE: usize = 16;
    // On a busy machine a round may pass without anybody who goes on by its own.
    const ROUNDS_MAX: usize = 8;
    let mut runner = TestRunner::default();
    let history = prop::collection::vec(step(), 10..100);
    let mut admitted: BTreeMap<bool, usize> = BTreeMap::new();
    for round in 0..ROUNDS_MAX {
        if round > 0 && admitted.len() == 2 {
            break;
        }
        let histories: Vec<Vec<Step>> = (0..AT_ONCE)
            .map(|_| history.new_tree(&mut runner).expect("a history").current())
            .collect();
        for outcome in join_all(histories.iter().map(|steps| check_history(steps))).await {
            for (is_local, count) in outcome.unwrap_or_else(|failure| panic!("{failure}")) {
                *admitted.entry(is_local).or_default() += count;
            }
        }
    }
    assert!(admitted.len() == 2, "with and without the server: {admitted:?}");
}
