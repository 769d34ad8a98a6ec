//! What would become of a request with this key, model and size now, and why. Nothing is sent and nothing taken.

use control::explain::{AskedLimit, Explained, SharedLimits};
use control::fields::Fields;
use control::live::LiveError;
use control::rows::KeyRow;
use control::{ControlError, FieldError};
use domain::key_text::masked;
use domain::limits::{Gate, Mode, Scope};
use domain::priority::Priority;
use domain::questions::{Question, ToldRefusal};
use domain::readings::{LimitAnswer, LimitRefusal};
use http::StatusCode;
use leptos::prelude::*;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page};
use crate::pages::limits::{slot_name, value_text};
use crate::pages::quota_tree::no_figures;
use crate::reading::{amount, counted_by, taken};
use crate::shell;
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::visit::{Visit, Visitor, address};

/// The page.
pub const PATH: &str = "/explain";
/// Keys that are suggested, or offered where several match.
const KEYS_OFFERED_MAX: usize = 50;
/// The size that a fresh form proposes.
const INPUT_TOKENS_PROPOSED: &str = "1,000";
/// The fields of the address, in the order of the form.
const FIELDS: [&str; 6] = ["key", "model", "input_tokens", "output_cap_tokens", "priority", "user"];
/// Ids of the suggestions.
const KEY_SUGGESTIONS: &str = "explain-keys";
const MODEL_SUGGESTIONS: &str = "explain-models";

/// The page with what is known of a node filled in.
pub fn address_for(scope: &Scope, name: &str) -> String {
    match scope {
        Scope::Model(model) => address(PATH, &[("model", model)]),
        Scope::Key(id) => address(PATH, &[("key", &id.to_string())]),
        Scope::User(..) | Scope::Tenant(_) => address(PATH, &[("key", name)]),
        Scope::Global | Scope::ModelGroup(_) | Scope::Upstream(_) => PATH.to_owned(),
    }
}

/// The form, and the answer once it was sent.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let asked = Asked::of(&visit);
        let found = visit
            .state
            .control
            .find_keys(&visitor.actor, asked.value("key"), KEYS_OFFERED_MAX)
            .await?;
        let (answer, problems) = asked.answer(&visit, visitor, &found).await?;
        let has_keys = !found.is_empty() || !asked.value("key").is_empty();
        let form = if has_keys {
            asked.form(&visit, visitor, &found, &problems).await?
        } else {
            no_keys(visitor)
        };
        let content = view! {
            {shell::page_head(
                "Explain",
                "What would become of a request now, and what each limit on its way would say. Nothing is sent, and nothing \
                 is taken from any limit.",
                ().into_any(),
            )}
            <section class="card">{form}</section>
            {shown(&answer, &asked, &visit.format)}
        };
        Ok(Page::new("Explain", content.into_any()))
    })
}

/// What the address asks, as text.
struct Asked {
    values: Vec<(&'static str, String)>,
    /// Whether the form was sent, and not only filled in by a link.
    is_sent: bool,
}

/// What there is to show below the form.
enum Outcome {
    Nothing,
    /// Several keys match.
    Choose(Vec<KeyRow>),
    NoFigures(LiveError),
    Answered(Box<Explained>),
}

impl Asked {
    fn of(visit: &Visit) -> Self {
        Self {
            values: FIELDS
                .iter()
                .map(|name| (*name, visit.query(name).unwrap_or_default()))
                .collect(),
            is_sent: !visit.queries("input_tokens").is_empty(),
        }
    }

    fn value(&self, name: &str) -> &str {
        self.values
            .iter()
            .find(|(field, _)| *field == name)
            .map_or("", |(_, value)| value.trim())
    }

    /// The answer where the form was sent, with what is wrong with its fields.
    async fn answer(
        &self,
        visit: &Visit,
        visitor: &Visitor,
        found: &[KeyRow],
    ) -> Result<(Outcome, Vec<FieldError>), PageError> {
        let choice = || match found {
            [_, _, ..] if !self.value("key").is_empty() => Outcome::Choose(found.to_vec()),
            _ => Outcome::Nothing,
        };
        if !self.is_sent {
            return Ok((choice(), Vec::new()));
        }
        let question = match self.question(found) {
            Ok(question) => question,
            Err(ControlError::Invalid(problems)) => return Ok((choice(), problems)),
            Err(error) => return Err(error.into()),
        };
        match visit.state.control.explain(&visitor.actor, &question).await {
            Ok(explained) => Ok((Outcome::Answered(Box::new(explained)), Vec::new())),
            Err(ControlError::Invalid(problems)) => Ok((Outcome::Nothing, problems)),
            Err(ControlError::Live(error)) => Ok((Outcome::NoFigures(error), Vec::new())),
            Err(error) => Err(error.into()),
        }
    }

