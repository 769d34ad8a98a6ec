//! Headers: what goes upstream, what comes back, and what callers and providers say in them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use domain::ledger::USER_ID_CHARS_MAX;
use domain::policy::Dialect;
use domain::priority::Priority;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The most tags on one request.
pub const TAGS_MAX: usize = 16;
/// The longest name of a tag, in characters.
pub const TAG_NAME_CHARS_MAX: usize = 64;
/// The longest value of a tag, in characters.
pub const TAG_VALUE_CHARS_MAX: usize = 256;
/// The longest wait of a `Prefer` header that is believed.
pub const PREFERRED_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait that a provider's `Retry-After` is believed.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The caller's tags: `team=search,experiment=7`.
pub const X_TOLLGATE_TAGS: HeaderName = HeaderName::from_static("x-tollgate-tags");
/// The priority to run at, if lower than the key's.
pub const X_TOLLGATE_PRIORITY: HeaderName = HeaderName::from_static("x-tollgate-priority");
/// `on`: the caller of a stream wants to hear how many wait while it waits for room.
pub const X_TOLLGATE_QUEUE_COMMENTS: HeaderName = HeaderName::from_static("x-tollgate-queue-comments");
/// Whom the request is for.
pub const X_TOLLGATE_USER: HeaderName = HeaderName::from_static("x-tollgate-user");
/// Which version of its API a caller of Anthropic's was written for; required there.
pub const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// The version that is named for a caller who names none.
const ANTHROPIC_VERSION_DEFAULT: &str = "2023-06-01";
/// The provider's id of a request, as Anthropic calls it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// A caller's name for what shall run once, however often it is sent.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest such name, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 256;
/// The provider's id of a request, as OpenAI calls it.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How the caller would like its request to be handled (RFC 7240).
pub const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Which of its wishes were heard (RFC 7240).
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The key, where it is not in `Authorization`.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a caller may say to a provider. A list of what is allowed, because nobody can list what companies put into the
/// headers of their own networks, secrets included.
///
/// `idempotency-key` is not among them: keys of different tenants would meet under the one account.
const UPSTREAM_ALLOWED: [&str; 8] = [
    "accept",
    "user-agent",
    "openai-beta",
    "anthropic-beta",
    "anthropic-version",
    "traceparent",
    "tracestate",
    "x-client-request-id",
];

/// What belongs to one connection (RFC 9110, section 7.6.1) and is never passed on.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a provider says to us alone: about our account, its cookies, its own site.
const RESPONSE_DROPPED: [&str; 13] = [
    "alt-svc",
    "content-length",
    "date",
    "nel",
    "openai-organization",
    "openai-project",
    "report-to",
    "retry-after",
    "retry-after-ms",
    "server",
    "set-cookie",
    "strict-transport-security",
    "via",
];
const RESPONSE_DROPPED_PREFIXES: [&str; 6] = [
    "access-control-",
    "anthropic-",
    "x-litellm-",
    "cf-",
    "x-ratelimit-",
    "x-tollgate-",
];

/// The headers of the request to an upstream that speaks `dialect`, but for `Host`, the credential and `Content-Length`,
/// which are set by who sends it. The body has been read as JSON and is sent as that, whatever the caller called it. Answers are asked for
/// uncompressed, because their usage is read as they pass.
pub fn upstream_request_headers(dialect: Dialect, caller: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(UPSTREAM_ALLOWED.len() + 2);
    for name in UPSTREAM_ALLOWED {
        if !is_named_in_connection(caller, name) {
            for value in caller.get_all(name) {
                headers.append(HeaderName::from_static(name), value.clone());
            }
        }
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if dialect == Dialect::Anthropic && !headers.contains_key(ANTHROPIC_VERSION) {
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static(ANTHROPIC_VERSION_DEFAULT));
    }
    headers
}

