//! One limit in full: chosen by its dimension, made, and changed.

use control::FieldError;
use control::fields::Fields;
use control::limits::{LimitDraft, LimitText, NodeLimitsView, is_plain};
use domain::budget_events::{THRESHOLDS_MAX, Thresholds};
use domain::ids::LimitId;
use domain::limits::{DEFAULT_BURST_SECONDS, DEFAULT_WINDOW_SECONDS, Dimension, Limit, Mode, Scope, Target};
use domain::periods::Period;
use domain::priority::Priority;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use super::confirm::{self, Confirm, Step};
use super::words::{dimension_name, dimension_within, per, slot_name};
use super::{
    address_of, address_of_new, increase, is_shared, parsed_target, place_of, proposals, spent_of, subject, target_of,
};
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::page::{self, Page};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::{self, facts, words as texts};
use crate::terms;
use crate::visit::Visit;

/// The form of one limit: of the limit with the id `limit`, or of a new one with this `dimension`; without either, the
/// choice of dimensions. `value`, `capacity` and `gates` are proposals.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() {
            return Err(PageError::Forbidden);
        }
        let target = target_of(&visit)?;
        let view = visit.state.control.limits_of(&visitor.actor, &target).await?;
        let subject = subject(&visit, visitor, &target).await?;
        let wanted = wanted(&visit, &target, &view)?;
        let (title, content) = match &wanted {
            None => (t!("Add a limit").to_owned(), choices(&target)),
            Some(wanted) => {
                if let Some(page) = preview(&visit, &target, &view, &subject.name, wanted).await? {
                    return Ok(page);
                }
                if let Some(limit) = &wanted.stored
                    && let Some(page) = increase::preview(&visit, &target, &view, &subject.name, limit).await?
                {
                    return Ok(page);
                }
                (wanted.title(), form(&visit, &target, &view, wanted).await?)
            }
        };
        let stored = wanted.as_ref().and_then(|wanted| wanted.stored.as_ref());
        let content = view! {
            {shell::page_head(title.clone(), t!("A limit of {name}.", name = subject.name), ().into_any())}
            <section class="card">{content}</section>
            {stored.map(|limit| increase::card(&visit, &target, view.version, limit))}
        };
        Ok(Page::new(title, content.into_any()))
    })
}

/// The form that adds a limit again which was removed, with everything that it had but an increase.
pub(super) fn address_again(target: &Target, limit: &Limit) -> String {
    let text = LimitText::from(limit);
    address_of_new(
        target,
        &[
            (AGAIN, "yes"),
            ("dimension", &text.dimension),
            ("value", &text.value),
            ("window_seconds", &text.window_seconds),
            ("burst", &text.burst),
            ("period", &text.period),
            ("model", &text.model),
            ("priority", &text.priority),
            ("mode", &text.mode),
            ("gate_lower_percent", &text.gate_lower_percent),
            ("gate_upper_percent", &text.gate_upper_percent),
            ("gate_upper", &text.gate_upper),
            ("thresholds", &text.thresholds),
        ],
    )
}

/// Says, in the form's address, that all of its fields are there.
const AGAIN: &str = "again";

/// What the form would change, once it was sent.
async fn preview(
    visit: &Visit,
    target: &Target,
    view: &NodeLimitsView,
    name: &str,
    wanted: &Wanted,
) -> Result<Option<Page>, PageError> {
    let action = wanted.action();
    let form = Filled::new(visit.draft.clone(), action, LimitForm::default);
    if !form.is_preview() {
        return Ok(None);
    }
    // Nothing was wrong with it when it was sent.
    let mut draft = form.values.draft().map_err(|_| PageError::Malformed)?;
    if let Some(stored) = &wanted.stored {
        draft = draft.in_slot_of(stored);
    }
    // Not what refuses a slot that is taken: whoever took it meanwhile is told of when this is confirmed.
    let control = &visit.state.control;
    let preview = control
        .preview_limit(visit.actor()?, target, view.version, &draft, visit.now())
        .await?;
    let confirm = Confirm {
        target,
        name,
        preview: &preview,
        others: Vec::new(),
        spent: spent_of(visit, target).await?,
        at: visit.now(),
    };
    let title = wanted.title();
    let content = view! {
        {shell::page_head(title.clone(), t!("A limit of {name}.", name), ().into_any())}
        {confirm::card(&form, action, &confirm, &visit.format)}
    };
    Ok(Some(Page::new(title, content.into_any())))
}