    fn question(&self, found: &[KeyRow]) -> Result<Question, ControlError> {
        const NO_SIZE: &str = "say how large the request is";
        let mut fields = Fields::default();
        let key = match (self.value("key"), found) {
            ("", _) => Err("choose a key"),
            (_, [key]) => Ok(key),
            (_, []) => Err("no key has this in its name or public id"),
            (_, [..]) => Err("several keys match; choose one of those below"),
        };
        if let Err(message) = key {
            fields.refuse("key", message);
        }
        let input_tokens = fields.count("input_tokens", self.value("input_tokens"));
        fields.require(!self.value("input_tokens").is_empty(), "input_tokens", NO_SIZE);
        let output_cap_tokens = fields.count("output_cap_tokens", self.value("output_cap_tokens"));
        let priority = fields.word::<Priority>("priority", self.value("priority"));
        fields.require(!self.value("model").is_empty(), "model", "name a model");
        fields.check()?;
        Ok(Question {
            key_id: key.map_err(|message| ControlError::field("key", message))?.id,
            model: self.value("model").to_owned(),
            input_tokens: input_tokens.ok_or_else(|| ControlError::field("input_tokens", NO_SIZE))?,
            output_cap_tokens,
            priority,
            user: Some(self.value("user").to_owned()).filter(|user| !user.is_empty()),
        })
    }

    async fn form(
        &self,
        visit: &Visit,
        visitor: &Visitor,
        found: &[KeyRow],
        problems: &[FieldError],
    ) -> Result<AnyView, PageError> {
        let control = &visit.state.control;
        let form = Filled::refused((), problems);
        let is_chosen = !self.value("key").is_empty() && found.len() == 1;
        let (key, hint) = match found {
            [key] if is_chosen => (masked(&key.public_id), format!("{} of {}", key.name, key.tenant_name)),
            _ => (self.value("key").to_owned(), key_hint(visitor).to_owned()),
        };
        let keys = if is_chosen {
            control.find_keys(&visitor.actor, "", KEYS_OFFERED_MAX).await?
        } else {
            found.to_vec()
        };
        let keys = keys.into_iter().map(|key| {
            let label = format!("{}, {}", key.name, key.tenant_name);
            view! { <option value=masked(&key.public_id)>{label}</option> }
        });
        let models = control.models(&visitor.actor, visit.now()).await?;
        let models = models
            .into_iter()
            .map(|row| view! { <option value=row.model.name></option> });
        let input_tokens = match self.is_sent {
            true => self.value("input_tokens"),
            false => INPUT_TOKENS_PROPOSED,
        };
        let priorities = std::iter::once((String::new(), "the key's own".to_owned()))
            .chain(Priority::ALL.map(|priority| (priority.to_string(), priority.to_string())))
            .collect();
        Ok(view! {
            <form class="form form-wide" method="get" action=PATH>
                <datalist id=KEY_SUGGESTIONS>{keys.collect_view()}</datalist>
                <datalist id=MODEL_SUGGESTIONS>{models.collect_view()}</datalist>
                <div class="field-row">
                    {form.text(Field::new("key", "Key").hint(hint).suggestions(KEY_SUGGESTIONS).required(), &key)}
                    {form.text(Field::new("model", "Model").suggestions(MODEL_SUGGESTIONS).required(), self.value("model"))}
                </div>
                <div class="field-row">
                    {form.text(
                        Field::new("input_tokens", "Input tokens").whole().required().hint("A page of text has about 500."),
                        input_tokens,
                    )}
                    {form.text(
                        Field::new("output_cap_tokens", "Output cap").whole().hint("Empty: the model's default."),
                        self.value("output_cap_tokens"),
                    )}
                    {form.select(Field::new("priority", "Priority asked for"), self.value("priority"), priorities)}
                    {form.text(
                        Field::new("user", "End user").hint("For an application's key that names users."),
                        self.value("user"),
                    )}
                </div>
                <div class="actions">
                    <button class="button button-primary" type="submit">
                        "Explain"
                    </button>
                </div>
            </form>
        }
        .into_any())
    }

    /// The same with this key.
    fn address_with(&self, key: &KeyRow) -> String {
        let id = key.id.to_string();
        let mut fields: Vec<(&str, &str)> = self.values.iter().map(|(name, _)| (*name, self.value(name))).collect();
        fields[0].1 = &id;
        address(PATH, &fields)
    }
}

fn key_hint(visitor: &Visitor) -> &'static str {
    if visitor.is_member() {
        "Its name, or the part of it that pages show."
    } else {
        "Its name, its owner's, its tenant's, or the part of it that pages show."
    }
}

