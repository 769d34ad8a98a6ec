//! The fields of a call's query, read one by one; what is wrong with them is said all at once. A field that a route does
//! not know is refused: a filter that is mistyped must not let everything through.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::text::Text;
use url::form_urlencoded;

use crate::ControlError;
use crate::fields::Fields;

/// The longest value, in characters.
const VALUE_CHARS_MAX: usize = 500;
/// How long an id is.
pub(super) const ID_CHARS: usize = 36;
/// The highest version: exact in every program that reads JSON.
const VERSION_MAX: i64 = (1 << 53) - 1;
/// Entries on one page unless told otherwise.
const LIMIT_DEFAULT: u32 = 50;

/// What a call's query says.
#[derive(Clone, Debug)]
pub(super) struct Query {
    values: Vec<(&'static str, String)>,
}

impl Query {
    /// Reads a query that may have these fields. An empty one is refused: a variable that was not set must not let everything
    /// through.
    pub(super) fn read(text: &str, known: &'static [&'static str]) -> Result<Self, ControlError> {
        let mut fields = Fields::default();
        let mut values = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let Some(known) = known.iter().find(|known| **known == name) else {
                let message = match known {
                    [] => "there are no parameters here".to_owned(),
                    known => format!("there is no such parameter; there are {}", known.join(", ")),
                };
                let name: String = name.chars().take(VALUE_CHARS_MAX).collect();
                fields.refuse_call(name, message);
                continue;
            };
            if value.chars().count() > VALUE_CHARS_MAX {
                fields.refuse_call(*known, format!("at most {VALUE_CHARS_MAX} characters"));
            } else if value.chars().any(char::is_control) {
                fields.refuse_call(*known, "without control characters");
            } else if value.is_empty() {
                fields.refuse_call(*known, "write a value, or leave this parameter out");
            } else {
                values.push((*known, value.into_owned()));
            }
        }
        fields.check()?;
        Ok(Self { values })
    }

    /// Every value of a field.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.values.iter();
        values
            .filter(move |(field, _)| *field == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a field that stands once.
    pub(super) fn text(&self, fields: &mut Fields, name: &'static str) -> Option<String> {
        let mut values = self.all(name);
        let value = values.next().map(str::to_owned);
        if values.next().is_some() {
            fields.refuse_call(name, "write this parameter once");
        }
        value
    }

    /// One of a few words, or another text that says itself what it should be.
    pub(super) fn word<T>(&self, fields: &mut Fields, name: &'static str) -> Option<T>
    where
        T: FromStr,
        for<'error> Text: From<&'error T::Err>,
    {
        let text = self.text(fields, name)?;
        fields.word(name, &text)
    }

    /// An id.
    pub(super) fn id<T: FromStr>(&self, fields: &mut Fields, name: &'static str) -> Option<T> {
        let text = self.text(fields, name)?;
        // As the description has it, and in no other of its forms.
        let id = if text.len() == ID_CHARS {
            text.parse().ok()
        } else {
            None
        };
        if id.is_none() {
            fields.refuse_call(name, "write the whole id, such as 0198c5e2-1b5a-7c3e-9d0f-2a4b6c8d0e1f");
        }
        id
    }

    /// An instant.
    pub(super) fn instant(&self, fields: &mut Fields, name: &'static str, zone: Tz) -> Option<DateTime<Utc>> {
        let text = self.text(fields, name)?;
        // A plus sign of an offset that was not encoded has become a blank.
        let text = if text.contains('T') {
            text.replace(' ', "+")
        } else {
            text
        };
        fields.instant(name, &text, zone)
    }

    /// Yes or no; no where it is absent.
    pub(super) fn flag(&self, fields: &mut Fields, name: &'static str) -> bool {
        match self.text(fields, name).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                fields.refuse_call(name, "write true or false");
                false
            }
        }
    }

    /// The version that the caller has read of what goes away.
    pub(super) fn version(&self) -> Result<i64, ControlError> {
        let mut fields = Fields::default();
        let version = self.text(&mut fields, "version").and_then(|text| whole(&text));
        let version = version.filter(|version| *version <= VERSION_MAX);
        if version.is_none() {
            fields.refuse_call("version", "write the version that you have read");
        }
        fields.check()?;
        Ok(version.unwrap_or_default())
    }

    /// How many entries a page has, at most `entries_max`.
    pub(super) fn limit(&self, fields: &mut Fields, entries_max: u32) -> u32 {
        let Some(text) = self.text(fields, "limit") else {
            return LIMIT_DEFAULT.min(entries_max);
        };
        match whole(&text) {
            Some(limit) if (1..=entries_max).contains(&limit) => limit,
            _ => {
                fields.refuse_call("limit", format!("between 1 and {entries_max}"));
                LIMIT_DEFAULT
            }
        }
    }
}

/// A whole number without a sign.
fn whole<T: FromStr>(text: &str) -> Option<T> {
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests;
