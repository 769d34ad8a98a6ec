//! The body of a call, one JSON object, read field by field; what is wrong with it is said all at once. A field that an
//! operation does not know is refused.

use axum::body::{Body, to_bytes};
use serde_json::{Map, Value};

use super::problem::Problem;
use crate::fields::Fields;

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a call's body says.
pub(super) struct JsonBody {
    values: Map<String, Value>,
    pub(super) fields: Fields,
}

impl JsonBody {
    /// Reads a body.
    pub(super) async fn read(body: Body) -> Result<Self, Problem> {
        let bytes = to_bytes(body, BODY_BYTES_MAX)
            .await
            .map_err(|_| Problem::too_large(BODY_BYTES_MAX))?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(values)) => Ok(Self {
                values,
                fields: Fields::default(),
            }),
            Ok(_) => Err(Problem::unreadable("the body must be one JSON object")),
            Err(error) => Err(Problem::unreadable(format!("the body is no JSON: {error}"))),
        }
    }

    /// Whether a field is there, and not null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| !value.is_null())
    }

    /// A text; empty where it is absent.
    pub(super) fn text(&mut self, name: &'static str) -> String {
        match self.values.remove(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => {
                self.fields.refuse(name, "write this as a text, in quotation marks");
                String::new()
            }
        }
    }

    /// A whole number, as text; empty where it is absent.
    pub(super) fn count(&mut self, name: &'static str) -> String {
        match self.values.remove(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Number(number)) if number.is_i64() => number.to_string(),
            Some(_) => {
                self.fields
                    .refuse(name, "write a whole number, without quotation marks");
                String::new()
            }
        }
    }

    /// An amount of money, as text; empty where it is absent.
    pub(super) fn amount(&mut self, name: &'static str) -> String {
        match self.values.remove(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => {
                // Many programs would have rounded it on its way here.
                let message = "write an amount as a text in quotation marks, such as \"-12.50\"";
                self.fields.refuse(name, message);
                String::new()
            }
        }
    }

    /// Notes what nobody has asked for.
    pub(super) fn refuse_rest(&mut self, known: &[&str]) {
        for name in self.values.keys() {
            let message = format!("there is no such field here; there are {}", known.join(", "));
            self.fields.refuse(name.clone(), message);
        }
    }
}
