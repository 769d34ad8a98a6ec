//! Alerts, the webhook that hears of them, and what is on its way there.

use chrono::{DateTime, Duration, Utc};
use domain::alerts::{ALERT_ORPHANED_MS, Alert, AlertEvent, AlertKind};
use uuid::Uuid;

use crate::policy::count;
use crate::{Store, StoreError, Transaction, in_time};

/// How long writing one alert, or taking and marking deliveries may take, in milliseconds.
const WRITE_WAIT_MS: u64 = 2_000;
/// Alerts of a gateway that is gone, cleared at once at most.
const ORPHANS_BATCH: i64 = 100;
/// Open alerts that are listed at most.
pub const OPEN_ALERTS_MAX: i64 = 200;
/// Alerts that are over, on one page at most.
pub const PAST_ALERTS_MAX: i64 = 100;
/// Deliveries that are listed at most.
pub const DELIVERIES_MAX: i64 = 10;
/// Rows that one call deletes at most.
const OLD_BATCH: i64 = 1_000;

/// An event for the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// The event's id, by which its receiver knows it again.
    pub id: Uuid,
    /// What is sent.
    pub body: String,
}

/// An event that is to be sent now, by whoever took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenDelivery {
    /// Which event.
    pub id: Uuid,
    /// What is sent.
    pub body: String,
    /// The how manieth attempt this is.
    pub attempts: u32,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Which event.
    pub id: Uuid,
    /// What it tells.
    pub event: String,
    /// What it tells of; absent for a test.
    pub kind: Option<AlertKind>,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// How often it was sent.
    pub attempts: u32,
    /// When it is sent next.
    pub due_at: DateTime<Utc>,
    /// When its receiver took it.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When it was given up.
    pub given_up_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRow {
    /// The address, sealed.
    pub url_sealed: Vec<u8>,
    /// What events are signed with, sealed.
    pub secret_sealed: Vec<u8>,
    /// Raised by every change.
    pub version: i64,
}

/// Which alerts that are over to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct PastAlertFilter {
    /// Only this kind.
    pub kind: Option<AlertKind>,
    /// Only those that were raised before this one: the page after the one that ended with it.
    pub before: Option<(DateTime<Utc>, Uuid)>,
    /// So many, at most [`PAST_ALERTS_MAX`].
    pub count: i64,
}

