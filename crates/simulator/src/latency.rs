//! How long a model thinks about a prompt, if an order says so.

use crate::behaviour::Behaviour;
use crate::random::Random;

/// How many standard deviations lie below 99 % of a normal distribution.
const P99_DEVIATIONS: f64 = 2.326_347_9;
/// Mixed into the prompt's seed, so that slow prompts are not those with long answers.
const LATENCY_SEED: u64 = 0x6c61_7465_6e63_7921;

/// The wait before the first byte for the prompt with this seed, in milliseconds.
pub(crate) fn latency_ms(behaviour: &Behaviour, seed: u64) -> u64 {
    let median_ms = behaviour.latency_ms;
    let Some(p99_ms) = behaviour.latency_p99_ms.filter(|p99_ms| *p99_ms > median_ms) else {
        return median_ms;
    };
    let spread = (p99_ms as f64 / median_ms.max(1) as f64).ln() / P99_DEVIATIONS;
    let deviations = Random::of(seed ^ LATENCY_SEED).normal();
    (median_ms as f64 * (spread * deviations).exp()) as u64
}

#[cfg(test)]
mod tests;
