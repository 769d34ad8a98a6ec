use std::sync::atomic::AtomicU64;

use chrono::{DateTime, Utc};
use domain::ids::{LimitId, TenantId};
use domain::limits::{Dimension, Scope};
use domain::refusals::RefusalCode;

use super::*;

fn queue() -> Arc<Queue> {
    Queue::new(QueueSettings {
        places: 4,
        waiting_tokens_max: 1_000,
        timeout_ms: 10_000,
    })
}

fn at(monotonic_ms: u64) -> Now {
    Now {
        monotonic_ms,
        wall: DateTime::<Utc>::UNIX_EPOCH,
    }
}

fn blocked(due_ms: u64) -> Blocked {
    Blocked {
        lane: Lane {
            of: LaneOf::Limit(Scope::Global, LimitId::new(DateTime::<Utc>::UNIX_EPOCH, [1; 10])),
            is_gate: false,
        },
        scope: Scope::Global,
        dimension: Dimension::Concurrency,
        code: RefusalCode::ConcurrencyLimitExceeded,
        due_ms,
    }
}

fn join(queue: &Arc<Queue>, tenant: u8) -> Result<Place, Full> {
    let arrival = Arrival {
        tenant: TenantId::new(DateTime::<Utc>::UNIX_EPOCH, [tenant; 10]),
        priority: Priority::Default,
        tokens: 1,
        patience_ms: 10_000,
    };
    queue.join(arrival, blocked(u64::MAX), queue.ends(), at(0))
}

#[tokio::test]
async fn room_passes_from_one_to_the_next_without_anybody_looking() {
    let queue = queue();
    let mut first = join(&queue, 1).unwrap_or_else(|full| panic!("{full:?}"));
    let mut second = join(&queue, 1).unwrap_or_else(|full| panic!("{full:?}"));
    assert_eq!(queue.depth(), 2);
    queue.release(|_| true, &[], at(1));
    assert_eq!(first.turn().await, Turn::Try(Priority::Default));
    drop(first);
    assert_eq!(queue.depth(), 1);
    assert_eq!(second.turn().await, Turn::Try(Priority::Default));
}

#[tokio::test]
async fn a_place_is_free_as_soon_as_its_waiter_is_dropped() {
    let queue = queue();
    let places: Vec<Place> = (0..3).filter_map(|_| join(&queue, 1).ok()).collect();
    assert_eq!(places.len(), 3);
    assert!(join(&queue, 1).is_err(), "a tenant has three of four places");
    let _last = join(&queue, 2).unwrap_or_else(|full| panic!("{full:?}"));
    assert!(queue.is_nearly_full());
    assert_eq!(join(&queue, 2).err(), Some(Full::Places));
    drop(places);
    assert_eq!(queue.depth(), 1);
    assert!(!queue.is_nearly_full());
    assert!(join(&queue, 1).is_ok());
}

#[tokio::test]
async fn what_ends_between_a_refusal_and_the_place_for_it_is_not_missed() {
    let queue = queue();
    let ends = queue.ends();
    queue.release(|_| true, &[], at(1));
    let arrival = Arrival {
        tenant: TenantId::new(DateTime::<Utc>::UNIX_EPOCH, [1; 10]),
        priority: Priority::Default,
        tokens: 1,
        patience_ms: 10_000,
    };
    let place = queue.join(arrival, blocked(u64::MAX), ends, at(2));
    let mut place = place.unwrap_or_else(|full| panic!("{full:?}"));
    assert_eq!(place.turn().await, Turn::Try(Priority::Default));
}

/// A clock that the test sets.
#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Now {
        at(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn time_calls_up_whoever_is_due() {
    let queue = queue();
    let clock = Hand::default();
    let mut place = join(&queue, 1).unwrap_or_else(|full| panic!("{full:?}"));
    let turns = async {
        place.block(blocked(3_000), 0, at(0));
        clock.0.store(3_000, Ordering::Relaxed);
        assert_eq!(place.turn().await, Turn::Try(Priority::Default));
        place.block(blocked(u64::MAX), 0, at(3_000));
        clock.0.store(10_000, Ordering::Relaxed);
        assert_eq!(place.turn().await, Turn::Last(Priority::High));
    };
    tokio::select! {
        () = queue.keep(&clock) => {}
        () = turns => {}
    }
}