impl Store {
    /// Writes an alert as its gateway knows it, with what the webhook is to hear of it (made by `event`, where there is a
    /// webhook). It may be written many times. An open one of the same kind, subject and gateway, left by an earlier run, goes
    /// on: what is returned says as which alert. `None` when this alert was cleared already.
    pub async fn write_alert(
        &self,
        alert: &Alert,
        kept_at: DateTime<Utc>,
        event: impl Fn(AlertEvent, DateTime<Utc>, &Alert) -> NewDelivery,
    ) -> Result<Option<Alert>, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let mut transaction = self.begin().await?;
            let Some(mut kept) = keep(&mut transaction, alert, kept_at).await? else {
                return Ok(None);
            };
            if kept.is_new {
                let raised = Alert {
                    cleared_at: None,
                    ..kept.alert.clone()
                };
                let new = event(AlertEvent::Raised, raised.raised_at, &raised);
                deliver(
                    &mut transaction,
                    Some(raised.id),
                    AlertEvent::Raised,
                    raised.raised_at,
                    &new,
                )
                .await?;
            }
            if let Some(cleared_at) = alert.cleared_at {
                clear(&mut transaction, kept.alert.id, cleared_at).await?;
                kept.alert.cleared_at = Some(cleared_at);
                let new = event(AlertEvent::Cleared, cleared_at, &kept.alert);
                deliver(
                    &mut transaction,
                    Some(kept.alert.id),
                    AlertEvent::Cleared,
                    cleared_at,
                    &new,
                )
                .await?;
            }
            transaction.commit().await?;
            Ok(Some(kept.alert))
        })
        .await
    }

    /// Clears alerts that no gateway has said are open for [`ALERT_ORPHANED_MS`]. Returns how many there were.
    pub async fn clear_orphaned_alerts(
        &self,
        now: DateTime<Utc>,
        event: impl Fn(AlertEvent, DateTime<Utc>, &Alert) -> NewDelivery,
    ) -> Result<u64, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let mut transaction = self.begin().await?;
            let rows = sqlx::query_as!(
                Columns,
                "select id, kind, subject, instance, message, raised_at, last_seen_at, cleared_at, count
                 from alerts
                 where cleared_at is null and kept_at < $1
                 order by kept_at
                 limit $2
                 for update skip locked",
                now - Duration::milliseconds(ALERT_ORPHANED_MS),
                ORPHANS_BATCH,
            )
            .fetch_all(&mut *transaction)
            .await?;
            let count = rows.len() as u64;
            for row in rows {
                clear(&mut transaction, row.id, now).await?;
                // A kind that only newer gateways know is told of by nobody else.
                if let Some(mut alert) = row.into_alert() {
                    alert.cleared_at = Some(now);
                    let new = event(AlertEvent::Cleared, now, &alert);
                    deliver(&mut transaction, Some(alert.id), AlertEvent::Cleared, now, &new).await?;
                }
            }
            transaction.commit().await?;
            Ok(count)
        })
        .await
    }

    /// Open alerts that an earlier run of this gateway left.
    pub async fn open_alerts_of(&self, instance: &str) -> Result<Vec<Alert>, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let rows = sqlx::query_as!(
                Columns,
                "select id, kind, subject, instance, message, raised_at, last_seen_at, cleared_at, count
                 from alerts
                 where instance = $1 and cleared_at is null
                 order by raised_at desc
                 limit $2",
                instance,
                OPEN_ALERTS_MAX,
            )
            .fetch_all(self.pool())
            .await?;
            Ok(rows.into_iter().filter_map(Columns::into_alert).collect())
        })
        .await
    }

    /// Open alerts, of one kind if given, the latest first; at most [`OPEN_ALERTS_MAX`].
    pub async fn open_alerts(&self, kind: Option<AlertKind>) -> Result<Vec<Alert>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select id, kind, subject, instance, message, raised_at, last_seen_at, cleared_at, count
             from alerts
             where cleared_at is null and ($1::text is null or kind = $1)
             order by raised_at desc, id desc
             limit $2",
            kind.map(AlertKind::as_str),
            OPEN_ALERTS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().filter_map(Columns::into_alert).collect())
    }

    /// Alerts that are over, the latest first.
    pub async fn past_alerts(&self, filter: &PastAlertFilter) -> Result<Vec<Alert>, StoreError> {
        let (before_at, before_id) = filter.before.unzip();
        let rows = sqlx::query_as!(
            Columns,
            "select id, kind, subject, instance, message, raised_at, last_seen_at, cleared_at, count
             from alerts
             where cleared_at is not null
               and ($1::text is null or kind = $1)
               and ($2::timestamptz is null or (raised_at, id) < ($2, $3::uuid))
             order by raised_at desc, id desc
             limit $4",
            filter.kind.map(AlertKind::as_str),
            before_at,
            before_id,
            filter.count.clamp(0, PAST_ALERTS_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().filter_map(Columns::into_alert).collect())
    }

    /// Takes events that are due, for whoever calls to send them. Nobody else gets them before `taken_until`. That an alert
    /// is over is not told before it was told that it was raised.
    pub async fn take_deliveries(
        &self,
        now: DateTime<Utc>,
        taken_until: DateTime<Utc>,
        most: i64,
    ) -> Result<Vec<TakenDelivery>, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let rows = sqlx::query!(
                "with due as (
                     select waiting.id
                     from alert_deliveries as waiting
                     where waiting.delivered_at is null
                       and waiting.given_up_at is null
                       and waiting.due_at <= $1
                       and exists (select from alert_webhook)
                       and (waiting.event <> 'alert.cleared'
                            or not exists (select
                                           from alert_deliveries as earlier
                                           where earlier.alert_id = waiting.alert_id
                                             and earlier.event = 'alert.raised'
                                             and earlier.delivered_at is null
                                             and earlier.given_up_at is null))
                     order by waiting.due_at
                     limit $3
                     for update skip locked
                 )
                 update alert_deliveries
                 set attempts = attempts + 1, due_at = $2
                 from due
                 where alert_deliveries.id = due.id
                 returning alert_deliveries.id, alert_deliveries.body, alert_deliveries.attempts",
                now,
                taken_until,
                most,
            )
            .fetch_all(self.pool())
            .await?;
            Ok(rows
                .into_iter()
                .map(|row| TakenDelivery {
                    id: row.id,
                    body: row.body,
                    attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
                })
                .collect())
        })
        .await
    }

    /// The receiver took an event.
    pub async fn delivered(&self, taken: &TakenDelivery, now: DateTime<Utc>) -> Result<(), StoreError> {
        in_time(WRITE_WAIT_MS, async {
            sqlx::query!(
                "update alert_deliveries
                 set delivered_at = $2, last_error = null
                 where id = $1 and delivered_at is null and given_up_at is null",
                taken.id,
                now,
            )
            .execute(self.pool())
            .await?;
            Ok(())
        })
        .await
    }

    /// The receiver did not take an event. It is sent again at `due_at`, or given up where that is absent. Whoever else took
    /// it meanwhile decides instead.
    pub async fn not_delivered(
        &self,
        taken: &TakenDelivery,
        error: &str,
        due_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        in_time(WRITE_WAIT_MS, async {
            sqlx::query!(
                "update alert_deliveries
                 set last_error = $3, due_at = coalesce($4, due_at),
                     given_up_at = case when $4::timestamptz is null then $5::timestamptz end
                 where id = $1 and attempts = $2 and delivered_at is null and given_up_at is null",
                taken.id,
                i32::try_from(taken.attempts).unwrap_or(i32::MAX),
                error,
                due_at,
                now,
            )
            .execute(self.pool())
            .await?;
            Ok(())
        })
        .await
    }

    /// The latest events for the webhook; at most [`DELIVERIES_MAX`].
    pub async fn deliveries(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        let rows = sqlx::query!(
            r#"select
                alert_deliveries.id, event, kind as "kind?", at, attempts, due_at, delivered_at, given_up_at, last_error
             from alert_deliveries
             left join alerts on alerts.id = alert_id
             order by at desc, alert_deliveries.id desc
             limit $1"#,
            DELIVERIES_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| DeliveryRow {
                id: row.id,
                event: row.event,
                kind: row.kind.and_then(|kind| kind.parse().ok()),
                at: row.at,
                attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
                due_at: row.due_at,
                delivered_at: row.delivered_at,
                given_up_at: row.given_up_at,
                last_error: row.last_error,
            })
            .collect())
    }

    /// How many events were given up since `since`.
    pub async fn given_up_deliveries(&self, since: DateTime<Utc>) -> Result<u64, StoreError> {
        let given_up = sqlx::query_scalar!(
            "select count(*) as \"count!\" from alert_deliveries where at >= $1 and given_up_at is not null",
            since,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(count(given_up))
    }

    /// Where events go, if anywhere.
    pub async fn find_webhook(&self) -> Result<Option<WebhookRow>, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            Ok(sqlx::query_as!(
                WebhookRow,
                "select url_sealed, secret_sealed, version from alert_webhook"
            )
            .fetch_optional(self.pool())
            .await?)
        })
        .await
    }

    /// Deletes a batch of alerts that were over before `before`, and of deliveries from before it; returns how many there
    /// were.
    pub async fn delete_old_alerts(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let deliveries = sqlx::query!(
            "delete from alert_deliveries
             where ctid = any (array (select ctid from alert_deliveries where at < $1 limit $2))",
            before,
            OLD_BATCH,
        )
        .execute(self.pool())
        .await?;
        let alerts = sqlx::query!(
            "delete from alerts where ctid = any (array (select ctid from alerts where cleared_at < $1 limit $2))",
            before,
            OLD_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(deliveries.rows_affected() + alerts.rows_affected())
    }
}

