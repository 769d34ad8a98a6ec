//! The ledger: find a request, see what it cost and why, or why it was refused.

use control::fields::Fields;
use control::rows::{EntryCursor, EntryFilter, EntryPage, LedgerEntry, Named};
use control::{ControlError, FieldError};
use domain::ids::{KeyId, RequestId};
use domain::key_text::masked;
use domain::ledger::{Adjustment, Attempt, Identity, Outcome, Rejection, ScopeCheck, Settlement};
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::prices::Price;
use domain::refusals::RefusalCode;
use leptos::prelude::*;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page, id_of_path};
use crate::pages::{adjustments, rehearsal};
use crate::shell;
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::visit::{Visit, Visitor, address};

/// Entries on one page.
const ENTRIES_PER_PAGE: u32 = 50;
/// The fields of the list's address, in the order of the form.
const FILTERS: [&str; 9] = [
    "kind", "tenant", "model", "ending", "tag", "key", "request", "from", "until",
];
/// The first of those that are folded away while they are empty.
const FIRST_FOLDED: usize = 4;

/// The list with its filters.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let wanted = Wanted::of(&visit);
        let title = if visitor.is_member() { "My requests" } else { "Ledger" };
        let (entries, problems) = match wanted.filter(&visit.format) {
            Ok(filter) => (wanted.entries(&visit, visitor, &filter).await?, Vec::new()),
            Err(ControlError::Invalid(problems)) => (
                EntryPage {
                    entries: Vec::new(),
                    next: None,
                },
                problems,
            ),
            Err(error) => return Err(error.into()),
        };
        let rows: Vec<AnyView> = entries.entries.iter().map(|named| row(named, &visit.format)).collect();
        let listed = if rows.is_empty() {
            table::empty(
                "No entry matches. Widen the time, or take a filter away.",
                view! { <a class="button" href="/ledger">"Show everything"</a> }.into_any(),
            )
        } else {
            table::table(
                format!("The newest first, in {} time.", visit.format.zone()),
                &[
                    words("Time"),
                    words("Ending"),
                    words("Tenant"),
                    words("Key"),
                    words("Model"),
                    figures("Input"),
                    figures("Output"),
                    figures("Cost"),
                    figures("Duration"),
                ],
                rows,
            )
        };
        let older = entries.next.map(|cursor| {
            let href = wanted.address(Some(cursor));
            view! { <a class="button" href=href rel="next">"Older entries"</a> }
        });
        let newest = wanted.after.is_some().then(|| {
            let href = wanted.address(None);
            view! { <a class="button" href=href>"Back to the newest"</a> }
        });
        let kept = visit.state.control.entries_kept_from().await?.map(|from| {
            let text = format!(
                "Entries before {} are no longer kept; reports still count them.",
                visit.format.minute(from)
            );
            view! { <p class="quiet">{text}</p> }
        });
        let content = view! {
            {shell::page_head(
                title,
                "Every request leaves one entry here: what it used and cost, or why it was refused.",
                view! { <a class="button" href=adjustments::PATH>"Adjustments"</a> }.into_any(),
            )}
            {wanted.form(&visit, visitor, &problems).await?}
            {listed}
            {kept}
            <nav class="pager" aria-label="Pages">
                {newest} {older}
            </nav>
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// What the list's address asks for, as text.
struct Wanted {
    values: Vec<(&'static str, String)>,
    after: Option<EntryCursor>,
}

impl Wanted {
    fn of(visit: &Visit) -> Self {
        Self {
            values: FILTERS
                .iter()
                .map(|name| (*name, visit.query(name).unwrap_or_default()))
                .collect(),
            after: visit.query("after").and_then(|text| cursor(&text)),
        }
    }

    fn value(&self, name: &str) -> &str {
        self.values
            .iter()
            .find(|(field, _)| *field == name)
            .map_or("", |(_, value)| value.as_str())
    }

    fn filter(&self, format: &Format) -> Result<EntryFilter, ControlError> {
        let mut fields = Fields::default();
        let (outcome, code) = match self.value("ending").split_once(':') {
            Some(("outcome", word)) => (Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == word), None),
            Some(("code", word)) => (None, word.parse::<RefusalCode>().ok()),
            _ => (None, None),
        };
        if !self.value("ending").is_empty() && outcome.is_none() && code.is_none() {
            fields.refuse("ending", "choose an ending from the list");
        }
        let request = self.value("request").trim();
        let request = if request.is_empty() {
            None
        } else {
            let parsed = request.parse::<RequestId>().ok();
            if parsed.is_none() {
                fields.refuse("request", "write the request's whole id");
            }
            parsed
        };
        let key = self.value("key").trim();
        let key = if key.is_empty() {
            None
        } else {
            let parsed = key.parse::<KeyId>().ok();
            if parsed.is_none() {
                fields.refuse("key", "write the key's whole id, as in the address of its page");
            }
            parsed
        };
        let tag = self.value("tag").trim();
        let tag = if tag.is_empty() {
            None
        } else {
            let parsed = tag
                .split_once('=')
                .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
                .filter(|(name, _)| !name.is_empty());
            if parsed.is_none() {
                fields.refuse("tag", "write a tag's name and value, such as project=search");
            }
            parsed
        };
        let filter = EntryFilter {
            tag,
            tenant: fields.word("tenant", self.value("tenant")),
            key,
            model: Some(self.value("model").to_owned()).filter(|model| !model.is_empty()),
            request,
            outcome,
            code,
            from: fields.local_time("from", self.value("from"), format.zone()),
            until: fields.local_time("until", self.value("until"), format.zone()),
            ..EntryFilter::default()
        };
        fields.check()?;
        Ok(filter)
    }

    async fn entries(
        &self,
        visit: &Visit,
        visitor: &Visitor,
        filter: &EntryFilter,
    ) -> Result<EntryPage<LedgerEntry>, PageError> {
        let control = &visit.state.control;
        let (actor, after, places) = (&visitor.actor, self.after, ENTRIES_PER_PAGE);
        Ok(match self.value("kind") {
            "settlement" if filter.code.is_none() => {
                let page = control.settlements(actor, filter, after, places).await?;
                EntryPage {
                    next: page.next,
                    entries: page
                        .entries
                        .into_iter()
                        .map(|named| named.map(|entry| LedgerEntry::Settlement(Box::new(entry))))
                        .collect(),
                }
            }
            "rejection" if filter.outcome.is_none() => {
                let page = control.rejections(actor, filter, after, places).await?;
                EntryPage {
                    next: page.next,
                    entries: page
                        .entries
                        .into_iter()
                        .map(|named| named.map(|entry| LedgerEntry::Rejection(Box::new(entry))))
                        .collect(),
                }
            }
            _ => control.ledger_entries(actor, filter, after, places).await?,
        })
    }

    fn address(&self, after: Option<EntryCursor>) -> String {
        let after = after
            .map(|cursor| format!("{}_{}", cursor.at.timestamp_micros(), cursor.id))
            .unwrap_or_default();
        let mut fields: Vec<(&str, &str)> = self
            .values
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        fields.push(("after", &after));
        address("/ledger", &fields)
    }

    async fn form(&self, visit: &Visit, visitor: &Visitor, problems: &[FieldError]) -> Result<AnyView, PageError> {
        let form = Filled::refused((), problems);
        let zone = visit.format.zone();
        let any = |text: &str| std::iter::once((String::new(), text.to_owned()));
        let tenants = if visitor.sees_everything() {
            let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
            let choices = any("All")
                .chain(
                    tenants
                        .iter()
                        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
                )
                .collect();
            form.select(Field::new("tenant", "Tenant"), self.value("tenant"), choices)
        } else {
            ().into_any()
        };
        let mut models: Vec<String> = visit
            .state
            .control
            .models(&visitor.actor, visit.now())
            .await?
            .into_iter()
            .map(|row| row.model.name)
            .collect();
        let chosen = self.value("model").to_owned();
        if !chosen.is_empty() && !models.contains(&chosen) {
            models.push(chosen.clone());
        }
        let models = any("All")
            .chain(models.into_iter().map(|name| (name.clone(), name)))
            .collect();
        let kinds = vec![
            (String::new(), "Both".to_owned()),
            ("settlement".to_owned(), "Ran".to_owned()),
            ("rejection".to_owned(), "Refused".to_owned()),
        ];
        let endings = any("All")
            .chain(Outcome::ALL.map(|outcome| {
                (
                    format!("outcome:{}", outcome.as_str()),
                    format!("ran: {}", format::words(outcome.as_str())),
                )
            }))
            .chain(RefusalCode::ALL.map(|code| {
                (
                    format!("code:{code}"),
                    format!("refused: {}", format::words(code.as_str())),
                )
            }))
            .collect();
        let folded = &FILTERS[FIRST_FOLDED..];
        let is_open = folded.iter().any(|name| !self.value(name).is_empty()) || !problems.is_empty();
        Ok(view! {
            <form class="card" method="get" action="/ledger">
                <div class="filters">
                    {form.select(Field::new("kind", "Kind"), self.value("kind"), kinds)}
                    {tenants}
                    {form.select(Field::new("model", "Model"), &chosen, models)}
                    {form.select(Field::new("ending", "Ending"), self.value("ending"), endings)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">"Show"</button>
                        <a class="button" href="/ledger">"Clear"</a>
                    </div>
                </div>
                <details open=is_open>
                    <summary>"Time, tag, key, request"</summary>
                    <div class="filters">
                        {form.text(Field::new("from", format!("From ({zone})")).instant(), self.value("from"))}
                        {form.text(Field::new("until", format!("Until ({zone})")).instant(), self.value("until"))}
                        {form.text(Field::new("tag", "Tag").placeholder("project=search"), self.value("tag"))}
                        {form.text(Field::new("key", "Key's id"), self.value("key"))}
                        {form.text(Field::new("request", "Request's id"), self.value("request"))}
                    </div>
                </details>
            </form>
        }
        .into_any())
    }
}

fn cursor(text: &str) -> Option<EntryCursor> {
    let (at, id) = text.split_once('_')?;
    Some(EntryCursor {
        at: chrono::DateTime::from_timestamp_micros(at.parse().ok()?)?,
        id: id.parse().ok()?,
    })
}

fn row(named: &Named<LedgerEntry>, format: &Format) -> AnyView {
    let id = named.entry.id();
    let href = format!("/ledger/{id}");
    let identity = identity_of(&named.entry);
    let (ending, input, output, cost, duration) = match &named.entry {
        LedgerEntry::Settlement(entry) => (
            outcome_badge(entry.outcome),
            format::count(entry.usage.input_tokens()),
            format::count(entry.usage.output_tokens),
            format.cost(entry.cost_nanos),
            format::duration_ms(entry.total_ms),
        ),
        LedgerEntry::Rejection(entry) => {
            let times = (entry.refusal_count > 1).then(|| {
                view! { " " <small>{format!("{} times", format::signed_count(entry.refusal_count))}</small> }
            });
            (
                view! { {badge(format::words(entry.code.as_str()), Tone::Warning)} {times} }.into_any(),
                String::new(),
                String::new(),
                String::new(),
                format::duration_ms(entry.queue_ms),
            )
        }
    };
    view! {
        <tr>
            <th scope="row" class="nowrap">
                <a href=href>{format.bare_time(named.entry.at())}</a>
            </th>
            <td class="nowrap">{ending}</td>
            <td>{named.tenant_name.clone()}</td>
            <td>{key_text(named)}</td>
            <td>{identity.model.as_ref().map(|model| model.to_string())}</td>
            <td class="number">{input}</td>
            <td class="number">{output}</td>
            <td class="number">{cost}</td>
            <td class="number">{duration}</td>
        </tr>
    }
    .into_any()
}

fn identity_of(entry: &LedgerEntry) -> &Identity {
    match entry {
        LedgerEntry::Settlement(entry) => &entry.identity,
        LedgerEntry::Rejection(entry) => &entry.identity,
    }
}

fn key_text<T>(named: &Named<T>) -> String {
    match (&named.key_name, &named.key_public_id) {
        (Some(name), _) => name.clone(),
        (None, Some(public_id)) => masked(public_id),
        (None, None) => String::new(),
    }
}

fn outcome_badge(outcome: Outcome) -> AnyView {
    let tone = match outcome {
        Outcome::Completed => Tone::Good,
        Outcome::ClientClosed | Outcome::Abandoned => Tone::Quiet,
        Outcome::UpstreamError | Outcome::TimedOut | Outcome::GatewayError => Tone::Bad,
    };
    badge(format::words(outcome.as_str()), tone)
}

/// One entry in full.
pub fn entry() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: RequestId = id_of_path(&visit, "/ledger/")?;
        let named = visit.state.control.ledger_entry(&visitor.actor, id).await?;
        let content = match &named.entry {
            LedgerEntry::Settlement(entry) => {
                let price = price_of(&visit, visitor, entry).await?;
                let upstream = upstream_of(&visit, visitor, entry).await?;
                let rehearsed = verdicts(&visit, visitor, &named, entry).await?;
                let made = visit.state.control.adjustments_of(&visitor.actor, id).await?;
                let correct = adjustments::correct_link(visitor, id);
                view! {
                    {settlement(&named, entry, price.as_ref(), upstream, correct, &made, &visit.format)}
                    {rehearsed}
                }
                .into_any()
            }
            LedgerEntry::Rejection(entry) => rejection(&named, entry, &visit.format),
        };
        Ok(Page::new(format!("Request {id}"), content))
    })
}

