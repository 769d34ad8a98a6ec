//! The answer to a request: a pure function of it.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::parts::PartKind;
use domain::usage::TokenUsage;
use protocol::request::InferenceRequest as ChatRequest;
use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::random::{Random, prompt_seed};

/// Fewest words of an answer whose length nobody ordered.
const WORDS_MIN: u64 = 20;
/// Most words of it.
const WORDS_MAX: u64 = 120;
/// Most words of all choices together, whatever is ordered.
pub(crate) const WORDS_GENERATED_MAX: u64 = 200_000;
/// How many prompts are remembered for the cache.
const SEEN_PROMPTS_MAX: usize = 10_000;
/// The cache answers in blocks of so many tokens.
const CACHE_BLOCK_TOKENS: u64 = 16;

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
    /// `chatcmpl-...`.
    pub(crate) id: String,
    /// One list of words for each choice: reasoning first.
    pub(crate) choices: Vec<Choice>,
    /// What all of it uses.
    pub(crate) usage: TokenUsage,
}

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) reasoning: Vec<&'static str>,
    pub(crate) words: Vec<&'static str>,
    pub(crate) finish_reason: &'static str,
}

impl Answer {
    pub(crate) fn to(request: &ChatRequest, behaviour: &Behaviour, is_prompt_seen: bool) -> Self {
        let seed = prompt_seed(request);
        let cap = request
            .output_cap_tokens()
            .unwrap_or(u64::MAX)
            .min(WORDS_GENERATED_MAX / u64::from(request.choices()));
        let choices: Vec<Choice> = (0..u64::from(request.choices()))
            .map(|index| {
                let mut random = Random::of(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                Choice::generate(request.model(), behaviour, cap, &mut random)
            })
            .collect();
        let count = |words: fn(&Choice) -> usize| choices.iter().map(|choice| words(choice) as u64).sum::<u64>();
        let reasoning_tokens = count(|choice| choice.reasoning.len());
        let input = input_tokens(request);
        let cached = if is_prompt_seen {
            input - input % CACHE_BLOCK_TOKENS
        } else {
            0
        };
        let cache_read_tokens = behaviour.cached_tokens.unwrap_or(cached).min(input);
        Self {
            id: format!("chatcmpl-{seed:016x}"),
            usage: TokenUsage {
                input_fresh_tokens: input - cache_read_tokens,
                cache_read_tokens,
                output_tokens: reasoning_tokens + count(|choice| choice.words.len()),
                reasoning_tokens,
                ..TokenUsage::default()
            },
            choices,
        }
    }
}

impl Choice {
    fn generate(model: &str, behaviour: &Behaviour, cap: u64, random: &mut Random) -> Self {
        let wanted = behaviour
            .output_tokens
            .unwrap_or_else(|| random.between(WORDS_MIN, WORDS_MAX));
        let reasons = model.contains("reason");
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
            finish_reason: match (given < wanted, behaviour.calls_tool) {
                (true, _) => "length",
                (false, true) => "tool_calls",
                (false, false) => "stop",
            },
        }
    }

    /// The text that is shown.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The arguments of a tool call that takes all words: JSON, in one piece.
    pub(crate) fn arguments(&self) -> String {
        json!({ "text": self.text() }).to_string()
    }
}

/// Usage as the provider says it.
pub(crate) fn usage_json(usage: &TokenUsage, behaviour: &Behaviour) -> Value {
    let prompt_tokens = behaviour.said_prompt_tokens.unwrap_or(usage.input_tokens());
    let completion_tokens = behaviour.said_completion_tokens.unwrap_or(usage.output_tokens);
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens.saturating_add(completion_tokens),
        "prompt_tokens_details": { "cached_tokens": usage.cache_read_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// As stated at the top of the crate.
pub(crate) fn input_tokens(request: &ChatRequest) -> u64 {
    let mut bytes = 0;
    let mut media = 0;
    for part in request.parts() {
        match part.kind {
            PartKind::Text | PartKind::Definition => bytes += part.bytes,
            PartKind::Image { .. } => media += 85,
            PartKind::Tokens { count } => media += count,
            PartKind::Opaque | PartKind::Audio | PartKind::File => media += 250,
        }
    }
    3 + 4 * request.messages() as u64 + bytes.div_ceil(5) + media
}

/// The last prompts, by their hash.
#[derive(Debug, Default)]
pub(crate) struct SeenPrompts {
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl SeenPrompts {
    /// Whether this prompt came before; it has now.
    pub(crate) fn see(&mut self, request: &ChatRequest) -> bool {
        let mut hasher = DefaultHasher::new();
        request.model().hash(&mut hasher);
        for part in request.parts() {
            part.text.hash(&mut hasher);
        }
        let hash = hasher.finish();
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
