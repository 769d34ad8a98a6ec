//! What is asked: how many at once, how much, and what the upstream says to it.

use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::json;
use simulator::{Simulator, SimulatorConfig};
use test_support::speed::callers::{Identity, NUMBER, Question};
use test_support::speed::upstream::{Recorded, Script};

/// The model that is asked for.
pub(crate) const MODEL: &str = "bench-model";
const PATH: &str = "/v1/chat/completions";

/// Callers where there are many.
const MANY: usize = 64;
/// Callers that send the longest prompts: as many as keep a proxy busy without being limited by memory.
const FEW: usize = 8;
/// The usual prompt, in bytes.
const PROMPT_BYTES: usize = 200;
/// A long prompt.
const LONG_PROMPT_BYTES: usize = 4 * 1_024;
/// A very long one.
const LONGEST_PROMPT_BYTES: usize = 800 * 1_024;
/// Words of every answer. A stream also has an event that begins, one that ends, one with the usage and `[DONE]`.
const ANSWER_WORDS: u64 = 64;
/// Events of a stream.
const EVENTS: u64 = ANSWER_WORDS + 4;
/// What lies between two events of a stream that is not as fast as it can be, more or less: each is passed on alone.
const EVENT_PAUSE: Duration = Duration::from_millis(5);
/// What prompts are made of.
const PROSE: &str = "The gate stands where the road leaves the town, and whoever passes pays for what the cart holds. \
                     Nobody waits long: the keeper knows the regulars, weighs what is new and writes down every toll. ";

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Load {
    /// One caller, so that nothing waits for anything else.
    Alone,
    /// 64 callers.
    Many,
    /// 64 callers with a prompt of 4 KB.
    Long,
    /// 8 callers with a prompt of 800 KB.
    Longest,
    /// 64 callers that have their answers streamed, 68 events as fast as can be.
    Streams,
    /// The same with about 5 ms between two events.
    PacedStreams,
}

impl Load {
    /// In a sentence.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Alone => "one at a time",
            Self::Many => "64 at once",
            Self::Long => "4 KB prompt, 64 at once",
            Self::Longest => "800 KB prompt, 8 at once",
            Self::Streams => "streams, 64 at once",
            Self::PacedStreams => "paced streams, 64 at once",
        }
    }

    /// How many callers there are.
    pub(crate) fn concurrency(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Longest => FEW,
            Self::Many | Self::Long | Self::Streams | Self::PacedStreams => MANY,
        }
    }

    fn prompt_bytes(self) -> usize {
        match self {
            Self::Long => LONG_PROMPT_BYTES,
            Self::Longest => LONGEST_PROMPT_BYTES,
            Self::Alone | Self::Many | Self::Streams | Self::PacedStreams => PROMPT_BYTES,
        }
    }

    fn is_streamed(self) -> bool {
        matches!(self, Self::Streams | Self::PacedStreams)
    }

    /// Half of the prompt is the same each time, as with most applications; half is new, as far as its number makes it so.
    fn question(self) -> anyhow::Result<Question> {
        let half = prose(self.prompt_bytes() / 2);
        let asked = format!("Request {NUMBER}. {half} [[sim: tokens={ANSWER_WORDS}]]");
        let mut body = json!({
            "model": MODEL,
            "messages": [{ "role": "system", "content": half }, { "role": "user", "content": asked }],
        });
        if self.is_streamed() {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        Question::new(PATH, body.to_string(), self.is_streamed().then_some(EVENTS))
    }

    fn script(self, recorded: &Recorded) -> Script {
        match self {
            Self::Streams => Script::streamed(recorded, Duration::ZERO),
            Self::PacedStreams => Script::streamed(recorded, EVENT_PAUSE),
            Self::Alone | Self::Many | Self::Long | Self::Longest => Script::whole(recorded),
        }
    }
}

fn prose(bytes: usize) -> String {
    PROSE.chars().cycle().take(bytes).collect()
}

/// A load with what it asks and is answered.
pub(crate) struct Prepared {
    pub(crate) load: Load,
    pub(crate) question: Question,
    pub(crate) script: Script,
}

/// All loads, in the order in which they come.
pub(crate) struct Loads(Vec<Prepared>);

impl Loads {
    /// Asks the simulator each question once.
    pub(crate) async fn record(loads: &[Load]) -> anyhow::Result<Self> {
        let simulator = Simulator::start(SimulatorConfig::default()).await?;
        let identity = Identity {
            key: "recorder".into(),
            user: "recorder".into(),
        };
        let mut prepared = Vec::new();
        for load in loads {
            let question = load.question()?;
            let recorded = Recorded::of(simulator.address(), &identity, &question).await?;
            let script = load.script(&recorded);
            if let Some(events) = question.events {
                let pieces = script.pieces();
                anyhow::ensure!(
                    pieces as u64 == events,
                    "the simulator streams {pieces} events, not {events}"
                );
            }
            prepared.push(Prepared {
                load: *load,
                question,
                script,
            });
        }
        simulator.stop().await;
        Ok(Self(prepared))
    }

    /// The first of them.
    pub(crate) fn first(&self) -> anyhow::Result<&Prepared> {
        self.0.first().context("no load is chosen")
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Prepared> {
        self.0.iter()
    }
}
