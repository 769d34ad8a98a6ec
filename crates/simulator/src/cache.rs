//! What of an input was written to the provider's cache before, and is read from it.

use std::collections::{HashSet, VecDeque};

use crate::asked::{Asked, Caching};
use crate::input::{Input, Lifetime};

/// How many prompts are remembered.
const SEEN_PROMPTS_MAX: usize = 10_000;
/// A cache that nobody asks for answers in blocks of so many tokens.
const BLOCK_TOKENS: u64 = 16;
/// How many blocks before a mark are searched for what was written.
const LOOKBACK_BLOCKS: usize = 20;

/// Tokens of an input that the cache is used for; what they leave is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheUse {
    pub(crate) read: u64,
    pub(crate) written_5m: u64,
    pub(crate) written_1h: u64,
}

/// The last prompts, by their hash. Nothing grows too old for it.
#[derive(Debug, Default)]
pub(crate) struct SeenPrompts {
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl SeenPrompts {
    /// What the cache does for this request, which it knows from now on.
    pub(crate) fn meet(&mut self, asked: &Asked) -> CacheUse {
        match asked.caching {
            Caching::Automatic => {
                let input = asked.input.counted();
                let is_seen = self.see(asked.input.hash());
                CacheUse {
                    read: if is_seen { input - input % BLOCK_TOKENS } else { 0 },
                    ..CacheUse::default()
                }
            }
            Caching::Marked => self.meet_marks(&asked.input),
        }
    }

    fn meet_marks(&mut self, input: &Input) -> CacheUse {
        let prefixes = input.prefixes();
        let marks = prefixes.iter().enumerate().filter(|(_, prefix)| prefix.mark.is_some());
        let longest_seen = marks
            .clone()
            .filter_map(|(mark, _)| {
                let first = (mark + 1).saturating_sub(LOOKBACK_BLOCKS);
                (first..=mark)
                    .rev()
                    .find(|at| self.hashes.contains(&prefixes[*at].hash))
            })
            .max();
        let read = longest_seen.map_or(0, |at| prefixes[at].tokens);
        let mut used = CacheUse {
            read,
            ..CacheUse::default()
        };
        let mut kept = read;
        for (at, prefix) in marks {
            self.see(prefix.hash);
            if longest_seen.is_some_and(|seen| at <= seen) {
                continue;
            }
            let written = match prefix.mark {
                Some(Lifetime::OneHour) => &mut used.written_1h,
                _ => &mut used.written_5m,
            };
            *written += prefix.tokens - kept;
            kept = prefix.tokens;
        }
        used
    }

    /// Whether it came before; it has now.
    fn see(&mut self, hash: u64) -> bool {
        if !self.hashes.insert(hash) {
            return true;
        }
        self.order.push_back(hash);
        if self.order.len() > SEEN_PROMPTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
        }
        false
    }
}