/// The price that was charged, for those who may see prices of the past.
async fn price_of(visit: &Visit, visitor: &Visitor, entry: &Settlement) -> Result<Option<Price>, PageError> {
    let (Some(id), Some(model), true) = (entry.price_id, &entry.identity.model, visitor.sees_everything()) else {
        return Ok(None);
    };
    let prices = visit.state.control.prices(&visitor.actor, model).await?;
    Ok(prices
        .into_iter()
        .map(|stored| stored.price)
        .find(|price| price.id == id))
}

/// The upstream's name, for those who may know of upstreams.
async fn upstream_of(visit: &Visit, visitor: &Visitor, entry: &Settlement) -> Result<Option<String>, PageError> {
    let (Some(id), true) = (entry.upstream_id, visitor.sees_everything()) else {
        return Ok(None);
    };
    let upstreams = visit.state.control.upstreams(&visitor.actor).await?;
    Ok(upstreams
        .into_iter()
        .find(|upstream| upstream.id == id)
        .map(|upstream| upstream.name))
}

/// What limits in rehearsal would have done.
async fn verdicts(
    visit: &Visit,
    visitor: &Visitor,
    named: &Named<LedgerEntry>,
    entry: &Settlement,
) -> Result<AnyView, PageError> {
    let control = &visit.state.control;
    let limits = control.rehearsed_limits(&visitor.actor, &entry.rehearsed).await?;
    Ok(rehearsal::verdicts(&entry.rehearsed, &limits, |scope| match scope {
        Scope::Tenant(_) => named.tenant_name.clone(),
        Scope::User(..) => named.user_name.clone(),
        Scope::Key(_) => named.key_name.clone(),
        _ => None,
    }))
}

