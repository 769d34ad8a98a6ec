//! Asynchronous jobs: accepted, listed, called off, and deleted on time. How gateways share them out is in [`claims`].
//!
//! Request and answer are sealed before they come here, and no list reads them.

pub mod claims;

use std::collections::BTreeMap;

use chrono::{DateTime, Days, Duration, Utc};
use domain::ids::{JobId, KeyId, PersonId, TenantId};
use domain::jobs::{
    JOB_KEPT_DAYS, JOB_RESPONSE_HOURS, JOBS_PER_HOUR_MAX, JOBS_WAITING_BYTES_MAX, JOBS_WAITING_MAX, JobError, JobStatus,
};
use domain::policy::Dialect;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction, in_time};

/// Jobs on one page at most.
pub const JOBS_PAGE_MAX: i64 = 100;
/// How long Postgres may take for what a caller waits for, in milliseconds.
const CALLER_WAIT_MS: u64 = 2_000;
/// Jobs deleted, or deprived of their answers, in one go.
const EXPIRED_BATCH: i64 = 500;

/// A job to accept.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Which one.
    pub id: JobId,
    /// Who asks for what.
    pub subject: JobSubject,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// Until when it may wait.
    pub expires_at: DateTime<Utc>,
    /// When it is tried first.
    pub not_before: DateTime<Utc>,
    /// Why it was not admitted at once.
    pub error: JobError,
    /// What the pipeline needs to run it, sealed.
    pub request: Vec<u8>,
}

/// Who asks for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSubject {
    /// Who pays.
    pub tenant_id: TenantId,
    /// With which key.
    pub key_id: KeyId,
    /// Whom it is for: a person's id or the name of an end user.
    pub user_id: Option<String>,
    /// The model asked for.
    pub model: String,
    /// In which dialect.
    pub dialect: Dialect,
    /// Under which path, without the version.
    pub endpoint: String,
    /// The caller's tags.
    pub tags: BTreeMap<String, String>,
    /// The caller's user agent.
    pub user_agent: Option<String>,
}

/// A job without what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Which one.
    pub id: JobId,
    /// Who asks for what.
    pub subject: JobSubject,
    /// Where it stands.
    pub status: JobStatus,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was first sent to a provider.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// While it waits: until when it may. Once it is over: until when its answer is kept.
    pub expires_at: DateTime<Utc>,
    /// When it is tried next.
    pub not_before: DateTime<Utc>,
    /// How often it was sent to a provider.
    pub attempts: i32,
    /// Tries in a row that found no room.
    pub denials: i32,
    /// What was in its way at the last try.
    pub error: Option<JobError>,
}

/// A job with the names its ids have now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJob {
    /// The job.
    pub job: JobRow,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// The person who owns the key.
    pub owner_id: Option<PersonId>,
    /// The gateway that runs it, or ran it last.
    pub instance: Option<String>,
}

/// Which jobs to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this tenant.
    pub tenant_id: Option<TenantId>,
    /// With keys of this person.
    pub owner_id: Option<PersonId>,
    /// With this key.
    pub key_id: Option<KeyId>,
    /// That stand here.
    pub status: Option<JobStatus>,
    /// Only those accepted before this one: the page after the one that ended with it.
    pub before: Option<JobId>,
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// The provider's HTTP status.
    pub status_code: u16,
    /// Its body, sealed.
    pub body: Vec<u8>,
}

impl Store {
    /// Accepts a job. False where the tenant has as many as it may: [`JOBS_WAITING_MAX`], [`JOBS_WAITING_BYTES_MAX`],
    /// [`JOBS_PER_HOUR_MAX`].
    pub async fn add_job(&self, job: &NewJob) -> Result<bool, StoreError> {
        in_time(CALLER_WAIT_MS, self.add(job)).await
    }