fn no_keys(visitor: &Visitor) -> AnyView {
    let issue = visitor
        .issues_keys()
        .then(|| view! { <a class="button button-primary" href="/keys/new">"Issue a key"</a> });
    table::empty(
        "A request is made with a key, and there is none yet that you could ask about.",
        issue.into_any(),
    )
}

fn shown(outcome: &Outcome, asked: &Asked, format: &Format) -> AnyView {
    match outcome {
        Outcome::Nothing => ().into_any(),
        Outcome::NoFigures(error) => no_figures(*error),
        Outcome::Choose(keys) => choice(keys, asked),
        Outcome::Answered(explained) => answer(explained, format),
    }
}

fn choice(keys: &[KeyRow], asked: &Asked) -> AnyView {
    let rows = keys.iter().map(|key| choice_row(key, asked)).collect();
    let caption = match keys.len() {
        KEYS_OFFERED_MAX.. => "The newest that match. Write more of the name to find others.",
        _ => "Those that match.",
    };
    view! {
        <section class="card">
            <h2>"Which key?"</h2>
            {table::table(caption, &[words("Name"), words("Key"), words("Tenant"), words("Owner")], rows)}
        </section>
    }
    .into_any()
}

fn choice_row(key: &KeyRow, asked: &Asked) -> AnyView {
    let revoked = key.revoked_at.map(|_| badge("revoked", Tone::Bad));
    let owner = key.owner_name.clone().unwrap_or_else(|| "service account".to_owned());
    view! {
        <tr>
            <th scope="row"><a href=asked.address_with(key)>{key.name.clone()}</a> " " {revoked}</th>
            <td class="nowrap"><code>{masked(&key.public_id)}</code></td>
            <td>{key.tenant_name.clone()}</td>
            <td>{owner}</td>
        </tr>
    }
    .into_any()
}

fn answer(explained: &Explained, format: &Format) -> AnyView {
    let verdict = match &explained.refusal {
        None => admitted(explained),
        Some(refusal) => refused(refusal),
    };
    view! {
        <section class="card" id="verdict">
            {verdict}
            {facts(request_facts(explained, format))}
            {counted_by(explained.store)}
        </section>
        {limits(explained, format)}
    }
    .into_any()
}

fn admitted(explained: &Explained) -> AnyView {
    let by = match &explained.upstream {
        Some(upstream) => format!("It would be admitted, by the upstream {upstream}"),
        None => "It would be admitted".to_owned(),
    };
    let drawn = explained.is_upstream_drawn.then(|| {
        view! { <p class="quiet">"Several upstreams share the first place; the next request may go to another."</p> }
    });
    let refuses = |asked: &&AskedLimit| asked.answer.refusal.is_some() && asked.answer.reading.mode == Mode::Rehearse;
    let rehearsed = explained.asked.iter().filter(refuses).count();
    let rehearsed = (rehearsed > 0).then(|| {
        let limits = format::counted(rehearsed as u64, "limit", "limits");
        view! { <p class="notice notice-warning">{format!("{limits} in rehearsal would refuse it, once enforced.")}</p> }
    });
    view! {
        <h2>{by} " " {badge("room", Tone::Good)}</h2>
        {drawn}
        {rehearsed}
    }
    .into_any()
}

fn refused(refusal: &ToldRefusal) -> AnyView {
    let status = refusal.code.status();
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default();
    let retry = match refusal.retry_after_seconds {
        // Callers are told different times, so that they do not all come back at once.
        Some(seconds) => format!("{seconds} s, and up to 30 % more"),
        None => "not given: the same request would be refused again".to_owned(),
    };
    view! {
        <h2>"It would be refused " {badge(format::words(refusal.code.as_str()), Tone::Bad)}</h2>
        <p><strong>{refusal.message.clone()}</strong></p>
        {facts(vec![
            ("Code", view! { <code>{refusal.code.as_str()}</code> }.into_any()),
            ("Status", format!("{status} {reason}").into_any()),
            ("Retry after", retry.into_any()),
        ])}
    }
    .into_any()
}

