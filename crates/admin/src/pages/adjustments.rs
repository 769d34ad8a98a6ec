//! Adjustments: the list, the form that corrects a request, the form that adjusts a tenant's account. Both forms have two
//! steps: figures first, as an address; then what they come to, and why.

use axum::Extension;
use axum::response::Response;
use control::adjustments::{
    AdjustmentPreview, AdjustmentText, Booking, Correctable, CorrectionText, TouchedMonth, adjusted,
};
use control::rows::{AdjustmentCursor, Named};
use control::usage_csv::UsageCsv;
use control::{ControlError, FieldError};
use domain::adjustments::{Corrected, Figures};
use domain::ids::{RequestId, TenantId};
use domain::key_text::masked;
use domain::ledger::{Adjustment, Settlement};
use domain::money::Nanos;
use domain::periods::Month;
use domain::prices::Price;
use domain::reports::MonthState;
use domain::text;
use domain::text::Text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::{self, PageError};
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::language;
use crate::page::{self, Page, id_of_path};
use crate::pages::reports;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, sentence, submit};
use crate::table::{self, facts, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

/// Where the list is.
pub const PATH: &str = "/ledger/adjustments";
/// Where the list is a file.
pub const CSV_PATH: &str = "/ledger/adjustments.csv";
/// Where an adjustment of an account begins.
const NEW_PATH: &str = "/ledger/adjustments/new";
/// Adjustments on one page.
const ADJUSTMENTS_PER_PAGE: u32 = 50;

/// The list with its filters.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let wanted = Wanted::of(&visit);
        let (tenant, month, problems) = wanted.read();
        let control = &visit.state.control;
        let found = if problems.is_empty() {
            let found = control.adjustments(&visitor.actor, tenant, month, wanted.after, ADJUSTMENTS_PER_PAGE);
            Some(found.await?)
        } else {
            None
        };
        let (adjustments, next) = found.map_or((Vec::new(), None), |page| (page.adjustments, page.next));
        let listed = if adjustments.is_empty() {
            table::empty(t!("No adjustment matches."), ().into_any())
        } else {
            let rows = adjustments.iter().map(|named| row(named, &visit.format)).collect();
            table::table(
                t!("The latest made first, in {zone} time.", zone = visit.format.zone()),
                &[
                    words(t!("Made")),
                    words(t!("Counts at")),
                    words(t!("Tenant")),
                    words(t!("Of", in "whom and what it concerns")),
                    figures(t!("Input")),
                    figures(t!("Output")),
                    figures(t!("Amount")),
                    words(t!("Reason")),
                    words(t!("By", in "who did it")),
                    words(t!("Request")),
                ],
                rows,
            )
        };
        let older = next.map(|cursor| {
            let href = wanted.address(Some(cursor));
            view! { <a class="button" href=href rel="next">{t!("Older adjustments")}</a> }
        });
        let newest = wanted.after.is_some().then(|| {
            let href = wanted.address(None);
            view! { <a class="button" href=href>{t!("Back to the newest")}</a> }
        });
        let new = visitor
            .is_operator()
            .then(|| view! { <a class="button button-primary" href=NEW_PATH>{t!("Adjust an account")}</a> });
        let csv = address(CSV_PATH, &[("tenant", &wanted.tenant), ("month", &wanted.month)]);
        let actions = view! {
            <a class="button" href=csv download="">{t!("Download CSV")}</a>
            <a class="button" href="/ledger">{if visitor.is_member() { t!("My requests") } else { t!("Ledger") }}</a>
            {new}
        };
        let content = view! {
            {shell::page_head(t!("Adjustments"), lead(), actions.into_any())}
            {wanted.form(&visit, visitor, &problems).await?}
            {listed}
            <nav class="pager" aria-label=t!("Pages")>
                {newest} {older}
            </nav>
        };
        Ok(Page::new(t!("Adjustments"), content.into_any()))
    })
}

/// The list as a file.
pub async fn csv(Extension(visit): Extension<Visit>) -> Response {
    match file(&visit).await {
        Ok(csv) => reports::download(csv),
        Err(error) => error::document(&error),
    }
}

