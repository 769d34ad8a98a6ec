//! Who runs which job. A gateway claims a job under a fresh token and beats for it; whatever it writes afterwards counts
//! only as long as the token stands. A claim without a heartbeat lapses, and another gateway takes the job over.
//!
//! Heartbeats go by the database's clock, so that gateways need not agree on the time.

use chrono::{DateTime, Utc};
use domain::ids::JobId;
use domain::jobs::{JobError, JobStatus};
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::{Columns, JobRow, answer_kept_until};
use crate::{Store, StoreError, in_time};

/// How often a gateway beats for its jobs, in milliseconds.
pub const HEARTBEAT_INTERVAL_MS: u64 = 3_000;
/// A claim that has not been beaten for so long has lapsed, in milliseconds.
pub const CLAIM_LAPSE_MS: i64 = 15_000;
/// Jobs that one query claims, ends or books, at most.
pub const JOBS_BATCH_MAX: i64 = 16;
/// Jobs that are looked at for that many: others may be claiming some of them at this moment.
const CANDIDATES_MAX: i64 = 4 * JOBS_BATCH_MAX;
/// How long Postgres may take, in milliseconds: well below the lapse of a claim.
const WAIT_MS: u64 = 5_000;

/// The right to run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which job.
    pub id: JobId,
    /// What fences it.
    pub token: Uuid,
}

/// A job that was claimed.
#[derive(Clone, Debug)]
pub struct ClaimedJob {
    /// The claim.
    pub claim: Claim,
    /// The job.
    pub job: JobRow,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// It was not admitted, or not sent: tried again from `not_before` on.
    PutBack {
        /// When.
        not_before: DateTime<Utc>,
        /// What was in its way; as before when absent, and then it does not count as a denial.
        error: Option<JobError>,
        /// Whether the run left a row in the ledger all the same.
        has_row: bool,
    },
    /// The provider failed: tried again from `not_before` on. It counts as an attempt, and has a row in the ledger.
    Retry {
        /// When.
        not_before: DateTime<Utc>,
        /// What the provider said.
        error: JobError,
    },
    /// The job is over, and has a row in the ledger.
    Over {
        /// [`JobStatus::Completed`] or [`JobStatus::Failed`].
        status: JobStatus,
        /// Whether it was sent to a provider.
        was_sent: bool,
        /// Why it failed.
        error: Option<JobError>,
        /// The provider's status and body, the body sealed.
        response: Option<(u16, Vec<u8>)>,
    },
}

/// What a heartbeat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Of which job.
    pub id: JobId,
    /// Whether its run still counts; not once the job was called off.
    pub is_wanted: bool,
}

