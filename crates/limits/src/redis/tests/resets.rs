//! A spent budget opens again with its first request after the end of its period, by the calendar of any zone, in memory and
//! in Redis; what was admitted before counts in the period before, whenever it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Duration, Utc};
use chrono_tz::{Africa, America, Asia, Europe, Tz};
use domain::limits::{Dimension, Limit};
use domain::periods::Period;
use domain::refusals::RefusalCode;

use super::fixture::{Asking, Servers, Signs, noon};
use crate::fixture::{INSTANCE, amounts, at, limit, on, tenant};
use crate::{Admission, BudgetKey, Denial, Hold, Limits, Now, Settings};

/// What a request holds, and spends.
const EACH: i64 = 1_000_000;

/// A zone, an instant, and when its hour, day, week and month end.
type Case = (Tz, &'static str, [&'static str; 4]);

const CASES: [Case; 11] = [
    (
        Asia::Tokyo,
        "2026-11-29T12:10:00Z",
        [
            "2026-11-29T13:00:00Z",
            "2026-11-29T15:00:00Z",
            "2026-11-29T15:00:00Z",
            "2026-11-30T15:00:00Z",
        ],
    ),
    (
        Asia::Kolkata,
        "2026-11-29T12:10:00Z",
        [
            "2026-11-29T12:30:00Z",
            "2026-11-29T18:30:00Z",
            "2026-11-29T18:30:00Z",
            "2026-11-30T18:30:00Z",
        ],
    ),
    (
        Asia::Kathmandu,
        "2026-11-29T12:10:00Z",
        [
            "2026-11-29T12:15:00Z",
            "2026-11-29T18:15:00Z",
            "2026-11-29T18:15:00Z",
            "2026-11-30T18:15:00Z",
        ],
    ),
    // A day of 23 hours, and one of 25.
    (
        Europe::Berlin,
        "2026-03-29T12:10:00Z",
        [
            "2026-03-29T13:00:00Z",
            "2026-03-29T22:00:00Z",
            "2026-03-29T22:00:00Z",
            "2026-03-31T22:00:00Z",
        ],
    ),
    (
        Europe::Berlin,
        "2026-10-25T12:10:00Z",
        [
            "2026-10-25T13:00:00Z",
            "2026-10-25T23:00:00Z",
            "2026-10-25T23:00:00Z",
            "2026-10-31T23:00:00Z",
        ],
    ),
    (
        America::New_York,
        "2026-03-08T12:10:00Z",
        [
            "2026-03-08T13:00:00Z",
            "2026-03-09T04:00:00Z",
            "2026-03-09T04:00:00Z",
            "2026-04-01T04:00:00Z",
        ],
    ),
    (
        America::New_York,
        "2026-11-01T12:10:00Z",
        [
            "2026-11-01T13:00:00Z",
            "2026-11-02T05:00:00Z",
            "2026-11-02T05:00:00Z",
            "2026-12-01T05:00:00Z",
        ],
    ),
    // The hour that happens twice: the first and the second one.
    (
        Europe::Berlin,
        "2026-10-25T00:30:00Z",
        [
            "2026-10-25T01:00:00Z",
            "2026-10-25T23:00:00Z",
            "2026-10-25T23:00:00Z",
            "2026-10-31T23:00:00Z",
        ],
    ),
    // The next day has no midnight.
    (
        Africa::Cairo,
        "2026-04-23T12:10:00Z",
        [
            "2026-04-23T13:00:00Z",
            "2026-04-23T22:00:00Z",
            "2026-04-26T21:00:00Z",
            "2026-04-30T21:00:00Z",
        ],
    ),
    // The last hour of the day happens twice.
    (
        Africa::Cairo,
        "2026-10-29T20:30:00Z",
        [
            "2026-10-29T21:00:00Z",
            "2026-10-29T22:00:00Z",
            "2026-11-01T22:00:00Z",
            "2026-10-31T22:00:00Z",
        ],
    ),
    // A month that begins an hour late.
    (
        America::Asuncion,
        "2023-09-30T12:10:00Z",
        [
            "2023-09-30T13:00:00Z",
            "2023-10-01T04:00:00Z",
            "2023-10-02T03:00:00Z",
            "2023-10-01T04:00:00Z",
        ],
    ),
];

