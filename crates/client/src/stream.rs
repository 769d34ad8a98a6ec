//! An answer as it comes.

use std::collections::VecDeque;
use std::pin::Pin;

use domain::usage::TokenUsage;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocol::endpoint::Endpoint;
use protocol::sse::{SseEvent, SseFramer};
use protocol::usage::{EventKind, StreamUsage};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::chat::ChatAnswer;
use crate::client::Client;
use crate::errors::{CallError, Failure, Refusal, Step, request_id};
use crate::exchange::Outgoing;
use crate::settings::deadline;
use crate::tries::Tries;

/// How a comment begins that tells the depth of the gateway's queue.
const QUEUED: &[u8] = b": queued ";

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatChunk {
    /// The text it adds to the first choice; may be empty.
    pub text: String,
    /// The reasoning it adds, where the provider shows it.
    pub reasoning: String,
    /// The whole chunk; the whole answer, if the gateway made a job of the request.
    pub body: Value,
}

/// What a stream brings.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The request waits in the gateway's queue with so many others. Only if the settings ask for it.
    Queued {
        /// Requests in the queue.
        depth: u64,
    },
    /// A piece of the answer.
    Chunk(ChatChunk),
}

/// The stream of an answer. Dropping it ends the request; what was generated until then is charged.
pub struct ChatStream {
    client: Client,
    outgoing: Outgoing,
    source: Source,
    /// Further tries; none once the answer has begun.
    tries: Option<Tries>,
    framer: SseFramer,
    /// What has come and was not taken yet; an error is the last.
    arrived: VecDeque<Result<StreamEvent, CallError>>,
    seen: StreamUsage,
    usage: Option<TokenUsage>,
    headers: HeaderMap,
    request_id: Option<String>,
    total: Instant,
    last_piece_at: Instant,
    has_ended: bool,
}

/// Where the answer comes from.
enum Source {
    /// Another try after a refusal in the queue, or a job.
    Opening(Opening),
    Body(Incoming),
}

type Opening = Pin<Box<dyn Future<Output = Result<Opened, CallError>> + Send>>;

enum Opened {
    Response(Response<Incoming>, Tries),
    Whole(Box<ChatAnswer>),
}

