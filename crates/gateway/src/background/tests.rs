//! A task that panics does not stay away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::restart;

#[tokio::test]
async fn a_task_that_panics_is_started_again_until_it_ends_by_itself() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    restart("test", Duration::ZERO, move || {
        let counted = Arc::clone(&counted);
        async move {
            if counted.fetch_add(1, Ordering::SeqCst) < 2 {
                panic!("on purpose");
            }
        }
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}
