//! What counters are called in the shared store, and in refusals whichever store is in use.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use domain::ids::{KeyId, TenantId};
use domain::limits::{Scope, Slot};
use domain::periods::Span;

/// What keeps counters together in a cluster: a tenant's with those of its users and keys, any other scope's alone.
pub(crate) fn tag(scope: &Scope, tenant: Option<TenantId>) -> String {
    let owner = match scope {
        Scope::Tenant(tenant) | Scope::User(tenant, _) => Some(*tenant),
        Scope::Key(_) => tenant,
        _ => None,
    };
    owner.map_or_else(
        || match scope {
            Scope::Global => scope.kind().to_owned(),
            _ => format!("{}:{}", scope.kind(), escaped(&scope.identifier())),
        },
        |tenant| tenant.to_string(),
    )
}

/// `rate_limit:{<tag>}:<scope>:<identifier>:<dimension>[:<window>|:<period>][:<model>][:priority:<priority>]`, with the
/// window in seconds.
pub(crate) fn limit_key(scope: &Scope, slot: &Slot, tag: &str) -> String {
    // Writing to a string cannot fail.
    let mut key = format!("rate_limit:{{{tag}}}:{}", scope.kind());
    if *scope != Scope::Global {
        let _ = write!(key, ":{}", escaped(&scope.identifier()));
    }
    let _ = write!(key, ":{}", slot.dimension);
    if let Some(seconds) = slot.window_seconds {
        let _ = write!(key, ":{seconds}");
    }
    if let Some(period) = slot.period {
        let _ = write!(key, ":{period}");
    }
    if let Some(model) = &slot.model {
        let _ = write!(key, ":{}", escaped(model));
    }
    if let Some(priority) = slot.priority {
        let _ = write!(key, ":priority:{priority}");
    }
    key
}

/// Names that callers choose cannot look like another counter's key.
fn escaped(name: &str) -> Cow<'_, str> {
    if !name.contains([':', '@', '%', '{', '}']) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::with_capacity(name.len() + 8);
    for character in name.chars() {
        match character {
            ':' => escaped.push_str("%3A"),
            '@' => escaped.push_str("%40"),
            '%' => escaped.push_str("%25"),
            '{' => escaped.push_str("%7B"),
            '}' => escaped.push_str("%7D"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// A budget counts one period: its limit's key with the Unix time at which the period starts.
pub(crate) fn budget_key(limit_key: &str, span: Span) -> String {
    format!("{limit_key}@{}", span.start.timestamp())
}

/// The holds of a budget.
pub(crate) fn holds_key(budget_key: &str) -> String {
    format!("{budget_key}:holds")
}

/// What gateways have set aside of a budget.
pub(crate) fn aside_key(budget_key: &str) -> String {
    format!("{budget_key}:aside")
}

/// What the provider of an account has said of a counter.
pub(crate) fn told_key(limit_key: &str) -> String {
    format!("{limit_key}:told")
}

/// Where gateways say that they are there.
pub(crate) const BEATS_KEY: &str = "rate_limit:{gateways}:beats";

/// What a part of a request has taken from the counters of one tag.
pub(crate) fn record_key(tag: &str, name: impl Display) -> String {
    format!("rate_limit:{{{tag}}}:request:{name}")
}

/// A claim on an idempotency key stands with the counters of its API key's tenant.
pub(crate) fn claim_key(tenant: TenantId, key: KeyId, hash: &[u8; 32]) -> String {
    let tag = tag(&Scope::Key(key), Some(tenant));
    // Writing to a string cannot fail.
    let mut name = format!("rate_limit:{{{tag}}}:claim:{key}:");
    for byte in hash {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests;
