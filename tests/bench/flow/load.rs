//! The two runs: arrivals paced to what the account can bear, and everybody as fast as they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::callers::{Call, Callers};
use crate::demand::{ACCOUNT_REQUESTS, Demand, Random, body};

/// Paced arrivals come at this share of the account's requests.
const PACED_PERCENT: u64 = 90;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(20);

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Run {
    /// One after the other at 90 % of what the account allows, whether or not earlier ones are answered.
    Paced,
    /// Each user asks again as soon as the last request is answered or given up.
    Closed,
}

impl Run {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Paced => "(a) paced to 90 % of the account",
            Self::Closed => "(b) everybody in sequence, as fast as they are answered",
        }
    }
}

/// What is done in a run.
pub(crate) struct Load {
    pub(crate) run: Run,
    pub(crate) demand: Demand,
    /// Whether paced arrivals come at random moments.
    pub(crate) is_random: bool,
}

/// All calls of a run.
pub(crate) struct Calls {
    pub(crate) all: Vec<Call>,
    /// From the first to the end of the last.
    pub(crate) took: Duration,
}

impl Load {
    /// Makes all calls, and waits for their ends.
    pub(crate) async fn run(&self, callers: Vec<Callers>, what: &str) -> Calls {
        let done = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let mut calls = match self.run {
            Run::Paced => self.paced(&callers, started, &done),
            Run::Closed => self.closed(callers, &done),
        };
        let mut all = Vec::new();
        let mut progress = interval(PROGRESS_INTERVAL);
        progress.tick().await;
        loop {
            tokio::select! {
                ended = calls.join_next() => match ended {
                    Some(Ok(mut ended)) => all.append(&mut ended),
                    Some(Err(error)) => panic!("a caller ended early: {error}"),
                    None => break,
                },
                _ = progress.tick() => {
                    let (done, seconds) = (done.load(Ordering::Relaxed), started.elapsed().as_secs());
                    eprintln!("{what}: {done} of {} calls after {seconds} s", self.demand.requests());
                }
            }
        }
        Calls {
            all,
            took: started.elapsed(),
        }
    }

    fn paced(&self, callers: &[Callers], started: Instant, done: &Arc<AtomicUsize>) -> JoinSet<Vec<Call>> {
        let mut calls = JoinSet::new();
        let gap_seconds = 60.0 * 100.0 / (ACCOUNT_REQUESTS * PACED_PERCENT) as f64;
        let mut random = Random(0);
        let mut at_seconds = 0.0;
        for number in 0..self.demand.requests() {
            let (user, nth) = (number % callers.len(), number / callers.len());
            let (caller, done) = (callers[user].clone(), Arc::clone(done));
            let at = started + Duration::from_secs_f64(at_seconds);
            calls.spawn(async move {
                sleep_until(at).await;
                let call = caller.call(&body(user, nth)).await;
                done.fetch_add(1, Ordering::Relaxed);
                vec![call]
            });
            at_seconds += match self.is_random {
                true => -gap_seconds * random.share().ln(),
                false => gap_seconds,
            };
        }
        calls
    }

    fn closed(&self, callers: Vec<Callers>, done: &Arc<AtomicUsize>) -> JoinSet<Vec<Call>> {
        let mut calls = JoinSet::new();
        let requests_each = self.demand.requests_each;
        for (user, caller) in callers.into_iter().enumerate() {
            let done = Arc::clone(done);
            calls.spawn(async move {
                let mut own = Vec::new();
                for nth in 0..requests_each {
                    own.push(caller.call(&body(user, nth)).await);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                own
            });
        }
        calls
    }
}
