//! What the users ask for: always the same, so that runs compare.

use serde_json::{Value, json};

/// The model's name.
pub(crate) const MODEL: &str = "sim-model";
/// Requests a minute of the provider's account.
pub(crate) const ACCOUNT_REQUESTS: u64 = 500;
/// Tokens a minute of it. Five hundred requests of the average size stay just inside.
pub(crate) const ACCOUNT_TOKENS: u64 = 400_000;
/// How the model answers: half of the prompts within 1.1 s, one in a hundred later than 3 s.
pub(crate) const LATENCY: &str = "latency-ms=1100 latency-p99-ms=3000";

/// Fewest and most tokens of a prompt; evenly spread.
const INPUT_TOKENS: (u64, u64) = (300, 790);
/// Fewest and most tokens of an answer.
const OUTPUT_TOKENS: (u64, u64) = (120, 320);
/// What the users bound their answers by.
const OUTPUT_CAP_TOKENS: u64 = 400;
/// The simulator counts one for every five bytes.
const BYTES_PER_TOKEN: usize = 5;
const FILLER: &str = "a plain word after another and then some more of the same sort for the model to read ";

/// So many users with so many requests each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) users: usize,
    pub(crate) requests_each: usize,
}

impl Demand {
    pub(crate) fn requests(&self) -> usize {
        self.users * self.requests_each
    }

    /// How long the account takes for all of it, in seconds.
    pub(crate) fn account_seconds(&self) -> f64 {
        self.requests() as f64 * 60.0 / ACCOUNT_REQUESTS as f64
    }
}

/// A user's name, as keys and requests have it.
pub(crate) fn user_name(user: usize) -> String {
    format!("user-{user:03}")
}

/// The body of a user's `nth` request.
pub(crate) fn body(user: usize, nth: usize) -> Value {
    let mut random = Random((user as u64) << 32 | nth as u64);
    let input_tokens = random.between(INPUT_TOKENS);
    let output_tokens = random.between(OUTPUT_TOKENS);
    let mut text = format!(
        "[[sim: tokens={output_tokens}]] {} asks for the {nth}th time: ",
        user_name(user)
    );
    let bytes = input_tokens as usize * BYTES_PER_TOKEN;
    while text.len() < bytes {
        text.push_str(FILLER);
    }
    text.truncate(bytes);
    json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": text }],
        "max_completion_tokens": OUTPUT_CAP_TOKENS,
        "user": user_name(user),
    })
}

/// SplitMix64: the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// Above 0 and at most 1.
    pub(crate) fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}
