//! What a check of the ledger reads beside [`crate::rollups`]: where entries are, what budgets come to when added up from
//! the entries themselves, and whether costs follow from tokens and prices.

use std::collections::HashMap;

use chrono::{DateTime, Duration, Utc};
use domain::ids::{KeyId, TenantId, UpstreamId};
use domain::ledger::Settlement;
use domain::money::Nanos;
use domain::periods::Span;
use domain::prices::{Price, PriceTier, Rates};
use futures_util::TryStreamExt;
use serde_json::Value;
use uuid::Uuid;

use crate::budgets::{BudgetFilter, Spent, sums_in};
use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// Users that have used something in a span and are told at most.
pub const USERS_MAX: i64 = 100_000;
/// Settlements whose cost does not follow from their price alone that are told at most, of one span.
pub const ODD_COSTS_MAX: i64 = 1_000;
/// Entries are added up by so much time in one statement.
const SLICE: Duration = Duration::days(1);

/// A budget as it is known, and as the entries add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetCheck {
    /// What gateways are told.
    pub known: Spent,
    /// What the entries come to.
    pub from_entries: Spent,
}

/// A settlement whose cost is not its tokens at its price.
#[derive(Clone, Debug, PartialEq)]
pub struct OddCost {
    /// The entry.
    pub settlement: Settlement,
    /// The price that it names.
    pub price: Price,
}

/// What was used together, of one kind.
struct UsedRow {
    tenant_id: Uuid,
    user_id: String,
    key_id: Uuid,
    model: String,
    upstream_id: Uuid,
    priority: String,
    tokens: i64,
    cost_nanos: i64,
}

impl Store {
    /// The first instant from `from` on at which there is an entry or a 15-minute roll-up.
    pub async fn next_in_ledger(&self, from: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select least(
                 (select min(admitted_at) from settlements where admitted_at >= $1),
                 (select min(refused_at) from rejections where refused_at >= $1),
                 (select min(admitted_at) from adjustments where admitted_at >= $1),
                 (select min(bucket_start) from settlement_rollups where bucket_start >= $1),
                 (select min(bucket_start) from rehearsal_rollups where bucket_start >= $1),
                 (select min(bucket_start) from tag_rollups where bucket_start >= $1),
                 (select min(bucket_start) from rejection_rollups where bucket_start >= $1))",
            from,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// Users that requests of `span` were for, end users among them; at most [`USERS_MAX`].
    pub async fn users_in_ledger(&self, span: Span) -> Result<Vec<(TenantId, String)>, StoreError> {
        let rows = sqlx::query!(
            "select distinct tenant_id, user_id
             from settlement_rollups
             where bucket_start >= $1 and bucket_start < $2 and user_id <> ''
             limit $3",
            span.start,
            span.end,
            USERS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| (TenantId(row.tenant_id), row.user_id))
            .collect())
    }

    /// What each budget is known to have spent beside what its entries add up to, all in one snapshot. Reads every entry of
    /// the budgets' spans, day by day.
    pub async fn check_budgets(&self, filters: &[BudgetFilter]) -> Result<Vec<BudgetCheck>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let known = sums_in(&mut snapshot, filters).await?;
        let mut checks: Vec<BudgetCheck> = known
            .into_iter()
            .map(|known| BudgetCheck {
                known,
                from_entries: Spent::default(),
            })
            .collect();
        let mut spans: Vec<Span> = Vec::new();
        for filter in filters {
            if !spans.contains(&filter.span) {
                spans.push(filter.span);
            }
        }
        for span in spans {
            let of_span = Places::of_span(span, filters);
            let mut start = span.start;
            while start < span.end {
                let end = span.end.min(start + SLICE);
                add_up(&mut snapshot, Span { start, end }, filters, &of_span, &mut checks).await?;
                start = end;
            }
        }
        snapshot.commit().await?;
        Ok(checks)
    }

    /// Settlements of `span` whose cost is not their tokens at the price that they name, rounded up once; at most
    /// [`ODD_COSTS_MAX`].
    pub async fn odd_costs(&self, span: Span) -> Result<Vec<OddCost>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select
                to_jsonb(settlements) as "entry!", prices.id, prices.model, prices.valid_from, prices.valid_until,
                prices.input_nanos_per_mtok, prices.cache_read_nanos_per_mtok, prices.cache_write_5m_nanos_per_mtok,
                prices.cache_write_1h_nanos_per_mtok, prices.output_nanos_per_mtok, prices.tiers
            from settlements
            join prices on prices.id = settlements.price_id
            left join lateral (
                select tier
                from jsonb_array_elements(prices.tiers) as tier
                where input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
                    > (tier ->> 'above_input_tokens')::bigint
                order by (tier ->> 'above_input_tokens')::bigint desc
                limit 1
            ) as reached on true
            where settlements.admitted_at >= $1
                and settlements.admitted_at < $2
                and cost_nanos::numeric <> ceil((
                    input_fresh_tokens::numeric
                        * coalesce((tier ->> 'input_nanos_per_mtok')::bigint, prices.input_nanos_per_mtok)
                    + cache_read_tokens::numeric
                        * coalesce((tier ->> 'cache_read_nanos_per_mtok')::bigint, prices.cache_read_nanos_per_mtok)
                    + cache_write_5m_tokens::numeric
                        * coalesce((tier ->> 'cache_write_5m_nanos_per_mtok')::bigint, prices.cache_write_5m_nanos_per_mtok)
                    + cache_write_1h_tokens::numeric
                        * coalesce((tier ->> 'cache_write_1h_nanos_per_mtok')::bigint, prices.cache_write_1h_nanos_per_mtok)
                    + output_tokens::numeric
                        * coalesce((tier ->> 'output_nanos_per_mtok')::bigint, prices.output_nanos_per_mtok)
                ) / 1000000)
            order by settlements.admitted_at, settlements.id
            limit $3
            "#,
            span.start,
            span.end,
            ODD_COSTS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(OddCost {
                    settlement: from_json(row.entry, "settlements")?,
                    price: Price {
                        id: row.id.into(),
                        model: row.model,
                        valid_from: row.valid_from,
                        valid_until: row.valid_until,
                        rates: Rates {
                            input_nanos_per_mtok: row.input_nanos_per_mtok,
                            cache_read_nanos_per_mtok: row.cache_read_nanos_per_mtok,
                            cache_write_5m_nanos_per_mtok: row.cache_write_5m_nanos_per_mtok,
                            cache_write_1h_nanos_per_mtok: row.cache_write_1h_nanos_per_mtok,
                            output_nanos_per_mtok: row.output_nanos_per_mtok,
                        },
                        tiers: from_json::<Vec<PriceTier>>(row.tiers, "prices.tiers")?,
                    },
                })
            })
            .collect()
    }
}

