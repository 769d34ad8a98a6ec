//! What limits in rehearsal would have refused. Shared limits are among them, so it is for those who see everything.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::LimitId;
use domain::ledger::RehearsedVerdict;
use domain::limits::{Class, Mode, Target};
use domain::periods::Span;
use store::named_limits::{NamedLimit, NamedLimitFilter};
pub use store::rehearsals::{REHEARSED_KEYS_MAX, Rehearsal, RehearsedKey, RehearsedLimit};

use crate::actor::Reach;
use crate::lookback::Lookback;
use crate::{Actor, Control, ControlError};

/// What is rehearsed, and what it would have refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsalView {
    /// What the sums cover.
    pub span: Span,
    /// All limits are rehearsed at this share of their value, in percent.
    pub percent: Option<u8>,
    /// How many limits are in rehearsal themselves.
    pub rehearsed_limits: usize,
    /// The sums. Limits in rehearsal that would have refused nothing are among its limits, too.
    pub rehearsal: Rehearsal,
}

impl Control {
    /// What would have been refused lately, and whom `limit` would have refused, if given.
    pub async fn rehearsal(
        &self,
        actor: &Actor,
        limit: Option<LimitId>,
        lookback: Lookback,
        now: DateTime<Utc>,
    ) -> Result<RehearsalView, ControlError> {
        actor.require_everything()?;
        let settings = self.settings().await?.settings;
        let span = lookback.span(now, settings.time_zone);
        let mut rehearsal = self.store.rehearsal(span, limit, now).await?;
        let filter = NamedLimitFilter {
            mode: Some(Mode::Rehearse),
            ..NamedLimitFilter::default()
        };
        let rehearsed = self.store.named_limits(&filter).await?;
        let rehearsed_limits = rehearsed.len();
        for named in rehearsed {
            let id = named.limit.id;
            if rehearsal.limits.iter().all(|known| known.id != id) {
                rehearsal.limits.push(RehearsedLimit {
                    id,
                    level: level_of(&named.limit.target).to_owned(),
                    limit: Some(named),
                    refused: BTreeMap::new(),
                });
            }
        }
        Ok(RehearsalView {
            span,
            percent: settings.rehearsal_percent,
            rehearsed_limits,
            rehearsal,
        })
    }
}

impl Control {
    /// The limits that verdicts name, as they are now. Of an entry that the actor may see; those that are not the business
    /// of its tenant are left out.
    pub async fn rehearsed_limits(
        &self,
        actor: &Actor,
        verdicts: &[RehearsedVerdict],
    ) -> Result<Vec<NamedLimit>, ControlError> {
        if verdicts.is_empty() {
            return Ok(Vec::new());
        }
        let filter = NamedLimitFilter {
            tenant: match actor.reach()? {
                Reach::Everything => None,
                Reach::Tenant(own) | Reach::Own(own, _) => Some(own),
            },
            ids: Some(verdicts.iter().map(|verdict| verdict.limit_id).collect()),
            ..NamedLimitFilter::default()
        };
        Ok(self.store.named_limits(&filter).await?)
    }
}

/// The kind of the scopes at which a limit on `target` is evaluated.
fn level_of(target: &Target) -> &'static str {
    match target {
        Target::Node(scope) => scope.kind(),
        Target::OfTenant(_, class) | Target::OfPlan(_, class) => match class {
            Class::Tenant => "tenant",
            Class::User | Class::EndUser => "user",
            Class::Key => "key",
        },
    }
}