/// One budget for two requests, at a time that the test moves.
struct Budget {
    limits: Limits,
    asking: Asking,
    zone: Tz,
}

impl Budget {
    async fn open(limits: Limits, scope: u128, period: Period, zone: Tz, now: Now) -> Self {
        let budget = Limit {
            period,
            ..limit(Dimension::BudgetCost, 2 * EACH.unsigned_abs())
        };
        let asking = Asking::of(vec![on(tenant(scope), vec![budget])]);
        let key = BudgetKey::of(&asking.scopes[0], &asking.scopes[0].limits[0], now.wall, zone);
        let marks = BTreeMap::from([(INSTANCE.to_owned(), 0)]);
        let keys = std::slice::from_ref(&key);
        limits.begin_budgets(keys, || 0, INSTANCE, 1, zone, now).await;
        assert!(limits.set_budget(&key, 0, &marks, INSTANCE, zone, now).await);
        Self { limits, asking, zone }
    }

    async fn admit(&self, now: Now) -> Result<Hold, Box<Denial>> {
        let admission = Admission {
            time_zone: self.zone,
            ..self.asking.admission()
        };
        self.limits.admit(&admission, now).await
    }

    /// Spent and held in the period of `now`.
    async fn reading(&self, now: Now) -> (i64, u64) {
        let readings = self.limits.peek(&self.asking.scopes, None, None, self.zone, now).await;
        (readings[0].used, readings[0].held)
    }
}

fn moment(wall: DateTime<Utc>) -> Now {
    let since = (wall - at("2020-01-01T00:00:00Z")).num_milliseconds();
    Now {
        monotonic_ms: since.unsigned_abs(),
        wall,
    }
}

async fn check(limits: Limits, scope: u128, period: Period, zone: Tz, end: DateTime<Utc>) {
    let what = format!("{} {zone} {period} until {end}", limits.store_name());
    let (last, first) = (moment(end - Duration::milliseconds(1)), moment(end));
    let budget = Budget::open(limits, scope, period, zone, last).await;
    let spend = amounts(100, 100, EACH);

    let settled = budget.admit(last).await.expect("the first has room");
    let under_way = budget.admit(last).await.expect("the second has room");
    settled.settle(spend, Some(1), last).await;
    let held = budget.admit(last).await.expect_err("there is room for two");
    assert_eq!(held.code, RefusalCode::BudgetHeld, "{what}");

    // At the boundary itself; nothing has run in between.
    let next = budget
        .admit(first)
        .await
        .unwrap_or_else(|denial| panic!("{what}: {denial:?}"));
    under_way.settle(spend, Some(2), first).await;
    assert_eq!(
        budget.reading(last).await,
        (2 * EACH, 0),
        "{what}: the period that is over"
    );
    assert_eq!(
        budget.reading(first).await,
        (0, EACH.unsigned_abs()),
        "{what}: the new one"
    );
    next.settle(spend, Some(3), first).await;
    let another = budget.admit(first).await.expect("the second of the new period");
    another.settle(spend, Some(4), first).await;
    let spent = budget.admit(first).await.expect_err("both are spent");
    assert_eq!(spent.code, RefusalCode::BudgetExhausted, "{what}");
    let following = period.span(end, zone).end;
    let wait_ms = (following - end).num_milliseconds().unsigned_abs();
    assert_eq!(
        spent.retry_after_ms,
        Some(wait_ms),
        "{what}: until the end of the new period"
    );
}

#[tokio::test]
async fn a_spent_budget_opens_at_the_end_of_its_period_in_memory_and_in_redis() {
    let servers = Servers::one().await;
    let mut scope = 1;
    for (zone, instant, ends) in CASES {
        for (period, end) in Period::ALL.into_iter().zip(ends) {
            let end = at(end);
            assert_eq!(period.span(at(instant), zone).end, end, "{zone} {period} of {instant}");
            check(Limits::memory(Settings::default()), scope, period, zone, end).await;
            let signs = Signs::at(Now {
                wall: end - Duration::milliseconds(1),
                ..noon()
            });
            let shared = servers.limits(INSTANCE, Settings::default(), &Arc::clone(&signs)).await;
            check(shared, scope, period, zone, end).await;
            scope += 1;
        }
    }
}
