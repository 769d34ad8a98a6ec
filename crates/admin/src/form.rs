//! Forms: a label above each field, a hint below, what is wrong beside it, and the entered values kept when a form comes
//! back. A form is a plain HTML post; what was wrong with it travels to the next page in a [`Draft`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use control::FieldError;
use leptos::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::language;

/// A form that was refused, on its way back to the person who filled it in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Draft {
    /// The form's action.
    pub action: String,
    /// The page that the form is on.
    #[serde(default)]
    pub back: String,
    /// What was entered, passwords and credentials excepted.
    pub values: serde_json::Value,
    /// What is wrong, by field; the empty name is the form as a whole.
    pub errors: Vec<(String, String)>,
    /// Whether what it is about was changed by somebody else meanwhile.
    #[serde(default)]
    pub is_conflict: bool,
    /// Whether nothing is wrong with it, and the page is to show what it would change.
    #[serde(default)]
    pub is_preview: bool,
}

/// A password, credential or token on its way in. It is not shown, not logged, and does not come back with a refused form.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text, for the operation that it is meant for.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("")
    }
}

/// A form's values and what is wrong with them.
#[derive(Clone, Debug, Default)]
pub struct Filled<F> {
    /// What the fields show.
    pub values: F,
    errors: Vec<(String, String)>,
    /// Fields whose errors the page shows in their place.
    shown: Arc<Mutex<BTreeSet<String>>>,
    is_draft: bool,
    is_conflict: bool,
    is_preview: bool,
    /// After a conflict: what is stored now, by field.
    stored: serde_json::Map<String, Value>,
}

impl<F: DeserializeOwned + Serialize> Filled<F> {
    /// The draft's values if it belongs to the form with this action, else `fresh` ones. After a conflict fields show both.
    pub fn new(draft: Option<Draft>, action: &str, fresh: impl FnOnce() -> F) -> Self {
        let draft = draft.filter(|draft| draft.action == action);
        let read = draft.and_then(|draft| Some((serde_json::from_value(draft.values.clone()).ok()?, draft)));
        let Some((values, draft)) = read else {
            return Self::blank(fresh());
        };
        let stored = if draft.is_conflict {
            fields_of(&fresh())
        } else {
            serde_json::Map::new()
        };
        Self {
            values,
            errors: draft.errors,
            shown: Arc::default(),
            is_draft: true,
            is_conflict: draft.is_conflict,
            is_preview: draft.is_preview,
            stored,
        }
    }

    /// The same for what does not exist yet: after a conflict nothing of it is stored that fields could show.
    pub fn of_new(draft: Option<Draft>, action: &str, fresh: impl FnOnce() -> F) -> Self {
        Self {
            stored: serde_json::Map::new(),
            ..Self::new(draft, action, fresh)
        }
    }
}

impl<F: DeserializeOwned> Filled<F> {
    /// After a conflict: what is stored now, for parts of a form that lay out their fields themselves.
    pub fn stored(&self) -> Option<F> {
        if self.stored.is_empty() {
            return None;
        }
        serde_json::from_value(Value::Object(self.stored.clone())).ok()
    }
}

impl<F: Serialize> Filled<F> {
    /// Everything that was entered as hidden fields, for a second step that sends it again. The step itself is left out.
    pub fn hidden(&self) -> AnyView {
        fields_of(&self.values)
            .into_iter()
            .filter(|(name, _)| name != STEP)
            .flat_map(|(name, value)| match value {
                Value::Array(values) => values.into_iter().map(|value| (format!("{name}[]"), value)).collect(),
                value => vec![(name, value)],
            })
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
            .collect_view()
            .into_any()
    }
}

/// The field of forms in two steps: absent in the first, [`CONFIRMED`] or [`BACK`] in the second.
pub const STEP: &str = "step";
/// What was shown is to be done.
pub const CONFIRMED: &str = "confirmed";
/// The form is wanted again, as it was filled in.
pub const BACK: &str = "back";

/// A form's fields by name. Forms are flat: texts, and lists of texts.
fn fields_of<F: Serialize>(values: &F) -> serde_json::Map<String, Value> {
    match serde_json::to_value(values) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    }
}