async fn file(visit: &Visit) -> Result<UsageCsv, PageError> {
    let visitor = visit.visitor()?;
    let (tenant, month, problems) = Wanted::of(visit).read();
    if !problems.is_empty() {
        return Err(PageError::Malformed);
    }
    let csv = visit.state.control.adjustments_csv(&visitor.actor, tenant, month);
    Ok(csv.await?)
}

/// What an adjustment is, in a sentence.
fn lead() -> &'static str {
    t!(
        "What was entered is never changed. An adjustment beside it puts it right, and counts in budgets, reports and \
         files at the time of what it corrects."
    )
}

/// What the list's address asks for, as text.
struct Wanted {
    tenant: String,
    month: String,
    after: Option<AdjustmentCursor>,
}

impl Wanted {
    fn of(visit: &Visit) -> Self {
        Self {
            tenant: visit.query("tenant").unwrap_or_default(),
            month: visit.query("month").unwrap_or_default(),
            after: visit.query("after").and_then(|text| cursor(&text)),
        }
    }

    fn read(&self) -> (Option<TenantId>, Option<Month>, Vec<FieldError>) {
        let mut fields = control::fields::Fields::default();
        let tenant = match self.tenant.trim() {
            "" => None,
            text => {
                let tenant = text.parse().ok();
                fields.require(tenant.is_some(), "tenant", text!("choose a tenant from the list"));
                tenant
            }
        };
        let month = fields.word("month", &self.month);
        let problems = match fields.check() {
            Err(ControlError::Invalid(problems)) => problems,
            _ => Vec::new(),
        };
        (tenant, month, problems)
    }

    fn address(&self, after: Option<AdjustmentCursor>) -> String {
        let after = after
            .map(|cursor| format!("{}_{}", cursor.created_at.timestamp_micros(), cursor.id))
            .unwrap_or_default();
        address(
            PATH,
            &[("tenant", &self.tenant), ("month", &self.month), ("after", &after)],
        )
    }

    async fn form(&self, visit: &Visit, visitor: &Visitor, problems: &[FieldError]) -> Result<AnyView, PageError> {
        let form = Filled::refused((), problems);
        let tenants = if visitor.sees_everything() {
            let choices = tenants(visit, visitor, t!("All")).await?;
            form.select(Field::new("tenant", t!("Tenant")), &self.tenant, choices)
        } else {
            ().into_any()
        };
        Ok(view! {
            <form class="card" method="get" action=PATH>
                <div class="filters">
                    {form.text(Field::new("month", t!("Counts in month")).month(), &self.month)}
                    {tenants}
                    <div class="actions">
                        <button class="button" type="submit">{t!("Show")}</button>
                        <a class="button" href=PATH>{t!("Clear")}</a>
                    </div>
                </div>
            </form>
        }
        .into_any())
    }
}

fn cursor(text: &str) -> Option<AdjustmentCursor> {
    let (at, id) = text.split_once('_')?;
    Some(AdjustmentCursor {
        created_at: chrono::DateTime::from_timestamp_micros(at.parse().ok()?)?,
        id: id.parse().ok()?,
    })
}

/// The choices of tenants, the first of them for none.
async fn tenants(visit: &Visit, visitor: &Visitor, none: &str) -> Result<Vec<(String, String)>, PageError> {
    let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
    let named = tenants
        .into_iter()
        .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name));
    Ok(std::iter::once((String::new(), none.to_owned())).chain(named).collect())
}

fn row(named: &Named<Adjustment>, format: &Format) -> AnyView {
    let adjustment = &named.entry;
    let key = match (&named.key_name, &named.key_public_id) {
        (Some(name), _) => Some(name.clone()),
        (None, public_id) => public_id.as_deref().map(masked),
    };
    let user = named.user_name.clone().or_else(|| adjustment.user_id.clone());
    let model = adjustment.model.as_ref().map(|model| model.to_string());
    let of = [user, key, model].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let request = adjustment.request_id.map(|id| {
        let href = format!("/ledger/{id}");
        view! { <a href=href>{t!("See request")}</a> }
    });
    view! {
        <tr>
            <th scope="row" class="nowrap">{format.bare_time(adjustment.created_at)}</th>
            <td class="nowrap">{format.bare_time(adjustment.admitted_at)}</td>
            <td>{named.tenant_name.clone().unwrap_or_else(|| adjustment.tenant_id.to_string())}</td>
            <td>{of}</td>
            {figure_cells(Figures::of_adjustment(adjustment), format)}
            <td>{why(adjustment)}</td>
            <td>{adjustment.author.clone()}</td>
            <td class="nowrap">{request}</td>
        </tr>
    }
    .into_any()
}