fn settlement(
    named: &Named<LedgerEntry>,
    entry: &Settlement,
    price: Option<&Price>,
    upstream: Option<String>,
    correct: AnyView,
    made: &[Adjustment],
    format: &Format,
) -> AnyView {
    let usage = &entry.usage;
    let tokens = |value: u64| format::count(value).into_any();
    let attempts = (!entry.attempts.is_empty()).then(|| {
        view! {
            <section class="card">
                <h2>"Attempts"</h2>
                {table::table(
                    "In order; the last one is the one that counted.",
                    &[words("Model's name there"), figures("Status"), words("Error"), figures("First byte")],
                    entry.attempts.iter().map(attempt_row).collect(),
                )}
            </section>
        }
    });
    let mut details = vec![(
        "Status",
        entry
            .status
            .map_or("none was sent".to_owned(), |status| status.to_string())
            .into_any(),
    )];
    // Tenants are not told who serves a model.
    if let Some(upstream_model) = &entry.upstream_model {
        details.push(("Upstream", upstream.unwrap_or_default().into_any()));
        details.push(("Model at the upstream", upstream_model.clone().into_any()));
    }
    if let Some(id) = &entry.upstream_request_id {
        details.push(("Provider's request id", id.clone().into_any()));
    }
    details.extend([
        ("Waited in the queue", format::duration_ms(entry.queue_ms).into_any()),
        (
            "First byte",
            entry
                .first_byte_ms
                .map_or("none".to_owned(), format::duration_ms)
                .into_any(),
        ),
        ("Duration", format::duration_ms(entry.total_ms).into_any()),
        ("Settled", format.time(entry.settled_at).into_any()),
    ]);
    let unpriced = entry.is_unpriced.then(|| {
        view! {
            <p class="notice notice-warning">"The model had no price, so the fallback price was charged."</p>
        }
    });
    let mut costs = vec![
        (
            "Cost",
            view! { <strong>{format.exact(entry.cost_nanos)}</strong> }.into_any(),
        ),
        ("Expected", format.cost(entry.expected_cost_nanos).into_any()),
        ("Ceiling held", format.cost(entry.ceiling_cost_nanos).into_any()),
    ];
    if entry.overrun_nanos != Nanos::ZERO {
        costs.push(("Above the ceiling", format.cost(entry.overrun_nanos).into_any()));
    }
    view! {
        {shell::page_head(
            "A request that ran",
            format.time(entry.admitted_at),
            view! { {outcome_badge(entry.outcome)} {correct} }.into_any(),
        )}
        {unpriced}
        {adjustments::of_request(entry, made, format)}
        <div class="columns">
            <section class="card">
                <h2>"Cost"</h2>
                {facts(costs)}
                {arithmetic(entry, price, format)}
            </section>
            <section class="card">
                <h2>"Tokens"</h2>
                {facts(vec![
                    ("Fresh input", tokens(usage.input_fresh_tokens)),
                    ("Cache read", tokens(usage.cache_read_tokens)),
                    ("Cache write, 5 min", tokens(usage.cache_write_5m_tokens)),
                    ("Cache write, 1 h", tokens(usage.cache_write_1h_tokens)),
                    ("Output", tokens(usage.output_tokens)),
                    ("Of it reasoning", tokens(usage.reasoning_tokens)),
                    ("Figures", entry.usage_source.as_str().into_any()),
                    ("Expected", format!(
                        "{} in, {} out",
                        format::count(entry.expected_input_tokens),
                        format::count(entry.expected_output_tokens)
                    ).into_any()),
                ])}
            </section>
        </div>
        <section class="card">
            <h2>"Request"</h2>
            {facts(identity_facts(named, &entry.identity, details))}
        </section>
        {attempts}
    }
    .into_any()
}

