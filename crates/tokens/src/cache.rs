//! Counts of long texts that come again and again: system prompts, tool definitions.
//!
//! Two generations instead of a list in order of use: when the young one is full it becomes the old one, and what was in
//! the old one and not asked for since is forgotten.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use domain::policy::Encoding;
use parking_lot::Mutex;

const SHARDS: usize = 16;

#[derive(Debug)]
pub(crate) struct CountCache {
    /// Keyed at random, so that nobody can craft a text that is counted as another.
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    young_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: HashMap<Key, u64>,
    old: HashMap<Key, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    hash: u64,
    bytes: usize,
}

impl CountCache {
    /// Holds at most `entries_max` counts, rounded up to twice the number of shards.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            young_max: entries_max.div_ceil(2 * SHARDS).max(1),
        }
    }

    /// The count of `text`; `count` runs without a lock held, at worst twice for one text at the same time.
    pub(crate) fn get_or_count(&self, encoding: Encoding, text: &str, count: impl FnOnce() -> u64) -> u64 {
        let hash = self.hasher.hash_one((encoding.as_str(), text));
        let key = Key {
            hash,
            bytes: text.len(),
        };
        let shard = &self.shards[hash as usize % SHARDS];
        if let Some(tokens) = shard.lock().find(key, self.young_max) {
            return tokens;
        }
        let tokens = count();
        shard.lock().keep(key, tokens, self.young_max);
        tokens
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.young.len() + shard.old.len()
        };
        self.shards.iter().map(count).sum()
    }
}

impl Shard {
    fn find(&mut self, key: Key, young_max: usize) -> Option<u64> {
        if let Some(tokens) = self.young.get(&key) {
            return Some(*tokens);
        }
        let tokens = self.old.remove(&key)?;
        self.keep(key, tokens, young_max);
        Some(tokens)
    }

    fn keep(&mut self, key: Key, tokens: u64, young_max: usize) {
        if self.young.len() >= young_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, tokens);
    }
}

#[cfg(test)]
mod tests;