/// The provider's headers that the caller gets, `x-request-id` among them. `Content-Length` and `Retry-After` are not:
/// they are set by who writes the answer.
pub fn caller_response_headers(upstream: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(upstream.len());
    for (name, value) in upstream {
        let text = name.as_str();
        let is_dropped = HOP_BY_HOP.contains(&text)
            || RESPONSE_DROPPED.contains(&text)
            || RESPONSE_DROPPED_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
            || is_named_in_connection(upstream, text);
        if !is_dropped {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

fn is_named_in_connection(headers: &HeaderMap, name: &str) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|named| named.trim().eq_ignore_ascii_case(name))
}

/// The caller's key: from `Authorization: Bearer`, else from `x-api-key`.
pub fn key_text(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let (scheme, key) = value.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
    bearer
        .or_else(|| headers.get(X_API_KEY)?.to_str().ok().map(str::trim))
        .filter(|key| !key.is_empty())
}

/// What a caller speaks, as far as its headers tell: those who write for Anthropic name the version of its API.
pub fn dialect(headers: &HeaderMap) -> Dialect {
    if headers.contains_key(ANTHROPIC_VERSION) {
        Dialect::Anthropic
    } else {
        Dialect::Openai
    }
}

/// The caller's name for what shall run once.
///
/// # Errors
/// When it is empty, too long, or given more than once.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&[u8]>, HeaderError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let name = value.as_bytes().trim_ascii();
    let fits = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&name.len()) && values.next().is_none();
    if fits {
        Ok(Some(name))
    } else {
        Err(HeaderError::IdempotencyKey)
    }
}

/// How long a provider asks to wait: `retry-after-ms`, else `Retry-After` in seconds or as a date; at most
/// [`RETRY_AFTER_MAX`]. A date that has passed is no wait.
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = text("retry-after-ms")
        .and_then(|text| text.parse::<f64>().ok())
        .and_then(|millis| seconds(millis / 1_000.0));
    millis
        .or_else(|| {
            let text = text("retry-after")?;
            match text.parse::<f64>() {
                Ok(number) => seconds(number),
                Err(_) => http_date(text).map(|at| (at - now).to_std().unwrap_or_default()),
            }
        })
        .map(|wait| wait.min(RETRY_AFTER_MAX))
}

fn seconds(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(RETRY_AFTER_MAX))
}

/// A date in one of the three forms of RFC 9110, section 5.6.7.
fn http_date(text: &str) -> Option<DateTime<Utc>> {
    [
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %e %H:%M:%S %Y",
    ]
    .into_iter()
    .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    .map(|at| at.and_utc())
}

/// Whether the caller of a stream wants to hear how many wait while it waits for room: `X-Tollgate-Queue-Comments: on`.
/// Anything else is no.
pub fn wants_queue_comments(headers: &HeaderMap) -> bool {
    let value = headers.get(X_TOLLGATE_QUEUE_COMMENTS).map(HeaderValue::as_bytes);
    value.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"on"))
}

/// How often the caller's SDK says it has tried before.
pub fn caller_retries(headers: &HeaderMap) -> Option<i32> {
    let text = headers.get("x-stainless-retry-count")?.to_str().ok()?;
    text.trim().parse().ok().filter(|count| *count >= 0)
}

/// The provider's id of the request, cut to 200 characters.
pub fn upstream_request_id(headers: &HeaderMap) -> Option<String> {
    ["x-request-id", "request-id"]
        .into_iter()
        .find_map(|name| headers.get(name)?.to_str().ok())
        .map(|id| id.chars().take(200).collect())
}

