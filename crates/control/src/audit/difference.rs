//! What a change has changed, field by field, out of the two sides of an audit entry.

use std::collections::BTreeMap;

use domain::text;
use domain::text::Text;
use serde_json::Value;

/// Fields of one difference at most.
pub const FIELDS_MAX: usize = 200;
/// Characters of one value at most; what is longer is cut.
pub const VALUE_CHARS_MAX: usize = 500;
/// How deep fields within fields are told apart; what lies deeper is one value.
const DEPTH_MAX: usize = 5;

/// The fields of both sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// First those that differ, then those that do not; each in the order of their names. At most [`FIELDS_MAX`].
    pub fields: Vec<Field>,
    /// How many more there are.
    pub left_out: usize,
}

/// One field and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name; parts of fields within fields have dots between them, and places in lists count from 0: `routes.0.weight`.
    pub name: String,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a field. Values are texts, numbers, truths and lists of such.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It had no value, and has this one.
    Set(Value),
    /// It had this value, and has none.
    Removed(Value),
    /// It had one value, and has another.
    Changed {
        /// The one before.
        before: Value,
        /// The one after.
        after: Value,
    },
    /// It stayed.
    Same(Value),
}

impl Fate {
    /// As it was, if it was anything.
    pub fn before(&self) -> Option<&Value> {
        match self {
            Self::Set(_) => None,
            Self::Removed(value) | Self::Same(value) | Self::Changed { before: value, .. } => Some(value),
        }
    }

    /// As it is, if it is anything.
    pub fn after(&self) -> Option<&Value> {
        match self {
            Self::Removed(_) => None,
            Self::Set(value) | Self::Same(value) | Self::Changed { after: value, .. } => Some(value),
        }
    }

    fn is_same(&self) -> bool {
        matches!(self, Self::Same(_))
    }
}

/// Holds the two sides against each other. `null` is no value, as an absent field is none.
pub fn difference(before: Option<&Value>, after: Option<&Value>) -> Difference {
    let mut sides: BTreeMap<String, (Option<Value>, Option<Value>)> = BTreeMap::new();
    walk(before, "", 0, &mut |name, value| {
        sides.entry(name).or_default().0 = Some(value);
    });
    walk(after, "", 0, &mut |name, value| {
        sides.entry(name).or_default().1 = Some(value);
    });
    let mut fields: Vec<Field> = sides
        .into_iter()
        .filter_map(|(name, sides)| {
            let fate = match sides {
                (None, None) => return None,
                (None, Some(after)) => Fate::Set(after),
                (Some(before), None) => Fate::Removed(before),
                (Some(before), Some(after)) if before == after => Fate::Same(after),
                (Some(before), Some(after)) => Fate::Changed { before, after },
            };
            Some(Field { name, fate })
        })
        .collect();
    fields.sort_by_key(|field| field.fate.is_same());
    let left_out = fields.len().saturating_sub(FIELDS_MAX);
    fields.truncate(FIELDS_MAX);
    Difference { fields, left_out }
}

/// A value as a text of at most [`VALUE_CHARS_MAX`] characters. Truths and empty lists are told in the reader's language,
/// what was written down is as it was.
pub fn value_text(value: &Value) -> Text {
    let word = match value {
        Value::Bool(true) => return text!("yes"),
        Value::Bool(false) => return text!("no"),
        Value::Array(values) if values.is_empty() => return text!("none"),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.iter().all(is_plain) => {
            let values = values.iter().map(|value| value_text(value).to_string());
            values.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    Text::word(match word.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word,
    })
}

fn walk(value: Option<&Value>, name: &str, depth: usize, found: &mut impl FnMut(String, Value)) {
    let within = |part: &str| match name {
        "" => part.to_owned(),
        name => format!("{name}.{part}"),
    };
    match value {
        None | Some(Value::Null) => {}
        Some(Value::Object(fields)) if depth < DEPTH_MAX => {
            for (part, value) in fields {
                walk(Some(value), &within(part), depth + 1, found);
            }
        }
        Some(Value::Array(values)) if depth < DEPTH_MAX && !values.iter().all(is_plain) => {
            for (place, value) in values.iter().enumerate() {
                walk(Some(value), &within(&place.to_string()), depth + 1, found);
            }
        }
        // A side that is no object at all has one value without a name of its own.
        Some(value) if name.is_empty() => found("value".to_owned(), value.clone()),
        Some(value) => found(name.to_owned(), value.clone()),
    }
}

fn is_plain(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

#[cfg(test)]
mod tests;
