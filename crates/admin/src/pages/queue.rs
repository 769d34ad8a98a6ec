//! Queue and jobs: who waits for room at this moment, and the requests whose callers come back for the answer.

use chrono::{DateTime, Utc};
use control::queues::{GatewayQueue, Queues, ScopeName};
use control::rows::{JobFilter, NamedJob};
use domain::ids::JobId;
use domain::instances::QueueReason;
use domain::jobs::{JOB_ATTEMPTS_MAX, JOB_RESPONSE_HOURS, JOB_WAIT_HOURS, JobStatus};
use domain::key_text::masked;
use leptos::prelude::*;
use leptos::server_fn::ServerFn as _;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format;
use crate::limit_names::node_name;
use crate::live;
use crate::page::{self, Page};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press};
use crate::table::{self, Tone, badge, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

const PATH: &str = "/queue";
/// Jobs on one page.
const JOBS_PER_PAGE: i64 = 50;

/// Queue and jobs, as far as the visitor may see them.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let title = match visitor {
            visitor if visitor.is_member() => t!("My jobs"),
            visitor if visitor.is_manager() => t!("Jobs"),
            _ => t!("Queue and jobs"),
        };
        let queue = if visitor.sees_everything() {
            let queues = visit.state.control.queues(&visitor.actor, visit.now()).await?;
            live::region("queue", queue(&queues))
        } else {
            ().into_any()
        };
        let lead = if visitor.sees_everything() {
            t!("Requests that wait for room instead of being refused: for seconds in the queue, for hours as jobs.")
        } else {
            t!("Requests that could not be admitted when they came, and are answered later.")
        };
        let content = view! {
            {shell::page_head(title, lead, visitor.sees_everything().then(live::figures).into_any())}
            {queue}
            {jobs(&visit, visitor).await?}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// The queues of the gateways, and what those that wait there wait for.
fn queue(queues: &Queues) -> AnyView {
    let body = if queues.gateways.is_empty() {
        table::empty(t!("No gateway reports at the moment."), ().into_any())
    } else {
        let rows = queues.gateways.iter().map(queue_row).collect();
        let listed = table::table(
            t!("Each gateway has a queue of its own and reports every two seconds."),
            &[
                words(t!("Gateway")),
                figures(t!("Waiting")),
                figures(t!("Waiting tokens")),
                figures(t!("Longest wait")),
                figures(t!("Time-out")),
                figures(t!("Jobs running")),
            ],
            rows,
        );
        view! { {listed} {reasons(queues)} }.into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("Queue")}</h2>
            {body}
        </section>
    }
    .into_any()
}

fn queue_row(gateway: &GatewayQueue) -> AnyView {
    let queue = &gateway.queue;
    let milliseconds = |value: u64| format::duration_ms(i64::try_from(value).unwrap_or(i64::MAX));
    let of = |part: u64, whole: u64| {
        t!(
            "{part} of {whole}",
            part = format::count(part),
            whole = format::count(whole)
        )
    };
    let (waiting, tokens, longest, timeout) = if queue.places == 0 {
        (
            t!("nobody waits").to_owned(),
            String::new(),
            String::new(),
            String::new(),
        )
    } else {
        (
            of(queue.depth, queue.places),
            of(queue.waiting_tokens, queue.waiting_tokens_max),
            if queue.depth == 0 {
                String::new()
            } else {
                milliseconds(queue.longest_ms)
            },
            milliseconds(queue.timeout_ms),
        )
    };
    view! {
        <tr>
            <th scope="row">{gateway.instance.clone()}</th>
            <td class="number">{waiting}</td>
            <td class="number">{tokens}</td>
            <td class="number">{longest}</td>
            <td class="number">{timeout}</td>
            <td class="number">{format::count(gateway.jobs_running)}</td>
        </tr>
    }
    .into_any()
}

fn reasons(queues: &Queues) -> AnyView {
    let rows: Vec<AnyView> = queues
        .gateways
        .iter()
        .flat_map(|gateway| gateway.queue.reasons.iter().map(move |reason| (gateway, reason)))
        .map(|(gateway, reason)| reason_row(gateway, reason, queues.names.get(&reason.scope)))
        .collect();
    if rows.is_empty() {
        return view! { <p>{t!("Nobody waits at this moment.")}</p> }.into_any();
    }
    table::table(
        t!("What they wait for, the most frequent first."),
        &[
            words(t!("Waits for room in")),
            words(t!("In what")),
            words(t!("Because of")),
            words(t!("Gateway")),
            figures(t!("Requests")),
        ],
        rows,
    )
}

