//! Whether a value fits a schema of the description; what does not is named by its field, all of it at once. Knows what our
//! schemas use of JSON Schema and no more; a test keeps it so.

use domain::money::Nanos;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::query::ID_CHARS;
use crate::fields::Fields;

/// Words of JSON Schema that are looked at, and those that say nothing about a value.
#[cfg(test)]
pub(super) const WORDS: [&str; 22] = [
    "$ref",
    "type",
    "enum",
    "oneOf",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "format",
    "pattern",
    "description",
    "title",
    "example",
    "default",
    "uniqueItems",
];
/// How an amount is written: what `format: amount` means. Schemas say it as their `pattern`, too.
#[cfg(test)]
pub(super) const AMOUNT_PATTERN: &str = "^[0-9]{1,9}(\\.[0-9]{1,9})?$";
/// How a name is written that is part of paths and headers.
pub(super) const NAME_PATTERN: &str = "^[!-~]+$";
/// Digits before and after the point of an amount, at most.
const AMOUNT_DIGITS_MAX: usize = 9;

/// Notes what of a body does not fit.
pub(super) fn check_object(document: &Value, schema: &Value, object: &Map<String, Value>, fields: &mut Fields) {
    Shape { document }.check_object(schema, object, "", fields);
}

struct Shape<'a> {
    document: &'a Value,
}

impl Shape<'_> {
    fn check(&self, schema: &Value, value: &Value, field: &str, fields: &mut Fields) {
        if let Some(name) = schema["$ref"].as_str() {
            let there = self.document.pointer(name.trim_start_matches('#'));
            return self.check(there.unwrap_or(&Value::Null), value, field, fields);
        }
        if let Some(alternatives) = schema["oneOf"].as_array() {
            return self.check_any(alternatives, value, field, fields);
        }
        if !is_of_type(&schema["type"], value) {
            return fields.refuse_call(field.to_owned(), wanted(&schema["type"]));
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            let words: Vec<String> = words.iter().map(shown).collect();
            return fields.refuse_call(field.to_owned(), format!("write one of {}", words.join(", ")));
        }
        match value {
            Value::Object(object) => self.check_object(schema, object, field, fields),
            Value::Array(items) => self.check_items(schema, items, field, fields),
            Value::String(text) => check_text(schema, text, field, fields),
            Value::Number(_) => check_number(schema, value, field, fields),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// What the first alternative says is said where none fits.
    fn check_any(&self, alternatives: &[Value], value: &Value, field: &str, fields: &mut Fields) {
        let mut first = None;
        for alternative in alternatives {
            let mut own = Fields::default();
            self.check(alternative, value, field, &mut own);
            if own.is_empty() {
                return;
            }
            first.get_or_insert(own);
        }
        fields.add(first.unwrap_or_default());
    }

    fn check_object(&self, schema: &Value, object: &Map<String, Value>, field: &str, fields: &mut Fields) {
        let below = |name: &str| match field {
            "" => name.to_owned(),
            field => format!("{field}.{name}"),
        };
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                fields.refuse_call(below(name), "write this field; it is needed");
            }
        }
        let known = schema["properties"].as_object();
        for (name, value) in object {
            match known.and_then(|known| known.get(name)) {
                Some(schema) => self.check(schema, value, &below(name), fields),
                None if schema["additionalProperties"] == false => {
                    let names: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                    let message = format!("there is no such field here; there are {}", names.join(", "));
                    fields.refuse_call(below(name), message);
                }
                None => {}
            }
        }
        if let Some(least) = schema["minProperties"].as_u64()
            && (object.len() as u64) < least
        {
            fields.refuse_call(below("version"), "write at least one field that shall be another one");
        }
    }

    fn check_items(&self, schema: &Value, items: &[Value], field: &str, fields: &mut Fields) {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            fields.refuse_call(field.to_owned(), format!("at least {least}"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            return fields.refuse_call(field.to_owned(), format!("at most {most}"));
        }
        let is_twice = |(place, item): (usize, &Value)| items[..place].contains(item);
        if schema["uniqueItems"] == true && items.iter().enumerate().any(is_twice) {
            fields.refuse_call(field.to_owned(), "each of them once");
        }
        for (place, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &format!("{field}.{place}"), fields);
        }
    }
}

fn check_text(schema: &Value, text: &str, field: &str, fields: &mut Fields) {
    let chars = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| chars > *most) {
        return fields.refuse_call(field.to_owned(), format!("at most {most} characters"));
    }
    if schema["minLength"].as_u64().is_some_and(|least| chars < least) {
        return fields.refuse_call(field.to_owned(), "write something here, or leave the field out");
    }
    if text.chars().any(char::is_control) {
        return fields.refuse_call(field.to_owned(), "without control characters and line breaks");
    }
    let (is_good, message) = match schema["format"].as_str() {
        Some("uuid") => (
            // Others of its forms would be described by no schema.
            text.len() == ID_CHARS && text.parse::<Uuid>().is_ok(),
            "write the whole id, such as 0198c5e2-1b5a-7c3e-9d0f-2a4b6c8d0e1f",
        ),
        Some("date-time") => (
            chrono::DateTime::parse_from_rfc3339(text).is_ok(),
            "write an instant such as 2026-11-30T18:00:00Z",
        ),
        Some("date") => (
            text.len() == 10 && text.parse::<chrono::NaiveDate>().is_ok(),
            "write a date such as 2026-11-30",
        ),
        Some("amount") => (
            is_amount(text),
            "write an amount as a text in quotation marks, such as \"12.50\"",
        ),
        _ => (true, ""),
    };
    if !is_good {
        return fields.refuse_call(field.to_owned(), message);
    }
    if schema["pattern"] == NAME_PATTERN && !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        fields.refuse_call(
            field.to_owned(),
            "letters, digits and signs such as - . / : _ only, no blanks",
        );
    }
}

fn is_amount(text: &str) -> bool {
    let is_digits =
        |text: &str| (1..=AMOUNT_DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    is_digits(whole) && is_digits(part) && text.parse::<Nanos>().is_ok()
}

fn check_number(schema: &Value, value: &Value, field: &str, fields: &mut Fields) {
    let number = value.as_i64();
    let bound = |name: &str| schema[name].as_i64();
    let is_below = bound("minimum").is_some_and(|least| number.is_some_and(|number| number < least));
    let is_above = bound("maximum").is_some_and(|most| number.is_none_or(|number| number > most));
    if is_below || is_above {
        let message = match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!("between {least} and {most}"),
            (Some(least), None) => format!("at least {least}"),
            _ => "this number is out of range".to_owned(),
        };
        fields.refuse_call(field.to_owned(), message);
    }
}

/// One of several types, or the one. A schema without any lets everything through.
fn is_of_type(types: &Value, value: &Value) -> bool {
    match types {
        Value::String(name) => is_of(name, value),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(|name| is_of(name, value)),
        _ => true,
    }
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

fn wanted(types: &Value) -> String {
    let names: Vec<&str> = match types {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words: Vec<&str> = names
        .into_iter()
        .map(|name| match name {
            "object" => "an object, in braces",
            "array" => "a list, in brackets",
            "string" => "a text, in quotation marks",
            "integer" => "a whole number, without quotation marks",
            "number" => "a number, without quotation marks",
            "boolean" => "true or false, without quotation marks",
            _ => "null",
        })
        .collect();
    format!("write this as {}", words.join(", or "))
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
