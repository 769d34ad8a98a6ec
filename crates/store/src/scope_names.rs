//! What nodes of the quota tree are called now.

use std::collections::HashMap;

use domain::limits::Scope;

use crate::{Store, StoreError};

/// Names that one query looks up, at most.
pub const SCOPE_NAMES_MAX: usize = 1_000;

/// What a node's ids are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeName {
    /// The name of the tenant, key, person or upstream. Models, groups and end users are called as their scope says.
    pub name: Option<String>,
    /// The tenant that a user or key belongs to.
    pub tenant_name: Option<String>,
}

impl Store {
    /// The names of these scopes; of the first [`SCOPE_NAMES_MAX`], if there are more.
    pub async fn scope_names(&self, scopes: &[Scope]) -> Result<HashMap<Scope, ScopeName>, StoreError> {
        let scopes = &scopes[..scopes.len().min(SCOPE_NAMES_MAX)];
        let kinds: Vec<String> = scopes.iter().map(|scope| scope.kind().to_owned()).collect();
        let ids: Vec<String> = scopes.iter().map(Scope::identifier).collect();
        let rows = sqlx::query!(
            r#"
            select
                scopes.place as "place!",
                case scopes.kind
                    when 'tenant' then tenants.name
                    when 'key' then keys.name
                    when 'upstream' then upstreams.name
                    when 'user' then people.name
                end as "name?",
                case when scopes.kind in ('key', 'user') then tenants.name end as "tenant_name?"
            from unnest($1::text[], $2::text[]) with ordinality as scopes (kind, id, place)
            left join keys on keys.id = case scopes.kind when 'key' then scopes.id::uuid end
            left join tenants on tenants.id =
                case scopes.kind
                    when 'tenant' then scopes.id::uuid
                    when 'user' then split_part(scopes.id, '/', 1)::uuid
                    when 'key' then keys.tenant_id
                end
            left join people on scopes.kind = 'user' and people.id::text = split_part(scopes.id, '/', 2)
            left join upstreams on upstreams.id = case scopes.kind when 'upstream' then scopes.id::uuid end
            "#,
            &kinds[..],
            &ids[..],
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let place = usize::try_from(row.place).ok()?.checked_sub(1)?;
                let name = ScopeName {
                    name: row.name,
                    tenant_name: row.tenant_name,
                };
                Some((scopes.get(place)?.clone(), name))
            })
            .collect())
    }
}