fn reason_row(gateway: &GatewayQueue, reason: &QueueReason, name: Option<&ScopeName>) -> AnyView {
    let node = node_name(
        &reason.scope,
        name.and_then(|name| name.name.as_deref()),
        name.and_then(|name| name.tenant_name.as_deref()),
    );
    view! {
        <tr>
            <th scope="row">{node}</th>
            <td>{terms::dimension(reason.dimension)}</td>
            <td>{terms::refusal(reason.code)}</td>
            <td>{gateway.instance.clone()}</td>
            <td class="number">{format::count(reason.count)}</td>
        </tr>
    }
    .into_any()
}

async fn jobs(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    let wanted = Wanted::of(visit);
    let filter = JobFilter {
        status: wanted.status,
        before: wanted.before,
        ..JobFilter::default()
    };
    let found = visit.state.control.jobs(&visitor.actor, filter, JOBS_PER_PAGE).await?;
    let back = wanted.address(wanted.before);
    let rows: Vec<AnyView> = found.jobs.iter().map(|job| row(job, visit, visitor, &back)).collect();
    let listed = if rows.is_empty() {
        nothing(&wanted)
    } else {
        let mut columns = vec![words(t!("Accepted")), words(t!("Status"))];
        // Before what is wide, so that the button is in sight.
        if may_cancel(visitor) {
            columns.push(words(t!("Action")));
        }
        if visitor.sees_everything() {
            columns.push(words(t!("Tenant")));
        }
        columns.extend([
            words(t!("Key")),
            words(t!("Model")),
            figures(t!("Age")),
            figures(t!("Attempts")),
            words(t!("Next try")),
            words(t!("Last error")),
        ]);
        table::table(
            t!("The newest first, in {zone} time.", zone = visit.format.zone()),
            &columns,
            rows,
        )
    };
    let older = found.next.map(|next| {
        let href = wanted.address(Some(next));
        view! { <a class="button" href=href rel="next">{t!("Older jobs")}</a> }
    });
    let newest = wanted.before.is_some().then(|| {
        let href = wanted.address(None);
        view! { <a class="button" href=href>{t!("Back to the newest")}</a> }
    });
    Ok(view! {
        <section class="card">
            <h2>{t!("Jobs")}</h2>
            <p>{about_jobs()}</p>
            {wanted.form()}
            {listed}
            <nav class="pager" aria-label=t!("Pages of jobs")>
                {newest} {older}
            </nav>
        </section>
    }
    .into_any())
}

fn about_jobs() -> String {
    t!(
        "A job holds nothing while it waits, runs at the priority low when there is room, and is given up after \
         {wait} hours. Its answer is kept sealed for {kept} hours and shown to nobody but its tenant's keys.",
        wait = JOB_WAIT_HOURS,
        kept = JOB_RESPONSE_HOURS,
    )
}

/// What the list's address asks for.
struct Wanted {
    status: Option<JobStatus>,
    before: Option<JobId>,
}

impl Wanted {
    fn of(visit: &Visit) -> Self {
        Self {
            status: visit.query("status").and_then(|word| word.parse().ok()),
            before: visit.query("before").and_then(|id| id.parse().ok()),
        }
    }

    fn word(&self) -> &'static str {
        self.status.map_or("", JobStatus::as_str)
    }

    fn address(&self, before: Option<JobId>) -> String {
        let before = before.map(|id| id.to_string()).unwrap_or_default();
        address(PATH, &[("status", self.word()), ("before", &before)])
    }

    fn form(&self) -> AnyView {
        let form = Filled::blank(());
        let statuses = std::iter::once((String::new(), t!("All").to_owned()))
            .chain(JobStatus::ALL.map(|status| (status.to_string(), terms::job_status(status).to_owned())))
            .collect();
        view! {
            <form method="get" action=PATH>
                <div class="filters">
                    {form.select(Field::new("status", t!("Status")), self.word(), statuses)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Show")}</button>
                    </div>
                </div>
            </form>
        }
        .into_any()
    }
}

fn nothing(wanted: &Wanted) -> AnyView {
    if wanted.status.is_some() || wanted.before.is_some() {
        let all = view! { <a class="button" href=PATH>{t!("Show all jobs")}</a> };
        return table::empty(t!("No job stands here."), all.into_any());
    }
    let how = tv!(
        "A request with the header {header} becomes one when there is no room for it, and so does every request of a \
         key whose settings say so. Its caller gets 202 at once and the answer at {address}.",
        header = view! { <code>"Prefer: respond-async"</code> },
        address = view! { <code>"GET /v1/jobs/{id}"</code> },
    );
    table::empty(t!("There are no jobs."), view! { <p>{how}</p> }.into_any())
}

