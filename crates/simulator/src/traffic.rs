//! What came to the account and when: for benchmarks, which judge a gateway by what its provider saw.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::account::MINUTE;

/// A request as it met the account's limits. One that was ordered to fail does not meet them, nor one that only counts
/// tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in milliseconds since the start of the simulator.
    pub at_ms: u64,
    /// Whom it was for, if its body says so (`user`, or `user_id` in its `metadata`).
    pub user: Option<Arc<str>>,
    /// Input and output of its answer.
    pub tokens: u64,
    /// Whether the account had room; 429 otherwise.
    pub is_admitted: bool,
}

/// The last arrivals, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    arrivals: VecDeque<Arrival>,
}

impl Traffic {
    /// Keeps it, and at most `max` of them.
    pub(crate) fn note(&mut self, arrival: Arrival, max: usize) {
        if max == 0 {
            return;
        }
        if self.arrivals.len() >= max {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(arrival);
    }

    /// All that are kept.
    pub fn arrivals(&self) -> impl ExactSizeIterator<Item = &Arrival> {
        self.arrivals.iter()
    }

    /// How many came in each second since the first, and how many of these were refused.
    pub fn per_second(&self) -> Vec<(u64, u64)> {
        let mut seconds: Vec<(u64, u64)> = Vec::new();
        let first_ms = self.arrivals.front().map_or(0, |arrival| arrival.at_ms);
        for arrival in &self.arrivals {
            let second = ((arrival.at_ms - first_ms) / 1_000) as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, (0, 0));
            }
            seconds[second].0 += 1;
            seconds[second].1 += u64::from(!arrival.is_admitted);
        }
        seconds
    }

    /// The most that came within any second.
    pub fn peak_per_second(&self) -> u64 {
        busiest(&self.arrivals, 1_000, |_| true, |_| 1)
    }

    /// The most requests that were admitted within any minute.
    pub fn peak_requests_per_minute(&self) -> u64 {
        busiest(&self.arrivals, minute_ms(), |arrival| arrival.is_admitted, |_| 1)
    }

    /// The most tokens that were admitted within any minute.
    pub fn peak_tokens_per_minute(&self) -> u64 {
        busiest(
            &self.arrivals,
            minute_ms(),
            |arrival| arrival.is_admitted,
            |arrival| arrival.tokens,
        )
    }

    /// The most tokens that one user was admitted with within any minute.
    pub fn peak_user_tokens_per_minute(&self) -> u64 {
        let mut users: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for arrival in &self.arrivals {
            users
                .entry(arrival.user.as_deref().unwrap_or_default())
                .or_default()
                .push(arrival);
        }
        users
            .into_values()
            .map(|arrivals| {
                busiest(
                    arrivals,
                    minute_ms(),
                    |arrival| arrival.is_admitted,
                    |arrival| arrival.tokens,
                )
            })
            .max()
            .unwrap_or(0)
    }
}

fn minute_ms() -> u64 {
    MINUTE.as_millis() as u64
}

/// The largest sum of amounts within any span of time.
fn busiest<'a>(
    arrivals: impl IntoIterator<Item = &'a Arrival>,
    span_ms: u64,
    counts: impl Fn(&Arrival) -> bool,
    amount: impl Fn(&Arrival) -> u64,
) -> u64 {
    let (mut most, mut sum) = (0, 0);
    let mut within = VecDeque::new();
    for arrival in arrivals.into_iter().filter(|arrival| counts(arrival)) {
        while let Some(left) = within.pop_front_if(|first: &mut &Arrival| first.at_ms + span_ms <= arrival.at_ms) {
            sum -= amount(left);
        }
        within.push_back(arrival);
        sum += amount(arrival);
        most = most.max(sum);
    }
    most
}

#[cfg(test)]
mod tests;
