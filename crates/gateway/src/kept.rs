//! What is kept of a request that becomes a job, and of an answer that may be given again: the headers that count, and the
//! body. No key is among them.

use bytes::Bytes;
use domain::policy::Dialect;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use protocol::headers::{self, REQUEST_ID, X_REQUEST_ID, X_TOLLGATE_PRIORITY, X_TOLLGATE_TAGS, X_TOLLGATE_USER};

use crate::error::{X_SHOULD_RETRY, X_TOLLGATE_REQUEST_ID};

/// Headers of ours that the pipeline reads.
const OURS: [HeaderName; 3] = [X_TOLLGATE_PRIORITY, X_TOLLGATE_TAGS, X_TOLLGATE_USER];
/// Headers of an answer that its readers need, or that name it.
const OF_ANSWERS: [HeaderName; 7] = [
    CONTENT_TYPE,
    LOCATION,
    RETRY_AFTER,
    X_SHOULD_RETRY,
    X_TOLLGATE_REQUEST_ID,
    X_REQUEST_ID,
    REQUEST_ID,
];
/// The length of the headers, before them.
const LENGTH_BYTES: usize = 4;

/// A request, or an answer, that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Kept {
    /// What counts of a request.
    pub(crate) fn request(dialect: Dialect, caller: &HeaderMap, body: Bytes) -> Self {
        let mut headers = headers::upstream_request_headers(dialect, caller);
        for name in OURS {
            for value in caller.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Self { headers, body }
    }

    /// What counts of an answer.
    pub(crate) fn answer(answer: &HeaderMap, body: Bytes) -> Self {
        let mut headers = HeaderMap::with_capacity(OF_ANSWERS.len());
        for name in OF_ANSWERS {
            for value in answer.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Self { headers, body }
    }

    /// The length of the headers, the headers as JSON, the body. What is no text in a header is left out.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let pairs: Vec<(&str, &str)> = self
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), std::str::from_utf8(value.as_bytes()).ok()?)))
            .collect();
        // Pairs of texts: there is nothing that could fail to be written.
        let head = serde_json::to_vec(&pairs).unwrap_or_default();
        let length = u32::try_from(head.len()).unwrap_or_default();
        [&length.to_be_bytes(), head.as_slice(), &self.body].concat()
    }

    /// Reads it back; `None` where it is none.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let length = bytes.first_chunk::<LENGTH_BYTES>()?;
        let body_start = LENGTH_BYTES.checked_add(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        let head = bytes.get(LENGTH_BYTES..body_start)?;
        let pairs: Vec<(String, String)> = serde_json::from_slice(head).ok()?;
        let mut headers = HeaderMap::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name: HeaderName = name.parse().ok()?;
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
        let body = bytes.slice(body_start..);
        Some(Self { headers, body })
    }
}

#[cfg(test)]
mod tests;