fn figure_cells(figures: Figures, format: &Format) -> AnyView {
    view! {
        <td class="number">{signed(figures.input_tokens)}</td>
        <td class="number">{signed(figures.output_tokens)}</td>
        <td class="number">{signed_money(figures.cost_nanos, format)}</td>
    }
    .into_any()
}

fn why(adjustment: &Adjustment) -> AnyView {
    let reference = adjustment
        .reference
        .clone()
        .map(|reference| view! { " " <small>{format!("({reference})")}</small> });
    view! { {adjustment.reason.clone()} {reference} }.into_any()
}

/// A difference of tokens with its sign.
fn signed(tokens: i64) -> String {
    let plus = if tokens > 0 { "+" } else { "" };
    format!("{plus}{}", format::signed_count(tokens))
}

/// A difference of money with its sign, to the last digit.
fn signed_money(amount: Nanos, format: &Format) -> String {
    let text = format.exact(amount);
    if amount > Nanos::ZERO { format!("+{text}") } else { text }
}

/// The adjustments of a request on its page, and what it amounts to with them; nothing where there are none.
pub fn of_request(settlement: &Settlement, adjustments: &[Adjustment], format: &Format) -> AnyView {
    if adjustments.is_empty() {
        return ().into_any();
    }
    let rows = adjustments
        .iter()
        .map(|adjustment| {
            view! {
                <tr>
                    <th scope="row" class="nowrap">{format.bare_time(adjustment.created_at)}</th>
                    {figure_cells(Figures::of_adjustment(adjustment), format)}
                    <td>{why(adjustment)}</td>
                    <td>{adjustment.author.clone()}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let now = Figures::of_settlement(settlement) + adjusted(adjustments);
    view! {
        <section class="card">
            <h2>{t!("Adjustments")}</h2>
            {facts(vec![
                (t!("Corrected cost"), view! { <strong>{format.exact(now.cost_nanos)}</strong> }.into_any()),
                (t!("Corrected input"), format::signed_count(now.input_tokens).into_any()),
                (t!("Corrected output"), format::signed_count(now.output_tokens).into_any()),
            ])}
            {table::table(
                t!("In the order in which they were made, in {zone} time.", zone = format.zone()),
                &[
                    words(t!("Made")),
                    figures(t!("Input")),
                    figures(t!("Output")),
                    figures(t!("Amount")),
                    words(t!("Reason")),
                    words(t!("By", in "who did it")),
                ],
                rows,
            )}
        </section>
    }
    .into_any()
}

/// The link to the form that corrects a request, for those who may.
pub fn correct_link(visitor: &Visitor, id: RequestId) -> AnyView {
    visitor
        .is_operator()
        .then(|| view! { <a class="button" href=correct_path(&id.to_string())>{t!("Correct this request")}</a> })
        .into_any()
}

fn correct_path(id: &str) -> String {
    format!("/ledger/{id}/correct")
}

/// The form that corrects a request.
pub fn correct() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: RequestId = id_of_path(&visit, "/ledger/")?;
        let control = &visit.state.control;
        let correctable = control.correctable(&visitor.actor, id).await?;
        let text = correction_of(&visit);
        let drafted = if text.is_blank() { None } else { Some(text.draft()) };
        let previewed = match drafted {
            None => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(draft)) => Some(
                control
                    .preview_correction(&visitor.actor, &correctable, &draft, visit.now())
                    .await,
            ),
        };
        let (preview, problems) = shown(previewed)?;
        let confirm = preview.map(|(corrected, month)| {
            let form = Filled::new(visit.draft.clone(), CorrectRequest::PATH, || CorrectForm {
                request: id.to_string(),
                version: correctable.version().to_string(),
                why: WhyForm::fresh(&visit),
                text: text.clone(),
            });
            confirm_correction(&form, &correctable, &corrected, month, &visit.format)
        });
        let content = view! {
            {shell::page_head(
                t!("Correct a request"),
                t!("The entry stays as it is. An adjustment is booked beside it, at the time of the request."),
                ().into_any(),
            )}
            {as_it_is(&correctable, &visit.format)}
            {correction_form(id, &text, &problems, &correctable, &visit.format)}
            {confirm}
        };
        Ok(Page::new(t!("Correct a request"), content.into_any()))
    })
}

