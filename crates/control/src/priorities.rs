//! Who runs at which priority and how often gates refused whom: everybody for those who see everything, the keys of a
//! manager's own tenant.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::periods::Span;
use store::named_limits::NamedLimitFilter;
pub use store::named_limits::{NAMED_LIMITS_MAX, NamedLimit};
pub use store::priorities::{TRAFFIC_ROWS_MAX, TrafficByPriority, TrafficRow};

use crate::actor::Reach;
use crate::lookback::Lookback;
use crate::{Actor, Control, ControlError};

/// Who runs at which priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// What the sums cover.
    pub span: Span,
    /// The tenant that it is about; everybody if absent.
    pub tenant: Option<TenantId>,
    /// The sums.
    pub sums: TrafficByPriority,
    /// Limits with gates that the actor may see; at most [`NAMED_LIMITS_MAX`].
    pub gated_limits: Vec<NamedLimit>,
}

impl Control {
    /// Who ran at which priority lately: by tenant, or by key for one tenant. Not for members.
    pub async fn priorities(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        lookback: Lookback,
        now: DateTime<Utc>,
    ) -> Result<Priorities, ControlError> {
        let reach = actor.reach()?;
        let tenant = match reach {
            Reach::Everything => tenant,
            Reach::Tenant(own) if tenant.is_none_or(|asked| asked == own) => Some(own),
            Reach::Tenant(_) | Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        let span = lookback.span(now, self.zone().await?);
        let gated = NamedLimitFilter {
            // How shared limits are gated tells a tenant about others.
            tenant: tenant.filter(|_| reach != Reach::Everything),
            has_gates: Some(true),
            ..NamedLimitFilter::default()
        };
        Ok(Priorities {
            span,
            tenant,
            sums: self.store.traffic_by_priority(span, tenant, now).await?,
            gated_limits: self.store.named_limits(&gated).await?,
        })
    }
}