    async fn add(&self, job: &NewJob) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        // One at a time for each tenant, so that the count is exact.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('tollgate.jobs.' || $1::text, 0))",
            job.subject.tenant_id.to_string(),
        )
        .fetch_one(&mut *transaction)
        .await?;
        let waiting = sqlx::query!(
            "select count(*) as \"jobs!\", coalesce(sum(octet_length(request)), 0)::bigint as \"bytes!\"
             from jobs
             where tenant_id = $1 and status = 'waiting'",
            job.subject.tenant_id.0,
        )
        .fetch_one(&mut *transaction)
        .await?;
        // Who makes jobs and calls them off at once is bounded by this alone. The index goes by id, which goes by time.
        let accepted_lately = sqlx::query_scalar!(
            "select count(*) as \"count!\"
             from (
                 select created_at from jobs where tenant_id = $1 order by id desc limit $2
             ) as latest
             where created_at > $3",
            job.subject.tenant_id.0,
            JOBS_PER_HOUR_MAX,
            job.created_at - Duration::hours(1),
        )
        .fetch_one(&mut *transaction)
        .await?;
        let bytes = i64::try_from(job.request.len()).unwrap_or(i64::MAX);
        let is_full = waiting.jobs >= JOBS_WAITING_MAX
            || waiting.bytes.saturating_add(bytes) > JOBS_WAITING_BYTES_MAX
            || accepted_lately >= JOBS_PER_HOUR_MAX;
        if is_full {
            return Ok(false);
        }
        let subject = &job.subject;
        let tags = serde_json::to_value(&subject.tags).map_err(|_| StoreError::Value { column: "jobs.tags" })?;
        sqlx::query!(
            "insert into jobs (id, tenant_id, key_id, user_id, model, dialect, endpoint, tags, user_agent, status,
                               created_at, expires_at, not_before, error_code, error_message, request)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'waiting', $10, $11, $12, $13, $14, $15)",
            job.id.0,
            subject.tenant_id.0,
            subject.key_id.0,
            subject.user_id,
            subject.model,
            subject.dialect.as_str(),
            subject.endpoint,
            tags,
            subject.user_agent,
            job.created_at,
            job.expires_at,
            job.not_before,
            job.error.code,
            job.error.message,
            job.request,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Jobs, newest first; at most `count`, itself at most [`JOBS_PAGE_MAX`] and one.
    pub async fn jobs(&self, filter: &JobFilter, count: i64) -> Result<Vec<NamedJob>, StoreError> {
        let listing = sqlx::query_as!(
            Columns,
            "with page as (
                 select *
                 from jobs
                 where ($1::uuid is null or tenant_id = $1)
                   and ($2::uuid is null or key_id in (select keys.id from keys where owner_id = $2))
                   and ($3::uuid is null or key_id = $3)
                   and ($4::text is null or status = $4)
                   and ($5::uuid is null or id < $5)
                 order by id desc
                 limit $6
             )
             select page.id as \"id!\", page.tenant_id as \"tenant_id!\", page.key_id as \"key_id!\", user_id,
                    model as \"model!\", dialect as \"dialect!\", endpoint as \"endpoint!\", tags as \"tags!\", user_agent,
                    status as \"status!\", page.created_at as \"created_at!\", started_at, finished_at,
                    page.expires_at as \"expires_at!\", not_before as \"not_before!\", attempts as \"attempts!\",
                    denials as \"denials!\", error_code, error_message, claim_instance, tenants.name as \"tenant_name?\",
                    keys.name as \"key_name?\", keys.public_id as \"key_public_id?\", keys.owner_id as \"owner_id?\"
             from page
             left join tenants on tenants.id = page.tenant_id
             left join keys on keys.id = page.key_id
             order by page.id desc",
            filter.tenant_id.map(Uuid::from),
            filter.owner_id.map(Uuid::from),
            filter.key_id.map(Uuid::from),
            filter.status.map(JobStatus::as_str),
            filter.before.map(Uuid::from),
            count.clamp(0, JOBS_PAGE_MAX + 1),
        );
        let rows = in_time(CALLER_WAIT_MS, async { Ok(listing.fetch_all(self.pool()).await?) }).await?;
        rows.into_iter().map(Columns::into_named).collect()
    }

    /// One job.
    pub async fn find_job(&self, id: JobId) -> Result<Option<NamedJob>, StoreError> {
        in_time(CALLER_WAIT_MS, find(self.pool(), id)).await
    }

    /// The answer of a job, as long as it is kept.
    pub async fn find_job_response(&self, id: JobId, now: DateTime<Utc>) -> Result<Option<StoredResponse>, StoreError> {
        let reading = sqlx::query!(
            "select response_status as \"status!\", response as \"body!\"
             from jobs
             where id = $1 and response_status is not null and response is not null and expires_at > $2",
            id.0,
            now,
        );
        let row = in_time(CALLER_WAIT_MS, async { Ok(reading.fetch_optional(self.pool()).await?) }).await?;
        row.map(|row| {
            Ok(StoredResponse {
                status_code: u16::try_from(row.status).map_err(|_| StoreError::Value {
                    column: "jobs.response_status",
                })?,
                body: row.body,
            })
        })
        .transpose()
    }

    /// Calls a job off, if it is not over. Answers the job as it is then.
    pub async fn cancel_job(&self, id: JobId, now: DateTime<Utc>) -> Result<Option<NamedJob>, StoreError> {
        in_time(CALLER_WAIT_MS, async {
            let mut transaction = self.begin().await?;
            cancel(&mut transaction, id, now).await?;
            let job = find(&mut *transaction, id).await?;
            transaction.commit().await?;
            Ok(job)
        })
        .await
    }

    /// Deletes a batch of answers that are not kept any longer, and of jobs that are over for long. Answers how many there
    /// were.
    pub async fn delete_expired_jobs(&self, now: DateTime<Utc>) -> Result<u64, StoreError> {
        let answers = sqlx::query!(
            "update jobs set response = null
             where id in (
                 select id from jobs
                 where response is not null and expires_at <= $1
                 limit $2
                 for update skip locked)",
            now,
            EXPIRED_BATCH,
        )
        .execute(self.pool())
        .await?;
        let long_ago = now
            .checked_sub_days(Days::new(JOB_KEPT_DAYS.unsigned_abs()))
            .unwrap_or(now);
        let jobs = sqlx::query!(
            "delete from jobs
             where id in (
                 select id from jobs
                 where finished_at is not null and finished_at <= $1 and is_booked
                 limit $2
                 for update skip locked)",
            long_ago,
            EXPIRED_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(answers.rows_affected() + jobs.rows_affected())
    }
}

