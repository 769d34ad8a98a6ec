//! Limits from all over the quota tree in one list, each with the name of what it sits on.

use domain::ids::{LimitId, TenantId};
use domain::limits::{Limit, Mode};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::policy::LimitColumns;
use crate::{Store, StoreError};

/// Limits of one list at most.
pub const NAMED_LIMITS_MAX: i64 = 500;

/// A limit and what its node is called now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The limit.
    pub limit: Limit,
    /// The name of the tenant or plan, key, person or upstream that it sits on. Models, groups and end users are called as
    /// their scope says.
    pub name: Option<String>,
    /// The tenant that a user or key belongs to.
    pub tenant_name: Option<String>,
    /// Whether it is out of force.
    pub is_removed: bool,
}

/// Which limits to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedLimitFilter {
    /// On this tenant, on a class of its nodes, or on one of its users or keys.
    pub tenant: Option<TenantId>,
    /// In this mode.
    pub mode: Option<Mode>,
    /// With gates or without.
    pub has_gates: Option<bool>,
    /// These, also those out of force; otherwise only those in force.
    pub ids: Option<Vec<LimitId>>,
}

impl Store {
    /// Limits that match, from the root of the tree down; at most [`NAMED_LIMITS_MAX`].
    pub async fn named_limits(&self, filter: &NamedLimitFilter) -> Result<Vec<NamedLimit>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        list(&mut connection, filter).await
    }
}

/// The same inside the caller's snapshot.
pub(crate) async fn list(
    connection: &mut PgConnection,
    filter: &NamedLimitFilter,
) -> Result<Vec<NamedLimit>, StoreError> {
    let ids: Option<Vec<Uuid>> = filter.ids.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
    let rows = sqlx::query_as!(
        Columns,
        r#"
        select
            limits.id, limits.scope_kind, limits.scope_id, limits.class, limits.dimension, limits.value,
            limits.window_seconds, limits.burst, limits.period, limits.model, limits.priority, limits.mode,
            limits.gate_lower_percent, limits.gate_upper_percent, limits.gate_upper_waits,
            limits.increase_value, limits.increase_until, limits.threshold_percents, limits.removed_at,
            case limits.scope_kind
                when 'tenant' then tenants.name
                when 'plan' then plans.name
                when 'key' then keys.name
                when 'upstream' then upstreams.name
                when 'user' then people.name
            end as "name?",
            case when limits.scope_kind in ('key', 'user') then tenants.name end as "tenant_name?"
        from limits
        -- Ids are compared as what they are, so that each name is looked up by its index.
        left join keys on keys.id = case limits.scope_kind when 'key' then limits.scope_id::uuid end
        left join tenants on tenants.id =
            case limits.scope_kind
                when 'tenant' then limits.scope_id::uuid
                when 'user' then split_part(limits.scope_id, '/', 1)::uuid
                when 'key' then keys.tenant_id
            end
        left join people on limits.scope_kind = 'user' and people.id::text = split_part(limits.scope_id, '/', 2)
        left join plans on plans.id = case limits.scope_kind when 'plan' then limits.scope_id::uuid end
        left join upstreams on upstreams.id = case limits.scope_kind when 'upstream' then limits.scope_id::uuid end
        where ($1::uuid is null or tenants.id = $1)
            and ($2::text is null or limits.mode = $2)
            and ($3::boolean is null or (limits.gate_lower_percent is not null) = $3)
            and (limits.id = any($4::uuid[]) or ($4 is null and limits.removed_at is null))
        order by
            array_position(array['global', 'models', 'model', 'upstream', 'plan', 'tenant', 'user', 'key'], limits.scope_kind),
            limits.class nulls first, lower(tenants.name), limits.scope_id, limits.dimension, limits.window_seconds, limits.period,
            limits.model nulls first, limits.priority nulls first
        limit $5
        "#,
        filter.tenant.map(Uuid::from),
        filter.mode.map(Mode::as_str),
        filter.has_gates,
        ids.as_deref(),
        NAMED_LIMITS_MAX,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Columns::into_named).collect()
}

struct Columns {
    id: Uuid,
    scope_kind: String,
    scope_id: String,
    class: Option<String>,
    dimension: String,
    value: i64,
    window_seconds: i32,
    burst: Option<i64>,
    period: String,
    model: Option<String>,
    priority: Option<String>,
    mode: String,
    gate_lower_percent: Option<i16>,
    gate_upper_percent: Option<i16>,
    gate_upper_waits: bool,
    increase_value: Option<i64>,
    increase_until: Option<chrono::DateTime<chrono::Utc>>,
    threshold_percents: Vec<i16>,
    removed_at: Option<chrono::DateTime<chrono::Utc>>,
    name: Option<String>,
    tenant_name: Option<String>,
}

impl Columns {
    fn into_named(self) -> Result<NamedLimit, StoreError> {
        let row = LimitColumns {
            id: self.id,
            scope_kind: self.scope_kind,
            scope_id: self.scope_id,
            class: self.class,
            dimension: self.dimension,
            value: self.value,
            window_seconds: self.window_seconds,
            burst: self.burst,
            period: self.period,
            model: self.model,
            priority: self.priority,
            mode: self.mode,
            gate_lower_percent: self.gate_lower_percent,
            gate_upper_percent: self.gate_upper_percent,
            gate_upper_waits: self.gate_upper_waits,
            increase_value: self.increase_value,
            increase_until: self.increase_until,
            threshold_percents: self.threshold_percents,
            removed_at: self.removed_at,
        }
        .into_row()?;
        Ok(NamedLimit {
            limit: row.limit,
            name: self.name,
            tenant_name: self.tenant_name,
            is_removed: row.removed_at.is_some(),
        })
    }
}