/// Where events go; the row is kept from other writers until the transaction ends.
pub async fn lock_webhook(transaction: &mut Transaction) -> Result<Option<WebhookRow>, StoreError> {
    Ok(sqlx::query_as!(
        WebhookRow,
        "select url_sealed, secret_sealed, version from alert_webhook for update"
    )
    .fetch_optional(&mut **transaction)
    .await?)
}

/// Lets events go there from now on. Constraint `alert_webhook_pkey`: somebody else was first.
pub async fn insert_webhook(
    transaction: &mut Transaction,
    url_sealed: &[u8],
    secret_sealed: &[u8],
    changed_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into alert_webhook (url_sealed, secret_sealed, changed_at) values ($1, $2, $3)",
        url_sealed,
        secret_sealed,
        changed_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes the webhook that is locked.
pub async fn update_webhook(
    transaction: &mut Transaction,
    url_sealed: &[u8],
    secret_sealed: &[u8],
    changed_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update alert_webhook set url_sealed = $1, secret_sealed = $2, changed_at = $3, version = version + 1",
        url_sealed,
        secret_sealed,
        changed_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Lets events go nowhere from now on. Those on their way are given up for this reason.
pub async fn remove_webhook(transaction: &mut Transaction, reason: &str, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!("delete from alert_webhook")
        .execute(&mut **transaction)
        .await?;
    sqlx::query!(
        "update alert_deliveries
         set given_up_at = $1, last_error = $2
         where delivered_at is null and given_up_at is null",
        now,
        reason,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Sends a test, unless one is on its way already. Whether it does.
pub async fn insert_test(
    transaction: &mut Transaction,
    new: &NewDelivery,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "insert into alert_deliveries (id, event, at, body, due_at)
         select $1, $2, $3, $4, $3
         where not exists (select
                           from alert_deliveries
                           where event = $2 and delivered_at is null and given_up_at is null)",
        new.id,
        AlertEvent::Test.as_str(),
        at,
        new.body,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(done.rows_affected() > 0)
}

struct Kept {
    alert: Alert,
    is_new: bool,
}

/// Writes an open alert, or goes on with the one that is open already. What an earlier run counted is added; the same alert
/// written again counts what it counts.
async fn keep(
    transaction: &mut Transaction,
    alert: &Alert,
    kept_at: DateTime<Utc>,
) -> Result<Option<Kept>, StoreError> {
    let row = sqlx::query!(
        "insert into alerts (id, kind, subject, instance, message, raised_at, last_seen_at, kept_at, count)
         select $1, $2, $3, $4, $5, $6, $7, $8, $9
         where not exists (select from alerts where id = $1 and cleared_at is not null)
         on conflict (kind, subject, instance) where cleared_at is null do update
         set message = excluded.message,
             last_seen_at = greatest(alerts.last_seen_at, excluded.last_seen_at),
             kept_at = excluded.kept_at,
             count = case when alerts.id = excluded.id then greatest(alerts.count, excluded.count)
                          else alerts.count + excluded.count end
         returning id, raised_at, last_seen_at, count, xmax = 0 as \"is_new!\"",
        alert.id,
        alert.kind.as_str(),
        alert.subject.to_string(),
        alert.instance,
        alert.message,
        alert.raised_at,
        alert.last_seen_at,
        kept_at,
        i64::try_from(alert.count).unwrap_or(i64::MAX),
    )
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(row.map(|row| Kept {
        alert: Alert {
            id: row.id,
            raised_at: row.raised_at,
            last_seen_at: row.last_seen_at,
            count: count(row.count),
            ..alert.clone()
        },
        is_new: row.is_new,
    }))
}

async fn clear(transaction: &mut Transaction, id: Uuid, cleared_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!("update alerts set cleared_at = $2 where id = $1", id, cleared_at)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn deliver(
    transaction: &mut Transaction,
    alert_id: Option<Uuid>,
    event: AlertEvent,
    at: DateTime<Utc>,
    new: &NewDelivery,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into alert_deliveries (id, alert_id, event, at, body, due_at)
         select $1, $2, $3, $4, $5, $4
         where exists (select from alert_webhook)",
        new.id,
        alert_id,
        event.as_str(),
        at,
        new.body,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

struct Columns {
    id: Uuid,
    kind: String,
    subject: String,
    instance: String,
    message: String,
    raised_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    cleared_at: Option<DateTime<Utc>>,
    count: i64,
}

impl Columns {
    /// `None` for a kind or subject that only a newer gateway knows.
    fn into_alert(self) -> Option<Alert> {
        Some(Alert {
            id: self.id,
            kind: self.kind.parse().ok()?,
            subject: self.subject.parse().ok()?,
            instance: self.instance,
            message: self.message,
            raised_at: self.raised_at,
            last_seen_at: self.last_seen_at,
            cleared_at: self.cleared_at,
            count: count(self.count),
        })
    }
}
