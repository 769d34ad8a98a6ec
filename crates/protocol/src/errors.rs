//! Error bodies in the shapes of the dialects: written for callers, read from upstreams.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;
use domain::policy::Dialect;
use domain::refusals::RefusalCode;
use serde::Serialize;

use crate::endpoint::Endpoint;
use crate::sse::{data_event, named_event};

/// How much of an upstream's error body is read, in bytes.
pub const UPSTREAM_ERROR_BYTES_MAX: usize = 64 * 1024;
/// How much of an upstream's message is kept, in characters.
pub const UPSTREAM_MESSAGE_CHARS_MAX: usize = 1_000;
/// How much of an upstream's type, code or parameter is kept, in characters.
pub const UPSTREAM_WORD_CHARS_MAX: usize = 100;

/// What is wrong, before it is put into a dialect's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// What is wrong and what to do, for people.
    pub message: String,
    /// OpenAI's coarse class.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The field at fault.
    pub param: Option<String>,
    /// The word that programs act on.
    pub code: Option<Cow<'static, str>>,
    /// When the same request may succeed, in seconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The scope that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Anthropic's classes. What has one of them keeps it.
const ANTHROPIC_KINDS: [&str; 10] = [
    "api_error",
    "authentication_error",
    "billing_error",
    "invalid_request_error",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "request_too_large",
    "timeout_error",
];

impl ErrorBody {
    /// A refusal of ours.
    pub fn refusal(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            kind: Cow::Borrowed(kind(code)),
            param: None,
            code: Some(Cow::Borrowed(code.as_str())),
            retry_after: None,
            scope: None,
        }
    }

    /// A failure of the upstream, with its own words where it gave some.
    pub fn upstream(error: UpstreamError) -> Self {
        Self {
            message: error
                .message
                .unwrap_or_else(|| "The model's provider failed without saying why.".into()),
            kind: error.kind.map_or(Cow::Borrowed("upstream_error"), Cow::Owned),
            param: error.param,
            code: Some(error.code.map_or(Cow::Borrowed("upstream_error"), Cow::Owned)),
            retry_after: None,
            scope: None,
        }
    }

    /// With the field at fault.
    #[must_use]
    pub fn with_param(mut self, param: Option<impl Into<String>>) -> Self {
        self.param = param.map(Into::into);
        self
    }

    /// With a retry hint in seconds.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// With the scope that refused.
    #[must_use]
    pub fn with_scope(mut self, scope: Option<impl ToString>) -> Self {
        self.scope = scope.map(|scope| scope.to_string());
        self
    }

    /// The response body.
    pub fn to_json(&self, dialect: Dialect) -> Bytes {
        #[derive(Serialize)]
        struct Openai<'a> {
            error: &'a ErrorBody,
        }
        #[derive(Serialize)]
        struct Anthropic<'a> {
            r#type: &'static str,
            error: &'a ErrorBody,
        }
        match dialect {
            Dialect::Openai => json_bytes(&Openai { error: self }),
            Dialect::Anthropic => json_bytes(&Anthropic {
                r#type: "error",
                error: &Self {
                    kind: Cow::Borrowed(self.anthropic_kind()),
                    ..self.clone()
                },
            }),
        }
    }

    /// The same as the last event of a stream of this endpoint that has begun.
    pub fn to_sse_event(&self, endpoint: Endpoint) -> Bytes {
        /// As the reference has it, and with the error as a member, as the provider sends it and SDKs look for it.
        #[derive(Serialize)]
        struct ResponsesError<'a> {
            r#type: &'static str,
            code: Option<&'a str>,
            message: &'a str,
            param: Option<&'a str>,
            error: &'a ErrorBody,
            /// Required, and not known: how many events came before is not counted.
            sequence_number: u64,
        }
        match endpoint {
            Endpoint::Messages | Endpoint::CountTokens => named_event("error", &self.to_json(Dialect::Anthropic)),
            Endpoint::Responses => named_event(
                "error",
                &json_bytes(&ResponsesError {
                    r#type: "error",
                    code: self.code.as_deref(),
                    message: &self.message,
                    param: self.param.as_deref(),
                    error: self,
                    sequence_number: 0,
                }),
            ),
            Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Embeddings => {
                data_event(&self.to_json(Dialect::Openai))
            }
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.code.as_deref() {
            Some("model_not_found" | "model_unpriced" | "route_not_found" | "unmetered_route" | "job_not_found") => {
                return "not_found_error";
            }
            Some("request_too_large" | "body_too_large") => return "request_too_large",
            Some("upstream_timeout") => return "timeout_error",
            _ => {}
        }
        match &*self.kind {
            "insufficient_quota" => "rate_limit_error",
            "service_unavailable" => "overloaded_error",
            kind => ANTHROPIC_KINDS
                .into_iter()
                .find(|known| *known == kind)
                .unwrap_or("api_error"),
        }
    }
}

fn kind(code: RefusalCode) -> &'static str {
    match (code, code.status()) {
        (RefusalCode::BudgetExhausted, _) => "insufficient_quota",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 429) => "rate_limit_error",
        (_, 503) => "service_unavailable",
        _ => "invalid_request_error",
    }
}

