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
use domain::text;
use leptos::prelude::*;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page, id_of_path};
use crate::pages::{adjustments, rehearsal};
use crate::shell;
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::terms;
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
        let title = if visitor.is_member() {
            t!("My requests")
        } else {
            t!("Ledger")
        };
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
                t!("No entry matches. Widen the time, or take a filter away."),
                view! { <a class="button" href="/ledger">{t!("Show everything")}</a> }.into_any(),
            )
        } else {
            let [time, ending, tenant, key, model, input, output, cost, duration] = columns();
            table::stacked(
                t!("The newest first, in {zone} time.", zone = visit.format.zone()),
                &[
                    words(time),
                    words(ending),
                    words(tenant),
                    words(key),
                    words(model),
                    figures(input),
                    figures(output),
                    figures(cost),
                    figures(duration),
                ],
                rows,
            )
        };
        let older = entries.next.map(|cursor| {
            let href = wanted.address(Some(cursor));
            view! { <a class="button" href=href rel="next">{t!("Older entries")}</a> }
        });
        let newest = wanted.after.is_some().then(|| {
            let href = wanted.address(None);
            view! { <a class="button" href=href>{t!("Back to the newest")}</a> }
        });
        let kept = visit.state.control.entries_kept_from().await?.map(|from| {
            let text = t!(
                "Entries before {from} are no longer kept; reports still count them.",
                from = visit.format.minute(from)
            );
            view! { <p class="quiet">{text}</p> }
        });
        let content = view! {
            {shell::page_head(
                title,
                t!("Every request leaves one entry here: what it used and cost, or why it was refused."),
                view! { <a class="button" href=adjustments::PATH>{t!("Adjustments")}</a> }.into_any(),
            )}
            {wanted.form(&visit, visitor, &problems).await?}
            {listed}
            {kept}
            <nav class="pager" aria-label=t!("Pages")>
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
            fields.refuse("ending", text!("choose an ending from the list"));
        }
        let request = self.value("request").trim();
        let request = if request.is_empty() {
            None
        } else {
            let parsed = request.parse::<RequestId>().ok();
            if parsed.is_none() {
                fields.refuse("request", text!("write the request's whole id"));
            }
            parsed
        };
        let key = self.value("key").trim();
        let key = if key.is_empty() {
            None
        } else {
            let parsed = key.parse::<KeyId>().ok();
            if parsed.is_none() {
                fields.refuse("key", text!("write the key's whole id, as in the address of its page"));
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
                fields.refuse("tag", text!("write a tag's name and value, such as project=search"));
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
            let choices = any(t!("All"))
                .chain(
                    tenants
                        .iter()
                        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
                )
                .collect();
            form.select(Field::new("tenant", t!("Tenant")), self.value("tenant"), choices)
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
        let models = any(t!("All"))
            .chain(models.into_iter().map(|name| (name.clone(), name)))
            .collect();
        let kinds = vec![
            (String::new(), t!("Both", in "kinds of ledger entries").to_owned()),
            ("settlement".to_owned(), t!("Ran").to_owned()),
            ("rejection".to_owned(), t!("Refused").to_owned()),
        ];
        let endings = any(t!("All"))
            .chain(Outcome::ALL.map(|outcome| {
                (
                    format!("outcome:{}", outcome.as_str()),
                    t!("ran: {outcome}", outcome = terms::outcome(outcome)),
                )
            }))
            .chain(
                RefusalCode::ALL.map(|code| (format!("code:{code}"), t!("refused: {why}", why = terms::refusal(code)))),
            )
            .collect();
        let folded = &FILTERS[FIRST_FOLDED..];
        let is_open = folded.iter().any(|name| !self.value(name).is_empty()) || !problems.is_empty();
        Ok(view! {
            <form class="card" method="get" action="/ledger">
                <div class="filters">
                    {form.select(Field::new("kind", t!("Kind")), self.value("kind"), kinds)}
                    {tenants}
                    {form.select(Field::new("model", t!("Model")), &chosen, models)}
                    {form.select(Field::new("ending", t!("Ending")), self.value("ending"), endings)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Show")}</button>
                        <a class="button" href="/ledger">{t!("Clear")}</a>
                    </div>
                </div>
                <details open=is_open>
                    <summary>{t!("Time, tag, key, request")}</summary>
                    <div class="filters">
                        {form.text(Field::new("from", t!("From ({zone})", zone)).instant(), self.value("from"))}
                        {form.text(Field::new("until", t!("Until ({zone})", zone)).instant(), self.value("until"))}
                        {form.text(Field::new("tag", t!("Tag")).placeholder("project=search"), self.value("tag"))}
                        {form.text(Field::new("key", t!("Key's id")), self.value("key"))}
                        {form.text(Field::new("request", t!("Request's id")), self.value("request"))}
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

/// The columns' names.
fn columns() -> [&'static str; 9] {
    [
        t!("Time"),
        t!("Ending"),
        t!("Tenant"),
        t!("Key"),
        t!("Model"),
        t!("Input"),
        t!("Output"),
        t!("Cost"),
        t!("Duration"),
    ]
}

fn row(named: &Named<LedgerEntry>, format: &Format) -> AnyView {
    let columns = columns();
    let id = named.entry.id();
    let href = format!("/ledger/{id}");
    let identity = identity_of(&named.entry);
    let (ending, input, output, cost, duration) = match &named.entry {
        LedgerEntry::Settlement(entry) => (
            outcome_badge(entry.outcome),
            Some(format::count(entry.usage.input_tokens())),
            Some(format::count(entry.usage.output_tokens)),
            Some(format.cost(entry.cost_nanos)),
            format::duration_ms(entry.total_ms),
        ),
        LedgerEntry::Rejection(entry) => {
            let times = (entry.refusal_count > 1).then(|| {
                view! { " " <small>{t!("{n} times", n = format::signed_count(entry.refusal_count))}</small> }
            });
            (
                view! { {badge(terms::refusal(entry.code), Tone::Warning)} {times} }.into_any(),
                None,
                None,
                None,
                format::duration_ms(entry.queue_ms),
            )
        }
    };
    view! {
        <tr>
            <th scope="row" class="nowrap" data-label=columns[0]>
                <a href=href>{format.bare_time(named.entry.at())}</a>
            </th>
            <td class="nowrap" data-label=columns[1]>{ending}</td>
            <td data-label=columns[2]>{named.tenant_name.clone()}</td>
            <td data-label=columns[3]>{Some(key_text(named)).filter(|key| !key.is_empty())}</td>
            <td data-label=columns[4]>{identity.model.as_ref().map(|model| model.to_string())}</td>
            <td class="number" data-label=columns[5]>{input}</td>
            <td class="number" data-label=columns[6]>{output}</td>
            <td class="number" data-label=columns[7]>{cost}</td>
            <td class="number" data-label=columns[8]>{duration}</td>
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
    badge(terms::outcome(outcome), tone)
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
        Ok(Page::new(t!("Request {id}", id), content))
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
                <h2>{t!("Attempts")}</h2>
                {table::table(
                    t!("In order; the last one is the one that counted."),
                    &[
                        words(t!("Model's name there")),
                        figures(t!("Status", in "of an HTTP answer")),
                        words(t!("Error")),
                        figures(t!("First byte")),
                    ],
                    entry.attempts.iter().map(attempt_row).collect(),
                )}
            </section>
        }
    });
    let mut details = vec![(
        t!("Status", in "of an HTTP answer"),
        entry
            .status
            .map_or(t!("none was sent").to_owned(), |status| status.to_string())
            .into_any(),
    )];
    // Tenants are not told who serves a model.
    if let Some(upstream_model) = &entry.upstream_model {
        details.push((t!("Upstream"), upstream.unwrap_or_default().into_any()));
        details.push((t!("Model at the upstream"), upstream_model.clone().into_any()));
    }
    if let Some(id) = &entry.upstream_request_id {
        details.push((t!("Provider's request id"), id.clone().into_any()));
    }
    details.extend([
        (
            t!("Waited in the queue"),
            format::duration_ms(entry.queue_ms).into_any(),
        ),
        (
            t!("First byte"),
            entry
                .first_byte_ms
                .map_or(t!("none").to_owned(), format::duration_ms)
                .into_any(),
        ),
        (t!("Duration"), format::duration_ms(entry.total_ms).into_any()),
        (t!("Settled", in "time"), format.time(entry.settled_at).into_any()),
    ]);
    let unpriced = entry.is_unpriced.then(|| {
        view! {
            <p class="notice notice-warning">{t!("The model had no price, so the fallback price was charged.")}</p>
        }
    });
    let mut costs = vec![
        (
            t!("Cost"),
            view! { <strong>{format.exact(entry.cost_nanos)}</strong> }.into_any(),
        ),
        (t!("Expected"), format.cost(entry.expected_cost_nanos).into_any()),
        (t!("Ceiling held"), format.cost(entry.ceiling_cost_nanos).into_any()),
    ];
    if entry.overrun_nanos != Nanos::ZERO {
        costs.push((t!("Above the ceiling"), format.cost(entry.overrun_nanos).into_any()));
    }
    view! {
        {shell::page_head(
            t!("A request that ran"),
            format.time(entry.admitted_at),
            view! { {outcome_badge(entry.outcome)} {correct} }.into_any(),
        )}
        {unpriced}
        {adjustments::of_request(entry, made, format)}
        <div class="columns">
            <section class="card">
                <h2>{t!("Cost")}</h2>
                {facts(costs)}
                {arithmetic(entry, price, format)}
            </section>
            <section class="card">
                <h2>{t!("Tokens")}</h2>
                {facts(vec![
                    (t!("Fresh input"), tokens(usage.input_fresh_tokens)),
                    (t!("Cache read"), tokens(usage.cache_read_tokens)),
                    (t!("Cache write, 5 min"), tokens(usage.cache_write_5m_tokens)),
                    (t!("Cache write, 1 h"), tokens(usage.cache_write_1h_tokens)),
                    (t!("Output"), tokens(usage.output_tokens)),
                    (t!("Of it reasoning"), tokens(usage.reasoning_tokens)),
                    (t!("Figures", in "source of figures"), terms::usage_source(entry.usage_source).into_any()),
                    (t!("Expected"), t!(
                        "{input} in, {output} out",
                        input = format::count(entry.expected_input_tokens),
                        output = format::count(entry.expected_output_tokens)
                    ).into_any()),
                ])}
            </section>
        </div>
        <section class="card">
            <h2>{t!("Request")}</h2>
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
            <td>{attempt.error.as_deref().map(attempt_error)}</td>
            <td class="number">{format::duration_ms(attempt.first_byte_ms)}</td>
        </tr>
    }
    .into_any()
}

/// What went wrong with an attempt, by the word in the ledger; one of a later release stays as it is written there.
fn attempt_error(word: &str) -> String {
    let known = match word {
        "bad_address" => t!("bad address"),
        "connect" => t!("connect", in "what failed"),
        "connection_broken" => t!("connection broken"),
        "first_byte_timeout" => t!("first byte timeout"),
        "stream_options" => t!("stream options"),
        "caller_gone" => t!("caller gone"),
        "gateway_stopping" => t!("gateway stopping"),
        _ => return format::words(word),
    };
    known.to_owned()
}

/// How the cost was made: tokens times rate, class by class, rounded up once.
fn arithmetic(entry: &Settlement, price: Option<&Price>, format: &Format) -> AnyView {
    let Some(price) = price else {
        return ().into_any();
    };
    let usage = &entry.usage;
    let rates = price.rates_for(usage.input_tokens());
    let classes = [
        (t!("Fresh input"), usage.input_fresh_tokens, rates.input_nanos_per_mtok),
        (
            t!("Cache read"),
            usage.cache_read_tokens,
            rates.cache_read_nanos_per_mtok,
        ),
        (
            t!("Cache write, 5 min"),
            usage.cache_write_5m_tokens,
            rates.cache_write_5m_nanos_per_mtok,
        ),
        (
            t!("Cache write, 1 h"),
            usage.cache_write_1h_tokens,
            rates.cache_write_1h_nanos_per_mtok,
        ),
        (t!("Output"), usage.output_tokens, rates.output_nanos_per_mtok),
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
    let from = t!(
        "Price in force from {from}, per million tokens; the sum is rounded up once.",
        from = format.minute(price.valid_from)
    );
    table::table(
        from,
        &[
            words(t!("Class")),
            figures(t!("Tokens")),
            figures(t!("Price")),
            figures(t!("Amount")),
        ],
        rows,
    )
}

fn rejection(named: &Named<LedgerEntry>, entry: &Rejection, format: &Format) -> AnyView {
    let retry = entry
        .retry_after_seconds
        .map_or(t!("not given").to_owned(), |seconds| t!("{seconds} s", seconds));
    let refused_by = entry
        .scope
        .as_ref()
        .map_or(t!("no limit", in "what refused a request").to_owned(), |scope| {
            scope.to_string()
        });
    let tried_before = entry
        .caller_retries
        .map_or(t!("not said").to_owned(), |retries| retries.to_string());
    let chain = if entry.chain.is_empty() {
        let why = if entry.scope.is_some() {
            t!("Only the limit that refused was recorded.")
        } else {
            t!("It was refused before any limit was checked.")
        };
        view! { <p class="quiet">{why}</p> }.into_any()
    } else {
        table::table(
            t!("Every limit that was checked, in the order of the tree."),
            &[
                words(t!("Scope")),
                words(t!("Dimension")),
                figures(t!("Limit")),
                figures(t!("Used")),
                words(t!("Verdict")),
            ],
            entry.chain.iter().map(|check| check_row(check, format)).collect(),
        )
    };
    view! {
        {shell::page_head(
            t!("A request that was refused"),
            format.time(entry.refused_at),
            badge(terms::refusal(entry.code), Tone::Warning),
        )}
        <section class="card">
            <h2>{t!("Why")}</h2>
            <p><strong lang="en">{entry.message.clone()}</strong></p>
            {facts(vec![
                (t!("Code"), view! { <code>{entry.code.as_str()}</code> }.into_any()),
                (t!("Status", in "of an HTTP answer"), entry.status.to_string().into_any()),
                (t!("Refused by"), refused_by.into_any()),
                (t!("Dimension"), entry.dimension.map_or("", terms::dimension).into_any()),
                (t!("Limit's key"), entry.limit_key.clone().unwrap_or_default().into_any()),
                (t!("Retry after"), retry.into_any()),
                (t!("Equal refusals"), format::signed_count(entry.refusal_count).into_any()),
                (t!("Before the wait was over"), early(entry).into_any()),
                (t!("Tried before"), tried_before.into_any()),
                (t!("Expected"), t!(
                    "{input} in, {output} out, {cost}",
                    input = format::count(entry.expected_input_tokens),
                    output = format::count(entry.expected_output_tokens),
                    cost = format.cost(entry.expected_cost_nanos)
                ).into_any()),
            ])}
        </section>
        <section class="card">
            <h2>{t!("Limits checked")}</h2>
            {chain}
        </section>
        <section class="card">
            <h2>{t!("Request")}</h2>
            {facts(identity_facts(named, &entry.identity, vec![
                (t!("Waited in the queue"), format::duration_ms(entry.queue_ms).into_any()),
            ]))}
        </section>
    }
    .into_any()
}

/// Whether the key came back although it had been told to wait.
fn early(entry: &Rejection) -> String {
    match (entry.early_count, entry.refusal_count) {
        (0, _) => t!("no").to_owned(),
        (_, 1) => t!("yes").to_owned(),
        (early, all) => t!(
            "{early} of {all}",
            early = format::signed_count(early),
            all = format::signed_count(all)
        ),
    }
}

fn check_row(check: &ScopeCheck, format: &Format) -> AnyView {
    let limit = match check.dimension {
        Dimension::BudgetCost => format.money(Nanos(i64::try_from(check.limit_value).unwrap_or(i64::MAX))),
        _ => format::count(check.limit_value),
    };
    let verdict = if check.has_room {
        badge(t!("room", in "verdict of a limit"), Tone::Good)
    } else {
        badge(t!("refused", in "verdict of a limit"), Tone::Bad)
    };
    view! {
        <tr>
            <th scope="row"><code>{check.scope.to_string()}</code></th>
            <td>{terms::dimension(check.dimension)}</td>
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
        .unwrap_or_else(|| t!("none").to_owned());
    let key_href = format!("/keys/{}", identity.key_id);
    let key = named.key_name.clone().unwrap_or_else(|| identity.key_id.to_string());
    let tags = identity
        .tags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut facts = vec![
        (t!("Id"), view! { <code>{identity.id.to_string()}</code> }.into_any()),
        (t!("Tenant"), tenant.into_any()),
        (t!("User"), user.into_any()),
        (t!("Key"), view! { <a href=key_href>{key}</a> }.into_any()),
        (
            t!("Model"),
            identity
                .model
                .as_ref()
                .map_or(t!("none").to_owned(), |model| model.to_string())
                .into_any(),
        ),
        (
            t!("Endpoint"),
            format!("{} ({})", identity.endpoint, identity.dialect).into_any(),
        ),
        (
            t!("Streamed"),
            if identity.is_streamed { t!("yes") } else { t!("no") }.into_any(),
        ),
        (t!("Priority"), terms::priority(identity.priority).into_any()),
    ];
    facts.extend(more);
    facts.push((t!("Gateway"), identity.instance.clone().into_any()));
    facts.push((
        t!("User agent"),
        identity.user_agent.clone().unwrap_or_default().into_any(),
    ));
    if let Some(job) = identity.job_id {
        facts.push((t!("Job"), view! { <code>{job.to_string()}</code> }.into_any()));
    }
    if !tags.is_empty() {
        facts.push((t!("Tags"), tags.into_any()));
    }
    facts
}
