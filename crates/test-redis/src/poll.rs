//! Waiting for something within a bound.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(5);

/// Asks again until the answer is yes. The last no is the panic's text, after `wait_max`.
pub(crate) async fn until(what: &str, wait_max: Duration, mut ask: impl AsyncFnMut() -> Result<(), String>) {
    let deadline = Instant::now() + wait_max;
    while let Err(no) = ask().await {
        assert!(Instant::now() < deadline, "{what}: not within {wait_max:?}: {no}");
        sleep(POLL).await;
    }
}
