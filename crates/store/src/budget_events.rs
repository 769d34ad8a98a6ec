//! Thresholds of budgets that were reached: each is written once, whoever sees it.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use domain::budget_events::{BUDGET_THRESHOLD, BudgetEvent};
use domain::ids::{PersonId, TenantId};
use domain::limits::Scope;
use domain::periods::Span;
use domain::priority::Priority;
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use crate::policy::{count, parse, parse_some};
use crate::{Store, StoreError, in_time};

/// Events written at once, at most.
pub const BUDGET_EVENTS_AT_ONCE: usize = 100;
/// Events on one page, at most.
pub const BUDGET_EVENTS_MAX: i64 = 200;
/// How long writing some may take, in milliseconds.
const WRITE_WAIT_MS: u64 = 2_000;
/// Rows that one call deletes at most.
const OLD_BATCH: i64 = 1_000;

/// Which events to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetEventFilter {
    /// Only of this tenant's nodes.
    pub tenant: Option<TenantId>,
    /// Only of this person as a user of the tenant, and of their keys; together with `tenant`.
    pub owner: Option<PersonId>,
    /// Only those that were seen before this one: the page after the one that ended with it.
    pub before: Option<(DateTime<Utc>, Uuid)>,
    /// So many, at most [`BUDGET_EVENTS_MAX`].
    pub count: i64,
}

/// An event, and what its node is called now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetEventRow {
    /// The event.
    pub event: BudgetEvent,
    /// The name of the tenant, person, key or upstream; groups, models and end users are called as their scope says.
    pub name: Option<String>,
    /// The tenant's name.
    pub tenant_name: Option<String>,
}

#[derive(Serialize)]
struct NewRow<'a> {
    id: Uuid,
    scope: String,
    tenant_id: Option<Uuid>,
    limit_id: Uuid,
    dimension: &'static str,
    period: &'static str,
    model: Option<&'a str>,
    priority: Option<&'static str>,
    period_start: DateTime<Utc>,
    period_end: DateTime<Utc>,
    threshold_percent: u8,
    value: i64,
    spent: i64,
    at: DateTime<Utc>,
}

