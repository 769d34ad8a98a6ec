//! The sums by month and day, which follow the 15-minute roll-ups whoever writes those.

use chrono_tz::Tz;
use domain::periods::Month;
use store::rollups::RollupDifference;

use super::*;

/// Zones whose days begin at other instants than UTC's, clock changes included.
const ZONES: [Tz; 4] = [
    chrono_tz::UTC,
    chrono_tz::Asia::Tokyo,
    chrono_tz::Asia::Kathmandu,
    chrono_tz::America::New_York,
];

fn months() -> [Month; 3] {
    ["2026-10", "2026-11", "2026-12"].map(|month| month.parse().unwrap())
}

async fn differences(store: &Store) -> Vec<RollupDifference> {
    let mut found = Vec::new();
    for month in months() {
        found.extend(store.calendar_differences(month.first_day()).await.unwrap());
    }
    found
}

fn by_everything(span: Span) -> ReportQuery {
    let everything = Grouping {
        tenant: true,
        user: true,
        key: true,
        model: true,
        priority: true,
    };
    ReportQuery::new(span, ReportFilter::default(), everything)
}

/// What reports and charts say of every month.
async fn said(store: &Store, zone: Tz) -> Vec<(store::reports::Report, store::reports::Overview)> {
    let mut said = Vec::new();
    for month in months() {
        let span = month.span(zone);
        let filter = ReportFilter::default();
        said.push((
            store.report(&by_everything(span), at(90_000)).await.unwrap(),
            store.overview(span, &filter, zone, at(90_000)).await.unwrap(),
        ));
    }
    said
}

#[tokio::test]
async fn a_months_sums_say_what_its_15_minute_sums_say_in_every_zone() {
    for zone in ZONES {
        let ledger = filled().await;
        let before = said(&ledger.store, zone).await;
        assert!(before[1].0.rows.len() > 10, "{}", before[1].0.rows.len());
        // Half of it is there when the calendar is made, half comes after.
        ledger.store.prepare_calendar(zone).await.unwrap();
        assert_eq!(said(&ledger.store, zone).await, before, "{zone}");
        for number in 90..150 {
            ledger.append(settlement(number));
            ledger.append(rejection(number));
        }
        ledger.drain().await;
        ledger.store.prepare_calendar(zone).await.unwrap();
        assert_eq!(differences(&ledger.store).await, [], "{zone}");
        let after = said(&ledger.store, zone).await;
        assert_ne!(after, before);
        // The same from the 15-minute sums alone.
        let forget = "delete from billing_days";
        sqlx::query(forget)
            .execute(&mut ledger.database.connect().await)
            .await
            .unwrap();
        assert_eq!(said(&ledger.store, zone).await, after, "{zone}");
    }
}

#[tokio::test]
async fn an_entry_that_is_damaged_is_found_and_made_anew() {
    let ledger = filled().await;
    ledger.store.prepare_calendar(chrono_tz::UTC).await.unwrap();
    let before = said(&ledger.store, chrono_tz::UTC).await;
    let mut sql = ledger.database.connect().await;
    for (damage, tables) in [
        (
            "update settlement_month_rollups set cost_nanos = cost_nanos + 1 where tenant_id =
                (select tenant_id from settlement_month_rollups limit 1)",
            vec!["settlement_month_rollups"],
        ),
        ("delete from rejection_month_rollups", vec!["rejection_month_rollups"]),
        (
            "update settlement_day_rollups set tokens = 0",
            vec!["settlement_day_rollups"],
        ),
        (
            "update rejection_day_rollups set refusals = refusals + 1",
            vec!["rejection_day_rollups"],
        ),
    ] {
        sqlx::query(damage).execute(&mut sql).await.unwrap();
        let found = differences(&ledger.store).await;
        assert!(!found.is_empty(), "{damage}");
        assert!(found.iter().all(|found| tables.contains(&found.table)), "{found:#?}");
        // Made anew with the calendar.
        sqlx::query("delete from billing_calendar")
            .execute(&mut sql)
            .await
            .unwrap();
        ledger.store.prepare_calendar(chrono_tz::UTC).await.unwrap();
        assert_eq!(differences(&ledger.store).await, []);
    }
    // What is wrong in the 15-minute sums is wrong in those that follow, until they are made anew from the entries.
    for damage in [
        "update settlement_rollups set cost_nanos = cost_nanos + 1, model = 'moved' where bucket_start =
            (select max(bucket_start) from settlement_rollups)",
        "delete from rejection_rollups where bucket_start = (select min(bucket_start) from rejection_rollups)",
        "update rejection_rollups set refusals = refusals + 1",
    ] {
        sqlx::query(damage).execute(&mut sql).await.unwrap();
        assert_ne!(said(&ledger.store, chrono_tz::UTC).await, before, "{damage}");
        assert_eq!(differences(&ledger.store).await, [], "they follow");
        ledger.store.rebuild_rollups(november()).await.unwrap();
        ledger.check_totals().await;
        assert_eq!(said(&ledger.store, chrono_tz::UTC).await, before, "{damage}");
        assert_eq!(differences(&ledger.store).await, []);
    }
}

#[tokio::test]
async fn several_gateways_ship_the_same_keys_in_any_order_without_getting_in_each_others_way() {
    let ledger = Ledger::new().await;
    ledger.store.prepare_calendar(chrono_tz::Asia::Tokyo).await.unwrap();
    let shippers = (0_u64..4).map(|gateway| {
        let store = ledger.store.clone();
        tokio::spawn(async move {
            for batch in 0..20 {
                // Each begins elsewhere among the same tenants, keys and models.
                let numbers = (0..30).map(|at| (at * 7 + gateway * 11 + batch) % 60);
                let mut settlements: Vec<Settlement> = numbers.clone().map(settlement).collect();
                let mut rejections: Vec<Rejection> = numbers.map(|number| rejection(number + 60)).collect();
                for identity in settlements
                    .iter_mut()
                    .map(|settlement| &mut settlement.identity)
                    .chain(rejections.iter_mut().map(|rejection| &mut rejection.identity))
                {
                    identity.id = RequestId(Uuid::now_v7());
                }
                let batch = ShipBatch {
                    previous_seq: batch,
                    last_seq: batch + 1,
                    settlements: settlements.iter().collect(),
                    rejections: rejections.iter().collect(),
                };
                let shipped = store.ship_ledger(&format!("gateway {gateway}"), &batch).await.unwrap();
                assert!(matches!(
                    shipped,
                    Shipped::Committed {
                        settlements: 30,
                        rejections: 30
                    }
                ));
            }
        })
    });
    for shipper in shippers.collect::<Vec<_>>() {
        shipper.await.unwrap();
    }
    assert_eq!(ledger.count("settlements").await, 4 * 20 * 30);
    ledger.check_totals().await;
    assert_eq!(differences(&ledger.store).await, []);
    let deadlocks: i64 =
        sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
            .fetch_one(&mut ledger.database.connect().await)
            .await
            .unwrap();
    assert_eq!(deadlocks, 0);
}
