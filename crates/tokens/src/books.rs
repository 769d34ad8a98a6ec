//! What is learned from requests that have run: how far a guess of the input is off, and how long answers are. Both are
//! about the 90th percentile of the last requests; both forget whom they have not seen for longest.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use domain::ids::KeyId;
use parking_lot::RwLock;

/// How many samples it takes before they count.
pub const LEARNED_AFTER: usize = 8;
/// The most models that are learned about.
pub const MODELS_LEARNED_MAX: usize = 1_000;
/// The most pairs of key and model that are learned about.
pub const KEYS_LEARNED_MAX: usize = 10_000;

/// How many samples are kept of each.
const SAMPLES: usize = 32;

/// By how much a guess is multiplied, in thousandths, 250 to 4,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u32);

impl Ratio {
    /// As guessed.
    pub const ONE: Self = Self(1_000);
    const LEAST: u32 = 250;
    const MOST: u32 = 4_000;

    fn of(guess: u64, actual: u64) -> Self {
        let thousandths = u128::from(actual) * 1_000 / u128::from(guess.max(1));
        let bounded = thousandths.clamp(u128::from(Self::LEAST), u128::from(Self::MOST));
        Self(u32::try_from(bounded).unwrap_or(Self::MOST))
    }

    pub(crate) fn times(self, tokens: u64) -> u64 {
        let product = (u128::from(tokens) * u128::from(self.0)).div_ceil(1_000);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// How far guesses of the input are off, by model.
#[derive(Debug)]
pub struct RatioBook(Book);

impl Default for RatioBook {
    fn default() -> Self {
        Self::new()
    }
}

impl RatioBook {
    /// Nothing learned yet.
    pub fn new() -> Self {
        Self(Book::new(MODELS_LEARNED_MAX))
    }

    /// The ratio for a model; [`Ratio::ONE`] before enough is known.
    pub fn ratio(&self, model: &str) -> Ratio {
        self.0.find(model).map_or(Ratio::ONE, Ratio)
    }

    /// Takes note of a request: what was guessed, and the input the provider reported. Reports of nothing are no news.
    pub fn observe(&self, model: &str, guess_tokens: u64, actual_tokens: u64) {
        if guess_tokens > 0 && actual_tokens > 0 {
            self.0.observe(model, Ratio::of(guess_tokens, actual_tokens).0);
        }
    }
}

/// How long answers are, by key and model, and by model for keys that are new.
#[derive(Debug)]
pub struct OutputBook {
    by_key: Book,
    by_model: Book,
}

impl Default for OutputBook {
    fn default() -> Self {
        Self::new()
    }
}

impl OutputBook {
    /// Nothing learned yet.
    pub fn new() -> Self {
        Self {
            by_key: Book::new(KEYS_LEARNED_MAX),
            by_model: Book::new(MODELS_LEARNED_MAX),
        }
    }

    /// The output to expect of one choice: learned, or else `default_tokens`; never above `cap_tokens`.
    pub fn expected(&self, key: KeyId, model: &str, default_tokens: u64, cap_tokens: u64) -> u64 {
        self.by_key
            .find((key, model))
            .or_else(|| self.by_model.find(model))
            .map_or(default_tokens, u64::from)
            .min(cap_tokens)
    }

    /// Takes note of the output of one choice, reasoning included.
    pub fn observe(&self, key: KeyId, model: &str, output_tokens: u64) {
        let sample = u32::try_from(output_tokens).unwrap_or(u32::MAX);
        self.by_key.observe((key, model), sample);
        self.by_model.observe(model, sample);
    }
}

/// The last samples of each of a bounded number of things. They are known by the hash of their name: two that share one,
/// which happens once in some quintillion pairs, would be learned about together.
#[derive(Debug)]
struct Book {
    hasher: RandomState,
    pages: RwLock<Pages>,
    pages_max: usize,
}

#[derive(Debug, Default)]
struct Pages {
    by_name: HashMap<u64, Page>,
    /// Raised by each sample.
    turn: u64,
}

#[derive(Debug)]
struct Page {
    samples: [u32; SAMPLES],
    len: usize,
    next: usize,
    percentile: u32,
    last_turn: u64,
}

impl Book {
    fn new(pages_max: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            pages: RwLock::default(),
            pages_max,
        }
    }

    fn find(&self, name: impl Hash) -> Option<u32> {
        let name = self.hasher.hash_one(name);
        let pages = self.pages.read();
        let page = pages.by_name.get(&name)?;
        (page.len >= LEARNED_AFTER).then_some(page.percentile)
    }

    fn observe(&self, name: impl Hash, sample: u32) {
        let name = self.hasher.hash_one(name);
        let mut pages = self.pages.write();
        pages.turn += 1;
        let turn = pages.turn;
        if pages.by_name.len() >= self.pages_max && !pages.by_name.contains_key(&name) {
            pages.forget_oldest();
        }
        pages.by_name.entry(name).or_insert_with(Page::new).add(sample, turn);
    }
}

impl Pages {
    /// Forgets the eighth that was not seen for longest, so that the search for it is rare.
    fn forget_oldest(&mut self) {
        let mut turns: Vec<u64> = self.by_name.values().map(|page| page.last_turn).collect();
        let count = turns.len().div_ceil(8);
        if count == 0 {
            return;
        }
        let (_, newest_to_forget, _) = turns.select_nth_unstable(count - 1);
        let bound = *newest_to_forget;
        self.by_name.retain(|_, page| page.last_turn > bound);
    }
}

impl Page {
    fn new() -> Self {
        Self {
            samples: [0; SAMPLES],
            len: 0,
            next: 0,
            percentile: 0,
            last_turn: 0,
        }
    }

    fn add(&mut self, sample: u32, turn: u64) {
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % SAMPLES;
        self.len = (self.len + 1).min(SAMPLES);
        self.last_turn = turn;
        let mut sorted = self.samples;
        let known = &mut sorted[..self.len];
        let rank = (known.len() * 9).div_ceil(10) - 1;
        self.percentile = *known.select_nth_unstable(rank).1;
    }
}

#[cfg(test)]
mod tests;