/// Which limit the form is about, and what is proposed for it.
struct Wanted {
    dimension: Dimension,
    stored: Option<Limit>,
    value: Option<String>,
    /// The capacity that the value was made from.
    capacity: Option<u64>,
    errors: Vec<FieldError>,
    has_proposed_gates: bool,
    /// A limit that was removed and is to be added again.
    again: Option<LimitText>,
}

fn wanted(visit: &Visit, target: &Target, view: &NodeLimitsView) -> Result<Option<Wanted>, PageError> {
    let mut fields = Fields::default();
    let stated = visit.query("capacity");
    let capacity = stated.as_ref().and_then(|text| fields.count("value", text));
    let from_capacity = capacity.and_then(|capacity| proposals::of_capacity(target, capacity));
    let value = from_capacity.map(|value| value.to_string()).or(visit.query("value"));
    let again = visit.query(AGAIN).map(|_| text_again(visit));
    let is_proposal = value.is_some() || stated.is_some();
    let (dimension, stored) = match (visit.query("limit"), visit.query("dimension")) {
        (Some(id), _) => {
            let id: LimitId = id.parse().map_err(|_| PageError::NotFound)?;
            let limit = view
                .limits
                .iter()
                .find(|limit| limit.id == id)
                .ok_or(PageError::NotFound)?;
            (limit.dimension, Some(limit.clone()))
        }
        (None, Some(word)) => {
            let dimension: Dimension = word.parse().map_err(|_| PageError::NotFound)?;
            // A proposal for what exists already is one to change it.
            let stored = view
                .limits
                .iter()
                .find(|limit| is_proposal && again.is_none() && is_plain(limit, dimension));
            (dimension, stored.cloned())
        }
        (None, None) => return Ok(None),
    };
    let has_proposed_gates = match &stored {
        _ if again.is_some() => false,
        None => is_shared(target) && proposals::has_gates(dimension),
        Some(limit) => limit.gates.is_none() && visit.query("gates").as_deref() == Some(proposals::PROPOSED),
    };
    let errors = fields
        .check()
        .map_or_else(|error| error.fields().to_vec(), |()| Vec::new());
    Ok(Some(Wanted {
        dimension,
        stored,
        value,
        capacity,
        errors,
        has_proposed_gates,
        again,
    }))
}

/// What [`address_again`] wrote.
fn text_again(visit: &Visit) -> LimitText {
    let text = |name: &str| visit.query(name).unwrap_or_default();
    LimitText {
        dimension: text("dimension"),
        value: text("value"),
        window_seconds: text("window_seconds"),
        burst: text("burst"),
        period: text("period"),
        model: text("model"),
        priority: text("priority"),
        mode: text("mode"),
        gate_lower_percent: text("gate_lower_percent"),
        gate_upper_percent: text("gate_upper_percent"),
        gate_upper: text("gate_upper"),
        thresholds: text("thresholds"),
    }
}

impl Wanted {
    /// Where its form is sent.
    fn action(&self) -> &'static str {
        match self.stored {
            Some(_) => EditLimit::PATH,
            None => AddLimit::PATH,
        }
    }

    fn title(&self) -> String {
        match &self.stored {
            Some(limit) => slot_name(&limit.slot()),
            None => t!("New limit: {limit}", limit = dimension_within(self.dimension)),
        }
    }

    fn text(&self) -> LimitText {
        if let Some(text) = &self.again {
            return text.clone();
        }
        let mut text = match &self.stored {
            Some(limit) => LimitText::from(limit),
            None => LimitText {
                dimension: self.dimension.as_str().to_owned(),
                window_seconds: DEFAULT_WINDOW_SECONDS.to_string(),
                period: Period::Month.as_str().to_owned(),
                mode: Mode::Enforce.as_str().to_owned(),
                thresholds: Thresholds::default().to_string(),
                ..LimitText::default()
            },
        };
        if let Some(value) = &self.value {
            text.value.clone_from(value);
        }
        if self.has_proposed_gates {
            text.gate_lower_percent = proposals::GATES.lower_percent.to_string();
            text.gate_upper_percent = proposals::GATES.upper_percent.to_string();
        }
        text
    }
}