/// A header of ours that cannot be understood. The text is for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not `name=value` pairs, or beyond the bounds.
    #[error(
        "The header X-Tollgate-Tags holds up to {TAGS_MAX} pairs such as team=search,experiment=7 \
         (names up to {TAG_NAME_CHARS_MAX} characters, values up to {TAG_VALUE_CHARS_MAX})."
    )]
    Tags,
    /// None of the four.
    #[error("The header X-Tollgate-Priority is one of low, default, high, critical.")]
    Priority,
    /// Empty, too long, no text, or with control characters.
    #[error(
        "The header X-Tollgate-User is a name of 1 to {USER_ID_CHARS_MAX} characters, none of them a control character."
    )]
    User,
    /// Empty, too long, or more than one.
    #[error("The header Idempotency-Key is one name of 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes.")]
    IdempotencyKey,
}

/// The caller's tags. A name given twice keeps its last value.
///
/// # Errors
/// When a pair is malformed or a bound is exceeded.
pub fn tags(headers: &HeaderMap) -> Result<BTreeMap<String, String>, HeaderError> {
    let mut tags = BTreeMap::new();
    for value in headers.get_all(X_TOLLGATE_TAGS) {
        let text = utf8(value).ok_or(HeaderError::Tags)?;
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(HeaderError::Tags)?;
            let (name, value) = (name.trim(), value.trim());
            let fits = (1..=TAG_NAME_CHARS_MAX).contains(&name.chars().count())
                && value.chars().count() <= TAG_VALUE_CHARS_MAX;
            if !fits {
                return Err(HeaderError::Tags);
            }
            tags.insert(name.to_owned(), value.to_owned());
            if tags.len() > TAGS_MAX {
                return Err(HeaderError::Tags);
            }
        }
    }
    Ok(tags)
}

/// The priority the caller wants to run at.
///
/// # Errors
/// When it is none of the four words.
pub fn priority(headers: &HeaderMap) -> Result<Option<Priority>, HeaderError> {
    headers
        .get(X_TOLLGATE_PRIORITY)
        .map(|value| {
            let text = value.to_str().map_err(|_| HeaderError::Priority)?;
            text.trim()
                .to_ascii_lowercase()
                .parse()
                .map_err(|_| HeaderError::Priority)
        })
        .transpose()
}

/// Whom the request is for, according to the header.
///
/// # Errors
/// When the name is empty, too long, no text, or has control characters.
pub fn user(headers: &HeaderMap) -> Result<Option<&str>, HeaderError> {
    headers
        .get(X_TOLLGATE_USER)
        .map(|value| {
            let user = utf8(value).map(str::trim).ok_or(HeaderError::User)?;
            let fits = (1..=USER_ID_CHARS_MAX).contains(&user.chars().count()) && !user.contains(char::is_control);
            if fits { Ok(user) } else { Err(HeaderError::User) }
        })
        .transpose()
}

/// What the caller prefers, as far as we know the words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `respond-async`: rather an answer later than a refusal now.
    pub responds_async: bool,
    /// `wait`: how long it would wait for an answer at once; at most [`PREFERRED_WAIT_MAX`].
    pub wait: Option<Duration>,
}

/// What the caller prefers. A preference that is not understood is none (RFC 7240, section 2); of one that is stated twice
/// the first counts.
pub fn preferences(headers: &HeaderMap) -> Preferences {
    let mut preferences = Preferences::default();
    let mut has_wait = false;
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    for preference in values.flat_map(|value| split_unquoted(value, ',')) {
        // Parameters refine a preference; ours have none.
        let stated = split_unquoted(preference, ';').next().unwrap_or_default();
        let (name, value) = stated.split_once('=').unwrap_or((stated, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("respond-async") {
            // An empty value is the same as none.
            preferences.responds_async |= value.is_empty();
        } else if name.eq_ignore_ascii_case("wait") && !std::mem::replace(&mut has_wait, true) {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            preferences.wait = is_number.then(|| {
                let wait = value.parse().map_or(PREFERRED_WAIT_MAX, Duration::from_secs);
                wait.min(PREFERRED_WAIT_MAX)
            });
        }
    }
    preferences
}

/// The parts between separators that are not within quotation marks.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |character| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        character == separator && !is_quoted
    })
}

fn utf8(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
