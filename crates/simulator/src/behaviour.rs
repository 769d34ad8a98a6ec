//! What the provider shall do with a request, and the orders that say so: words and `name=value` pairs, separated by
//! blanks or commas.
//!
//! | order | meaning |
//! |---|---|
//! | `status=429` | answers with this status and an error body |
//! | `retry-after=7` | with this `Retry-After` (on errors) |
//! | `fail-share=0.2` | what is ordered to fail does so only for this share of requests, the same ones after each start; the others are answered as if nothing of it were ordered |
//! | `first-byte-ms=250` | waits before the first byte |
//! | `latency-ms=1100` | waits so long besides, where nothing else is ordered for its spread |
//! | `latency-p99-ms=3000` | spreads that wait as models do (log-normal): half of the prompts wait longer than `latency-ms`, one in a hundred longer than this; the same prompt always as long |
//! | `chunk-ms=20` | waits before each chunk of a stream |
//! | `tokens=40` | generates so many words, if the request's cap allows |
//! | `reasoning=12` | the first so many of them are reasoning |
//! | `show-reasoning` | reasoning is shown: as `reasoning_content` of a chat, as the summary of a response |
//! | `tool-call` | calls a tool instead of talking, where the dialect has tools |
//! | `caches-prompts` | uses the cache for this request, whatever [`crate::SimulatorConfig::caches_prompts`] says |
//! | `cached=64` | reads so much of the input from the cache |
//! | `cache-write-5m=64` | writes so much of what is left to the cache, for its shorter lifetime (Anthropic's five minutes) |
//! | `cache-write-1h=64` | the same for its longer one (Anthropic's hour) |
//! | `reset` | resets the connection instead of answering |
//! | `reset-after-chunks=3` | resets it after so many chunks of a stream |
//! | `error-after-chunks=3` | sends an error event after so many chunks and ends the stream |
//! | `response-failed` | that event is `response.failed` instead of `error` (Responses) |
//! | `close-after-chunks=3` | ends the stream after so many chunks, properly but without its last events |
//! | `silence` | accepts and never answers |
//! | `silence-after-chunks=3` | falls silent within a stream |
//! | `hold` | parks before the first byte until released |
//! | `hold-after-chunks=3` | parks within a stream |
//! | `no-usage` | says nothing about usage |
//! | `usage-each-chunk` | says the running usage on every chunk of a stream, whether or not it was asked (chat and completions) |
//! | `says-prompt=0` | says this figure for the input instead of the true one |
//! | `says-completion=0` | the same for the output |
//! | `content-type=text/plain` | calls its answer this |
//! | `content-encoding=gzip` | says that its answer is encoded so |
//! | `quote-credential` | names the credential it was given and an account in its errors |
//! | `reject-stream-options` | answers 400 to a request with `stream_options` |
//! | `malformed` | answers with what is no JSON |
//! | `anthropic-headers` | tells of the account's limits in Anthropic's headers, also in OpenAI's dialects |
//!
//! What fails: `status`, `reset`, `silence`, `malformed`, and the ends within a stream.

/// What the provider does with one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// The status of an error to answer with.
    pub status: Option<u16>,
    /// `Retry-After` on errors, as written.
    pub retry_after: Option<String>,
    /// The share of requests that ordered failures befall, per mille; all when absent.
    pub fail_permille: Option<u16>,
    /// Wait before the first byte.
    pub first_byte_ms: u64,
    /// Wait besides: that of the middle prompt, where there is a spread.
    pub latency_ms: u64,
    /// The wait of one prompt in a hundred; that of all when absent.
    pub latency_p99_ms: Option<u64>,
    /// Wait before each chunk of a stream.
    pub chunk_ms: u64,
    /// How many words to generate, reasoning included; follows from the request when absent.
    pub output_tokens: Option<u64>,
    /// How many of them are reasoning; follows from the model's name when absent.
    pub reasoning_tokens: Option<u64>,
    /// Whether reasoning is shown.
    pub shows_reasoning: bool,
    /// Whether to call a tool.
    pub calls_tool: bool,
    /// Uses the cache, even if the provider does not.
    pub caches_prompts: bool,
    /// How much of the input is read from the cache.
    pub cached_tokens: Option<u64>,
    /// How much is written to it for its shorter lifetime.
    pub cache_write_5m_tokens: Option<u64>,
    /// How much is written to it for its longer lifetime.
    pub cache_write_1h_tokens: Option<u64>,
    /// Resets the connection before any byte.
    pub resets: bool,
    /// Resets it after so many chunks.
    pub reset_after_chunks: Option<u64>,
    /// Sends an error event after so many chunks.
    pub error_after_chunks: Option<u64>,
    /// That event is `response.failed`, where there is such.
    pub fails_response: bool,
    /// Ends the stream after so many chunks.
    pub close_after_chunks: Option<u64>,
    /// Never answers.
    pub is_silent: bool,
    /// Falls silent after so many chunks.
    pub silence_after_chunks: Option<u64>,
    /// Parks before the first byte.
    pub holds: bool,
    /// Parks after so many chunks.
    pub hold_after_chunks: Option<u64>,
    /// Says nothing about usage.
    pub hides_usage: bool,
    /// Running usage on every chunk.
    pub has_usage_each_chunk: bool,
    /// The input it says was used, whatever was.
    pub said_prompt_tokens: Option<u64>,
    /// The output it says was used, whatever was.
    pub said_completion_tokens: Option<u64>,
    /// What it calls its answer.
    pub content_type: Option<String>,
    /// How it says its answer is encoded.
    pub content_encoding: Option<String>,
    /// Names the credential in its errors.
    pub quotes_credential: bool,
    /// Does not know `stream_options`.
    pub rejects_stream_options: bool,
    /// Answers with what is no JSON.
    pub is_malformed: bool,
    /// Tells of the account's limits in Anthropic's headers.
    pub has_anthropic_headers: bool,
}