/// What can be limited, each with what it is good for.
fn choices(target: &Target) -> AnyView {
    let rows = Dimension::ALL
        .into_iter()
        .map(|dimension| {
            let href = address_of_new(target, &[("dimension", dimension.as_str())]);
            view! {
                <tr>
                    <th scope="row">
                        <a href=href>{dimension_name(dimension)}</a>
                    </th>
                    <td>{kind(dimension)}</td>
                    <td>{purpose(dimension)}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    view! {
        {table::table(
            t!("What is to be limited?"),
            &[texts(t!("Limit")), texts(t!("Kind")), texts(t!("Good for"))],
            rows,
        )}
        <p class="actions">
            <a class="button" href=address_of(target)>{t!("Cancel")}</a>
        </p>
    }
    .into_any()
}

fn kind(dimension: Dimension) -> &'static str {
    if dimension.is_rate() {
        t!("per window of time")
    } else if dimension.is_budget() {
        t!("per calendar period")
    } else if dimension.is_request_cap() {
        t!("of a single request")
    } else {
        t!("at once")
    }
}

fn purpose(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => t!("Loops and scripts that run wild."),
        Dimension::InputTokens | Dimension::OutputTokens => t!("What providers themselves limit an account by."),
        Dimension::TotalTokens => t!("One figure for the whole load."),
        Dimension::Concurrency => t!("Long answers that would hold all the places."),
        Dimension::BudgetTokens => t!("Use over a longer time, whatever it costs."),
        Dimension::BudgetCost => t!("Spending. It is held before a request starts, so it is never passed."),
        Dimension::RequestInputTokens => t!("Prompts that are larger than anybody meant."),
        Dimension::RequestOutputTokens => t!("Answers that are longer than anybody reads."),
        Dimension::RequestSeconds => t!("Requests that nobody waits for any more."),
    }
}

async fn form(visit: &Visit, target: &Target, view: &NodeLimitsView, wanted: &Wanted) -> Result<AnyView, PageError> {
    let action = wanted.action();
    let (of, each) = place_of(target);
    let fresh = || LimitForm {
        of: of.clone(),
        each: each.to_owned(),
        version: view.version.to_string(),
        limit: wanted
            .stored
            .as_ref()
            .map(|limit| limit.id.to_string())
            .unwrap_or_default(),
        step: String::new(),
        text: wanted.text(),
    };
    let draft = visit.draft.clone();
    let form = match &wanted.stored {
        _ if !wanted.errors.is_empty() => Filled::refused(fresh(), &wanted.errors),
        Some(_) => Filled::new(draft, action, fresh),
        None => Filled::of_new(draft, action, fresh),
    };
    let version = form.version(&form.values.version, &view.version.to_string()).to_owned();
    let slot = match &wanted.stored {
        Some(limit) => stored_slot(limit),
        None => slot_fields(visit, &form, wanted.dimension, target).await?,
    };
    let limit = form.values.limit.clone();
    Ok(view! {
        {form.summary()}
        {form.error_of("dimension")}
        <form class="form" method="post" action=action>
            <input type="hidden" name="of" value=of />
            <input type="hidden" name="each" value=each />
            <input type="hidden" name="version" value=version />
            <input type="hidden" name="limit" value=limit />
            <input type="hidden" name="dimension" value=wanted.dimension.as_str() />
            {value_fields(visit, &form, wanted, target)}
            {slot}
            {effect_fields(&form, wanted.dimension)}
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Show what changes")}</button>
                <a class="button" href=address_of(target)>{t!("Cancel")}</a>
            </div>
            <p class="quiet">{t!("In force on every gateway within a second.")}</p>
        </form>
    }
    .into_any())
}

fn value_fields(visit: &Visit, form: &Filled<LimitForm>, wanted: &Wanted, target: &Target) -> AnyView {
    let dimension = wanted.dimension;
    let text = &form.values.text;
    let label = match dimension {
        Dimension::BudgetCost => t!("Amount ({currency})", currency = visit.format.currency()),
        Dimension::BudgetTokens => t!("Tokens").to_owned(),
        _ => dimension_name(dimension).to_owned(),
    };
    let proposed = wanted
        .capacity
        .and_then(|capacity| proposals::explained(target, capacity));
    let value = Field::new("value", label)
        .required()
        .hint(proposed.unwrap_or_else(|| zero(dimension).to_owned()));
    let value = if dimension == Dimension::BudgetCost {
        value.amount()
    } else {
        value.whole()
    };
    let burst = (dimension.is_rate() && dimension != Dimension::Requests).then(|| {
        form.text(
            Field::new("burst", t!("Burst")).whole().hint(t!(
                "Tokens that may be used in one go. Empty: {seconds} seconds' worth of the limit.",
                seconds = DEFAULT_BURST_SECONDS
            )),
            &text.burst,
        )
    });
    view! {
        <fieldset>
            <legend>{t!("Limit")}</legend>
            <div class="field-row">{form.text(value, &text.value)} {burst}</div>
        </fieldset>
    }
    .into_any()
}

fn zero(dimension: Dimension) -> &'static str {
    if dimension == Dimension::RequestSeconds {
        t!("The answer is broken off after so many seconds.")
    } else {
        t!("0 admits nothing.")
    }
}

