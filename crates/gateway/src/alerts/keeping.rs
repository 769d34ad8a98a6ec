//! Writing alerts to Postgres: what is new at once, what is open now and then, so that others know whose it is.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::alerts::{ALERT_KEEP_INTERVAL_MS, ALERT_ORPHANED_MS, Alert, AlertEvent, AlertKind, Episode};
use domain::error_chain::chain;
use store::StoreError;
use store::alerts::NewDelivery;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Alerts, Row, Watched};
use crate::{Gateway, metrics};

/// How often it is looked at what is over by now, in milliseconds.
const LOOK_INTERVAL_MS: u64 = 1_000;

/// Writes alerts as they change, goes on with those that an earlier run left open, and clears those of gateways that are
/// gone.
pub(crate) async fn keep_alerts(gateway: Arc<Gateway>) {
    let alerts = &gateway.alerts;
    let mut has_resumed = false;
    // Since when Postgres takes everything. After it was away, the others need a moment to say what is theirs.
    let mut well_since_ms: Option<u64> = None;
    loop {
        tokio::select! {
            () = sleep(Duration::from_millis(LOOK_INTERVAL_MS)) => {}
            () = alerts.changed.notified() => {}
        }
        alerts.turn_all();
        match gateway.write_alerts(&mut has_resumed).await {
            Ok(()) => {
                let now = alerts.now();
                let since_ms = *well_since_ms.get_or_insert(now.monotonic_ms);
                if now.monotonic_ms.saturating_sub(since_ms) >= ALERT_ORPHANED_MS.unsigned_abs() {
                    gateway.clear_orphaned_alerts().await;
                }
            }
            // Postgres away is noticed and logged by whoever reads the policy.
            Err(error) if error.is_transient() => well_since_ms = None,
            Err(error) => {
                well_since_ms = None;
                tracing::error!(error = chain(&error), "an alert cannot be written; it is tried again");
            }
        }
    }
}

impl Gateway {
    async fn write_alerts(&self, has_resumed: &mut bool) -> Result<(), StoreError> {
        if !*has_resumed {
            for alert in self.store.open_alerts_of(&self.instance).await? {
                self.alerts.resume(alert);
            }
            *has_resumed = true;
        }
        for alert in self.alerts.due(&self.instance) {
            let written = self
                .store
                .write_alert(&alert, self.alerts.now().wall, |event, at, alert| {
                    self.alerts.delivery(event, at, alert)
                })
                .await?;
            self.alerts.written(&alert, written);
        }
        Ok(())
    }

    async fn clear_orphaned_alerts(&self) {
        let cleared = self
            .store
            .clear_orphaned_alerts(self.alerts.now().wall, |event, at, alert| {
                self.alerts.delivery(event, at, alert)
            })
            .await;
        match cleared {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(count, "alerts of gateways that are gone are cleared");
                self.alerts.written.notify_one();
            }
            Err(error) => tracing::warn!(error = chain(&error), "alerts of gateways that are gone stay open"),
        }
    }
}

impl Alerts {
    /// Raises and clears what is due by now, and tells the metrics.
    pub(super) fn turn_all(&self) {
        let now = self.now();
        let mut book = self.book.lock();
        for watched in book.watched.values_mut() {
            watched.turn(now, || self.new_id(now));
        }
        book.watched
            .retain(|_, watched| watched.row.is_some() || !watched.watch.is_idle());
        book.has_overflowed &= book.watched.len() >= super::WATCHED_MAX;
        for kind in AlertKind::ALL {
            let open = book
                .watched
                .iter()
                .filter(|((of, _), watched)| *of == kind && watched.watch.episode().is_some())
                .count();
            metrics::open_alerts(kind, open);
        }
    }

    /// An earlier run's alert is this one's.
    pub(super) fn resume(&self, alert: Alert) {
        let now = self.now();
        let mut book = self.book.lock();
        let Some(watched) = book.watched(alert.kind, alert.subject) else {
            return;
        };
        let earlier = Episode {
            raised_at: alert.raised_at,
            last_seen_at: alert.last_seen_at,
            count: alert.count,
        };
        // What was raised meanwhile was not written yet.
        watched.watch.resume(earlier, now);
        if watched.message.is_empty() {
            watched.message = alert.message;
        }
        watched.row = Some(Row {
            over: watched.row.and_then(|row| row.over),
            ..Row::new(alert.id, earlier)
        });
    }

    /// What is to be written now, at most as much as is watched.
    pub(super) fn due(&self, instance: &str) -> Vec<Alert> {
        let now_ms = self.now().monotonic_ms;
        let is_due = |watched: &Watched| {
            watched.row.is_some_and(|row| {
                row.over.is_some()
                    || row
                        .written_ms
                        .is_none_or(|written_ms| now_ms.saturating_sub(written_ms) >= ALERT_KEEP_INTERVAL_MS)
            })
        };
        let book = self.book.lock();
        let due = book.watched.iter().filter(|(_, watched)| is_due(watched));
        due.filter_map(|((kind, subject), watched)| watched.alert(*kind, subject, instance))
            .collect()
    }

    /// An alert was written, and is known as `written` from now on. Where it is `None`, it had been cleared before: by the
    /// others, who took this gateway for gone, or by an attempt whose answer was lost.
    pub(super) fn written(&self, alert: &Alert, written: Option<Alert>) {
        let now = self.now();
        let mut book = self.book.lock();
        let Some(watched) = book.watched.get_mut(&(alert.kind, alert.subject.clone())) else {
            return;
        };
        let Some(row) = watched.row.as_mut().filter(|row| row.id == alert.id) else {
            return;
        };
        let was_new = row.written_ms.is_none();
        let is_over = row.over.is_some();
        match written {
            Some(written) if written.cleared_at.is_none() => {
                row.id = written.id;
                row.raised_at = written.raised_at;
                row.earlier_count += written.count.saturating_sub(alert.count);
                row.written_ms = Some(now.monotonic_ms);
            }
            _ if is_over => watched.row = None,
            // It is so again: another alert.
            _ => {
                watched.row = watched
                    .watch
                    .episode()
                    .map(|episode| Row::new(self.new_id(now), episode))
            }
        }
        if was_new || alert.cleared_at.is_some() {
            self.written.notify_one();
        }
    }

    fn delivery(&self, event: AlertEvent, at: DateTime<Utc>, alert: &Alert) -> NewDelivery {
        let id: Uuid = self.new_id(self.now());
        NewDelivery {
            id,
            body: event.body(id, at, Some(alert)),
        }
    }
}
