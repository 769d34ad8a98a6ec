//! Counts what a request will be charged for as input, before it runs.

use domain::parts::{Part, PartKind, TextSize};
use domain::policy::Encoding;

use crate::books::Ratio;
use crate::cache::CountCache;
use crate::media::media_tokens;

/// Head-room on what is not certain, in percent.
pub const BUFFER_PERCENT: u64 = 15;
/// From here on a request should be counted off the async threads: exact counting takes tens of milliseconds a megabyte.
pub const OFFLOAD_BYTES_MIN: u64 = 64 * 1024;

/// Texts from here on are remembered; hashing a shorter one costs about as much as counting it.
const CACHED_BYTES_MIN: usize = 512;
/// How many counts are remembered.
const CACHED_TEXTS_MAX: usize = 16_384;

/// What a provider adds around each message: its start, its role, its end.
const MESSAGE_TOKENS: u64 = 4;
/// What it adds to prime the answer.
const REPLY_TOKENS: u64 = 3;
/// What it adds around each definition when it renders it into the prompt.
const DEFINITION_TOKENS: u64 = 12;

/// Tokens in a hundred bytes of ASCII, where nothing was learned yet: prose has 23 to 26, code up to 33.
const ASCII_TOKENS_PER_100_BYTES: u64 = 30;
/// Tokens in a hundred bytes of other scripts: about 1.2 for a character of Chinese, 0.8 for one of Cyrillic.
const OTHER_TOKENS_PER_100_BYTES: u64 = 40;

/// What a request is thought to have as input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputEstimate {
    /// What rates hold.
    pub expected_tokens: u64,
    /// What budgets hold, at least `expected_tokens`. Not below what the provider counts for text, where the encoding is
    /// the model's own.
    pub ceiling_tokens: u64,
    /// What it would be without having learned anything: to be given back to [`crate::RatioBook::observe`].
    pub guess_tokens: u64,
}

impl InputEstimate {
    /// The estimate of a request that the provider will count so many tokens for: with the head-room that a text of this
    /// size would be given.
    pub fn given(encoding: Encoding, tokens: u64) -> Self {
        let (expected_tokens, ceiling) = match encoding {
            Encoding::O200kBase | Encoding::Cl100kBase => (tokens, tokens),
            Encoding::Ratio => (with_buffer(tokens), tokens.saturating_mul(2)),
        };
        Self {
            expected_tokens,
            ceiling_tokens: with_buffer(ceiling),
            guess_tokens: tokens,
        }
    }
}

/// What there is around a request's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// How many messages.
    pub messages: usize,
    /// What the provider is known to put before the prompt by itself.
    pub preamble_tokens: u64,
}

/// Counts texts; cheap to share, remembers long ones.
#[derive(Debug)]
pub struct Counter {
    cache: CountCache,
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    /// A counter that remembers nothing yet.
    pub fn new() -> Self {
        Self {
            cache: CountCache::new(CACHED_TEXTS_MAX),
        }
    }

    /// Loads both exact encodings, which the first count would otherwise wait for: some hundred milliseconds.
    pub fn warm(&self) {
        for encoding in Encoding::ALL {
            self.count_text(encoding, "warm");
        }
    }

    /// Tokens of one text: exact, or for [`Encoding::Ratio`] the unlearned guess.
    pub fn count_text(&self, encoding: Encoding, text: &str) -> u64 {
        let tokenizer = match encoding {
            Encoding::O200kBase => bpe_openai::o200k_base(),
            Encoding::Cl100kBase => bpe_openai::cl100k_base(),
            Encoding::Ratio => return guess_text(TextSize::of(text)),
        };
        let count = || tokenizer.count(text) as u64;
        if text.len() < CACHED_BYTES_MIN {
            count()
        } else {
            self.cache.get_or_count(encoding, text, count)
        }
    }

    /// The input of a request with these parts. `ratio` counts for [`Encoding::Ratio`] only.
    pub fn estimate_input<'a>(
        &self,
        encoding: Encoding,
        ratio: Ratio,
        around: Around,
        parts: impl IntoIterator<Item = Part<'a>>,
    ) -> InputEstimate {
        let mut overhead = REPLY_TOKENS
            .saturating_add(MESSAGE_TOKENS.saturating_mul(around.messages as u64))
            .saturating_add(around.preamble_tokens);
        let mut text_tokens = 0_u64;
        let mut text_bytes = 0_u64;
        let (mut media_expected, mut media_ceiling) = (0_u64, 0_u64);
        for part in parts {
            let media = media_tokens(&part);
            media_expected = media_expected.saturating_add(media.expected_tokens);
            media_ceiling = media_ceiling.saturating_add(media.ceiling_tokens);
            if part.kind == PartKind::Definition {
                overhead = overhead.saturating_add(DEFINITION_TOKENS);
            }
            text_tokens = text_tokens.saturating_add(self.count_text(encoding, &part.text));
            text_bytes = text_bytes.saturating_add(part.text.len() as u64);
        }

        let guess_tokens = text_tokens.saturating_add(overhead).saturating_add(media_expected);
        let (expected_tokens, ceiling_text) = match encoding {
            Encoding::O200kBase | Encoding::Cl100kBase => (guess_tokens, text_tokens),
            // Nobody knows this model's encoding, but none makes more tokens than there are bytes.
            Encoding::Ratio => (
                with_buffer(ratio.times(guess_tokens)),
                ratio
                    .max(Ratio::ONE)
                    .times(text_tokens)
                    .saturating_mul(2)
                    .min(text_bytes),
            ),
        };
        let ceiling = with_buffer(ceiling_text.saturating_add(overhead).saturating_add(media_ceiling));
        InputEstimate {
            expected_tokens,
            ceiling_tokens: ceiling.max(expected_tokens),
            guess_tokens,
        }
    }
}

/// Tokens of a text of which only the size is known.
pub fn guess_text(size: TextSize) -> u64 {
    let weighed = u128::from(size.ascii_bytes) * u128::from(ASCII_TOKENS_PER_100_BYTES)
        + u128::from(size.other_bytes) * u128::from(OTHER_TOKENS_PER_100_BYTES);
    u64::try_from(weighed.div_ceil(100)).unwrap_or(u64::MAX)
}

/// Tokens of an answer whose usage nobody reported: by the size of what was generated, and at least one for each of the
/// pieces it came in.
pub fn guess_output(size: TextSize, pieces: u64) -> u64 {
    guess_text(size).max(pieces)
}

fn with_buffer(tokens: u64) -> u64 {
    tokens.saturating_add(tokens.saturating_mul(BUFFER_PERCENT).div_ceil(100))
}

#[cfg(test)]
mod tests;