pub(crate) fn json_bytes(value: &impl Serialize) -> Bytes {
    // Strings, numbers and lists of them: there is nothing that could fail to be written.
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

/// What an upstream said about its failure, as far as it can be read; cut to the bounds above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamError {
    /// For people. It may name parts of our credential when the status is 401 or 403: do not pass it on then.
    pub message: Option<String>,
    /// The provider's class.
    pub kind: Option<String>,
    /// The provider's code; a number is kept as its digits.
    pub code: Option<String>,
    /// The field at fault.
    pub param: Option<String>,
}

impl UpstreamError {
    /// Reads an error body, or the data of an error event. Understands `{"error": {...}}`, `{"error": "text"}`, the same
    /// in a list, and `message` or `detail` at the top; of anything else nothing is known.
    pub fn read(body: &[u8]) -> Self {
        let Some(body) = body.get(..body.len().min(UPSTREAM_ERROR_BYTES_MAX)) else {
            return Self::default();
        };
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
            return Self::default();
        };
        let top = value.get(0).unwrap_or(&value);
        let error = top.get("error").unwrap_or(top);
        if let Some(message) = error.as_str() {
            return Self {
                message: cut(message, UPSTREAM_MESSAGE_CHARS_MAX),
                ..Self::default()
            };
        }
        let word = |name: &str| match error.get(name) {
            Some(serde_json::Value::String(word)) => cut(word, UPSTREAM_WORD_CHARS_MAX),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let message = ["message", "detail"]
            .into_iter()
            .find_map(|name| error.get(name)?.as_str())
            .and_then(|message| cut(message, UPSTREAM_MESSAGE_CHARS_MAX));
        Self {
            message,
            kind: word("type"),
            code: word("code"),
            param: word("param"),
        }
    }

    /// The same without our credential and account: see [`redacted`].
    #[must_use]
    pub fn without_secrets(mut self, credential: Option<&str>) -> Self {
        for text in [&mut self.message, &mut self.kind, &mut self.code, &mut self.param]
            .into_iter()
            .flatten()
        {
            if let Cow::Owned(shown) = redacted(text, credential) {
                *text = shown;
            }
        }
        self
    }

    /// Whether the upstream does not know `stream_options`, so that it should be asked without.
    pub fn is_about_stream_options(&self) -> bool {
        [&self.param, &self.message]
            .into_iter()
            .flatten()
            .any(|text| text.contains("stream_options") || text.contains("include_usage"))
    }
}

/// The shortest piece of a credential that is recognised, in characters.
pub const SECRET_PIECE_CHARS_MIN: usize = 8;
/// A credential below this is a placeholder and no secret, in bytes.
const SECRET_BYTES_MIN: usize = 4;
/// What stands in the place of what was taken out.
const REDACTED: &str = "[redacted]";
/// How names of our account at a provider begin. What follows is long; ordinary words with such a beginning are not.
const ACCOUNT_PREFIXES: [&str; 4] = ["org-", "proj_", "proj-", "sk-"];
const ACCOUNT_NAME_CHARS_MIN: usize = 8;

/// `text` without our credential, any piece of it of [`SECRET_PIECE_CHARS_MIN`] characters or more, and names of our
/// account at the provider: what providers like to quote in messages that a caller will read.
pub fn redacted<'a>(text: &'a str, credential: Option<&str>) -> Cow<'a, str> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut is_secret = vec![false; chars.len()];
    if let Some(credential) = credential.filter(|credential| credential.len() >= SECRET_BYTES_MIN) {
        let secret: Vec<char> = credential.chars().collect();
        let length = SECRET_PIECE_CHARS_MIN.min(secret.len());
        let pieces: HashSet<&[char]> = secret.windows(length).collect();
        let plain: Vec<char> = chars.iter().map(|(_, char)| *char).collect();
        for (start, piece) in plain.windows(length).enumerate() {
            if pieces.contains(piece) {
                is_secret[start..start + length].fill(true);
            }
        }
    }
    let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    for (index, (start, _)) in chars.iter().enumerate() {
        let begins = index == 0 || !is_name(chars[index - 1].1);
        if begins && ACCOUNT_PREFIXES.iter().any(|prefix| text[*start..].starts_with(prefix)) {
            let length = chars[index..].iter().take_while(|(_, char)| is_name(*char)).count();
            if length >= "sk-".len() + ACCOUNT_NAME_CHARS_MIN {
                is_secret[index..index + length].fill(true);
            }
        }
    }
    if !is_secret.contains(&true) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for (index, (_, char)) in chars.iter().enumerate() {
        if !is_secret[index] {
            shown.push(*char);
        } else if index == 0 || !is_secret[index - 1] {
            shown.push_str(REDACTED);
        }
    }
    Cow::Owned(shown)
}

fn cut(text: &str, chars_max: usize) -> Option<String> {
    let text: String = text.chars().take(chars_max).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