fn request_facts(explained: &Explained, format: &Format) -> Vec<(&'static str, AnyView)> {
    let key = &explained.key;
    let href = format!("/keys/{}", key.id);
    let mut facts = vec![
        (
            "Key",
            view! { <a href=href>{key.name.clone()}</a> {format!(" of {}", key.tenant_name)} }.into_any(),
        ),
        (
            "Counts for",
            explained
                .user
                .clone()
                .unwrap_or_else(|| "nobody in particular".to_owned())
                .into_any(),
        ),
        ("Runs at", explained.priority.as_str().into_any()),
    ];
    if let Some(estimate) = &explained.estimate {
        let amounts = |amounts: &domain::estimate::Amounts| {
            format!(
                "{} tokens in, {} out, {}",
                format::count(amounts.input_tokens),
                format::count(amounts.output_tokens),
                format.cost(amounts.cost)
            )
            .into_any()
        };
        facts.push(("Rates hold (expected)", amounts(&estimate.expected)));
        facts.push(("Budgets hold (at most)", amounts(&estimate.ceiling)));
    }
    facts.push(("As of", format.time(explained.asked_at).into_any()));
    facts
}

fn limits(explained: &Explained, format: &Format) -> AnyView {
    let shared = explained.shared.map(|shared| match shared {
        SharedLimits::HaveRoom => {
            view! { <p>"Beyond your own limits the service has room." " " {badge("room", Tone::Good)}</p> }
        }
        SharedLimits::AreBusy => {
            view! { <p>"Beyond your own limits the service is busy." " " {badge("refuses", Tone::Bad)}</p> }
        }
    });
    let body = if !explained.asked.is_empty() {
        table::table(
            "In the order they are asked. The caller is told one refusal: the one that time heals last.",
            &[
                words("Scope"),
                words("Limit"),
                figures("Value"),
                figures("Used now"),
                figures("Needs"),
                figures("After it"),
                words("Answer"),
            ],
            explained.asked.iter().map(|asked| row(asked, format)).collect(),
        )
    } else if explained.estimate.is_none() {
        table::empty("It is refused before any limit is asked.", ().into_any())
    } else if shared.is_some() {
        ().into_any()
    } else {
        table::empty("No limit is in force on its way.", ().into_any())
    };
    view! {
        <section class="card">
            <h2>"Limits on its way"</h2>
            {shared}
            {body}
        </section>
    }
    .into_any()
}

fn row(asked: &AskedLimit, format: &Format) -> AnyView {
    let LimitAnswer { reading, need, .. } = &asked.answer;
    let dimension = reading.dimension;
    let slot = domain::limits::Slot {
        dimension,
        window_seconds: reading.window_seconds,
        period: reading.period,
        model: reading.model.clone(),
        priority: reading.priority,
    };
    let (used, after) = if dimension.is_request_cap() {
        (String::new(), String::new())
    } else if reading.is_known {
        (
            amount(dimension, taken(reading), format),
            amount(dimension, taken(reading) + i128::from(*need), format),
        )
    } else {
        ("being read".to_owned(), String::new())
    };
    let class = asked.is_told.then_some("row-told");
    view! {
        <tr class=class>
            <th scope="row">{asked.name.clone()} " " <small>{kind(&reading.scope)}</small></th>
            <td>{slot_name(&slot)}</td>
            <td class="number">{value_text(dimension, reading.limit_value, format)}</td>
            <td class="number">{used}</td>
            <td class="number">{amount(dimension, i128::from(*need), format)}</td>
            <td class="number">{after}</td>
            <td>{verdict(asked)}</td>
        </tr>
    }
    .into_any()
}

fn kind(scope: &Scope) -> &'static str {
    match scope {
        Scope::Global => "",
        Scope::ModelGroup(_) => "group of models",
        Scope::Model(_) => "model",
        Scope::Tenant(_) => "tenant",
        Scope::User(..) => "user",
        Scope::Key(_) => "key",
        Scope::Upstream(_) => "upstream",
    }
}

fn verdict(asked: &AskedLimit) -> AnyView {
    let Some(refusal) = &asked.answer.refusal else {
        return badge("room", Tone::Good);
    };
    let code = format::words(refusal.code.as_str());
    let detail = detail(refusal);
    if asked.answer.reading.mode == Mode::Rehearse {
        return view! { {badge("rehearsed", Tone::Warning)} " " <small>{format!("would refuse: {code}{detail}")}</small> }
            .into_any();
    }
    let told = asked
        .is_told
        .then(|| view! { " " <strong>"told to the caller"</strong> });
    view! { {badge(code, Tone::Bad)} {told} " " <small>{detail}</small> }.into_any()
}

fn detail(refusal: &LimitRefusal) -> String {
    let gate = match refusal.gate {
        Some(Gate::Lower) => ", at the lower gate",
        Some(Gate::Upper { .. }) => ", at the upper gate",
        None => "",
    };
    match refusal.retry_after_ms {
        Some(ms) => format!(
            "room in {}{gate}",
            format::duration_ms(i64::try_from(ms).unwrap_or(i64::MAX))
        ),
        None => gate.trim_start_matches(", ").to_owned(),
    }
}
