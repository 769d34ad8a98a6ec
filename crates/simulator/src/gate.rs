//! Parks requests until a test lets them go, so that no test has to sleep.

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct Gates {
    /// Whether every request is parked.
    is_closed: bool,
    /// Raised by each release.
    releases: u64,
}

#[derive(Debug)]
pub(crate) struct Gate {
    gates: watch::Sender<Gates>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            gates: watch::Sender::new(Gates::default()),
        }
    }
}

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.gates.borrow().is_closed
    }

    pub(crate) fn close(&self) {
        self.gates.send_modify(|gates| gates.is_closed = true);
    }

    pub(crate) fn open(&self) {
        self.gates.send_modify(|gates| {
            gates.is_closed = false;
            gates.releases += 1;
        });
    }

    /// Registers now, so that a release after this call is not missed, and waits when polled.
    pub(crate) fn released(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gates = self.gates.subscribe();
        let before = gates.borrow_and_update().releases;
        async move {
            // An error says that the simulator is gone, and with it this request.
            let _ = gates.wait_for(|gates| gates.releases > before).await;
        }
    }
}