/// One job, kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: JobId) -> Result<Option<NamedJob>, StoreError> {
    sqlx::query!("select 1 as one from jobs where id = $1 for no key update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// Calls a job off, if it is not over; answers whether it was so. A run that is under way keeps its claim until it has
/// ended, and learns of it with its next heartbeat.
pub async fn cancel(transaction: &mut Transaction, id: JobId, now: DateTime<Utc>) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update jobs
         set status = 'cancelled', finished_at = $2, expires_at = $3, request = null
         where id = $1 and status in ('waiting', 'running')",
        id.0,
        now,
        answer_kept_until(now),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Until when the answer is kept of a job that ends now.
fn answer_kept_until(now: DateTime<Utc>) -> DateTime<Utc> {
    now + Duration::hours(JOB_RESPONSE_HOURS)
}

async fn find(executor: impl PgExecutor<'_>, id: JobId) -> Result<Option<NamedJob>, StoreError> {
    sqlx::query_as!(
        Columns,
        "select jobs.id, jobs.tenant_id, jobs.key_id, user_id, model, dialect, endpoint, tags, user_agent, status,
                jobs.created_at, started_at, finished_at, jobs.expires_at, not_before, attempts, denials, error_code,
                error_message, claim_instance, tenants.name as \"tenant_name?\", keys.name as \"key_name?\",
                keys.public_id as \"key_public_id?\", keys.owner_id as \"owner_id?\"
         from jobs
         left join tenants on tenants.id = jobs.tenant_id
         left join keys on keys.id = jobs.key_id
         where jobs.id = $1",
        id.0,
    )
    .fetch_optional(executor)
    .await?
    .map(Columns::into_named)
    .transpose()
}

struct Columns {
    id: Uuid,
    tenant_id: Uuid,
    key_id: Uuid,
    user_id: Option<String>,
    model: String,
    dialect: String,
    endpoint: String,
    tags: serde_json::Value,
    user_agent: Option<String>,
    status: String,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    not_before: DateTime<Utc>,
    attempts: i32,
    denials: i32,
    error_code: Option<String>,
    error_message: Option<String>,
    claim_instance: Option<String>,
    tenant_name: Option<String>,
    key_name: Option<String>,
    key_public_id: Option<String>,
    owner_id: Option<Uuid>,
}

impl Columns {
    fn into_named(self) -> Result<NamedJob, StoreError> {
        Ok(NamedJob {
            job: JobRow {
                id: self.id.into(),
                subject: JobSubject {
                    tenant_id: self.tenant_id.into(),
                    key_id: self.key_id.into(),
                    user_id: self.user_id,
                    model: self.model,
                    dialect: parse(&self.dialect, "jobs.dialect")?,
                    endpoint: self.endpoint,
                    tags: serde_json::from_value(self.tags).map_err(|_| StoreError::Value { column: "jobs.tags" })?,
                    user_agent: self.user_agent,
                },
                status: parse(&self.status, "jobs.status")?,
                created_at: self.created_at,
                started_at: self.started_at,
                finished_at: self.finished_at,
                expires_at: self.expires_at,
                not_before: self.not_before,
                attempts: self.attempts,
                denials: self.denials,
                error: self.error_code.map(|code| JobError {
                    code,
                    message: self.error_message.unwrap_or_default(),
                }),
            },
            tenant_name: self.tenant_name,
            key_name: self.key_name,
            key_public_id: self.key_public_id,
            owner_id: self.owner_id.map(Into::into),
            instance: self.claim_instance,
        })
    }
}
