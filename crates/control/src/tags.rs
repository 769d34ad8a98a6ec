//! The monthly report by the callers' tags: everything for those who see everything, a manager's own tenant, a member's own
//! keys.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::management_tokens::Permission;
use domain::periods::{Month, Span};
pub use store::tags::{TAG_NAMES_MAX, TagReport, TagRow};
use store::tags::{TagFilter, TagQuery};

use crate::pieces::Pieces;
use crate::tags_csv;
use crate::usage_csv::UsageCsv;
use crate::usage_json::{self, Head};
use crate::{Actor, Control, ControlError};

/// One calendar month by the values of one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthlyTagQuery {
    /// In the billing time zone.
    pub month: Month,
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// The tag's name.
    pub name: String,
}

/// A month's report by tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthlyTagReport {
    /// What it covers.
    pub span: Span,
    /// Rows and sums.
    pub report: TagReport,
}

impl Control {
    /// The names of tags that requests of the month had, in the alphabet's order; at most [`TAG_NAMES_MAX`].
    pub async fn tag_names(
        &self,
        actor: &Actor,
        month: Month,
        tenant: Option<TenantId>,
    ) -> Result<Vec<String>, ControlError> {
        let filter = within_reach(actor, tenant)?;
        let span = month.span(self.zone().await?);
        Ok(self.store.tag_names(span, filter).await?)
    }

    /// A month's report by tag, cut down to what the actor may see.
    pub async fn monthly_tag_report(
        &self,
        actor: &Actor,
        query: &MonthlyTagQuery,
        now: DateTime<Utc>,
    ) -> Result<MonthlyTagReport, ControlError> {
        let filter = within_reach(actor, query.tenant)?;
        let query = TagQuery {
            span: query.month.span(self.zone().await?),
            filter,
            name: query.name.clone(),
        };
        Ok(MonthlyTagReport {
            span: query.span,
            report: self.store.tag_report(&query, now).await?,
        })
    }

    /// The same report as CSV, row by row in constant memory.
    pub async fn monthly_tag_csv(
        &self,
        actor: &Actor,
        query: &MonthlyTagQuery,
        now: DateTime<Utc>,
    ) -> Result<UsageCsv, ControlError> {
        let filter = within_reach(actor, query.tenant)?;
        let settings = self.settings().await?.settings;
        let stored = TagQuery {
            span: query.month.span(settings.time_zone),
            filter,
            name: query.name.clone(),
        };
        let report = self.store.stream_tag_report(stored, now).await?;
        Ok(tags_csv::file(query, &settings.currency, report))
    }

    /// The same report as JSON, row by row in constant memory.
    pub async fn monthly_tag_json(
        &self,
        actor: &Actor,
        query: &MonthlyTagQuery,
        now: DateTime<Utc>,
    ) -> Result<Pieces, ControlError> {
        let filter = within_reach(actor, query.tenant)?;
        let settings = self.settings().await?.settings;
        let stored = TagQuery {
            span: query.month.span(settings.time_zone),
            filter,
            name: query.name.clone(),
        };
        let report = self.store.stream_tag_report(stored, now).await?;
        let head = Head {
            month: query.month,
            time_zone: settings.time_zone.to_string(),
            currency: settings.currency,
        };
        Ok(usage_json::tags(&head, &query.name, report))
    }
}

/// Whose requests were asked for, cut down to what the actor may see.
fn within_reach(actor: &Actor, tenant: Option<TenantId>) -> Result<TagFilter, ControlError> {
    actor.require_permission(Permission::ReportsRead)?;
    let mut filter = TagFilter { tenant, owner: None };
    actor.narrow(&mut filter.tenant, &mut filter.owner)?;
    Ok(filter)
}
