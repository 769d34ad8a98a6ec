//! Thresholds of budgets that were reached: everybody's for those who see everything, a tenant's for its manager, a member's own.

pub use domain::budget_events::{BUDGET_EVENTS_KEPT_DAYS, BudgetEvent};
pub use store::budget_events::{BUDGET_EVENTS_MAX, BudgetEventFilter, BudgetEventRow};

use crate::{Actor, Control, ControlError};

impl Control {
    /// Events that match, the latest first, cut down to what the actor may see. They are kept for [`BUDGET_EVENTS_KEPT_DAYS`]
    /// after their period has ended.
    pub async fn budget_events(
        &self,
        actor: &Actor,
        filter: &BudgetEventFilter,
    ) -> Result<Vec<BudgetEventRow>, ControlError> {
        let mut filter = filter.clone();
        actor.narrow(&mut filter.tenant, &mut filter.owner)?;
        Ok(self.store.budget_events(&filter).await?)
    }
}
