//! Plans: named sets of limits and a priority ceiling, given to tenants.

use domain::ids::PlanId;
use domain::policy::Plan;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// Plans listed at most.
pub const PLANS_MAX: i64 = 200;

impl Store {
    /// Plans in force, by name; at most [`PLANS_MAX`].
    pub async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let rows = sqlx::query!(
            "select id, name, priority_ceiling from plans where removed_at is null order by lower(name) limit $1",
            PLANS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Plan {
                    id: row.id.into(),
                    name: row.name,
                    priority_ceiling: parse(&row.priority_ceiling, "plans.priority_ceiling")?,
                    removed_at: None,
                })
            })
            .collect()
    }
}

/// Whether the plan exists and is in force.
pub async fn exists(transaction: &mut Transaction, id: PlanId) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!("select 1 as one from plans where id = $1 and removed_at is null", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(found.is_some())
}
