//! How well expectations fit: what rates held for requests beside what these used, by model. Everything for those who see
//! everything, a manager's own tenant, a member's own use.

use chrono::{DateTime, Utc};
use domain::periods::Span;
use domain::reports::{Completeness, Estimates, Grouping};
use store::reports::{ReportFilter, ReportQuery};

use crate::lookback::Lookback;
use crate::reports::within_reach;
use crate::{Actor, Control, ControlError};

/// What was expected of the requests of some time, and what they used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatesView {
    /// What the sums cover.
    pub span: Span,
    /// Models that had requests, the dearest first; as many as a report has rows.
    pub models: Vec<ModelEstimates>,
    /// Whether there are more.
    pub is_cut: bool,
    /// Over all of them, those beyond the bound included.
    pub all: Estimates,
    /// How complete the sums are.
    pub completeness: Completeness,
}

/// One model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEstimates {
    /// Its name; `None` for requests without one.
    pub model: Option<String>,
    /// The sums.
    pub estimates: Estimates,
}

impl Control {
    /// What was expected lately and what was used, by model, cut down to what the actor may see.
    pub async fn estimates(
        &self,
        actor: &Actor,
        filter: &ReportFilter,
        lookback: Lookback,
        now: DateTime<Utc>,
    ) -> Result<EstimatesView, ControlError> {
        let by_model = Grouping {
            model: true,
            ..Grouping::NONE
        };
        let span = lookback.span(now, self.zone().await?);
        let query = ReportQuery::new(span, within_reach(actor, filter)?, by_model);
        let report = self.store.report(&query, now).await?;
        let models = report
            .rows
            .into_iter()
            // Models that were only asked for in vain used nothing.
            .filter(|row| row.totals.requests > 0)
            .map(|row| ModelEstimates {
                estimates: Estimates::of(&row.totals),
                model: row.model,
            })
            .collect();
        Ok(EstimatesView {
            span: query.span,
            models,
            is_cut: report.is_cut,
            all: Estimates::of(&report.totals),
            completeness: report.completeness,
        })
    }
}
