//! What is logged about an outage: that it began, again when the reason is another, and that it is over.

use std::error::Error;

use super::error::ConnectError;
use super::settings::Address;

/// Whether there is an outage, and why.
#[derive(Default)]
pub(super) struct Outage {
    reason: Option<String>,
}

impl Outage {
    /// An attempt failed.
    pub(super) fn goes_on(&mut self, address: &Address, error: &ConnectError) {
        let reason = error.to_string();
        if self.reason.as_ref() != Some(&reason) {
            tracing::warn!(%address, error = error as &dyn Error, "Redis is out of reach");
            self.reason = Some(reason);
        }
    }

    /// An attempt succeeded.
    pub(super) fn is_over(&mut self, address: &Address) {
        if self.reason.take().is_some() {
            tracing::info!(%address, "Redis is back");
        }
    }
}
