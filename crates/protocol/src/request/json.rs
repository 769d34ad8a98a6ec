//! Reads pieces of a body without building a tree of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{InspectError, USER_BYTES_MAX};

/// Which of the `known` fields `key` is.
///
/// # Errors
/// When it is none of them exactly, but some providers would take it for one: theirs fold case.
pub(super) fn meant(key: &str, known: &'static [&'static str]) -> Result<Option<&'static str>, InspectError> {
    if let Some(field) = known.iter().find(|field| **field == key) {
        return Ok(Some(field));
    }
    match known.iter().find(|field| is_almost(key, field)) {
        Some(field) => Err(InspectError::AlmostSpelt(field)),
        None => Ok(None),
    }
}

/// Whether some providers would take `key` for `name`, which is of small letters.
fn is_almost(key: &str, name: &str) -> bool {
    let folded = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(name.chars())
}

pub(super) fn string(field: &'static str, text: &str) -> Result<Option<String>, InspectError> {
    serde_json::from_str(text).map_err(|_| InspectError::WrongType {
        field,
        expected: "a string",
    })
}

pub(super) fn user(field: &'static str, text: &str) -> Result<Option<String>, InspectError> {
    if text.len() > USER_BYTES_MAX {
        return Err(InspectError::TooLong {
            field,
            max: USER_BYTES_MAX,
            unit: "bytes",
        });
    }
    let user = string(field, text)?.filter(|user| !user.is_empty());
    if user.as_ref().is_some_and(|user| user.contains(char::is_control)) {
        return Err(InspectError::ControlCharacter(field));
    }
    Ok(user)
}

pub(super) fn boolean(field: &'static str, text: &str) -> Result<Option<bool>, InspectError> {
    serde_json::from_str(text).map_err(|_| InspectError::WrongType {
        field,
        expected: "true or false",
    })
}

/// Zero is refused: some providers take it for "no limit".
pub(super) fn count(field: &'static str, text: &str) -> Result<Option<u64>, InspectError> {
    match serde_json::from_str::<Option<u64>>(text) {
        Ok(Some(0)) | Err(_) => Err(InspectError::WrongType {
            field,
            expected: "a whole number of at least 1",
        }),
        Ok(count) => Ok(count),
    }
}

/// The field `name` of an object within `field`; null is none, and what is no object has none.
///
/// # Errors
/// When it is there more than once, or almost: which one a provider takes is not known. And when a key cannot be read.
pub(super) fn member<'a>(
    field: &'static str,
    object: &'a RawValue,
    name: &str,
) -> Result<Option<&'a RawValue>, InspectError> {
    let mut found = None;
    if object.get().starts_with('{') {
        let read = for_each_field(object.get(), &mut |key, value| match (key == name, found) {
            (true, Some(_)) => Err(InspectError::Duplicate(field)),
            (true, None) => {
                found = Some(value);
                Ok(())
            }
            (false, _) if is_almost(key, name) => Err(InspectError::AlmostSpelt(field)),
            (false, _) => Ok(()),
        });
        read.ok_or(InspectError::WrongType {
            field,
            expected: "of objects whose keys are text",
        })??;
    }
    Ok(found.filter(|value| value.get() != "null"))
}

/// What an object within `field` says it is.
///
/// # Errors
/// When it says so twice, or not with a string.
pub(super) fn kind_of(field: &'static str, object: &RawValue) -> Result<Option<String>, InspectError> {
    let Some(kind) = member(field, object, "type")? else {
        return Ok(None);
    };
    serde_json::from_str(kind.get())
        .map(Some)
        .map_err(|_| InspectError::WrongType {
            field,
            expected: "a list of objects whose `type` is a string",
        })
}

/// An object with each of its fields once; `None` for what is no object.
///
/// # Errors
/// With `wrong`, when a field is there twice, or has another shape.
pub(super) fn object<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    wrong: InspectError,
) -> Result<Option<T>, InspectError> {
    if !raw.get().starts_with('{') {
        return Ok(None);
    }
    serde_json::from_str(raw.get()).map(Some).map_err(|_| wrong)
}

/// Calls `visit` for each element of a list, stopping at its first error; null and other values have none.
pub(super) fn each<'a>(
    field: &'static str,
    raw: &'a RawValue,
    visit: &mut dyn FnMut(&'a RawValue) -> Result<(), InspectError>,
) -> Result<(), InspectError> {
    struct Elements<'v, 'a> {
        visit: &'v mut dyn FnMut(&'a RawValue) -> Result<(), InspectError>,
        error: &'v mut Option<InspectError>,
    }
    impl<'a> Visitor<'a> for Elements<'_, 'a> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<(), A::Error> {
            while let Some(element) = elements.next_element::<&'a RawValue>()? {
                if let Err(error) = (self.visit)(element) {
                    *self.error = Some(error);
                    return Err(A::Error::custom("refused"));
                }
            }
            Ok(())
        }
    }

    if raw.get() == "null" {
        return Ok(());
    }
    let mut error = None;
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let outcome = deserializer.deserialize_seq(Elements {
        visit,
        error: &mut error,
    });
    match (outcome, error) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(error)) => Err(error),
        (Err(_), None) => Err(InspectError::WrongType {
            field,
            expected: "an array where it lists things",
        }),
    }
}

/// Calls `visit` for each field of an object, stopping at its first error; `None` when it is no object.
pub(super) fn for_each_field<'a>(
    text: &'a str,
    visit: &mut dyn FnMut(&str, &'a RawValue) -> Result<(), InspectError>,
) -> Option<Result<(), InspectError>> {
    struct Members<'v, 'a> {
        visit: &'v mut dyn FnMut(&str, &'a RawValue) -> Result<(), InspectError>,
    }
    impl<'a> Visitor<'a> for Members<'_, 'a> {
        type Value = Result<(), InspectError>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            // After an error the rest is still read, so that the deserializer ends where the object does.
            let mut outcome = Ok(());
            while let Some(Key(key)) = map.next_key()? {
                let value = map.next_value::<&'a RawValue>()?;
                if outcome.is_ok() {
                    outcome = (self.visit)(&key, value);
                }
            }
            Ok(outcome)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Members { visit }).ok()
}

/// A key, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Key<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);
