//! What limits in rehearsal would have refused: sums over the roll-ups.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, LimitId, TenantId};
use domain::periods::Span;
use domain::reports::Completeness;
use uuid::Uuid;

use crate::named_limits::{self, NamedLimit, NamedLimitFilter};
use crate::policy::count;
use crate::reports::read_completeness;
use crate::{Store, StoreError, Transaction};

/// Rows of limit and code that are read at most, the most frequent first.
const VERDICT_ROWS_MAX: i64 = 400;
/// Keys of one list at most.
pub const REHEARSED_KEYS_MAX: i64 = 20;

/// What would have been refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// Requests that ran.
    pub requests: u64,
    /// Of these, those that any limit would have refused.
    pub refused: u64,
    /// Those that any limit of a level would have refused, by the word of [`domain::limits::Scope::kind`]. A request counts
    /// in each of its levels.
    pub refused_by_level: BTreeMap<String, u64>,
    /// By limit, the most frequent first. A request counts in each of its limits.
    pub limits: Vec<RehearsedLimit>,
    /// Whether there are more limits.
    pub is_cut: bool,
    /// The keys whose requests would have been refused most, by any limit or by the one asked for; at most
    /// [`REHEARSED_KEYS_MAX`].
    pub keys: Vec<RehearsedKey>,
    /// How complete it is.
    pub completeness: Completeness,
}

/// A limit, and what it would have refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsedLimit {
    /// Which one.
    pub id: LimitId,
    /// The kind of its scope.
    pub level: String,
    /// As it is now.
    pub limit: Option<NamedLimit>,
    /// Requests by the code they would have been refused with; the words of [`domain::refusals::RefusalCode`].
    pub refused: BTreeMap<String, u64>,
}

/// A key whose requests would have been refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsedKey {
    /// Whose.
    pub tenant_id: TenantId,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// Which key.
    pub key_id: KeyId,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// Its requests that ran.
    pub requests: u64,
    /// Of these, those that would have been refused.
    pub refused: u64,
}

impl RehearsedLimit {
    /// Requests that it would have refused.
    pub fn requests(&self) -> u64 {
        self.refused.values().sum()
    }
}

impl Store {
    /// What limits in rehearsal would have refused in `span` (on 15-minute boundaries), and whom `limit`, if given.
    pub async fn rehearsal(
        &self,
        span: Span,
        limit: Option<LimitId>,
        now: DateTime<Utc>,
    ) -> Result<Rehearsal, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let verdicts = verdicts(&mut snapshot, span).await?;
        let is_cut = verdicts.len() as i64 > VERDICT_ROWS_MAX;
        let (requests, keys) = requests_and_keys(&mut snapshot, span, limit).await?;
        let mut rehearsal = Rehearsal {
            requests,
            refused: 0,
            refused_by_level: BTreeMap::new(),
            limits: Vec::new(),
            is_cut,
            keys,
            completeness: read_completeness(&mut snapshot, span, now).await?,
        };
        for (level, id, code, refused) in verdicts.into_iter().take(VERDICT_ROWS_MAX as usize) {
            match (level.as_str(), id.is_nil()) {
                ("", _) => rehearsal.refused = refused,
                (_, true) => _ = rehearsal.refused_by_level.insert(level, refused),
                (_, false) => add(&mut rehearsal.limits, LimitId(id), level, code, refused),
            }
        }
        name(&mut snapshot, &mut rehearsal.limits).await?;
        snapshot.commit().await?;
        rehearsal
            .limits
            .sort_by_key(|limit| (std::cmp::Reverse(limit.requests()), limit.id));
        Ok(rehearsal)
    }
}

/// Sums by level, limit and code: of all levels, of each level, then of limits, the most frequent first.
async fn verdicts(snapshot: &mut Transaction, span: Span) -> Result<Vec<(String, Uuid, String, u64)>, StoreError> {
    let rows = sqlx::query!(
        r#"
        select scope_kind, limit_id, code, sum(requests)::bigint as "requests!"
        from rehearsal_rollups
        where bucket_start >= $1 and bucket_start < $2
        group by scope_kind, limit_id, code
        order by code <> '', sum(requests) desc, limit_id
        limit $3
        "#,
        span.start,
        span.end,
        VERDICT_ROWS_MAX + 1,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.scope_kind, row.limit_id, row.code, count(row.requests)))
        .collect())
}

/// How many requests ran, and the keys whose requests would have been refused most.
async fn requests_and_keys(
    snapshot: &mut Transaction,
    span: Span,
    limit: Option<LimitId>,
) -> Result<(u64, Vec<RehearsedKey>), StoreError> {
    let rows = sqlx::query!(
        r#"
        with ran as materialized (
            select tenant_id, key_id, sum(requests) as requests
            from settlement_rollups
            where bucket_start >= $1 and bucket_start < $2
            group by 1, 2
        ),
        refused as (
            select tenant_id, key_id, sum(requests) as refused
            from rehearsal_rollups
            where bucket_start >= $1
                and bucket_start < $2
                and ((scope_kind = '' and $3::uuid is null) or limit_id = $3)
            group by 1, 2
            order by refused desc, tenant_id, key_id
            limit $4
        )
        select
            null::uuid as "tenant_id?",
            null as "tenant_name?",
            null::uuid as "key_id?",
            null as "key_name?",
            null as "key_public_id?",
            coalesce(sum(requests), 0)::bigint as "requests!",
            0::bigint as "refused!"
        from ran
        union all
        select refused.tenant_id, tenants.name, refused.key_id, keys.name, keys.public_id,
               coalesce(ran.requests, 0)::bigint, refused.refused::bigint
        from refused
        left join ran using (tenant_id, key_id)
        left join tenants on tenants.id = refused.tenant_id
        left join keys on keys.id = refused.key_id
        order by 7 desc
        "#,
        span.start,
        span.end,
        limit.map(Uuid::from),
        REHEARSED_KEYS_MAX,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    let mut requests = 0;
    let mut keys = Vec::new();
    for row in rows {
        match (row.tenant_id, row.key_id) {
            (Some(tenant), Some(key)) => keys.push(RehearsedKey {
                tenant_id: tenant.into(),
                tenant_name: row.tenant_name,
                key_id: key.into(),
                key_name: row.key_name,
                key_public_id: row.key_public_id,
                requests: count(row.requests),
                refused: count(row.refused),
            }),
            _ => requests = count(row.requests),
        }
    }
    Ok((requests, keys))
}

fn add(limits: &mut Vec<RehearsedLimit>, id: LimitId, level: String, code: String, refused: u64) {
    if let Some(known) = limits.iter_mut().find(|limit| limit.id == id) {
        *known.refused.entry(code).or_default() += refused;
    } else {
        limits.push(RehearsedLimit {
            id,
            level,
            limit: None,
            refused: BTreeMap::from([(code, refused)]),
        });
    }
}

async fn name(snapshot: &mut Transaction, limits: &mut [RehearsedLimit]) -> Result<(), StoreError> {
    let filter = NamedLimitFilter {
        ids: Some(limits.iter().map(|limit| limit.id).collect()),
        ..NamedLimitFilter::default()
    };
    for named in named_limits::list(snapshot, &filter).await? {
        if let Some(limit) = limits.iter_mut().find(|limit| limit.id == named.limit.id) {
            limit.limit = Some(named);
        }
    }
    Ok(())
}
