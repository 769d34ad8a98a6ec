//! What would become of a request with this key, model and size now, and why. Nothing is sent and nothing taken.

use control::explain::{AskedLimit, Explained, SharedLimits};
use control::fields::Fields;
use control::live::LiveError;
use control::rows::KeyRow;
use control::{ControlError, FieldError};
use domain::ids::PersonId;
use domain::key_text::masked;
use domain::limits::{Gate, Mode, Scope};
use domain::priority::Priority;
use domain::questions::{Question, ToldRefusal};
use domain::readings::{LimitAnswer, LimitRefusal};
use domain::text;
use domain::text::Text;
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
use crate::terms;
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

/// The page with what is known of a node filled in. Keys are found by the names of their tenant and owner, too.
pub fn address_for(scope: &Scope, name: &str, visitor: &Visitor) -> String {
    match scope {
        Scope::Model(model) => address(PATH, &[("model", model)]),
        Scope::Key(id) => address(PATH, &[("key", &id.to_string())]),
        // Oneself: all keys that one may ask about are one's own.
        Scope::User(..) if visitor.is_member() => PATH.to_owned(),
        Scope::User(_, user) if user.parse::<PersonId>().is_err() => address(PATH, &[("user", user)]),
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
                t!("Explain"),
                t!("What would become of a request now, and what each limit on its way would say. Nothing is sent, \
                    and nothing is taken from any limit."),
                ().into_any(),
            )}
            <section class="card">{form}</section>
            {shown(&answer, &asked, &visit.format)}
        };
        Ok(Page::new(t!("Explain"), content.into_any()))
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
        let no_size = || text!("say how large the request is");
        let mut fields = Fields::default();
        let key: Result<&KeyRow, Text> = match (self.value("key"), found) {
            ("", _) => Err(text!("choose a key")),
            (_, [key]) => Ok(key),
            (_, []) => Err(text!("no key has this in its name or public id")),
            (_, [..]) => Err(text!("several keys match; choose one of those below")),
        };
        if let Err(message) = &key {
            fields.refuse("key", message.clone());
        }
        let input_tokens = fields.count("input_tokens", self.value("input_tokens"));
        fields.require(!self.value("input_tokens").is_empty(), "input_tokens", no_size());
        let output_cap_tokens = fields.count("output_cap_tokens", self.value("output_cap_tokens"));
        let priority = fields.word::<Priority>("priority", self.value("priority"));
        fields.require(!self.value("model").is_empty(), "model", text!("name a model"));
        fields.check()?;
        Ok(Question {
            key_id: key.map_err(|message| ControlError::field("key", message))?.id,
            model: self.value("model").to_owned(),
            input_tokens: input_tokens.ok_or_else(|| ControlError::field("input_tokens", no_size()))?,
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
        // Who has one key means that one.
        let is_proposed = !self.is_sent && self.value("key").is_empty();
        let is_chosen = (is_proposed || !self.value("key").is_empty()) && found.len() == 1;
        let (key, hint) = match found {
            [key] if is_chosen => (
                masked(&key.public_id),
                t!("{key} of {tenant}", key = key.name, tenant = key.tenant_name),
            ),
            _ => (self.value("key").to_owned(), key_hint(visitor).to_owned()),
        };
        let keys = if is_chosen {
            control.find_keys(&visitor.actor, "", KEYS_OFFERED_MAX).await?
        } else {
            found.to_vec()
        };
        let keys = keys.into_iter().map(|key| {
            let label = t!("{key}, {tenant}", key = key.name, tenant = key.tenant_name);
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
        let priorities = std::iter::once((String::new(), t!("the key's own").to_owned()))
            .chain(Priority::ALL.map(|priority| (priority.to_string(), terms::priority(priority).to_owned())))
            .collect();
        Ok(view! {
            <form class="form form-wide" method="get" action=PATH>
                <datalist id=KEY_SUGGESTIONS>{keys.collect_view()}</datalist>
                <datalist id=MODEL_SUGGESTIONS>{models.collect_view()}</datalist>
                <div class="field-row">
                    {form.text(Field::new("key", t!("Key")).hint(hint).suggestions(KEY_SUGGESTIONS).required(), &key)}
                    {form.text(
                        Field::new("model", t!("Model")).suggestions(MODEL_SUGGESTIONS).required(),
                        self.value("model"),
                    )}
                </div>
                <div class="field-row">
                    {form.text(
                        Field::new("input_tokens", t!("Input tokens"))
                            .whole()
                            .required()
                            .hint(t!("A page of text has about 500.")),
                        input_tokens,
                    )}
                    {form.text(
                        Field::new("output_cap_tokens", t!("Output cap"))
                            .whole()
                            .hint(t!("Empty: the model's default.")),
                        self.value("output_cap_tokens"),
                    )}
                    {form.select(Field::new("priority", t!("Priority asked for")), self.value("priority"), priorities)}
                    {form.text(
                        Field::new("user", t!("End user")).hint(t!("For an application's key that names users.")),
                        self.value("user"),
                    )}
                </div>
                <div class="actions">
                    <button class="button button-primary" type="submit">
                        {t!("Explain")}
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
        t!("Its name, or the part of it that pages show.")
    } else {
        t!("Its name, its owner's, its tenant's, or the part of it that pages show.")
    }
}

fn no_keys(visitor: &Visitor) -> AnyView {
    let issue = visitor
        .issues_keys()
        .then(|| view! { <a class="button button-primary" href="/keys/new">{t!("Issue a key")}</a> });
    table::empty(
        t!("A request is made with a key, and there is none yet that you could ask about."),
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
        KEYS_OFFERED_MAX.. => t!("The newest that match. Write more of the name to find others."),
        _ => t!("Those that match."),
    };
    let columns = [t!("Name"), t!("Key"), t!("Tenant"), t!("Owner")].map(words);
    view! {
        <section class="card">
            <h2>{t!("Which key?")}</h2>
            {table::table(caption, &columns, rows)}
        </section>
    }
    .into_any()
}

fn choice_row(key: &KeyRow, asked: &Asked) -> AnyView {
    let revoked = key.revoked_at.map(|_| badge(t!("revoked"), Tone::Bad));
    let owner = key
        .owner_name
        .clone()
        .unwrap_or_else(|| t!("service account").to_owned());
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
        Some(upstream) => t!("It would be admitted, by the upstream {upstream}", upstream),
        None => t!("It would be admitted").to_owned(),
    };
    let drawn = explained.is_upstream_drawn.then(|| {
        let text = t!("Several upstreams share the first place; the next request may go to another.");
        view! { <p class="quiet">{text}</p> }
    });
    let refuses = |asked: &&AskedLimit| asked.answer.refusal.is_some() && asked.answer.reading.mode == Mode::Rehearse;
    let rehearsed = explained.asked.iter().filter(refuses).count();
    let rehearsed = (rehearsed > 0).then(|| {
        let text = tn!(
            rehearsed as u64,
            "{n} limit in rehearsal would refuse it, once enforced.",
            "{n} limits in rehearsal would refuse it, once enforced.",
        );
        view! { <p class="notice notice-warning">{text}</p> }
    });
    view! {
        <h2>{by} " " {badge(t!("room", in "verdict of a limit"), Tone::Good)}</h2>
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
        Some(seconds) => t!("{seconds} s, and up to 30 % more", seconds),
        None => t!("not given: the same request would be refused again").to_owned(),
    };
    view! {
        <h2>{t!("It would be refused")} " " {badge(terms::refusal(refusal.code), Tone::Bad)}</h2>
        <p lang="en"><strong>{refusal.message.clone()}</strong></p>
        {facts(vec![
            (t!("Code"), view! { <code>{refusal.code.as_str()}</code> }.into_any()),
            (t!("Status"), format!("{status} {reason}").into_any()),
            (t!("Retry after"), retry.into_any()),
        ])}
    }
    .into_any()
}

fn request_facts(explained: &Explained, format: &Format) -> Vec<(&'static str, AnyView)> {
    let key = &explained.key;
    let href = format!("/keys/{}", key.id);
    let mut facts = vec![
        (
            t!("Key"),
            tv!(
                "{key} of {tenant}",
                key = view! { <a href=href>{key.name.clone()}</a> },
                tenant = key.tenant_name.clone(),
            ),
        ),
        (
            t!("Counts for"),
            explained
                .user
                .clone()
                .unwrap_or_else(|| t!("nobody in particular").to_owned())
                .into_any(),
        ),
        (t!("Runs at"), terms::priority(explained.priority).into_any()),
    ];
    if let Some(estimate) = &explained.estimate {
        let amounts = |amounts: &domain::estimate::Amounts| {
            t!(
                "{input} tokens in, {output} out, {cost}",
                input = format::count(amounts.input_tokens),
                output = format::count(amounts.output_tokens),
                cost = format.cost(amounts.cost),
            )
            .into_any()
        };
        facts.push((t!("Rates hold (expected)"), amounts(&estimate.expected)));
        facts.push((t!("Budgets hold (at most)"), amounts(&estimate.ceiling)));
    }
    facts.push((t!("As of"), format.time(explained.asked_at).into_any()));
    facts
}

fn limits(explained: &Explained, format: &Format) -> AnyView {
    let shared = explained.shared.map(|shared| match shared {
        SharedLimits::HaveRoom => {
            let room = badge(t!("room", in "verdict of a limit"), Tone::Good);
            view! { <p>{t!("Beyond your own limits the service has room.")} " " {room}</p> }
        }
        SharedLimits::AreBusy => {
            let refuses = badge(t!("refuses"), Tone::Bad);
            view! { <p>{t!("Beyond your own limits the service is busy.")} " " {refuses}</p> }
        }
    });
    let body = if !explained.asked.is_empty() {
        table::table(
            t!("In the order they are asked. The caller is told one refusal: the one that time heals last."),
            &[
                words(t!("Scope")),
                words(t!("Limit")),
                figures(t!("Value")),
                figures(t!("Used now")),
                figures(t!("Needs")),
                figures(t!("After it")),
                words(t!("Answer")),
            ],
            explained.asked.iter().map(|asked| row(asked, format)).collect(),
        )
    } else if explained.estimate.is_none() {
        table::empty(t!("It is refused before any limit is asked."), ().into_any())
    } else if shared.is_some() {
        ().into_any()
    } else {
        table::empty(t!("No limit is in force on its way."), ().into_any())
    };
    view! {
        <section class="card">
            <h2>{t!("Limits on its way")}</h2>
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
        (t!("being read").to_owned(), String::new())
    };
    let name = match &reading.scope {
        Scope::Global => t!("The installation").to_owned(),
        _ => asked.name.clone(),
    };
    let class = asked.is_told.then_some("row-told");
    view! {
        <tr class=class>
            <th scope="row">{name} " " <small>{kind(&reading.scope)}</small></th>
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
        Scope::ModelGroup(_) => t!("group of models"),
        Scope::Model(_) => t!("model"),
        Scope::Tenant(_) => t!("tenant"),
        Scope::User(..) => t!("user"),
        Scope::Key(_) => t!("key"),
        Scope::Upstream(_) => t!("upstream"),
    }
}

fn verdict(asked: &AskedLimit) -> AnyView {
    let Some(refusal) = &asked.answer.refusal else {
        return badge(t!("room", in "verdict of a limit"), Tone::Good);
    };
    let code = terms::refusal(refusal.code);
    let detail = detail(refusal);
    if asked.answer.reading.mode == Mode::Rehearse {
        let would = if detail.is_empty() {
            t!("would refuse: {code}", code)
        } else {
            t!("would refuse: {code}, {detail}", code, detail)
        };
        return view! { {badge(t!("rehearsed"), Tone::Warning)} " " <small>{would}</small> }.into_any();
    }
    let told = asked
        .is_told
        .then(|| view! { " " <strong>{t!("told to the caller")}</strong> });
    view! { {badge(code, Tone::Bad)} {told} " " <small>{detail}</small> }.into_any()
}

fn detail(refusal: &LimitRefusal) -> String {
    let wait = refusal
        .retry_after_ms
        .map(|ms| format::duration_ms(i64::try_from(ms).unwrap_or(i64::MAX)));
    match (wait, refusal.gate) {
        (Some(wait), Some(Gate::Lower)) => t!("room in {wait}, at the lower gate", wait),
        (Some(wait), Some(Gate::Upper { .. })) => t!("room in {wait}, at the upper gate", wait),
        (Some(wait), None) => t!("room in {wait}", wait),
        (None, Some(Gate::Lower)) => t!("at the lower gate").to_owned(),
        (None, Some(Gate::Upper { .. })) => t!("at the upper gate").to_owned(),
        (None, None) => String::new(),
    }
}