fn row(named: &NamedJob, visit: &Visit, visitor: &Visitor, back: &str) -> AnyView {
    let job = &named.job;
    let now = visit.now();
    let tenant = visitor
        .sees_everything()
        .then(|| view! { <td>{named.tenant_name.clone()}</td> });
    let key = match (&named.key_name, &named.key_public_id) {
        (Some(name), _) => name.clone(),
        (None, Some(public_id)) => masked(public_id),
        (None, None) => job.subject.key_id.to_string(),
    };
    let key_href = format!("/keys/{}", job.subject.key_id);
    let where_ = named
        .instance
        .clone()
        .filter(|_| job.status == JobStatus::Running && visitor.sees_everything())
        .map(|instance| view! { " " <small>{t!("on {instance}", instance)}</small> });
    let error = job.error.as_ref().map(|error| {
        let message = error.message.clone();
        view! { {terms::refusal_of(&error.code)} " " <small lang="en">{message}</small> }
    });
    let attempts = t!("{part} of {whole}", part = job.attempts, whole = JOB_ATTEMPTS_MAX);
    let cancel = may_cancel(visitor).then(|| view! { <td>{cancel_form(named, back)}</td> });
    view! {
        <tr>
            <th scope="row" class="nowrap">{visit.format.bare_minute(job.created_at)}</th>
            <td class="nowrap">{status_badge(job.status)} {where_}</td>
            {cancel}
            {tenant}
            <td><a href=key_href>{key}</a></td>
            <td>{job.subject.model.clone()}</td>
            <td class="number">{age(named, now)}</td>
            <td class="number">{attempts}</td>
            <td class="nowrap">{next_try(named, now)}</td>
            <td class="sentence">{error}</td>
        </tr>
    }
    .into_any()
}

fn status_badge(status: JobStatus) -> AnyView {
    let tone = match status {
        JobStatus::Completed => Tone::Good,
        JobStatus::Failed => Tone::Bad,
        JobStatus::Expired => Tone::Warning,
        JobStatus::Waiting | JobStatus::Running | JobStatus::Cancelled => Tone::Quiet,
    };
    badge(terms::job_status(status), tone)
}

/// From its acceptance to its end, or to now.
fn age(named: &NamedJob, now: DateTime<Utc>) -> String {
    let until = named.job.finished_at.unwrap_or(now);
    format::duration_ms((until - named.job.created_at).num_milliseconds().max(0))
}

fn next_try(named: &NamedJob, now: DateTime<Utc>) -> String {
    let wait_ms = (named.job.not_before - now).num_milliseconds();
    match named.job.status {
        JobStatus::Waiting if wait_ms > 0 => t!("in {wait}", wait = format::duration_ms(wait_ms)),
        JobStatus::Waiting => t!("when it is its turn").to_owned(),
        _ => String::new(),
    }
}

/// Auditors look on.
fn may_cancel(visitor: &Visitor) -> bool {
    visitor.issues_keys()
}

fn cancel_form(named: &NamedJob, back: &str) -> Option<AnyView> {
    let id = named.job.id.to_string();
    let label = t!("Cancel the job {id}", id);
    (!named.job.status.is_over()).then(|| {
        view! {
            <form method="post" action=CancelJob::PATH>
                <input type="hidden" name="id" value=id />
                <input type="hidden" name="back" value=back.to_owned() />
                <button class="button" type="submit" aria-label=label>{t!("Cancel")}</button>
            </form>
        }
        .into_any()
    })
}

/// Calls a job off.
#[server(prefix = "/console", endpoint = "jobs/cancel")]
pub async fn cancel_job(#[server(default)] id: String, #[server(default)] back: String) -> Result<(), ServerFnError> {
    // Only to this page: what is posted may come from anywhere.
    let back = if back.starts_with("/queue?") {
        back
    } else {
        PATH.to_owned()
    };
    let done = back.clone();
    press(&back, |visit: Visit| async move {
        let id: JobId = parsed_id(&id)?;
        let is_now = visit.state.control.cancel_job(visit.actor()?, id, visit.now()).await?;
        let notice = if is_now {
            t!("Cancelled.")
        } else {
            t!("The job was over already.")
        };
        Ok::<_, Refused>(Done::say(done, notice))
    })
    .await
}
