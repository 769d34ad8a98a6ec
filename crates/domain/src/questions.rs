//! A request that nobody sends, and what would become of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::ids::KeyId;
use crate::priority::Priority;
use crate::readings::{CounterStore, Explanation};
use crate::refusals::RefusalCode;

/// A chat request with this key, as far as admission looks at one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whose it would be.
    pub key_id: KeyId,
    /// The model it would ask for.
    pub model: String,
    /// Its input, counted: without the head-room for what is not certain.
    pub input_tokens: u64,
    /// The output cap it would state; the model's default without one.
    pub output_cap_tokens: Option<u64>,
    /// The priority it would ask for.
    pub priority: Option<Priority>,
    /// The end user it would name.
    pub user: Option<String>,
}

/// What would become of it now. Nothing was sent and nothing taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Who counted.
    pub store: CounterStore,
    /// When it was asked.
    pub asked_at: DateTime<Utc>,
    /// What it would run at: no higher than key and tenant allow.
    pub priority: Priority,
    /// Whom it would count for; nobody where the key is the tenant's own and names no end user.
    pub user_id: Option<String>,
    /// What it would be thought to use; absent where it is refused before.
    pub estimate: Option<Estimate>,
    /// What the caller would be told; it would be admitted where there is nothing to tell.
    pub refusal: Option<ToldRefusal>,
    /// What each limit would say; empty where it is refused before any is asked.
    pub explanation: Explanation,
    /// Whether several upstreams share the first place, so that the one named here was drawn by weight.
    pub is_upstream_drawn: bool,
}

/// What a refused caller is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldRefusal {
    /// Why; it decides the status.
    pub code: RefusalCode,
    /// In words.
    pub message: String,
    /// Whole seconds until a retry makes sense, without the jitter that a real answer adds.
    pub retry_after_seconds: Option<u64>,
}