impl Store {
    /// Writes those events that nobody has written before, each with what the webhook is to hear of it (made by `body`, sent
    /// where there is a webhook). Answers with the ids of those that were new. At most [`BUDGET_EVENTS_AT_ONCE`].
    pub async fn write_budget_events(
        &self,
        events: &[BudgetEvent],
        body: impl Fn(&BudgetEvent) -> String,
    ) -> Result<HashSet<Uuid>, StoreError> {
        in_time(WRITE_WAIT_MS, async {
            let mut transaction = self.begin().await?;
            // In one order, so that gateways that write the same ones do not wait for each other in a circle.
            let written = sqlx::query_scalar!(
                r#"insert into budget_events (
                       id, scope, tenant_id, limit_id, dimension, period, model, priority, period_start, period_end,
                       threshold_percent, value, spent, at)
                   select id, scope, tenant_id, limit_id, dimension, period, model, priority, period_start, period_end,
                       threshold_percent, value, spent, at
                   from jsonb_to_recordset($1) as event (
                       id uuid, scope text, tenant_id uuid, limit_id uuid, dimension text, period text, model text,
                       priority text, period_start timestamptz, period_end timestamptz, threshold_percent smallint,
                       value bigint, spent bigint, at timestamptz)
                   order by scope, dimension, period, model, priority, period_start, threshold_percent
                   on conflict on constraint budget_events_once do nothing
                   returning id"#,
                Json(events.iter().map(new_row).collect::<Vec<_>>()) as _,
            )
            .fetch_all(&mut *transaction)
            .await?;
            let written: HashSet<Uuid> = written.into_iter().collect();
            let new: Vec<&BudgetEvent> = events.iter().filter(|event| written.contains(&event.id)).collect();
            if !new.is_empty() {
                let ids: Vec<Uuid> = new.iter().map(|event| event.id).collect();
                let at: Vec<DateTime<Utc>> = new.iter().map(|event| event.at).collect();
                let bodies: Vec<String> = new.iter().map(|event| body(event)).collect();
                sqlx::query!(
                    "insert into alert_deliveries (id, event, at, body, due_at)
                     select id, $4, at, body, at
                     from unnest($1::uuid[], $2::timestamptz[], $3::text[]) as new (id, at, body)
                     where exists (select from alert_webhook)",
                    &ids,
                    &at,
                    &bodies,
                    BUDGET_THRESHOLD,
                )
                .execute(&mut *transaction)
                .await?;
            }
            transaction.commit().await?;
            Ok(written)
        })
        .await
    }

    /// Events that match, the latest first.
    pub async fn budget_events(&self, filter: &BudgetEventFilter) -> Result<Vec<BudgetEventRow>, StoreError> {
        let (before_at, before_id) = filter.before.unzip();
        let user = filter
            .tenant
            .zip(filter.owner)
            .map(|(tenant, owner)| Scope::User(tenant, owner.to_string().into()).to_string());
        let rows = sqlx::query_as!(
            Columns,
            r#"
            with found as (
                select *
                from budget_events as event
                where ($1::uuid is null or event.tenant_id = $1)
                    and ($2::uuid is null
                         or event.scope = $3
                         or event.scope in (select 'key:' || keys.id from keys where keys.owner_id = $2))
                    and ($4::timestamptz is null or (event.at, event.id) < ($4, $5::uuid))
                order by event.at desc, event.id desc
                limit $6
            )
            select
                found.id as "id!", found.scope as "scope!", found.tenant_id, found.limit_id as "limit_id!",
                found.dimension as "dimension!", found.period as "period!", found.model, found.priority,
                found.period_start as "period_start!", found.period_end as "period_end!",
                found.threshold_percent as "threshold_percent!", found.value as "value!", found.spent as "spent!",
                found.at as "at!", tenants.name as "tenant_name?",
                case split_part(found.scope, ':', 1)
                    when 'tenant' then tenants.name
                    when 'key' then keys.name
                    when 'user' then people.name
                    when 'upstream' then upstreams.name
                end as "name?"
            from found
            left join tenants on tenants.id = found.tenant_id
            -- Ids are compared as what they are, so that each name is looked up by its index.
            left join keys on keys.id =
                case when found.scope like 'key:%' then substr(found.scope, 5)::uuid end
            left join people on found.scope like 'user:%' and people.id::text = split_part(found.scope, '/', 2)
            left join upstreams on upstreams.id =
                case when found.scope like 'upstream:%' then substr(found.scope, 10)::uuid end
            order by found.at desc, found.id desc
            "#,
            filter.tenant.map(Uuid::from),
            filter.owner.map(Uuid::from),
            user,
            before_at,
            before_id,
            filter.count.clamp(0, BUDGET_EVENTS_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_row).collect()
    }

    /// Deletes a batch of events whose period ended before `before`; returns how many there were. One whose period may still
    /// be spent in would be told again.
    pub async fn delete_old_budget_events(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from budget_events
             where ctid = any (array (select ctid from budget_events where period_end < $1 limit $2))",
            before,
            OLD_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

fn new_row(event: &BudgetEvent) -> NewRow<'_> {
    NewRow {
        id: event.id,
        scope: event.scope.to_string(),
        tenant_id: event.tenant_id.map(Into::into),
        limit_id: event.limit_id.0,
        dimension: event.dimension.as_str(),
        period: event.period.as_str(),
        model: event.model.as_deref(),
        priority: event.priority.map(Priority::as_str),
        period_start: event.span.start,
        period_end: event.span.end,
        threshold_percent: event.percent,
        value: i64::try_from(event.value).unwrap_or(i64::MAX),
        spent: event.spent,
        at: event.at,
    }
}

struct Columns {
    id: Uuid,
    scope: String,
    tenant_id: Option<Uuid>,
    limit_id: Uuid,
    dimension: String,
    period: String,
    model: Option<String>,
    priority: Option<String>,
    period_start: DateTime<Utc>,
    period_end: DateTime<Utc>,
    threshold_percent: i16,
    value: i64,
    spent: i64,
    at: DateTime<Utc>,
    name: Option<String>,
    tenant_name: Option<String>,
}

impl Columns {
    fn into_row(self) -> Result<BudgetEventRow, StoreError> {
        Ok(BudgetEventRow {
            event: BudgetEvent {
                id: self.id,
                scope: parse(&self.scope, "budget_events.scope")?,
                tenant_id: self.tenant_id.map(Into::into),
                limit_id: self.limit_id.into(),
                dimension: parse(&self.dimension, "budget_events.dimension")?,
                period: parse(&self.period, "budget_events.period")?,
                model: self.model.map(Into::into),
                priority: parse_some(self.priority, "budget_events.priority")?,
                span: Span {
                    start: self.period_start,
                    end: self.period_end,
                },
                percent: u8::try_from(self.threshold_percent).unwrap_or(100),
                value: count(self.value),
                spent: self.spent,
                at: self.at,
            },
            name: self.name,
            tenant_name: self.tenant_name,
        })
    }
}
