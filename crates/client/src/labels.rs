//! What is said about a request beside its body: whom it is for, how urgent it is, what it belongs to.

use std::collections::BTreeMap;

use domain::priority::Priority;
use http::{HeaderMap, HeaderValue};
use protocol::headers::{self, HeaderError, X_TOLLGATE_PRIORITY, X_TOLLGATE_TAGS, X_TOLLGATE_USER};

/// Whom requests are for, how urgent they are, and what they belong to. All of it stands in the gateway's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Whom the request is for, if the key may name users: 1 to 128 characters.
    pub user: Option<String>,
    /// The priority to run at; it lowers the key's and never raises it.
    pub priority: Option<Priority>,
    /// Names and values, such as a project: up to 16, without commas; names have no `=`.
    pub tags: BTreeMap<String, String>,
}

impl Labels {
    /// These, where they say something, and else `defaults`. Tags are joined.
    pub(crate) fn or(&self, defaults: &Self) -> Self {
        let mut tags = defaults.tags.clone();
        tags.extend(self.tags.clone());
        Self {
            user: self.user.clone().or_else(|| defaults.user.clone()),
            priority: self.priority.or(defaults.priority),
            tags,
        }
    }

    /// The headers that say it.
    ///
    /// # Errors
    /// When the gateway would understand something else, or nothing.
    pub(crate) fn headers(&self) -> Result<HeaderMap, HeaderError> {
        let mut map = HeaderMap::new();
        if let Some(user) = &self.user {
            let value = HeaderValue::from_bytes(user.as_bytes()).map_err(|_| HeaderError::User)?;
            map.insert(X_TOLLGATE_USER, value);
            if headers::user(&map)? != Some(user) {
                return Err(HeaderError::User);
            }
        }
        if let Some(priority) = self.priority {
            map.insert(X_TOLLGATE_PRIORITY, HeaderValue::from_static(priority.as_str()));
        }
        if !self.tags.is_empty() {
            let pairs: Vec<String> = self
                .tags
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let value = HeaderValue::from_bytes(pairs.join(",").as_bytes()).map_err(|_| HeaderError::Tags)?;
            map.insert(X_TOLLGATE_TAGS, value);
            if headers::tags(&map)? != self.tags {
                return Err(HeaderError::Tags);
            }
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests;