impl Store {
    /// Claims up to `count` jobs that are due, at most [`JOBS_BATCH_MAX`]. Tenants take turns: who has fewest running comes
    /// first, so that one tenant's thousand do not keep another's one waiting. Runs whose claims have lapsed come before
    /// all others, and count as an attempt; `takes_over` says whether they are claimed.
    pub async fn claim_jobs(
        &self,
        instance: &str,
        count: i64,
        takes_over: bool,
        now: DateTime<Utc>,
    ) -> Result<Vec<ClaimedJob>, StoreError> {
        let claiming = sqlx::query!(
            r#"
            with recursive tenants as (
                -- One step of the index for each tenant, however many jobs it has.
                (select tenant_id from jobs where status = 'waiting' order by tenant_id limit 1)
                union all
                select (
                    select jobs.tenant_id
                    from jobs
                    where status = 'waiting' and jobs.tenant_id > tenants.tenant_id
                    order by jobs.tenant_id
                    limit 1)
                from tenants
                where tenants.tenant_id is not null
            ),
            running as (
                select tenant_id, count(*) as jobs
                from jobs
                where status = 'running' and heartbeat_at >= now() - $4::interval
                group by tenant_id
            ),
            due as (
                select
                    waiting.id, waiting.not_before as since,
                    coalesce(running.jobs, 0)
                        + row_number() over (partition by tenants.tenant_id order by waiting.not_before, waiting.id) as turn
                from tenants
                left join running using (tenant_id)
                cross join lateral (
                    select id, not_before
                    from jobs
                    where jobs.tenant_id = tenants.tenant_id
                        and status = 'waiting'
                        and not_before <= $2
                        and expires_at > $2
                    order by not_before, id
                    limit $5
                ) as waiting
                union all
                select id, heartbeat_at, 0
                from jobs
                where $6 and status = 'running' and heartbeat_at < now() - $4::interval
            ),
            first as (
                select id, turn, since from due order by turn, since, id limit $5
            ),
            chosen as (
                select jobs.id
                from jobs
                join first using (id)
                where status = 'waiting' or (status = 'running' and heartbeat_at < now() - $4::interval)
                order by turn, since, id
                limit $3
                for update of jobs skip locked
            )
            update jobs
            set
                attempts = attempts + case when status = 'running' then 1 else 0 end,
                status = 'running',
                started_at = coalesce(started_at, $2),
                claim_token = gen_random_uuid(),
                claim_instance = $1,
                heartbeat_at = now()
            where id in (select id from chosen)
            returning
                id, tenant_id, key_id, user_id, model, dialect, endpoint, tags, user_agent, status, created_at, started_at,
                finished_at, expires_at, not_before, attempts, denials, error_code, error_message, claim_instance,
                claim_token as "claim_token!"
            "#,
            instance,
            now,
            count.clamp(0, JOBS_BATCH_MAX),
            lapse(),
            CANDIDATES_MAX,
            takes_over,
        );
        let rows = in_time(WAIT_MS, async { Ok(claiming.fetch_all(self.pool()).await?) }).await?;
        rows.into_iter()
            .map(|row| {
                let token = row.claim_token;
                let columns = Columns {
                    id: row.id,
                    tenant_id: row.tenant_id,
                    key_id: row.key_id,
                    user_id: row.user_id,
                    model: row.model,
                    dialect: row.dialect,
                    endpoint: row.endpoint,
                    tags: row.tags,
                    user_agent: row.user_agent,
                    status: row.status,
                    created_at: row.created_at,
                    started_at: row.started_at,
                    finished_at: row.finished_at,
                    expires_at: row.expires_at,
                    not_before: row.not_before,
                    attempts: row.attempts,
                    denials: row.denials,
                    error_code: row.error_code,
                    error_message: row.error_message,
                    claim_instance: row.claim_instance,
                    tenant_name: None,
                    key_name: None,
                    key_public_id: None,
                    owner_id: None,
                };
                let job = columns.into_named()?.job;
                Ok(ClaimedJob {
                    claim: Claim { id: job.id, token },
                    job,
                })
            })
            .collect()
    }

    /// What a claimed job asks for, sealed; absent when the claim does not stand any more.
    pub async fn job_request(&self, claim: Claim) -> Result<Option<Vec<u8>>, StoreError> {
        let reading = sqlx::query_scalar!(
            "select request from jobs where id = $1 and claim_token = $2 and status = 'running'",
            claim.id.0,
            claim.token,
        );
        let request = in_time(WAIT_MS, async { Ok(reading.fetch_optional(self.pool()).await?) }).await?;
        Ok(request.flatten())
    }

    /// Keeps claims from lapsing. Those that are not in the answer have been taken over or are gone.
    pub async fn beat_jobs(&self, claims: &[Claim]) -> Result<Vec<Beat>, StoreError> {
        let tokens: Vec<Uuid> = claims.iter().map(|claim| claim.token).collect();
        let ids: Vec<Uuid> = claims.iter().map(|claim| claim.id.0).collect();
        let beating = sqlx::query!(
            "update jobs
             set heartbeat_at = now()
             where id = any($1) and claim_token = any($2)
             returning id, status = 'running' as \"is_wanted!\"",
            &ids[..],
            &tokens[..],
        );
        let rows = in_time(WAIT_MS, async { Ok(beating.fetch_all(self.pool()).await?) }).await?;
        Ok(rows
            .into_iter()
            .map(|row| Beat {
                id: row.id.into(),
                is_wanted: row.is_wanted,
            })
            .collect())
    }