/// What can be shown, and what is wrong with the first step; what is neither is an error's page.
fn shown<T>(previewed: Option<Result<T, ControlError>>) -> Result<(Option<T>, Vec<FieldError>), PageError> {
    match previewed {
        None => Ok((None, Vec::new())),
        Some(Ok(preview)) => Ok((Some(preview), Vec::new())),
        Some(Err(ControlError::Invalid(problems))) => {
            let said = problems
                .into_iter()
                .map(|problem| FieldError::new(problem.field, Text::word(sentence(&language::text(&problem.message)))));
            Ok((None, said.collect()))
        }
        Some(Err(error)) => Err(error.into()),
    }
}

fn correction_of(visit: &Visit) -> CorrectionText {
    let value = |name: &str| visit.query(name).unwrap_or_default();
    CorrectionText {
        input_fresh: value("input_fresh"),
        cache_read: value("cache_read"),
        cache_write_5m: value("cache_write_5m"),
        cache_write_1h: value("cache_write_1h"),
        output: value("output"),
        price: value("price"),
        cost: value("cost"),
        input_by: value("input_by"),
        output_by: value("output_by"),
        cost_by: value("cost_by"),
    }
}

fn correction_fields(text: &CorrectionText) -> [(&'static str, &str); 10] {
    [
        ("input_fresh", &text.input_fresh),
        ("cache_read", &text.cache_read),
        ("cache_write_5m", &text.cache_write_5m),
        ("cache_write_1h", &text.cache_write_1h),
        ("output", &text.output),
        ("price", &text.price),
        ("cost", &text.cost),
        ("input_by", &text.input_by),
        ("output_by", &text.output_by),
        ("cost_by", &text.cost_by),
    ]
}

fn as_it_is(correctable: &Correctable, format: &Format) -> AnyView {
    let named = &correctable.request;
    let request = &named.entry;
    let href = format!("/ledger/{}", request.identity.id);
    let now = correctable.now();
    let mut rows = vec![
        (
            t!("Request"),
            view! { <a href=href>{request.identity.id.to_string()}</a> }.into_any(),
        ),
        (
            t!("Tenant"),
            named
                .tenant_name
                .clone()
                .unwrap_or_else(|| request.identity.tenant_id.to_string())
                .into_any(),
        ),
        (t!("Admitted"), format.time(request.admitted_at).into_any()),
        (t!("Ending"), terms::outcome(request.outcome).into_any()),
        (t!("Settled at"), format.exact(request.cost_nanos).into_any()),
    ];
    if !correctable.adjustments.is_empty() {
        let count = correctable.adjustments.len() as u64;
        let cost = format.exact(now.cost_nanos);
        rows.push((
            t!("With what was adjusted"),
            tn!(count, "{cost} ({n} adjustment)", "{cost} ({n} adjustments)", cost).into_any(),
        ));
    }
    view! { <section class="card">{facts(rows)}</section> }.into_any()
}

fn correction_form(
    id: RequestId,
    text: &CorrectionText,
    problems: &[FieldError],
    correctable: &Correctable,
    format: &Format,
) -> AnyView {
    let form = Filled::refused((), problems);
    let usage = &correctable.request.entry.usage;
    let tokens = |name, label: &str, settled: u64| {
        Field::new(name, label)
            .whole()
            .hint(t!("Settled: {count}", count = format::count(settled)))
    };
    let currency = format.currency();
    view! {
        {form.summary()}
        <form class="form form-wide" method="get" action=correct_path(&id.to_string())>
            <fieldset>
                <legend>{t!("What is right")}</legend>
                <p class="quiet">
                    {t!(
                        "Write what you know. Tokens that you leave empty are right as they were settled. The cost \
                         follows from tokens and price unless you write it. For a request that never ran, write 0 for \
                         all input, output and cost."
                    )}
                </p>
                <div class="field-row">
                    {form.text(tokens("input_fresh", t!("Fresh input"), usage.input_fresh_tokens), &text.input_fresh)}
                    {form.text(tokens("output", t!("Output"), usage.output_tokens), &text.output)}
                    {form.text(
                        Field::new("cost", t!("Cost ({currency})", currency))
                            .amount()
                            .hint(t!("Empty: tokens at the price below.")),
                        &text.cost,
                    )}
                </div>
                <div class="field-row">
                    {form.text(tokens("cache_read", t!("Cache read"), usage.cache_read_tokens), &text.cache_read)}
                    {form.text(
                        tokens("cache_write_5m", t!("Cache write, 5 minutes"), usage.cache_write_5m_tokens),
                        &text.cache_write_5m,
                    )}
                    {form.text(
                        tokens("cache_write_1h", t!("Cache write, 1 hour"), usage.cache_write_1h_tokens),
                        &text.cache_write_1h,
                    )}
                </div>
                {form.select(
                    Field::new("price", t!("Price")).hint(t!("Per million tokens: input and output.")),
                    &text.price,
                    prices(correctable, format),
                )}
            </fieldset>
            <fieldset>
                <legend>{t!("Or the difference")}</legend>
                <p class="quiet">{t!("Below zero gives back: -0.25.")}</p>
                <div class="field-row">
                    {form.text(Field::new("input_by", t!("Input tokens")), &text.input_by)}
                    {form.text(Field::new("output_by", t!("Output tokens")), &text.output_by)}
                    {form.text(Field::new("cost_by", t!("Amount ({currency})", currency)), &text.cost_by)}
                </div>
            </fieldset>
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Show what changes")}</button>
                <a class="button" href=format!("/ledger/{id}")>{t!("Cancel")}</a>
            </div>
        </form>
    }
    .into_any()
}

fn prices(correctable: &Correctable, format: &Format) -> Vec<(String, String)> {
    let rates = |price: &Price| {
        let (input, output) = (
            format.bare_rate(price.rates.input_nanos_per_mtok),
            format.bare_rate(price.rates.output_nanos_per_mtok),
        );
        t!(
            "{input} and {output}, from {since}",
            input,
            output,
            since = format.minute(price.valid_from)
        )
    };
    let charged = match &correctable.charged {
        Some(price) => t!("As charged: {rates}", rates = rates(price)),
        None => t!("As charged: without a price").to_owned(),
    };
    let others = correctable
        .others
        .iter()
        .map(|price| (price.id.to_string(), rates(price)));
    std::iter::once((String::new(), charged)).chain(others).collect()
}

fn confirm_correction(
    form: &Filled<CorrectForm>,
    correctable: &Correctable,
    corrected: &Corrected,
    month: TouchedMonth,
    format: &Format,
) -> AnyView {
    let settled = Figures::of_settlement(&correctable.request.entry);
    let adjusted = corrected.before - settled;
    let count_row = |what: &'static str, of: fn(&Figures) -> i64| {
        view! {
            <tr>
                <th scope="row">{what}</th>
                <td class="number">{format::signed_count(of(&settled))}</td>
                <td class="number">{signed(of(&adjusted))}</td>
                <td class="number">{signed(of(&corrected.difference))}</td>
                <td class="number">{format::signed_count(of(&corrected.after))}</td>
            </tr>
        }
        .into_any()
    };
    let cost_row = view! {
        <tr>
            <th scope="row">{t!("Cost")}</th>
            <td class="number">{format.exact(settled.cost_nanos)}</td>
            <td class="number">{signed_money(adjusted.cost_nanos, format)}</td>
            <td class="number"><strong>{signed_money(corrected.difference.cost_nanos, format)}</strong></td>
            <td class="number">{format.exact(corrected.after.cost_nanos)}</td>
        </tr>
    };
    let rows = vec![
        count_row(t!("Input tokens"), |figures| figures.input_tokens),
        count_row(t!("Output tokens"), |figures| figures.output_tokens),
        cost_row.into_any(),
    ];
    let version = form.values.version.clone();
    let stored = correctable.version().to_string();
    let version = form.version(&version, &stored).to_owned();
    let hidden = correction_fields(&form.values.text)
        .into_iter()
        .map(|(name, value)| view! { <input type="hidden" name=name value=value.to_owned() /> })
        .collect_view();
    view! {
        <section class="card" id="confirm">
            <h2>{t!("What changes")}</h2>
            {table::table(
                t!("Nothing is booked yet."),
                &[
                    words(t!("Figure")),
                    figures(t!("Settled", in "figures")),
                    figures(t!("Adjusted before")),
                    figures(t!("This adjustment")),
                    figures(t!("Afterwards")),
                ],
                rows,
            )}
            {month_notice(month)}
            {form.summary()}
            <form class="form" method="post" action=CorrectRequest::PATH>
                <input type="hidden" name="request" value=form.values.request.clone() />
                <input type="hidden" name="version" value=version />
                {hidden}
                {why_fields(form, &form.values.why)}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Book this adjustment")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// Which report changes.
fn month_notice(touched: TouchedMonth) -> AnyView {
    let month = format::month_name(touched.month);
    match touched.state {
        MonthState::Open => {
            view! { <p>{t!("It counts in {month}, in budgets and in the report.", month)}</p> }.into_any()
        }
        MonthState::Closing => view! {
            <p class="notice notice-warning">{t!("It counts in {month}, which is over: its report changes.", month)}</p>
        }
        .into_any(),
        MonthState::Final => view! {
            <p class="notice notice-warning">
                {t!(
                    "It counts in {month}, whose report is final: the report changes, and no longer agrees with copies \
                     and invoices that were made of it.",
                    month
                )}
            </p>
        }
        .into_any(),
    }
}

/// The form that adjusts an account.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() {
            return Err(PageError::Forbidden);
        }
        let control = &visit.state.control;
        let zone = visit.format.zone();
        let mut text = adjustment_of(&visit);
        let is_asked = visit.query("month").is_some() || visit.query("at").is_some();
        let previewed = if is_asked {
            Some(match text.draft(zone) {
                Ok(draft) => control.preview_adjustment(&visitor.actor, &draft, visit.now()).await,
                Err(error) => Err(error),
            })
        } else {
            text.month = Month::containing(visit.now(), zone).to_string();
            None
        };
        let (preview, problems) = shown(previewed)?;
        let confirm = preview.map(|preview| {
            let form = Filled::new(visit.draft.clone(), BookAdjustment::PATH, || AdjustForm {
                why: WhyForm::fresh(&visit),
                text: text.clone(),
            });
            confirm_adjustment(&form, &preview, &visit.format)
        });
        let content = view! {
            {shell::page_head(
                t!("Adjust an account"),
                t!(
                    "A credit, a correction by a provider's invoice, anything that no single request is about. To \
                     correct a request, begin at its page in the ledger."
                ),
                ().into_any(),
            )}
            {adjustment_form(&visit, visitor, &text, &problems).await?}
            {confirm}
        };
        Ok(Page::new(t!("Adjust an account"), content.into_any()))
    })
}