impl std::fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatStream")
            .field("request_id", &self.request_id)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl ChatStream {
    /// Sends until there is an answer.
    pub(crate) async fn open(client: Client, outgoing: Outgoing, mut tries: Tries) -> Result<Self, CallError> {
        let response = client.send(&outgoing, &mut tries).await?;
        let total = tries.deadline();
        let mut stream = Self {
            client,
            outgoing,
            source: Source::Opening(Box::pin(async { Ok(Opened::Response(response, tries)) })),
            tries: None,
            framer: SseFramer::new(),
            arrived: VecDeque::new(),
            seen: StreamUsage::of(Endpoint::ChatCompletions),
            usage: None,
            headers: HeaderMap::new(),
            request_id: None,
            total,
            last_piece_at: Instant::now(),
            has_ended: false,
        };
        stream.advance().await;
        Ok(stream)
    }

    /// The next chunk; `None` after the last. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream breaks, fails, or takes longer than a time-out. After an error there is nothing more.
    pub async fn next(&mut self) -> Result<Option<ChatChunk>, CallError> {
        loop {
            match self.next_event().await? {
                None => return Ok(None),
                Some(StreamEvent::Chunk(chunk)) => return Ok(Some(chunk)),
                Some(StreamEvent::Queued { .. }) => {}
            }
        }
    }

    /// The next chunk, or what the gateway says while the request waits for its turn; `None` after the last. A request
    /// that is refused in the queue is tried again as the settings say. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_event(&mut self) -> Result<Option<StreamEvent>, CallError> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return arrived.map(Some);
            }
            if self.has_ended {
                return Ok(None);
            }
            self.advance().await;
        }
    }

    /// What the answer used, once the provider has said so: at the end of the stream.
    pub fn usage(&self) -> Option<TokenUsage> {
        self.usage.or_else(|| self.seen.reported.to_usage())
    }

    /// The gateway's id of the request, which finds it in the ledger; the provider's, where no gateway gave one.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Takes one step. Dropping it on the way loses nothing.
    async fn advance(&mut self) {
        match &mut self.source {
            Source::Opening(opening) => match opening.await {
                Ok(Opened::Response(response, tries)) => self.begin(response, tries),
                Ok(Opened::Whole(answer)) => self.take_whole(*answer),
                Err(error) => self.fail(error),
            },
            Source::Body(body) => {
                let chunk_ms = self.client.settings().timeouts.chunk_ms;
                let until = deadline(self.last_piece_at, chunk_ms).min(self.total);
                match timeout_at(until, body.frame()).await {
                    Ok(Some(Ok(frame))) => {
                        self.last_piece_at = Instant::now();
                        if let Ok(data) = frame.into_data() {
                            self.framer.push(data);
                            self.take_events();
                        }
                    }
                    Ok(None) => self.finish(),
                    Ok(Some(Err(error))) => self.fail(CallError::Connection(error.into())),
                    Err(_) => {
                        let error = self.client.exchange().timed_out(Step::Chunk, until, self.total);
                        self.fail(error);
                    }
                }
            }
        }
    }

    fn begin(&mut self, response: Response<Incoming>, tries: Tries) {
        self.request_id = request_id(response.headers());
        self.headers = response.headers().clone();
        if response.status() == StatusCode::ACCEPTED {
            let (client, total) = (self.client.clone(), self.total);
            self.source = Source::Opening(Box::pin(async move {
                let answer = client.whole(response, total).await?;
                Ok(Opened::Whole(Box::new(answer)))
            }));
            return;
        }
        self.framer = SseFramer::new();
        self.seen = StreamUsage::of(Endpoint::ChatCompletions);
        self.last_piece_at = Instant::now();
        self.tries = Some(tries);
        self.source = Source::Body(response.into_body());
    }

    fn take_whole(&mut self, answer: ChatAnswer) {
        let reasoning = answer.body["choices"][0]["message"]["reasoning_content"].as_str();
        self.usage = answer.usage;
        self.request_id = answer.request_id.or(self.request_id.take());
        self.arrived.push_back(Ok(StreamEvent::Chunk(ChatChunk {
            reasoning: reasoning.unwrap_or_default().to_owned(),
            text: answer.text,
            body: answer.body,
        })));
        self.has_ended = true;
    }

    fn finish(&mut self) {
        if let Some(event) = std::mem::take(&mut self.framer).finish() {
            self.take(&event);
        }
        if self.is_over() {
            return;
        }
        if self.seen.is_finished() {
            self.has_ended = true;
        } else {
            self.fail(CallError::Interrupted);
        }
    }

    /// Whether nothing more is wanted from the present body.
    fn is_over(&self) -> bool {
        self.has_ended || matches!(self.source, Source::Opening(_))
    }

    fn take_events(&mut self) {
        while !self.is_over() {
            match self.framer.next_event() {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => return,
                Err(error) => self.fail(CallError::unreadable(error)),
            }
        }
    }

    fn take(&mut self, event: &SseEvent) {
        self.arrived
            .extend(queue_depths(&event.raw).map(|depth| Ok(StreamEvent::Queued { depth })));
        let Some(data) = &event.data else {
            return;
        };
        match self.seen.observe(data).kind {
            EventKind::Delta => match serde_json::from_slice(data) {
                Ok(body) => {
                    self.tries = None;
                    self.arrived.push_back(Ok(StreamEvent::Chunk(ChatChunk::of(body))));
                }
                Err(error) => self.fail(CallError::unreadable(error)),
            },
            EventKind::Done | EventKind::UsageOnly => {}
            EventKind::Error => {
                let refusal = Refusal::read(StatusCode::OK, &self.headers, data, chrono::Utc::now());
                self.refuse(CallError::refused(refusal));
            }
            EventKind::Unreadable => self.fail(CallError::unreadable("an event is no JSON object")),
        }
    }

    /// Tries again if the answer has not begun, as for a refusal with a status.
    fn refuse(&mut self, error: CallError) {
        let Some(mut tries) = self.tries.take() else {
            self.fail(error);
            return;
        };
        let (client, outgoing) = (self.client.clone(), self.outgoing.clone());
        self.source = Source::Opening(Box::pin(async move {
            tries.wait_after(Failure::from(error)).await?;
            let response = client.send(&outgoing, &mut tries).await?;
            Ok(Opened::Response(response, tries))
        }));
    }

    fn fail(&mut self, error: CallError) {
        self.has_ended = true;
        self.arrived.push_back(Err(error));
    }
}

/// What the comments of a block say about the gateway's queue.
fn queue_depths(block: &[u8]) -> impl Iterator<Item = u64> {
    block.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| {
        std::str::from_utf8(line.strip_prefix(QUEUED)?)
            .ok()?
            .trim()
            .parse()
            .ok()
    })
}

impl ChatChunk {
    fn of(body: Value) -> Self {
        let delta = &body["choices"][0]["delta"];
        let text = |name: &str| delta[name].as_str().unwrap_or_default().to_owned();
        let (text, reasoning) = (text("content"), text("reasoning_content"));
        Self { text, reasoning, body }
    }
}

#[cfg(test)]
mod tests;