    /// Writes what became of a run. False where the claim does not stand any more, or the job was called off: then nothing
    /// is written.
    pub async fn end_run(&self, claim: Claim, end: &RunEnd, now: DateTime<Utc>) -> Result<bool, StoreError> {
        in_time(WAIT_MS, async {
            let done = match end {
                RunEnd::PutBack {
                    not_before,
                    error,
                    has_row,
                } => {
                    sqlx::query!(
                        "update jobs
                         set status = 'waiting', claim_token = null, heartbeat_at = null, not_before = $3,
                             started_at = case when attempts = 0 then null else started_at end,
                             denials = denials + case when $4::text is null then 0 else 1 end,
                             error_code = coalesce($4, error_code), error_message = coalesce($5, error_message),
                             is_booked = is_booked or $6
                         where id = $1 and claim_token = $2 and status = 'running'",
                        claim.id.0,
                        claim.token,
                        not_before,
                        error.as_ref().map(|error| error.code.as_str()),
                        error.as_ref().map(|error| error.message.as_str()),
                        has_row,
                    )
                    .execute(self.pool())
                    .await?
                }
                RunEnd::Retry { not_before, error } => {
                    sqlx::query!(
                        "update jobs
                         set status = 'waiting', claim_token = null, heartbeat_at = null, not_before = $3,
                             attempts = attempts + 1, denials = 0, is_booked = true, error_code = $4, error_message = $5
                         where id = $1 and claim_token = $2 and status = 'running'",
                        claim.id.0,
                        claim.token,
                        not_before,
                        error.code,
                        error.message,
                    )
                    .execute(self.pool())
                    .await?
                }
                RunEnd::Over {
                    status,
                    was_sent,
                    error,
                    response,
                } => {
                    let (code, body) = match response {
                        Some((code, body)) => (i16::try_from(*code).ok(), Some(body.as_slice())),
                        None => (None, None),
                    };
                    sqlx::query!(
                        "update jobs
                         set status = $3, finished_at = $4, expires_at = $5, request = null, claim_token = null,
                             heartbeat_at = null, attempts = attempts + case when $6 then 1 else 0 end,
                             started_at = case when $6 or attempts > 0 then started_at end,
                             is_booked = true, error_code = $7, error_message = $8, response_status = $9, response = $10
                         where id = $1 and claim_token = $2 and status = 'running'",
                        claim.id.0,
                        claim.token,
                        status.as_str(),
                        now,
                        answer_kept_until(now),
                        was_sent,
                        error.as_ref().map(|error| error.code.as_str()),
                        error.as_ref().map(|error| error.message.as_str()),
                        code,
                        body,
                    )
                    .execute(self.pool())
                    .await?
                }
            };
            Ok(done.rows_affected() > 0)
        })
        .await
    }

    /// Gives up the claim on a job that was called off while it ran. `has_row` says whether the run left one in the ledger.
    pub async fn leave_cancelled(&self, claim: Claim, has_row: bool) -> Result<(), StoreError> {
        let leaving = sqlx::query!(
            "update jobs
             set claim_token = null, heartbeat_at = null, is_booked = is_booked or $3
             where id = $1 and claim_token = $2 and status = 'cancelled'",
            claim.id.0,
            claim.token,
            has_row,
        );
        in_time(WAIT_MS, async {
            leaving.execute(self.pool()).await?;
            Ok(())
        })
        .await
    }

    /// Ends a batch of jobs that have waited as long as they may; answers how many there were.
    pub async fn expire_jobs(&self, now: DateTime<Utc>, error: &JobError) -> Result<u64, StoreError> {
        let expiring = sqlx::query!(
            "update jobs
             set status = 'expired', finished_at = $1, expires_at = $2, request = null, error_code = $3,
                 error_message = $4
             where id in (
                 select id from jobs
                 where status = 'waiting' and expires_at <= $1
                 order by expires_at
                 limit $5
                 for update skip locked)",
            now,
            answer_kept_until(now),
            error.code,
            error.message,
            JOBS_BATCH_MAX,
        );
        in_time(WAIT_MS, async {
            Ok(expiring.execute(self.pool()).await?.rows_affected())
        })
        .await
    }

    /// A batch of jobs that ended without any run and are not in the ledger yet, the oldest first. Those that still run are
    /// left out: their runs leave a row.
    pub async fn unbooked_jobs(&self) -> Result<Vec<JobRow>, StoreError> {
        let reading = sqlx::query_as!(
            Columns,
            "select id, tenant_id, key_id, user_id, model, dialect, endpoint, tags, user_agent, status, created_at,
                    started_at, finished_at, expires_at, not_before, attempts, denials, error_code, error_message,
                    claim_instance, null as \"tenant_name?: String\", null as \"key_name?: String\",
                    null as \"key_public_id?: String\", null as \"owner_id?: Uuid\"
             from jobs
             where status in ('cancelled', 'expired')
               and not is_booked
               and (heartbeat_at is null or heartbeat_at < now() - $1::interval)
             order by finished_at
             limit $2",
            lapse(),
            JOBS_BATCH_MAX,
        );
        let rows = in_time(WAIT_MS, async { Ok(reading.fetch_all(self.pool()).await?) }).await?;
        rows.into_iter().map(|row| Ok(row.into_named()?.job)).collect()
    }

    /// Notes that these are in the ledger, or in a journal on its way there.
    pub async fn mark_jobs_booked(&self, ids: &[JobId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let marking = sqlx::query!("update jobs set is_booked = true where id = any($1)", &ids[..]);
        in_time(WAIT_MS, async {
            marking.execute(self.pool()).await?;
            Ok(())
        })
        .await
    }
}

fn lapse() -> PgInterval {
    PgInterval {
        months: 0,
        days: 0,
        microseconds: CLAIM_LAPSE_MS * 1_000,
    }
}
