//! Asking: for a whole answer, a stream, or a job that has the answer later.

use std::time::Duration;

use domain::usage::TokenUsage;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use protocol::endpoint::Endpoint;
use protocol::headers::{PREFER, X_TOLLGATE_QUEUE_COMMENTS};
use protocol::usage::AnswerUsage;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::Client;
use crate::errors::{CallError, request_id};
use crate::exchange::Outgoing;
use crate::jobs::{Job, SeenJob};
use crate::request::ChatRequest;
use crate::stream::ChatStream;

/// The longest answer that is read whole, in bytes.
pub const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

const CHAT: [&str; 2] = ["chat", "completions"];

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatAnswer {
    /// The text of the first choice; empty when it calls a tool instead.
    pub text: String,
    /// Why it ended.
    pub finish_reason: Option<String>,
    /// What it used, if the provider said so.
    pub usage: Option<TokenUsage>,
    /// The gateway's id of the request, which finds it in the ledger; the job's, if it was one; the provider's, where no
    /// gateway gave one.
    pub request_id: Option<String>,
    /// The whole body.
    pub body: Value,
}

impl ChatAnswer {
    pub(crate) fn of(body: Value, request_id: Option<String>) -> Self {
        let choice = &body["choices"][0];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            text: text(&choice["message"]["content"]).unwrap_or_default(),
            finish_reason: text(&choice["finish_reason"]),
            usage: AnswerUsage::read(Endpoint::ChatCompletions, body.to_string().as_bytes())
                .reported
                .to_usage(),
            request_id,
            body,
        }
    }
}

/// What a caller gets who consents to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer, at once.
    Answered(ChatAnswer),
    /// A job, which has the answer later.
    Deferred(Job),
}

impl Client {
    /// Asks and waits for the whole answer. If the key's policy makes a job of the request, waits for that.
    ///
    /// # Errors
    /// When there is none; see [`CallError`]. [`CallError::Unfinished`] names the job that has the answer later.
    pub async fn chat(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        let deadline = self.total_deadline();
        let outgoing = self.chat_outgoing(request, false)?;
        let mut tries = self.tries(deadline);
        let response = self.send(&outgoing, &mut tries).await?;
        self.whole(response, deadline).await
    }

    /// Asks for the answer or, if there is no room for the request within `patience`, for a job that waits for it. Without
    /// a `patience`, the gateway decides when. It is told in whole seconds, and bounds nothing here.
    ///
    /// # Errors
    /// When there is neither; see [`CallError`].
    pub async fn chat_or_job(&self, request: &ChatRequest, patience: Option<Duration>) -> Result<Reply, CallError> {
        let deadline = self.total_deadline();
        let mut outgoing = self.chat_outgoing(request, false)?;
        let preference = match patience {
            None => "respond-async".to_owned(),
            Some(patience) => format!("respond-async, wait={}", patience.as_secs()),
        };
        let preference = HeaderValue::try_from(preference).map_err(|error| CallError::Unsendable(error.into()))?;
        outgoing.headers.insert(PREFER, preference);
        let mut tries = self.tries(deadline);
        let response = self.send(&outgoing, &mut tries).await?;
        Ok(match self.reply(response, deadline).await? {
            Received::Answer(answer) => Reply::Answered(answer),
            Received::Job(seen) => Reply::Deferred(seen.job),
        })
    }

    /// Asks and returns the stream of the answer once it begins, or is queued; see
    /// [`Settings::asks_for_queue_comments`](crate::Settings::asks_for_queue_comments).
    ///
    /// # Errors
    /// When it does not begin; see [`CallError`].
    pub async fn chat_stream(&self, request: &ChatRequest) -> Result<ChatStream, CallError> {
        let outgoing = self.chat_outgoing(request, true)?;
        let tries = self.tries(self.total_deadline());
        ChatStream::open(self.clone(), outgoing, tries).await
    }

    /// The whole answer, of a job if need be.
    pub(crate) async fn whole(&self, response: Response<Incoming>, deadline: Instant) -> Result<ChatAnswer, CallError> {
        match self.reply(response, deadline).await? {
            Received::Answer(answer) => Ok(answer),
            Received::Job(seen) => self.wait_for_end(seen, deadline).await?.into_answer(),
        }
    }

    async fn reply(&self, response: Response<Incoming>, deadline: Instant) -> Result<Received, CallError> {
        let (head, body) = response.into_parts();
        let bytes = self.exchange().read(body, ANSWER_BYTES_MAX, deadline).await?;
        if head.status == StatusCode::ACCEPTED {
            return Ok(Received::Job(SeenJob::read(&head.headers, &bytes)?));
        }
        let body = serde_json::from_slice(&bytes).map_err(CallError::unreadable)?;
        Ok(Received::Answer(ChatAnswer::of(body, request_id(&head.headers))))
    }

    fn chat_outgoing(&self, request: &ChatRequest, is_streamed: bool) -> Result<Outgoing, CallError> {
        let settings = self.settings();
        let mut headers: HeaderMap = request
            .labels
            .or(&settings.labels)
            .headers()
            .map_err(|error| CallError::Unsendable(error.into()))?;
        if is_streamed && settings.asks_for_queue_comments {
            headers.insert(X_TOLLGATE_QUEUE_COMMENTS, HeaderValue::from_static("on"));
        }
        let body = request
            .body(is_streamed)
            .map_err(|error| CallError::Unsendable(error.into()))?;
        self.post(&CHAT, headers, body)
    }
}

/// What came back.
enum Received {
    Answer(ChatAnswer),
    Job(SeenJob),
}