fn attempt_row(attempt: &Attempt) -> AnyView {
    view! {
        <tr>
            <th scope="row">{attempt.upstream_model.clone()}</th>
            <td class="number">{attempt.status.map(|status| status.to_string())}</td>
            <td>{attempt.error.as_deref().map(format::words)}</td>
            <td class="number">{format::duration_ms(attempt.first_byte_ms)}</td>
        </tr>
    }
    .into_any()
}

/// How the cost was made: tokens times rate, class by class, rounded up once.
fn arithmetic(entry: &Settlement, price: Option<&Price>, format: &Format) -> AnyView {
    let Some(price) = price else {
        return ().into_any();
    };
    let usage = &entry.usage;
    let rates = price.rates_for(usage.input_tokens());
    let classes = [
        ("Fresh input", usage.input_fresh_tokens, rates.input_nanos_per_mtok),
        ("Cache read", usage.cache_read_tokens, rates.cache_read_nanos_per_mtok),
        (
            "Cache write, 5 min",
            usage.cache_write_5m_tokens,
            rates.cache_write_5m_nanos_per_mtok,
        ),
        (
            "Cache write, 1 h",
            usage.cache_write_1h_tokens,
            rates.cache_write_1h_nanos_per_mtok,
        ),
        ("Output", usage.output_tokens, rates.output_nanos_per_mtok),
    ];
    let rows = classes
        .into_iter()
        .filter(|(_, tokens, _)| *tokens > 0)
        .map(|(class, tokens, rate)| {
            let part = i128::from(tokens) * i128::from(rate) / 1_000_000;
            let part = Nanos(i64::try_from(part).unwrap_or(i64::MAX));
            view! {
                <tr>
                    <th scope="row">{class}</th>
                    <td class="number">{format::count(tokens)}</td>
                    <td class="number">{format.rate(rate)}</td>
                    <td class="number">{format.exact(part)}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let from = format!(
        "Price in force from {}, per million tokens; the sum is rounded up once.",
        format.minute(price.valid_from)
    );
    table::table(
        from,
        &[words("Class"), figures("Tokens"), figures("Price"), figures("Amount")],
        rows,
    )
}

fn rejection(named: &Named<LedgerEntry>, entry: &Rejection, format: &Format) -> AnyView {
    let retry = entry
        .retry_after_seconds
        .map_or("not given".to_owned(), |seconds| format!("{seconds} s"));
    let chain = if entry.chain.is_empty() {
        let why = if entry.scope.is_some() {
            "Only the limit that refused was recorded."
        } else {
            "It was refused before any limit was checked."
        };
        view! { <p class="quiet">{why}</p> }.into_any()
    } else {
        table::table(
            "Every limit that was checked, in the order of the tree.",
            &[
                words("Scope"),
                words("Dimension"),
                figures("Limit"),
                figures("Used"),
                words("Verdict"),
            ],
            entry.chain.iter().map(|check| check_row(check, format)).collect(),
        )
    };
    view! {
        {shell::page_head("A request that was refused", format.time(entry.refused_at), badge(format::words(entry.code.as_str()), Tone::Warning))}
        <section class="card">
            <h2>"Why"</h2>
            <p><strong>{entry.message.clone()}</strong></p>
            {facts(vec![
                ("Code", view! { <code>{entry.code.as_str()}</code> }.into_any()),
                ("Status", entry.status.to_string().into_any()),
                ("Refused by", entry.scope.as_ref().map_or("no limit".to_owned(), |scope| scope.to_string()).into_any()),
                ("Dimension", entry.dimension.map_or(String::new(), |dimension| format::words(dimension.as_str())).into_any()),
                ("Limit's key", entry.limit_key.clone().unwrap_or_default().into_any()),
                ("Retry after", retry.into_any()),
                ("Equal refusals", format::signed_count(entry.refusal_count).into_any()),
                ("Before the wait was over", early(entry).into_any()),
                ("Tried before", entry.caller_retries.map_or("not said".to_owned(), |retries| retries.to_string()).into_any()),
                ("Expected", format!(
                    "{} in, {} out, {}",
                    format::count(entry.expected_input_tokens),
                    format::count(entry.expected_output_tokens),
                    format.cost(entry.expected_cost_nanos)
                ).into_any()),
            ])}
        </section>
        <section class="card">
            <h2>"Limits checked"</h2>
            {chain}
        </section>
        <section class="card">
            <h2>"Request"</h2>
            {facts(identity_facts(named, &entry.identity, vec![
                ("Waited in the queue", format::duration_ms(entry.queue_ms).into_any()),
            ]))}
        </section>
    }
    .into_any()
}

/// Whether the key came back although it had been told to wait.
fn early(entry: &Rejection) -> String {
    match (entry.early_count, entry.refusal_count) {
        (0, _) => "no".to_owned(),
        (_, 1) => "yes".to_owned(),
        (early, all) => format!("{} of {}", format::signed_count(early), format::signed_count(all)),
    }
}

fn check_row(check: &ScopeCheck, format: &Format) -> AnyView {
    let limit = match check.dimension {
        Dimension::BudgetCost => format.money(Nanos(i64::try_from(check.limit_value).unwrap_or(i64::MAX))),
        _ => format::count(check.limit_value),
    };
    let verdict = if check.has_room {
        badge("room", Tone::Good)
    } else {
        badge("refused", Tone::Bad)
    };
    view! {
        <tr>
            <th scope="row"><code>{check.scope.to_string()}</code></th>
            <td>{format::words(check.dimension.as_str())}</td>
            <td class="number">{limit}</td>
            <td class="number">{format!("{:.1} %", check.utilisation_percent)}</td>
            <td>{verdict}</td>
        </tr>
    }
    .into_any()
}

fn identity_facts(
    named: &Named<LedgerEntry>,
    identity: &Identity,
    more: Vec<(&'static str, AnyView)>,
) -> Vec<(&'static str, AnyView)> {
    let tenant = named
        .tenant_name
        .clone()
        .unwrap_or_else(|| identity.tenant_id.to_string());
    let user = named
        .user_name
        .clone()
        .or_else(|| identity.user_id.clone())
        .unwrap_or_else(|| "none".to_owned());
    let key_href = format!("/keys/{}", identity.key_id);
    let key = named.key_name.clone().unwrap_or_else(|| identity.key_id.to_string());
    let tags = identity
        .tags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut facts = vec![
        ("Id", view! { <code>{identity.id.to_string()}</code> }.into_any()),
        ("Tenant", tenant.into_any()),
        ("User", user.into_any()),
        ("Key", view! { <a href=key_href>{key}</a> }.into_any()),
        (
            "Model",
            identity
                .model
                .as_ref()
                .map_or("none".to_owned(), |model| model.to_string())
                .into_any(),
        ),
        (
            "Endpoint",
            format!("{} ({})", identity.endpoint, identity.dialect).into_any(),
        ),
        ("Streamed", if identity.is_streamed { "yes" } else { "no" }.into_any()),
        ("Priority", identity.priority.as_str().into_any()),
    ];
    facts.extend(more);
    facts.push(("Gateway", identity.instance.clone().into_any()));
    facts.push(("User agent", identity.user_agent.clone().unwrap_or_default().into_any()));
    if let Some(job) = identity.job_id {
        facts.push(("Job", view! { <code>{job.to_string()}</code> }.into_any()));
    }
    if !tags.is_empty() {
        facts.push(("Tags", tags.into_any()));
    }
    facts
}