impl<F> Filled<F> {
    /// A form that nobody has sent yet, or one of filters that is never refused.
    pub fn blank(values: F) -> Self {
        Self {
            values,
            errors: Vec::new(),
            shown: Arc::default(),
            is_draft: false,
            is_conflict: false,
            is_preview: false,
            stored: serde_json::Map::new(),
        }
    }

    /// Whether the page is to show what the form would change, instead of the form.
    pub fn is_preview(&self) -> bool {
        self.is_preview
    }

    /// After a conflict: what is stored now, where that is not what was entered.
    fn now(&self, name: &str, entered: &str) -> Option<String> {
        let stored = self.stored.get(name)?.as_str()?;
        (stored != entered).then(|| stored.to_owned())
    }

    /// Whether something else is stored now than was entered, which the field says.
    pub fn is_overtaken(&self, name: &str, entered: &str) -> bool {
        self.now(name, entered).is_some()
    }

    /// A form that the same request refuses: filters.
    pub fn refused(values: F, errors: &[FieldError]) -> Self {
        Self {
            values,
            errors: errors
                .iter()
                .map(|error| (error.field.to_string(), language::text(&error.message)))
                .collect(),
            shown: Arc::default(),
            is_draft: true,
            is_conflict: false,
            is_preview: false,
            stored: serde_json::Map::new(),
        }
    }

    /// The version that saving replaces: the one the draft was made from, or the stored one when the form is fresh or
    /// its editor has been told of a conflict.
    pub fn version<'a>(&self, drafted: &'a str, stored: &'a str) -> &'a str {
        if self.is_draft && !self.is_conflict {
            drafted
        } else {
            stored
        }
    }

    /// What is wrong with a field, if anything, for the page to show in its place: it is not said on top of the form then.
    pub fn error(&self, name: &str) -> Option<String> {
        let (field, message) = self.errors.iter().find(|(field, _)| field == name)?;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.insert(field.clone());
        Some(message.clone())
    }

    /// What is wrong with this field, for forms that lay out their fields themselves.
    pub fn error_of(&self, name: &str) -> AnyView {
        self.error(name)
            .map(|message| view! { <span class="field-error">{message}</span> })
            .into_any()
    }

    /// What is wrong with the form as a whole or with what has no field on the page, else that a field needs attention. Read
    /// out when the page comes back.
    pub fn summary(&self) -> AnyView {
        if self.errors.is_empty() {
            return ().into_any();
        }
        let (errors, shown, language) = (self.errors.clone(), Arc::clone(&self.shown), language::current());
        // The form stands below: which errors have a place is known when the page is written, and not when it is laid out.
        let summary = move || {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            let message = language::sync_scope(language, || on_top(&errors, &shown));
            view! { <p class="notice notice-bad" role="alert">{message}</p> }
        };
        summary.into_any()
    }

    /// A field of one line.
    pub fn text(&self, field: Field, value: &str) -> AnyView {
        let now = self.now(field.name, value).map(|stored| match stored.as_str() {
            "" => t!("Now: empty").to_owned(),
            stored => t!("Now: {stored}", stored),
        });
        let value = value.to_owned();
        self.framed(field, now, |field, described_by, is_invalid| {
            view! {
                <input
                    class="input"
                    id=field.name
                    name=field.name
                    type=field.kind
                    value=value
                    required=field.is_required
                    autocomplete=field.autocomplete
                    inputmode=field.inputmode
                    placeholder=field.placeholder
                    list=field.suggestions
                    readonly=field.is_fixed
                    aria-describedby=described_by
                    aria-invalid=is_invalid.then_some("true")
                />
            }
            .into_any()
        })
    }

    /// A choice of one. Options are value and text.
    pub fn select(&self, field: Field, value: &str, options: Vec<(String, String)>) -> AnyView {
        let now = self.now(field.name, value).map(|stored| {
            let text = options.iter().find(|(value, _)| *value == stored).map(|(_, text)| text);
            t!("Now: {stored}", stored = text.unwrap_or(&stored))
        });
        let chosen = value.to_owned();
        self.framed(field, now, |field, described_by, is_invalid| {
            let options = options
                .into_iter()
                .map(|(value, text)| {
                    let is_chosen = value == chosen;
                    view! {
                        <option value=value selected=is_chosen>
                            {text}
                        </option>
                    }
                })
                .collect_view();
            view! {
                <select
                    class="input"
                    id=field.name
                    name=field.name
                    aria-describedby=described_by
                    aria-invalid=is_invalid.then_some("true")
                >
                    {options}
                </select>
            }
            .into_any()
        })
    }