/// What tells the limit apart cannot be changed: what was counted so far belongs to it.
fn stored_slot(limit: &Limit) -> AnyView {
    let slot = limit.slot();
    let per = per(&slot);
    let mut shown = Vec::new();
    if !per.is_empty() {
        shown.push((t!("Per", in "limit"), per.into_any()));
    }
    let model = slot.model.map_or(t!("all").to_owned(), |model| model.to_string());
    shown.push((t!("Model"), model.into_any()));
    shown.push((
        t!("Priority"),
        slot.priority.map_or(t!("all"), terms::priority).into_any(),
    ));
    view! {
        <fieldset>
            <legend>{t!("Which requests count")}</legend>
            {facts(shown)}
            <p class="quiet">
                {t!(
                    "These stay as they are. For another window, period, model or priority, add a limit and remove \
                     this one."
                )}
            </p>
        </fieldset>
    }
    .into_any()
}

async fn slot_fields(
    visit: &Visit,
    form: &Filled<LimitForm>,
    dimension: Dimension,
    target: &Target,
) -> Result<AnyView, PageError> {
    let text = &form.values.text;
    let window = dimension.is_rate().then(|| {
        form.text(
            Field::new("window_seconds", t!("Window in seconds"))
                .whole()
                .hint(t!("60 is a minute, 3,600 an hour, 86,400 a day.")),
            &text.window_seconds,
        )
    });
    let period = dimension.is_budget().then(|| {
        let periods = Period::ALL.map(|period| {
            let words = match period {
                Period::Hour => t!("Hour", in "period of a budget"),
                Period::Day => t!("Day", in "period of a budget"),
                Period::Week => t!("Week, from Monday"),
                Period::Month => t!("Month", in "period of a budget"),
            };
            (period.as_str().to_owned(), words.to_owned())
        });
        let hint = t!("By the calendar, {zone} time.", zone = visit.format.zone());
        form.select(
            Field::new("period", t!("Period")).hint(hint),
            &text.period,
            periods.to_vec(),
        )
    });
    let is_of_model = matches!(target, Target::Node(Scope::Model(_)));
    let model = if is_of_model {
        None
    } else {
        let models = visit.state.control.models(visit.actor()?, visit.now()).await?;
        let choices = std::iter::once((String::new(), t!("All models").to_owned()))
            .chain(models.into_iter().map(|row| (row.model.name.clone(), row.model.name)))
            .collect();
        let hint = t!("Counts and limits this model's requests only.");
        Some(form.select(Field::new("model", t!("Model")).hint(hint), &text.model, choices))
    };
    let priorities = std::iter::once((String::new(), t!("All priorities").to_owned()))
        .chain(Priority::ALL.map(|priority| (priority.as_str().to_owned(), terms::priority(priority).to_owned())))
        .collect();
    let hint = t!("Counts and limits requests of this priority only.");
    Ok(view! {
        <fieldset>
            <legend>{t!("Which requests count")}</legend>
            <div class="field-row">
                {window} {period} {model}
                {form.select(Field::new("priority", t!("Priority")).hint(hint), &text.priority, priorities)}
            </div>
        </fieldset>
    }
    .into_any())
}

