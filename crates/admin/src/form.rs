//! Forms: a label above each field, a hint below, what is wrong beside it, and the entered values kept when a form comes
//! back. A form is a plain HTML post; what was wrong with it travels to the next page in a [`Draft`].

use std::fmt;

use control::FieldError;
use leptos::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

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
    is_draft: bool,
    is_conflict: bool,
}

impl<F: DeserializeOwned> Filled<F> {
    /// The draft's values if it belongs to the form with this action, else `fresh` ones.
    pub fn new(draft: Option<Draft>, action: &str, fresh: impl FnOnce() -> F) -> Self {
        let draft = draft.filter(|draft| draft.action == action);
        let is_conflict = draft.as_ref().is_some_and(|draft| draft.is_conflict);
        match draft.and_then(|draft| Some((serde_json::from_value(draft.values).ok()?, draft.errors))) {
            Some((values, errors)) => Self {
                values,
                errors,
                is_draft: true,
                is_conflict,
            },
            None => Self::blank(fresh()),
        }
    }
}

impl<F> Filled<F> {
    /// A form that nobody has sent yet, or one of filters that is never refused.
    pub fn blank(values: F) -> Self {
        Self {
            values,
            errors: Vec::new(),
            is_draft: false,
            is_conflict: false,
        }
    }

    /// A form that the same request refuses: filters.
    pub fn refused(values: F, errors: &[FieldError]) -> Self {
        Self {
            values,
            errors: errors
                .iter()
                .map(|error| (error.field.to_string(), error.message.clone()))
                .collect(),
            is_draft: true,
            is_conflict: false,
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

    /// What is wrong with a field, if anything.
    pub fn error(&self, name: &str) -> Option<String> {
        self.errors
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, message)| message.clone())
    }

    /// What is wrong with this field, for forms that lay out their fields themselves.
    pub fn error_of(&self, name: &str) -> AnyView {
        self.error(name)
            .map(|message| view! { <span class="field-error">{message}</span> })
            .into_any()
    }

    /// What is wrong with the form as a whole, or that a field needs attention. Read out when the page comes back.
    pub fn summary(&self) -> AnyView {
        if self.errors.is_empty() {
            return ().into_any();
        }
        let message = self
            .error("")
            .unwrap_or_else(|| "Nothing was saved yet: one of the fields below needs another look.".to_owned());
        view! { <p class="notice notice-bad" role="alert">{message}</p> }.into_any()
    }

    /// A field of one line.
    pub fn text(&self, field: Field, value: &str) -> AnyView {
        let value = value.to_owned();
        self.framed(field, |field, described_by, is_invalid| {
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
        let chosen = value.to_owned();
        self.framed(field, |field, described_by, is_invalid| {
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
        let name = format!("{}[]", field.name);
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
        let label_id = format!("{}-label", field.name);
        let label = label_id.clone();
        view! {
            <div class="field" role="group" aria-labelledby=label>
                <span class="label" id=label_id>
                    {field.label}
                </span>
                {hint}
                {error}
                <div class="check-list">{boxes}</div>
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
        let name = format!("{}[]", field.name);
        let groups = groups
            .into_iter()
            .map(|(heading, options)| {
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
                view! {
                    <div role="group" aria-label=heading>
                        <span class="hint">{heading}</span>
                        <div class="check-list">{boxes}</div>
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
        let hint_id = format!("{}-hint", field.name);
        let described_by = field.hint.is_some().then(|| hint_id.clone());
        let hint = field
            .hint
            .clone()
            .map(|hint| view! { <span class="hint" id=hint_id>{hint}</span> });
        view! {
            <div class="field">
                <label class="check">
                    <input type="checkbox" name=field.name value="on" checked=is_checked aria-describedby=described_by />
                    <span>{field.label}</span>
                </label>
                {hint}
            </div>
        }
        .into_any()
    }

    fn framed(&self, field: Field, control: impl FnOnce(Field, Option<String>, bool) -> AnyView) -> AnyView {
        let name = field.name;
        let error = self.error(name);
        let is_invalid = error.is_some();
        let (hint_id, error_id) = (format!("{name}-hint"), format!("{name}-error"));
        let described_by: Vec<String> = [
            error.is_some().then(|| error_id.clone()),
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
