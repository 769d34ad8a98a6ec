//! One random history of claims through memory and through two gateways at Redis: every answer is the same.

use std::sync::Arc;

use bytes::Bytes;
use domain::ids::RequestId;
use proptest::prelude::*;

use super::super::fixture::{Servers, Signs, noon};
use super::{key, request};
use crate::{Claim, IDEMPOTENCY_KEPT_MS, Limits, Now, SealedAnswer, Settings, Unclaimed};

const SETTINGS: Settings = Settings {
    lease_ms: 60_000,
    orphan_ms: 600_000,
};
const KEYS: u8 = 3;
const BODIES: u8 = 2;
const GATEWAYS: [&str; 2] = ["one", "other"];

#[derive(Clone, Debug)]
enum Step {
    Claim { gateway: usize, key: u8, body: u8 },
    Sent(prop::sample::Index),
    Finish(prop::sample::Index, Option<u8>),
    FinishLater(prop::sample::Index, Option<u8>),
    Release(prop::sample::Index),
    Drop(prop::sample::Index),
    Lose(prop::sample::Index),
    Renew(prop::sample::Index),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let answer = || prop::option::of(any::<u8>());
    prop_oneof![
        10 => (0..GATEWAYS.len(), 0..KEYS, 0..BODIES).prop_map(|(gateway, key, body)| Step::Claim { gateway, key, body }),
        2 => index().prop_map(Step::Sent),
        3 => (index(), answer()).prop_map(|(index, answer)| Step::Finish(index, answer)),
        1 => (index(), answer()).prop_map(|(index, answer)| Step::FinishLater(index, answer)),
        1 => index().prop_map(Step::Release),
        1 => index().prop_map(Step::Drop),
        1 => index().prop_map(Step::Lose),
        3 => index().prop_map(Step::Renew),
        3 => (0..SETTINGS.lease_ms / 2).prop_map(Step::Pass),
        2 => (0..2 * SETTINGS.lease_ms).prop_map(Step::Pass),
        2 => (0..2 * IDEMPOTENCY_KEPT_MS).prop_map(Step::Pass),
        // To the millisecond.
        1 => prop::sample::select(&[SETTINGS.lease_ms, IDEMPOTENCY_KEPT_MS][..]).prop_map(Step::Pass),
    ]
}

/// Zeros and other bytes that are no text.
fn answer(number: u8) -> Option<SealedAnswer> {
    SealedAnswer::new(Bytes::from(vec![number, 0, b'\r', b'\n', 0xff]))
}

/// The same claim in memory and at one of the gateways.
struct Both {
    claims: [Claim; 2],
    gateway: usize,
}

struct Run {
    memory: Limits,
    gateways: Vec<Limits>,
    signs: Arc<Signs>,
    now: Now,
    open: Vec<Both>,
    next_id: u128,
}

impl Run {
    async fn new(servers: &Servers) -> Self {
        servers.flush().await;
        let now = noon();
        let signs = Signs::at(now);
        let mut gateways = Vec::new();
        for name in GATEWAYS {
            gateways.push(servers.limits(name, SETTINGS, &signs).await);
        }
        Self {
            memory: Limits::memory(SETTINGS),
            gateways,
            signs,
            now,
            open: Vec::new(),
            next_id: 0,
        }
    }

    fn take(&mut self, index: &prop::sample::Index) -> Option<Both> {
        (!self.open.is_empty()).then(|| self.open.swap_remove(index.index(self.open.len())))
    }

    fn next_request(&mut self) -> RequestId {
        self.next_id += 1;
        request(self.next_id)
    }

    async fn claim(
        &mut self,
        gateway: usize,
        key_number: u8,
        body: u8,
    ) -> Result<Result<Both, Unclaimed>, TestCaseError> {
        let (key, body, request) = (key(key_number), [body; 32], self.next_request());
        let in_memory = self.memory.claim(&key, body, request, self.now).await;
        let in_redis = self.gateways[gateway].claim(&key, body, request, self.now).await;
        match (in_memory, in_redis) {
            (Ok(one), Ok(other)) => Ok(Ok(Both {
                claims: [one, other],
                gateway,
            })),
            (Err(one), Err(other)) => {
                prop_assert_eq!(&one, &other);
                Ok(Err(one))
            }
            (one, other) => Err(TestCaseError::fail(format!("memory: {one:?}, Redis: {other:?}"))),
        }
    }

    async fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Claim { gateway, key, body } => {
                if let Ok(both) = self.claim(gateway, key, body).await? {
                    self.open.push(both);
                }
            }
            Step::Sent(index) => {
                if let Some(mut both) = self.take(&index) {
                    both.claims.iter_mut().for_each(Claim::mark_sent);
                    self.open.push(both);
                }
            }
            Step::Finish(index, number) => {
                for claim in self.take(&index).into_iter().flat_map(|both| both.claims) {
                    claim.finish(number.and_then(answer), self.now).await;
                }
            }
            Step::FinishLater(index, number) => {
                for claim in self.take(&index).into_iter().flat_map(|both| both.claims) {
                    claim.finish_later(number.and_then(answer), self.now);
                }
            }
            Step::Release(index) => {
                for claim in self.take(&index).into_iter().flat_map(|both| both.claims) {
                    claim.release(self.now).await;
                }
            }
            Step::Drop(index) => drop(self.take(&index)),
            Step::Lose(index) => {
                if let Some(both) = self.take(&index) {
                    both.claims.into_iter().for_each(std::mem::forget);
                }
            }
            Step::Renew(index) => {
                if let Some(both) = self.take(&index) {
                    for claim in &both.claims {
                        claim.renew(self.now).await;
                    }
                    let redis = self.gateways[both.gateway].in_redis().expect("claims in Redis");
                    redis.claims.renew_now(both.claims[1].request(), self.now).await;
                    self.open.push(both);
                }
            }
            Step::Pass(ms) => {
                self.now.monotonic_ms += ms;
                self.now.wall += chrono::Duration::milliseconds(ms.cast_signed());
            }
        }
        self.signs.pass_to(self.now);
        // Claims that are dropped go by the last time that was heard of.
        self.memory.sweep(self.now);
        for gateway in &self.gateways {
            gateway.sweep(self.now);
            let redis = gateway.in_redis().expect("claims in Redis");
            prop_assert!(redis.claims.tell_all(&*self.signs).await, "the server answers");
        }
        self.compare().await
    }

    /// Everybody is told the same of every key.
    async fn compare(&mut self) -> Result<(), TestCaseError> {
        for gateway in 0..GATEWAYS.len() {
            for key in 0..KEYS {
                for body in 0..BODIES {
                    if let Ok(both) = self.claim(gateway, key, body).await? {
                        for claim in both.claims {
                            claim.release(self.now).await;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn compare(cases: u32, servers: impl Future<Output = Servers>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let servers = runtime.block_on(servers);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..80))| {
        runtime.block_on(async {
            let mut run = Run::new(&servers).await;
            for step in steps {
                run.run(step).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    });
}

#[test]
fn memory_and_redis_give_the_same_answers() {
    compare(40, Servers::one());
}

#[test]
fn memory_and_a_cluster_give_the_same_answers() {
    compare(14, Servers::cluster());
}