/// Where the budgets of one span stand in a list of many, by what they are of: a row is compared with few of them.
#[derive(Default)]
struct Places {
    of_key: HashMap<KeyId, Vec<usize>>,
    of_user: HashMap<(TenantId, String), Vec<usize>>,
    of_tenant: HashMap<TenantId, Vec<usize>>,
    of_all: Vec<usize>,
}

impl Places {
    fn of_span(span: Span, filters: &[BudgetFilter]) -> Self {
        let mut places = Self::default();
        for (place, filter) in filters.iter().enumerate().filter(|(_, filter)| filter.span == span) {
            let of = match (filter.key, filter.tenant, &filter.user) {
                (Some(key), _, _) => places.of_key.entry(key).or_default(),
                (None, Some(tenant), Some(user)) => places.of_user.entry((tenant, user.clone())).or_default(),
                (None, Some(tenant), None) => places.of_tenant.entry(tenant).or_default(),
                (None, None, _) => &mut places.of_all,
            };
            of.push(place);
        }
        places
    }

    fn that_may_count(&self, row: &UsedRow) -> impl Iterator<Item = usize> {
        let tenant = TenantId(row.tenant_id);
        let of_key = self.of_key.get(&KeyId(row.key_id));
        let of_user = self.of_user.get(&(tenant, row.user_id.clone()));
        let of_tenant = self.of_tenant.get(&tenant);
        let found = [of_key, of_user, of_tenant, Some(&self.of_all)];
        found.into_iter().flatten().flatten().copied()
    }
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value, column: &'static str) -> Result<T, StoreError> {
    serde_json::from_value(value).map_err(|_| StoreError::Value { column })
}

/// Adds what the entries of `slice` come to to the budgets at these places.
async fn add_up(
    snapshot: &mut Transaction,
    slice: Span,
    filters: &[BudgetFilter],
    places: &Places,
    checks: &mut [BudgetCheck],
) -> Result<(), StoreError> {
    let mut used = sqlx::query_as!(
        UsedRow,
        r#"
        with entries as (
            select
                tenant_id, coalesce(user_id, '') as user_id, key_id, coalesce(model, '') as model,
                coalesce(upstream_id, '00000000-0000-0000-0000-000000000000') as upstream_id, priority,
                input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
                    + output_tokens as tokens,
                cost_nanos
            from settlements
            where admitted_at >= $1 and admitted_at < $2
            union all
            select
                tenant_id, coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'),
                coalesce(model, ''), coalesce(upstream_id, '00000000-0000-0000-0000-000000000000'), priority,
                input_tokens + output_tokens, cost_nanos
            from adjustments
            where admitted_at >= $1 and admitted_at < $2
        )
        select
            tenant_id as "tenant_id!", user_id as "user_id!", key_id as "key_id!", model as "model!",
            upstream_id as "upstream_id!", priority as "priority!", sum(tokens)::bigint as "tokens!",
            sum(cost_nanos)::bigint as "cost_nanos!"
        from entries
        group by tenant_id, user_id, key_id, model, upstream_id, priority
        "#,
        slice.start,
        slice.end,
    )
    .fetch(&mut **snapshot);
    while let Some(row) = used.try_next().await? {
        for place in places.that_may_count(&row) {
            if counts_in(&row, &filters[place])? {
                let sum = &mut checks[place].from_entries;
                sum.tokens = sum.tokens.saturating_add(row.tokens);
                sum.cost += Nanos(row.cost_nanos);
            }
        }
    }
    Ok(())
}

fn counts_in(row: &UsedRow, filter: &BudgetFilter) -> Result<bool, StoreError> {
    let of = |wanted: Option<bool>| wanted.unwrap_or(true);
    Ok(of(filter.tenant.map(|tenant| tenant == TenantId(row.tenant_id)))
        && of(filter.user.as_ref().map(|user| *user == row.user_id))
        && of(filter.key.map(|key| key == KeyId(row.key_id)))
        && of(filter.models.as_ref().map(|models| models.contains(&row.model)))
        && of(filter.upstream.map(|upstream| upstream == UpstreamId(row.upstream_id)))
        && match filter.priority {
            None => true,
            Some(priority) => priority == parse(&row.priority, "settlements.priority")?,
        })
}