fn adjustment_of(visit: &Visit) -> AdjustmentText {
    let value = |name: &str| visit.query(name).unwrap_or_default();
    AdjustmentText {
        tenant: value("tenant"),
        user: value("user"),
        key: value("key"),
        model: value("model"),
        month: value("month"),
        at: value("at"),
        input_tokens: value("input_tokens"),
        output_tokens: value("output_tokens"),
        cost: value("cost"),
    }
}

fn adjustment_fields(text: &AdjustmentText) -> [(&'static str, &str); 9] {
    [
        ("tenant", &text.tenant),
        ("user", &text.user),
        ("key", &text.key),
        ("model", &text.model),
        ("month", &text.month),
        ("at", &text.at),
        ("input_tokens", &text.input_tokens),
        ("output_tokens", &text.output_tokens),
        ("cost", &text.cost),
    ]
}

async fn adjustment_form(
    visit: &Visit,
    visitor: &Visitor,
    text: &AdjustmentText,
    problems: &[FieldError],
) -> Result<AnyView, PageError> {
    let form = Filled::refused((), problems);
    let (currency, zone) = (visit.format.currency(), visit.format.zone());
    let tenants = tenants(visit, visitor, t!("Choose", in "from a list")).await?;
    let models = visit.state.control.models(&visitor.actor, visit.now()).await?;
    let models = std::iter::once((String::new(), t!("None in particular").to_owned()))
        .chain(models.into_iter().map(|row| (row.model.name.clone(), row.model.name)))
        .collect();
    Ok(view! {
        {form.summary()}
        <form class="form form-wide" method="get" action=NEW_PATH>
            <fieldset>
                <legend>{t!("Whose")}</legend>
                <div class="field-row">
                    {form.select(Field::new("tenant", t!("Tenant")), &text.tenant, tenants)}
                    {form.select(Field::new("model", t!("Model")), &text.model, models)}
                </div>
                <div class="field-row">
                    {form.text(
                        Field::new("key", t!("Key's id")).hint(t!("Empty: no key's budget and use is concerned.")),
                        &text.key,
                    )}
                    {form.text(
                        Field::new("user", t!("User"))
                            .hint(t!("A person's e-mail address, or an end user's name. Empty: no user's.")),
                        &text.user,
                    )}
                </div>
            </fieldset>
            <fieldset>
                <legend>{t!("When it counts")}</legend>
                <div class="field-row">
                    {form.text(
                        Field::new("month", t!("Month"))
                            .month()
                            .hint(t!("This month: it counts now. Another month: at its beginning.")),
                        &text.month,
                    )}
                    {form.text(Field::new("at", t!("Or an instant ({zone})", zone)).instant(), &text.at)}
                </div>
            </fieldset>
            <fieldset>
                <legend>{t!("How much")}</legend>
                <p class="quiet">{t!("Below zero gives back: -25.")}</p>
                <div class="field-row">
                    {form.text(Field::new("cost", t!("Amount ({currency})", currency)), &text.cost)}
                    {form.text(Field::new("input_tokens", t!("Input tokens")), &text.input_tokens)}
                    {form.text(Field::new("output_tokens", t!("Output tokens")), &text.output_tokens)}
                </div>
            </fieldset>
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Show what changes")}</button>
                <a class="button" href=PATH>{t!("Cancel")}</a>
            </div>
        </form>
    }
    .into_any())
}

fn confirm_adjustment(form: &Filled<AdjustForm>, preview: &AdjustmentPreview, format: &Format) -> AnyView {
    let user = match &preview.user {
        None => t!("none").to_owned(),
        Some((id, None)) => t!("{id} (end user)", id),
        Some((_, Some(name))) => name.clone(),
    };
    let hidden = adjustment_fields(&form.values.text)
        .into_iter()
        .map(|(name, value)| view! { <input type="hidden" name=name value=value.to_owned() /> })
        .collect_view();
    view! {
        <section class="card" id="confirm">
            <h2>{t!("What changes")}</h2>
            {facts(vec![
                (t!("Tenant"), preview.tenant_name.clone().into_any()),
                (t!("User"), user.into_any()),
                (t!("Key"), preview.key_name.clone().unwrap_or_else(|| t!("none").to_owned()).into_any()),
                (t!("Model"), preview.model.clone().unwrap_or_else(|| t!("none").to_owned()).into_any()),
                (t!("Counts at"), format.time(preview.admitted_at).into_any()),
                (
                    t!("Amount"),
                    view! { <strong>{signed_money(preview.figures.cost_nanos, format)}</strong> }.into_any(),
                ),
                (t!("Input tokens"), signed(preview.figures.input_tokens).into_any()),
                (t!("Output tokens"), signed(preview.figures.output_tokens).into_any()),
            ])}
            {month_notice(preview.month)}
            {form.summary()}
            <form class="form" method="post" action=BookAdjustment::PATH>
                {hidden} {why_fields(form, &form.values.why)}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Book this adjustment")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

fn why_fields<F>(form: &Filled<F>, why: &WhyForm) -> AnyView {
    view! {
        <input type="hidden" name="id" value=why.id.clone() />
        {form.text(
            Field::new("reason", t!("Reason")).required().hint(t!("The tenant sees it.")),
            &why.reason,
        )}
        {form.text(
            Field::new("reference", t!("Reference")).hint(t!("A ticket, credit note or invoice, if there is one.")),
            &why.reference,
        )}
    }
    .into_any()
}

/// Why an adjustment is made, as the second step sends it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyForm {
    id: String,
    reason: String,
    reference: String,
}

impl WhyForm {
    fn fresh(visit: &Visit) -> Self {
        Self {
            id: visit.state.control.new_adjustment_id(visit.now()).to_string(),
            ..Self::default()
        }
    }

    fn booking(&self) -> Result<Booking, Refused> {
        Ok(Booking {
            id: parsed_id(&self.id)?,
            reason: self.reason.clone(),
            reference: self.reference.clone(),
        })
    }
}

/// What the second step of a correction sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrectForm {
    request: String,
    version: String,
    #[serde(flatten)]
    why: WhyForm,
    #[serde(flatten)]
    text: CorrectionText,
}

/// What the second step of an account's adjustment sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AdjustForm {
    #[serde(flatten)]
    why: WhyForm,
    #[serde(flatten)]
    text: AdjustmentText,
}

