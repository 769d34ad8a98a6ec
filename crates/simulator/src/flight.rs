//! Requests in flight and parked, so that the counters are right whatever becomes of them.

use std::sync::Arc;

use crate::Shared;

/// A request in flight: counted in when it arrives and out when it is dropped, whatever happened.
pub(crate) struct Flight {
    pub(crate) shared: Arc<Shared>,
    /// Its place among all that came.
    number: u64,
    is_finished: bool,
}

impl Flight {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Self {
        let mut number = 0;
        shared.counters.change(|stats| {
            stats.requests_received += 1;
            stats.requests_in_flight += 1;
            number = stats.requests_received;
        });
        Self {
            shared: Arc::clone(shared),
            number,
            is_finished: false,
        }
    }

    /// The id of a request that gets no answer to be named after.
    pub(crate) fn request_id(&self) -> String {
        format!("req_{:016x}", self.number)
    }

    /// From now on its end is the one that was meant.
    pub(crate) fn set_finished(&mut self) {
        self.is_finished = true;
    }

    /// It was answered to the end.
    pub(crate) fn finish(mut self) {
        self.set_finished();
    }

    /// It was answered with an error.
    pub(crate) fn fail(self) {
        self.shared.counters.change(|stats| stats.requests_failed += 1);
        self.finish();
    }

    /// Waits at the gate.
    pub(crate) async fn park(&self) {
        let released = self.shared.gate.released();
        let _parked = Parked::begin(&self.shared);
        released.await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.shared.counters.change(|stats| {
            stats.requests_in_flight -= 1;
            if self.is_finished {
                stats.requests_finished += 1;
            } else {
                stats.requests_aborted += 1;
            }
        });
    }
}

struct Parked(Arc<Shared>);

impl Parked {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.counters.change(|stats| stats.requests_parked += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.counters.change(|stats| stats.requests_parked -= 1);
    }
}