    /// A choice of several, sent as `name[]`. Options are value and text.
    pub fn checks(&self, field: Field, chosen: &[String], options: Vec<(String, String)>) -> AnyView {
        let error = self
            .error(field.name)
            .map(|message| view! { <span class="error">{message}</span> });
        let hint = field
            .hint
            .clone()
            .map(|hint| view! { <span class="hint">{hint}</span> });
        let boxes = check_list(field.name, chosen, options);
        let stored = self.stored.get(field.name).and_then(Value::as_array);
        let now = stored
            .map(|stored| stored.iter().filter_map(Value::as_str).collect::<Vec<_>>())
            .filter(|stored| *stored != chosen)
            .map(|stored| match stored.as_slice() {
                [] => t!("Now: none").to_owned(),
                stored => t!("Now: {stored}", stored = stored.join(", ")),
            })
            .map(|now| view! { <span class="now">{now}</span> });
        let label_id = format!("{}-label", field.name);
        let label = label_id.clone();
        view! {
            <div class="field" role="group" aria-labelledby=label>
                <span class="label" id=label_id>
                    {field.label}
                </span>
                {hint}
                {error}
                {now}
                {boxes}
            </div>
        }
        .into_any()
    }

    /// The same in groups, each under its heading.
    pub fn grouped_checks(
        &self,
        field: Field,
        chosen: &[String],
        groups: Vec<(&'static str, Vec<(String, String)>)>,
    ) -> AnyView {
        let error = self
            .error(field.name)
            .map(|message| view! { <span class="error">{message}</span> });
        let groups = groups
            .into_iter()
            .map(|(heading, options)| {
                let boxes = check_list(field.name, chosen, options);
                view! {
                    <div role="group" aria-label=heading>
                        <span class="hint">{heading}</span>
                        {boxes}
                    </div>
                }
            })
            .collect_view();
        let label_id = format!("{}-label", field.name);
        let label = label_id.clone();
        view! {
            <div class="field" role="group" aria-labelledby=label>
                <span class="label" id=label_id>
                    {field.label}
                </span>
                {error}
                {groups}
            </div>
        }
        .into_any()
    }

    /// A single yes or no, sent as `on` or not at all.
    pub fn check(&self, field: Field, is_checked: bool) -> AnyView {
        let (hint_id, error_id) = (format!("{}-hint", field.name), format!("{}-error", field.name));
        let error = self.error(field.name);
        let is_invalid = error.is_some().then_some("true");
        let described_by: Vec<String> = [
            error.is_some().then(|| error_id.clone()),
            field.hint.is_some().then(|| hint_id.clone()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let described_by = (!described_by.is_empty()).then(|| described_by.join(" "));
        let error = error.map(|message| view! { <span class="error" id=error_id>{message}</span> });
        let now = self
            .now(field.name, if is_checked { "on" } else { "" })
            .map(|stored| {
                if stored.is_empty() {
                    t!("Now: no")
                } else {
                    t!("Now: yes")
                }
            })
            .map(|now| view! { <span class="now">{now}</span> });
        let hint = field
            .hint
            .clone()
            .map(|hint| view! { <span class="hint" id=hint_id>{hint}</span> });
        view! {
            <div class="field">
                <label class="check">
                    <input
                        type="checkbox"
                        name=field.name
                        value="on"
                        checked=is_checked
                        aria-describedby=described_by
                        aria-invalid=is_invalid
                    />
                    <span>{field.label}</span>
                </label>
                {error}
                {now}
                {hint}
            </div>
        }
        .into_any()
    }

    fn framed(
        &self,
        field: Field,
        now: Option<String>,
        control: impl FnOnce(Field, Option<String>, bool) -> AnyView,
    ) -> AnyView {
        let name = field.name;
        let error = self.error(name);
        let is_invalid = error.is_some();
        let (hint_id, error_id, now_id) = (format!("{name}-hint"), format!("{name}-error"), format!("{name}-now"));
        let described_by: Vec<String> = [
            error.is_some().then(|| error_id.clone()),
            now.is_some().then(|| now_id.clone()),
            field.hint.is_some().then(|| hint_id.clone()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let described_by = (!described_by.is_empty()).then(|| described_by.join(" "));
        let label = field.label.clone();
        let hint = field
            .hint
            .clone()
            .map(|hint| view! { <span class="hint" id=hint_id>{hint}</span> });
        let error = error.map(|message| view! { <span class="error" id=error_id>{message}</span> });
        view! {
            <div class="field">
                <label for=name>{label}</label>
                {control(field, described_by, is_invalid)}
                {now.map(|now| view! { <span class="now" id=now_id>{now}</span> })}
                {error}
                {hint}
            </div>
        }
        .into_any()
    }
}

/// What a field is called and how it is filled in.
#[derive(Clone, Debug)]
pub struct Field {
    name: &'static str,
    label: String,
    hint: Option<String>,
    kind: &'static str,
    is_required: bool,
    is_fixed: bool,
    autocomplete: Option<&'static str>,
    inputmode: Option<&'static str>,
    placeholder: Option<&'static str>,
    suggestions: Option<&'static str>,
}

impl Field {
    /// A text field; `name` is also its id.
    pub fn new(name: &'static str, label: impl Into<String>) -> Self {
        Self {
            name,
            label: label.into(),
            hint: None,
            kind: "text",
            is_required: false,
            is_fixed: false,
            autocomplete: Some("off"),
            inputmode: None,
            placeholder: None,
            suggestions: None,
        }
    }

    /// What to know when filling it in.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Must be filled in.
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Shown and sent, not to be changed.
    pub fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// An e-mail address.
    pub fn email(mut self) -> Self {
        self.kind = "email";
        self
    }

    /// An instant, entered in the billing zone.
    pub fn instant(mut self) -> Self {
        self.kind = "datetime-local";
        self
    }

    /// A day such as 2026-12-15.
    pub fn day(mut self) -> Self {
        self.kind = "date";
        self
    }

    /// A calendar month such as 2026-11.
    pub fn month(mut self) -> Self {
        self.kind = "month";
        self
    }

    /// A password; browsers are told whether it is the current or a new one.
    pub fn password(mut self, autocomplete: &'static str) -> Self {
        self.kind = "password";
        self.autocomplete = Some(autocomplete);
        self
    }

    /// What browsers may fill in.
    pub fn autocomplete(mut self, autocomplete: &'static str) -> Self {
        self.autocomplete = Some(autocomplete);
        self
    }

    /// A whole number. Text, not `number`: browsers drop what they cannot read before anyone can say what is wrong.
    pub fn whole(mut self) -> Self {
        self.inputmode = Some("numeric");
        self
    }

    /// An amount of money.
    pub fn amount(mut self) -> Self {
        self.inputmode = Some("decimal");
        self
    }

    /// Browsers suggest what the `datalist` with this id lists; anything else can be written, too.
    pub fn suggestions(mut self, list: &'static str) -> Self {
        self.suggestions = Some(list);
        self
    }

    /// An example inside the empty field.
    pub fn placeholder(mut self, example: &'static str) -> Self {
        self.placeholder = Some(example);
        self
    }
}

/// What is said on top of a form with these errors, of which those of the fields `shown` stand in their place.
fn on_top(errors: &[(String, String)], shown: &BTreeSet<String>) -> String {
    let placeless: Vec<String> = errors
        .iter()
        .filter(|(field, _)| !shown.contains(field))
        .map(|(_, message)| message.clone())
        .collect();
    if placeless.is_empty() {
        return t!("Nothing was saved yet: one of the fields below needs another look.").to_owned();
    }
    language::sentences(&placeless)
}

/// Boxes of one field, sent as `name[]`.
fn check_list(name: &str, chosen: &[String], options: Vec<(String, String)>) -> AnyView {
    let name = format!("{name}[]");
    let boxes = options
        .into_iter()
        .map(|(value, text)| {
            let is_chosen = chosen.contains(&value);
            view! {
                <label class="check">
                    <input type="checkbox" name=name.clone() value=value checked=is_chosen />
                    <span>{text}</span>
                </label>
            }
        })
        .collect_view();
    view! { <div class="check-list">{boxes}</div> }.into_any()
}

#[cfg(test)]
mod tests;
