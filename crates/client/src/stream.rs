//! An answer as it comes.

use std::collections::VecDeque;
use std::time::Duration;

use domain::usage::TokenUsage;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocol::openai_chat::{EventKind, StreamUsage};
use protocol::sse::{SseEvent, SseFramer};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::errors::{CallError, Refusal};

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatChunk {
    /// The text it adds to the first choice; may be empty.
    pub text: String,
    /// The reasoning it adds, where the provider shows it.
    pub reasoning: String,
    /// The whole chunk.
    pub body: Value,
}

/// The stream of an answer. Dropping it ends the request; what was generated until then is charged.
#[derive(Debug)]
pub struct ChatStream {
    body: Incoming,
    framer: SseFramer,
    /// What has come and was not taken yet; an error is the last.
    arrived: VecDeque<Result<ChatChunk, CallError>>,
    seen: StreamUsage,
    request_id: Option<String>,
    deadline: Instant,
    timeout: Duration,
    has_ended: bool,
}

impl ChatStream {
    pub(crate) fn new(body: Incoming, request_id: Option<String>, deadline: Instant, timeout: Duration) -> Self {
        Self {
            body,
            framer: SseFramer::new(),
            arrived: VecDeque::new(),
            seen: StreamUsage::new(),
            request_id,
            deadline,
            timeout,
            has_ended: false,
        }
    }

    /// The next chunk; `None` after the last. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream breaks, fails, or takes longer than the time-out. After an error there is nothing more.
    pub async fn next(&mut self) -> Result<Option<ChatChunk>, CallError> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return arrived.map(Some);
            }
            if self.has_ended {
                return Ok(None);
            }
            match timeout_at(self.deadline, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.framer.push(data);
                        self.take_events();
                    }
                }
                Ok(None) => {
                    if let Some(event) = std::mem::take(&mut self.framer).finish() {
                        self.take(&event);
                    }
                    if !self.has_ended && !self.seen.is_finished() {
                        self.fail(CallError::Interrupted);
                    }
                    self.has_ended = true;
                }
                Ok(Some(Err(error))) => self.fail(CallError::Connection(error.into())),
                Err(_) => self.fail(CallError::TimedOut(self.timeout)),
            }
        }
    }

    /// What the answer used, once the provider has said so: at the end of the stream.
    pub fn usage(&self) -> Option<TokenUsage> {
        self.seen.reported.to_usage()
    }

    /// The provider's id of the request.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    fn take_events(&mut self) {
        while !self.has_ended {
            match self.framer.next_event() {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => return,
                Err(error) => self.fail(CallError::Unreadable(error.into())),
            }
        }
    }

    fn take(&mut self, event: &SseEvent) {
        let Some(data) = &event.data else {
            return;
        };
        match self.seen.observe(data).kind {
            EventKind::Delta => match serde_json::from_slice(data) {
                Ok(body) => self.arrived.push_back(Ok(ChatChunk::of(body))),
                Err(error) => self.fail(CallError::Unreadable(error.into())),
            },
            EventKind::Done | EventKind::UsageOnly => {}
            EventKind::Error => {
                let error = self.seen.error.clone().unwrap_or_default();
                self.fail(CallError::refused(Refusal {
                    status: 200,
                    code: error.code,
                    message: error.message.unwrap_or_else(|| "the stream failed".to_owned()),
                    scope: None,
                    retry_after: None,
                    request_id: self.request_id.clone(),
                }));
            }
            EventKind::Unreadable => self.fail(CallError::Unreadable("an event is no JSON object".into())),
        }
    }

    fn fail(&mut self, error: CallError) {
        self.has_ended = true;
        self.arrived.push_back(Err(error));
    }
}

impl ChatChunk {
    fn of(body: Value) -> Self {
        let delta = &body["choices"][0]["delta"];
        let text = |name: &str| delta[name].as_str().unwrap_or_default().to_owned();
        let (text, reasoning) = (text("content"), text("reasoning_content"));
        Self { text, reasoning, body }
    }
}