/// An order that nobody knows; tests should fail of it rather than pass without their failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulator does not know the order `{0}`")]
pub struct UnknownOrder(pub String);

impl Behaviour {
    /// Changes it as ordered.
    ///
    /// # Errors
    /// At the first unknown order or unreadable number.
    pub fn apply(&mut self, orders: &str) -> Result<(), UnknownOrder> {
        let orders = orders.split(|c: char| c.is_whitespace() || c == ',');
        orders
            .filter(|order| !order.is_empty())
            .try_for_each(|order| self.apply_one(order).ok_or_else(|| UnknownOrder(order.to_owned())))
    }

    /// Every `[[sim: ...]]` in a text.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_text(&mut self, text: &str) -> Result<(), UnknownOrder> {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("[[sim:") {
            let Some((orders, after)) = after.split_once("]]") else {
                break;
            };
            self.apply(orders)?;
            rest = after;
        }
        Ok(())
    }

    /// The same without the failures that are ordered.
    pub(crate) fn without_failures(self) -> Self {
        Self {
            status: None,
            resets: false,
            reset_after_chunks: None,
            error_after_chunks: None,
            close_after_chunks: None,
            is_silent: false,
            silence_after_chunks: None,
            is_malformed: false,
            ..self
        }
    }

    fn apply_one(&mut self, order: &str) -> Option<()> {
        let (name, value) = order.split_once('=').unwrap_or((order, ""));
        if value.is_empty() {
            let switch = match name {
                "show-reasoning" => &mut self.shows_reasoning,
                "tool-call" => &mut self.calls_tool,
                "caches-prompts" => &mut self.caches_prompts,
                "reset" => &mut self.resets,
                "response-failed" => &mut self.fails_response,
                "silence" => &mut self.is_silent,
                "hold" => &mut self.holds,
                "no-usage" => &mut self.hides_usage,
                "usage-each-chunk" => &mut self.has_usage_each_chunk,
                "quote-credential" => &mut self.quotes_credential,
                "reject-stream-options" => &mut self.rejects_stream_options,
                "malformed" => &mut self.is_malformed,
                "anthropic-headers" => &mut self.has_anthropic_headers,
                _ => return None,
            };
            *switch = true;
            return Some(());
        }
        let text = match name {
            "retry-after" => Some((&mut self.retry_after, value.replace('_', " "))),
            "content-type" => Some((&mut self.content_type, value.to_owned())),
            "content-encoding" => Some((&mut self.content_encoding, value.to_owned())),
            _ => None,
        };
        if let Some((place, text)) = text {
            *place = Some(text);
            return Some(());
        }
        if name == "fail-share" {
            let share: f64 = value.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
            self.fail_permille = Some((1_000.0 * share).round() as u16);
            return Some(());
        }
        let number: u64 = value.parse().ok()?;
        match name {
            "status" => {
                self.status = Some(
                    u16::try_from(number)
                        .ok()
                        .filter(|status| (400..600).contains(status))?,
                )
            }
            "first-byte-ms" => self.first_byte_ms = number,
            "latency-ms" => self.latency_ms = number,
            "latency-p99-ms" => self.latency_p99_ms = Some(number),
            "chunk-ms" => self.chunk_ms = number,
            "tokens" => self.output_tokens = Some(number),
            "reasoning" => self.reasoning_tokens = Some(number),
            "cached" => self.cached_tokens = Some(number),
            "cache-write-5m" => self.cache_write_5m_tokens = Some(number),
            "cache-write-1h" => self.cache_write_1h_tokens = Some(number),
            "says-prompt" => self.said_prompt_tokens = Some(number),
            "says-completion" => self.said_completion_tokens = Some(number),
            "reset-after-chunks" => self.reset_after_chunks = Some(number),
            "error-after-chunks" => self.error_after_chunks = Some(number),
            "close-after-chunks" => self.close_after_chunks = Some(number),
            "silence-after-chunks" => self.silence_after_chunks = Some(number),
            "hold-after-chunks" => self.hold_after_chunks = Some(number),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
