//! Overview and monthly reports: everything for those who see everything, a manager's own tenant, a member's own use.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::limits::{Limit, Scope, Target};
use domain::management_tokens::Permission;
use domain::periods::Month;
use domain::reports::{DayTotals, Grouping};
use store::reports::ReportQuery;
pub use store::reports::{Before, Overview, Report, ReportFilter, ReportRow};

use crate::pieces::Pieces;
use crate::usage_csv::UsageCsv;
use crate::usage_json::{self, Head};
use crate::{Actor, Control, ControlError};

/// One calendar month's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthlyQuery {
    /// In the billing time zone.
    pub month: Month,
    /// What it counts.
    pub filter: ReportFilter,
    /// By what it is divided.
    pub grouping: Grouping,
}

/// The first page: this month so far.
#[derive(Clone, Debug, PartialEq)]
pub struct OverviewView {
    /// The month.
    pub month: Month,
    /// The billing time zone.
    pub zone: Tz,
    /// The billing currency.
    pub currency: String,
    /// Limits of what it is about (the installation, the tenant or the person), its monthly budgets among them.
    pub limits: Vec<Limit>,
    /// The sums.
    pub overview: Overview,
}

/// A month's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthlyReport {
    /// What was asked for, cut down to what the actor may see.
    pub query: MonthlyQuery,
    /// The billing time zone.
    pub zone: Tz,
    /// The billing currency.
    pub currency: String,
    /// Rows and sums, beside those of the month before.
    pub report: Report,
    /// The month day by day.
    pub days: Vec<DayTotals>,
    /// The month before day by day.
    pub days_before: Vec<DayTotals>,
}

impl Control {
    /// This month so far, cut down to what the actor may see.
    pub async fn overview(
        &self,
        actor: &Actor,
        filter: &ReportFilter,
        now: DateTime<Utc>,
    ) -> Result<OverviewView, ControlError> {
        let filter = within_reach(actor, filter)?;
        let settings = self.settings().await?.settings;
        let zone = settings.time_zone;
        let month = Month::containing(now, zone);
        let limits = self.store.limits_of(&subject_of(&filter)).await?;
        let overview = self.store.overview(month.span(zone), &filter, zone, now).await?;
        Ok(OverviewView {
            month,
            zone,
            currency: settings.currency,
            limits: limits.limits,
            overview,
        })
    }

    /// A month's report, cut down to what the actor may see.
    pub async fn monthly_report(
        &self,
        actor: &Actor,
        query: &MonthlyQuery,
        now: DateTime<Utc>,
    ) -> Result<MonthlyReport, ControlError> {
        let query = MonthlyQuery {
            filter: within_reach(actor, &query.filter)?,
            ..query.clone()
        };
        let settings = self.settings().await?.settings;
        let zone = settings.time_zone;
        let stored = stored(&query, zone);
        let days = |month: Month| self.store.report_days(month.span(zone), &query.filter, zone);
        let (report, days, days_before) = futures_util::try_join!(
            self.store.report(&stored, now),
            days(query.month),
            days(query.month.previous()),
        )?;
        Ok(MonthlyReport {
            days,
            days_before,
            query,
            zone,
            currency: settings.currency,
            report,
        })
    }

    /// The same report as CSV, row by row in constant memory.
    pub async fn monthly_csv(
        &self,
        actor: &Actor,
        query: &MonthlyQuery,
        now: DateTime<Utc>,
    ) -> Result<UsageCsv, ControlError> {
        let query = MonthlyQuery {
            filter: within_reach(actor, &query.filter)?,
            ..query.clone()
        };
        let settings = self.settings().await?.settings;
        let report = self
            .store
            .stream_report(stored(&query, settings.time_zone), now)
            .await?;
        Ok(UsageCsv::new(query.month, query.grouping, &settings.currency, report))
    }

    /// The same report as JSON, row by row in constant memory.
    pub async fn monthly_json(
        &self,
        actor: &Actor,
        query: &MonthlyQuery,
        now: DateTime<Utc>,
    ) -> Result<Pieces, ControlError> {
        let query = MonthlyQuery {
            filter: within_reach(actor, &query.filter)?,
            ..query.clone()
        };
        let settings = self.settings().await?.settings;
        let report = self
            .store
            .stream_report(stored(&query, settings.time_zone), now)
            .await?;
        let head = Head {
            month: query.month,
            time_zone: settings.time_zone.to_string(),
            currency: settings.currency,
        };
        Ok(usage_json::usage(&head, query.grouping, report))
    }
}

fn stored(query: &MonthlyQuery, zone: Tz) -> ReportQuery {
    ReportQuery {
        span: query.month.span(zone),
        filter: query.filter.clone(),
        grouping: query.grouping,
        before: Some(query.month.previous().span(zone)),
    }
}

/// Whose budgets an overview is measured against.
fn subject_of(filter: &ReportFilter) -> Target {
    Target::Node(match (filter.tenant, filter.owner, filter.key) {
        (_, _, Some(key)) => Scope::Key(key),
        (Some(tenant), Some(person), None) => Scope::User(tenant, person.to_string().into()),
        (Some(tenant), None, None) => Scope::Tenant(tenant),
        (None, _, None) => Scope::Global,
    })
}

/// What was asked for, cut down to what the actor may see.
pub(crate) fn within_reach(actor: &Actor, filter: &ReportFilter) -> Result<ReportFilter, ControlError> {
    actor.require_permission(Permission::ReportsRead)?;
    let mut filter = filter.clone();
    actor.narrow(&mut filter.tenant, &mut filter.owner)?;
    Ok(filter)
}
