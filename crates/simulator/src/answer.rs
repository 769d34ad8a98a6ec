//! The answer to a request: a pure function of it.

use domain::usage::TokenUsage;
use serde_json::json;

use crate::asked::Asked;
use crate::behaviour::Behaviour;
use crate::cache::CacheUse;
use crate::random::Random;

/// Fewest words of an answer whose length nobody ordered.
const WORDS_MIN: u64 = 20;
/// Most words of it.
const WORDS_MAX: u64 = 120;
/// Most words of all choices together, whatever is ordered.
pub(crate) const WORDS_GENERATED_MAX: u64 = 200_000;

const WORDS: [&str; 48] = [
    "the",
    "answer",
    "depends",
    "on",
    "what",
    "you",
    "measure",
    "first",
    "der",
    "Schlüssel",
    "liegt",
    "in",
    "ruhigen",
    "Zahlen",
    "pour",
    "la",
    "première",
    "fois",
    "c'est",
    "déjà",
    "clair",
    "una",
    "pequeña",
    "señal",
    "basta",
    "para",
    "hoy",
    "これは",
    "静かな",
    "答え",
    "です",
    "流れる",
    "水",
    "请",
    "稍等",
    "数据",
    "正在",
    "到达",
    "나무",
    "아래",
    "바람이",
    "분다",
    "шаг",
    "за",
    "шагом",
    "вперёд",
    "🙂",
    "🚀",
];

/// What is generated, before it is put into JSON.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// What its ids are made of.
    seed: u64,
    /// All that was generated, shown or not.
    pub(crate) choices: Vec<Choice>,
    /// What all of it uses.
    pub(crate) usage: TokenUsage,
}

/// One answer of those that were asked for.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What is thought before anything is said.
    pub(crate) reasoning: Vec<&'static str>,
    pub(crate) words: Vec<&'static str>,
    pub(crate) ending: Ending,
}

/// Why a choice ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Said,
    Capped,
    ToolCalled,
}

impl Answer {
    /// What the cache does is found, unless it is ordered.
    pub(crate) fn to(asked: &Asked, behaviour: &Behaviour, cache: CacheUse) -> Self {
        let seed = asked.input.seed();
        let cap = asked
            .output_cap_tokens
            .unwrap_or(u64::MAX)
            .min(WORDS_GENERATED_MAX / u64::from(asked.choices.max(1)));
        let choices: Vec<Choice> = (0..u64::from(asked.choices))
            .map(|index| {
                let mut random = Random::of(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                Choice::generate(asked, behaviour, cap, &mut random)
            })
            .collect();
        Self {
            seed,
            usage: usage(asked, behaviour, cache, &choices),
            choices,
        }
    }

    /// Its id, and those of its parts: the same but for the prefix.
    pub(crate) fn id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}", self.seed)
    }
}

fn usage(asked: &Asked, behaviour: &Behaviour, cache: CacheUse, choices: &[Choice]) -> TokenUsage {
    if asked.is_free {
        return TokenUsage::default();
    }
    let count = |words: fn(&Choice) -> usize| choices.iter().map(|choice| words(choice) as u64).sum::<u64>();
    let reasoning_tokens = count(|choice| choice.reasoning.len());
    let mut input_fresh_tokens = asked.input.counted();
    let mut take = |wanted: u64| {
        let taken = wanted.min(input_fresh_tokens);
        input_fresh_tokens -= taken;
        taken
    };
    let cache_read_tokens = take(behaviour.cached_tokens.unwrap_or(cache.read));
    let cache_write_5m_tokens = take(behaviour.cache_write_5m_tokens.unwrap_or(cache.written_5m));
    let cache_write_1h_tokens = take(behaviour.cache_write_1h_tokens.unwrap_or(cache.written_1h));
    TokenUsage {
        input_fresh_tokens,
        cache_read_tokens,
        cache_write_5m_tokens,
        cache_write_1h_tokens,
        output_tokens: reasoning_tokens + count(|choice| choice.words.len()),
        reasoning_tokens,
    }
}

impl Choice {
    fn generate(asked: &Asked, behaviour: &Behaviour, cap: u64, random: &mut Random) -> Self {
        let wanted = behaviour
            .output_tokens
            .unwrap_or_else(|| random.between(WORDS_MIN, WORDS_MAX));
        let reasons = asked.wants_thoughts || asked.model.contains("reason");
        let thought = behaviour
            .reasoning_tokens
            .unwrap_or(if reasons { wanted / 2 } else { 0 })
            .min(wanted);
        let given = wanted.min(cap);
        let mut words = |count: u64| {
            (0..count)
                .map(|_| WORDS[random.below(WORDS.len() as u64) as usize])
                .collect::<Vec<_>>()
        };
        Self {
            reasoning: words(thought.min(given)),
            words: words(given.saturating_sub(thought)),
            ending: match (given < wanted, behaviour.calls_tool) {
                (true, _) => Ending::Capped,
                (false, true) => Ending::ToolCalled,
                (false, false) => Ending::Said,
            },
        }
    }

    /// The text that is shown.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }

    /// What was thought, where it is shown.
    pub(crate) fn thoughts(&self) -> String {
        self.reasoning.join(" ")
    }

    /// Whether it got as far as saying something, or had nothing else to do.
    pub(crate) fn is_said(&self) -> bool {
        !self.words.is_empty() || self.reasoning.is_empty()
    }

    /// The arguments of a tool call that takes all words: JSON, in one piece.
    pub(crate) fn arguments(&self) -> String {
        json!({ "text": self.text() }).to_string()
    }

    /// The same as a stream brings them, each piece with the words it stands for.
    pub(crate) fn argument_pieces(&self) -> Vec<(String, u64)> {
        let arguments: Vec<char> = self.arguments().chars().collect();
        let words = self.words.len();
        let pieces: Vec<&[char]> = arguments
            .chunks(arguments.len().div_ceil(words.max(1)).max(1))
            .collect();
        let count = pieces.len();
        let tokens = |nth: usize| (words * (nth + 1) / count - words * nth / count) as u64;
        pieces
            .into_iter()
            .enumerate()
            .map(|(nth, piece)| (piece.iter().collect(), tokens(nth)))
            .collect()
    }
}

/// A word that stands for a token.
pub(crate) fn word_of(token: u64) -> &'static str {
    WORDS[(token % WORDS.len() as u64) as usize]
}

/// A word of a stream, parted from the one before.
pub(crate) fn spaced(nth: usize, word: &str) -> String {
    if nth == 0 { word.to_owned() } else { format!(" {word}") }
}