/// What an operator is told who corrects what somebody else has just corrected.
fn adjusted_meanwhile() -> &'static str {
    t!(
        "Somebody else has adjusted this request meanwhile, and nothing was booked. Open the request again: its page \
         has their adjustment, and a correction from there is made beside it."
    )
}

/// Corrects a request.
#[server(prefix = "/console", endpoint = "ledger/correct")]
pub async fn correct_request(#[server(flatten)] form: CorrectForm) -> Result<(), ServerFnError> {
    let back = address(&correct_path(&form.request), &correction_fields(&form.text));
    submit(
        CorrectRequest::PATH,
        &back,
        form,
        |visit: Visit, form: CorrectForm| async move {
            let id: RequestId = parsed_id(&form.request)?;
            let version = parsed_id(&form.version)?;
            let draft = on_the_form(form.text.draft())?;
            let booking = form.why.booking()?;
            let control = &visit.state.control;
            let booked = control.correct_request(visit.actor()?, id, version, &draft, &booking, visit.now());
            match on_the_form(booked.await) {
                Ok(_) => {}
                // To book it all the same would be a second correction, and not a change of the first.
                Err(ControlError::Conflict { .. }) => return Err(Refused::Form(adjusted_meanwhile().to_owned())),
                Err(error) => return Err(error.into()),
            }
            Ok::<_, Refused>(Done::say(format!("/ledger/{id}"), t!("The adjustment was booked.")))
        },
    )
    .await
}

