//! What requests are thought to use, learned from what they used.

use std::sync::Arc;
use std::time::Duration;

use domain::ledger::{Outcome, Settlement};
use domain::policy::{Key, Model};
use domain::refusals::RefusalCode;
use domain::usage::UsageSource;
use protocol::request::InferenceRequest;
use protocol::usage::OutputSizes;
use tokens::{Around, Counter, InputEstimate, OFFLOAD_BYTES_MIN, OutputBook, RatioBook, guess_output};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::refusal::Refusal;

/// How long a large body waits for its turn to be counted, in milliseconds.
const COUNTING_WAIT_MS: u64 = 10_000;

/// What one request is thought to use, in tokens: (input, output).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestEstimate {
    /// What rates hold.
    pub(crate) expected: (u64, u64),
    /// What budgets hold.
    pub(crate) ceiling: (u64, u64),
    /// The output cap per choice: the caller's, clamped to the model's, or the model's default.
    pub(crate) output_cap_tokens: u64,
    /// The input before anything was learned, to learn from.
    pub(crate) guess_tokens: u64,
}

/// The books estimates are made from.
#[derive(Debug)]
pub(crate) struct Estimates {
    counter: Arc<Counter>,
    /// As many large bodies are counted at once as there are cores: more would only take threads from everybody else.
    counting: Arc<Semaphore>,
    ratios: RatioBook,
    outputs: OutputBook,
}

impl Default for Estimates {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            counter: Arc::default(),
            counting: Arc::new(Semaphore::new(cores)),
            ratios: RatioBook::default(),
            outputs: OutputBook::default(),
        }
    }
}

impl Estimates {
    /// Loads the exact encodings, so that no request waits for it.
    pub(crate) fn warm(&self) {
        self.counter.warm();
    }

    /// The estimate of `request`. Large bodies are counted off the async threads, a few at a time.
    ///
    /// # Errors
    /// When a large body's turn does not come in time.
    pub(crate) async fn estimate(
        &self,
        request: &Arc<InferenceRequest>,
        model: &Model,
        key: &Key,
    ) -> Result<RequestEstimate, Refusal> {
        if request.endpoint().is_free() {
            return Ok(RequestEstimate::default());
        }
        let count = {
            let (counter, request, encoding) = (Arc::clone(&self.counter), Arc::clone(request), model.encoding);
            let ratio = self.ratios.ratio(&model.name);
            let around = Around {
                messages: request.messages(),
                preamble_tokens: request.preamble_tokens(),
            };
            move || counter.estimate_input(encoding, ratio, around, request.parts())
        };
        let input = if request.part_bytes() >= OFFLOAD_BYTES_MIN {
            let turn = Arc::clone(&self.counting).acquire_owned();
            let Ok(Ok(turn)) = timeout(Duration::from_millis(COUNTING_WAIT_MS), turn).await else {
                return Err(Refusal::plain(
                    RefusalCode::Overloaded,
                    "Too many large requests are being read at once. Retry shortly.",
                ));
            };
            // The turn goes with the counting, which goes on although its caller may leave.
            let counted = tokio::task::spawn_blocking(move || {
                let input = count();
                drop(turn);
                input
            });
            match counted.await {
                Ok(input) => input,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        } else {
            count()
        };
        let cap_tokens = request.output_cap_tokens().or(request.output_default_tokens());
        Ok(self.with_output(input, cap_tokens, request.choices(), (model, key)))
    }

    /// The estimate of a request whose input is known to be so large, for one answer of at most `output_cap_tokens`.
    pub(crate) fn estimate_given(
        &self,
        input_tokens: u64,
        output_cap_tokens: Option<u64>,
        model: &Model,
        key: &Key,
    ) -> RequestEstimate {
        let input = InputEstimate::given(model.encoding, input_tokens);
        self.with_output(input, output_cap_tokens, 1, (model, key))
    }

    fn with_output(
        &self,
        input: InputEstimate,
        cap_tokens: Option<u64>,
        choices: u32,
        (model, key): (&Model, &Key),
    ) -> RequestEstimate {
        let output_cap_tokens = cap_tokens
            .unwrap_or(model.output_default_tokens)
            .min(model.output_cap_tokens);
        let choices = u64::from(choices);
        let expected_output = self
            .outputs
            .expected(key.id, &model.name, output_cap_tokens, output_cap_tokens);
        RequestEstimate {
            expected: (input.expected_tokens, expected_output.saturating_mul(choices)),
            ceiling: (input.ceiling_tokens, output_cap_tokens.saturating_mul(choices)),
            output_cap_tokens,
            guess_tokens: input.guess_tokens,
        }
    }

    /// The output of an answer by its size, for want of a report.
    pub(crate) fn count_output(&self, output: &OutputSizes) -> u64 {
        guess_output(output.text(), output.pieces)
    }

    /// Learns from an ending with reported usage. `guess_tokens` and `choices` are those of its estimate.
    pub(crate) fn learn(&self, settlement: &Settlement, guess_tokens: u64, choices: u32) {
        let Some(model) = settlement.identity.model.as_deref() else {
            return;
        };
        if settlement.usage_source != UsageSource::Reported || settlement.outcome != Outcome::Completed {
            return;
        }
        self.ratios
            .observe(model, guess_tokens, settlement.usage.input_tokens());
        if choices > 0 {
            let per_choice = settlement.usage.output_tokens / u64::from(choices);
            self.outputs.observe(settlement.identity.key_id, model, per_choice);
        }
    }
}