fn effect_fields(form: &Filled<LimitForm>, dimension: Dimension) -> AnyView {
    let text = &form.values.text;
    let modes = vec![
        (Mode::Enforce.as_str().to_owned(), t!("Enforce: refuses").to_owned()),
        (
            Mode::Rehearse.as_str().to_owned(),
            t!("Rehearse: refuses nothing").to_owned(),
        ),
    ];
    let mode = Field::new("mode", t!("Mode")).hint(t!(
        "In rehearsal each request's ledger entry says what the limit would have done."
    ));
    let gates = (!dimension.is_request_cap()).then(|| {
        let percent = |name, label: &str, hint: &str| Field::new(name, label).whole().hint(hint);
        let choices = vec![
            (String::new(), t!("Refuse others").to_owned()),
            ("wait".to_owned(), t!("Let others wait").to_owned()),
        ];
        let lower = percent("gate_lower_percent", t!("Lower gate (%)"), t!("From here on, low waits."));
        let pass = t!("From here on, only high and critical pass.");
        let upper = percent("gate_upper_percent", t!("Upper gate (%)"), pass);
        view! {
            <fieldset>
                <legend>{t!("Gates")}</legend>
                <p class="quiet">
                    {t!(
                        "They keep the last part of a limit for urgent requests. Leave both empty, and everyone has all \
                         of it."
                    )}
                </p>
                {form.error_of("gates")}
                <div class="field-row">
                    {form.text(lower, &text.gate_lower_percent)} {form.text(upper, &text.gate_upper_percent)}
                    {form.select(
                        Field::new("gate_upper", t!("At the upper gate")),
                        &text.gate_upper,
                        choices,
                    )}
                </div>
            </fieldset>
        }
    });
    let thresholds = dimension.is_budget().then(|| {
        let hint = t!(
            "When so much is spent, the console and the webhook are told, once in each period. At most {count}; empty: \
             none.",
            count = THRESHOLDS_MAX
        );
        form.text(
            Field::new("thresholds", t!("Tell when so much is spent (%)")).hint(hint),
            &text.thresholds,
        )
    });
    view! {
        <fieldset>
            <legend>{t!("What it does")}</legend>
            <div class="field-row">{form.select(mode, &text.mode, modes)} {thresholds}</div>
        </fieldset>
        {gates}
    }
    .into_any()
}

/// What the form of one limit sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitForm {
    of: String,
    each: String,
    version: String,
    limit: String,
    step: String,
    #[serde(flatten)]
    text: LimitText,
}

impl LimitForm {
    fn draft(&self) -> Result<LimitDraft, Refused> {
        let dimension = parsed_id(&self.text.dimension)?;
        let mut fields = Fields::default();
        let draft = self.text.parse(dimension, &mut fields);
        fields.check()?;
        Ok(draft)
    }

    fn target(&self) -> Result<Target, Refused> {
        parsed_target(&self.of, &self.each).ok_or(Refused::Page(PageError::Malformed))
    }

    /// The page that shows the form, without the proposals that it began with.
    fn page(&self, name: &str, value: &str) -> String {
        crate::visit::address("/limits/edit", &[("of", &self.of), ("each", &self.each), (name, value)])
    }
}

/// Adds a limit.
#[server(prefix = "/console", endpoint = "limits/add")]
pub async fn add_limit(#[server(flatten)] form: LimitForm) -> Result<(), ServerFnError> {
    let back = form.page("dimension", &form.text.dimension);
    submit(
        AddLimit::PATH,
        &back,
        form,
        |visit: Visit, form: LimitForm| async move {
            let (target, version) = (form.target()?, parsed_id(&form.version)?);
            let step = Step::read(&form.step)?;
            let draft = form.draft()?;
            let (control, actor) = (&visit.state.control, visit.actor()?);
            if step == Step::Ask {
                let preview = control.preview_new_limit(actor, &target, version, &draft, visit.now());
                if !preview.await?.changes.is_empty() {
                    return Err(Refused::Unconfirmed);
                }
            }
            control.add_limit(actor, &target, version, &draft, visit.now()).await?;
            Ok::<_, Refused>(Done::say(address_of(&target), t!("The limit was added.")))
        },
    )
    .await
}

/// Changes a limit in its slot.
#[server(prefix = "/console", endpoint = "limits/edit")]
pub async fn edit_limit(#[server(flatten)] form: LimitForm) -> Result<(), ServerFnError> {
    let back = form.page("limit", &form.limit);
    submit(
        EditLimit::PATH,
        &back,
        form,
        |visit: Visit, form: LimitForm| async move {
            let (target, version) = (form.target()?, parsed_id(&form.version)?);
            let id: LimitId = parsed_id(&form.limit)?;
            let step = Step::read(&form.step)?;
            let control = &visit.state.control;
            let actor = visit.actor()?;
            let stored = control.limits_of(actor, &target).await?;
            let limit = stored
                .limits
                .into_iter()
                .find(|limit| limit.id == id)
                .ok_or(Refused::Page(PageError::NotFound))?;
            let draft = form.draft()?.in_slot_of(&limit);
            if step == Step::Ask {
                let preview = control.preview_limit(actor, &target, version, &draft, visit.now());
                if !preview.await?.changes.is_empty() {
                    return Err(Refused::Unconfirmed);
                }
            }
            control.set_limit(actor, &target, version, &draft, visit.now()).await?;
            Ok::<_, Refused>(Done::say(address_of(&target), t!("Saved.")))
        },
    )
    .await
}