/// Adjusts an account.
#[server(prefix = "/console", endpoint = "ledger/adjust")]
pub async fn book_adjustment(#[server(flatten)] form: AdjustForm) -> Result<(), ServerFnError> {
    let back = address(NEW_PATH, &adjustment_fields(&form.text));
    submit(
        BookAdjustment::PATH,
        &back,
        form,
        |visit: Visit, form: AdjustForm| async move {
            let draft = on_the_form(form.text.draft(visit.format.zone()))?;
            let booking = form.why.booking()?;
            let control = &visit.state.control;
            let booked = control.book_adjustment(visit.actor()?, &draft, &booking, visit.now());
            on_the_form(booked.await)?;
            Ok::<_, Refused>(Done::say(PATH, t!("The adjustment was booked.")))
        },
    )
    .await
}

/// What is wrong with figures is said by the first step, which the second does not show fields of.
fn on_the_form<T>(outcome: Result<T, ControlError>) -> Result<T, ControlError> {
    outcome.map_err(|error| match error {
        ControlError::Invalid(problems) => ControlError::Invalid(
            problems
                .into_iter()
                .map(|problem| match problem.field.as_ref() {
                    "reason" | "reference" => problem,
                    _ => FieldError::new("", problem.message),
                })
                .collect(),
        ),
        error => error,
    })
}
