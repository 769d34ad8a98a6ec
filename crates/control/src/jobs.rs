//! Asynchronous jobs: all of them for those who see everything, a manager's own tenant's, those of a member's own keys.
//! Nobody sees here what they ask for, or what they are answered.

use chrono::{DateTime, Utc};
use domain::ids::JobId;
use serde_json::{Value, json};
use store::jobs::{self, JOBS_PAGE_MAX, JobFilter, NamedJob};

use crate::actor::Reach;
use crate::audit::Change;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

const NOT_FOUND: ControlError = ControlError::NotFound { what: "job" };

/// Jobs of a list, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPage {
    /// At most as many as were asked for and [`JOBS_PAGE_MAX`].
    pub jobs: Vec<NamedJob>,
    /// Where the next page starts; `None` on the last one.
    pub next: Option<JobId>,
}

impl Control {
    /// Jobs, the newest first, as far as the actor may see them; at most `count`, itself at most [`JOBS_PAGE_MAX`].
    pub async fn jobs(&self, actor: &Actor, mut filter: JobFilter, count: i64) -> Result<JobPage, ControlError> {
        actor.require_permission(Permission::JobsRead)?;
        actor.narrow(&mut filter.tenant_id, &mut filter.owner_id)?;
        let count = count.clamp(1, JOBS_PAGE_MAX);
        let mut jobs = self.store.jobs(&filter, count + 1).await?;
        let places = usize::try_from(count).unwrap_or_default();
        let has_more = jobs.len() > places;
        jobs.truncate(places);
        let next = jobs.last().filter(|_| has_more).map(|last| last.job.id);
        Ok(JobPage { jobs, next })
    }

    /// One job, if the actor may see it.
    pub async fn job(&self, actor: &Actor, id: JobId) -> Result<NamedJob, ControlError> {
        actor.require_permission(Permission::JobsRead)?;
        self.job_within_reach(actor, id).await
    }

    /// One job for an operation on it, which asks for a permission of its own.
    pub(crate) async fn job_within_reach(&self, actor: &Actor, id: JobId) -> Result<NamedJob, ControlError> {
        let reach = actor.reach()?;
        let job = self.store.find_job(id).await?;
        job.filter(|named| reach.covers(named.job.subject.tenant_id, named.owner_id))
            .ok_or(NOT_FOUND)
    }

    /// Calls a job off. Doing so when it is over changes nothing; answers whether it was called off now.
    pub async fn cancel_job(&self, actor: &Actor, id: JobId, now: DateTime<Utc>) -> Result<bool, ControlError> {
        actor.require_permission(Permission::JobsWrite)?;
        let reach = actor.reach()?;
        let mut transaction = self.store.begin().await?;
        let found = jobs::lock(&mut transaction, id).await?;
        let before = found
            .filter(|named| reach.covers(named.job.subject.tenant_id, named.owner_id))
            .ok_or(NOT_FOUND)?;
        if !may_cancel(actor, reach, &before) {
            return Err(ControlError::Forbidden);
        }
        if !jobs::cancel(&mut transaction, id, now).await? {
            return Ok(false);
        }
        let change = Change {
            action: "job.cancel",
            subject: format!("job:{id}"),
            tenant_id: Some(before.job.subject.tenant_id),
            before: Some(shown(&before)),
            after: None,
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(true)
    }
}

/// Auditors look on.
fn may_cancel(actor: &Actor, reach: Reach, job: &NamedJob) -> bool {
    actor.may_run(job.job.subject.tenant_id) || matches!(reach, Reach::Own(..))
}

fn shown(job: &NamedJob) -> Value {
    json!({
        "status": job.job.status,
        "key_id": job.job.subject.key_id,
        "model": job.job.subject.model,
        "created_at": job.job.created_at,
        "attempts": job.job.attempts,
    })
}
