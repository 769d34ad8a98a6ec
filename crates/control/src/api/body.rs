//! The body of a call, one JSON object. A field that an operation does not know is refused, and one that stands twice: it is
//! not for us to guess which of both is meant.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use tokio::time::timeout;

use super::openapi;
use super::problem::Problem;
use super::shape;
use crate::fields::Fields;

/// The longest body, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long a body may take to arrive; an answer may take longer.
const BODY_WAIT: Duration = Duration::from_secs(15);

/// Reads a body: one object of JSON.
pub(super) async fn read(body: Body) -> Result<Map<String, Value>, Problem> {
    let bytes = match timeout(BODY_WAIT, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(read) => read.map_err(|_| Problem::too_large(BODY_BYTES_MAX))?,
        Err(_) => return Err(Problem::request_timeout(BODY_WAIT.as_secs())),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Strict(Value::Object(object))) => Ok(object),
        Ok(_) => Err(Problem::unreadable("the body must be one JSON object")),
        Err(error) => Err(Problem::unreadable(format!("the body cannot be read: {error}"))),
    }
}

/// The object as it fits a schema of the description.
pub(super) fn shaped(object: Map<String, Value>, schema: &str) -> Result<Map<String, Value>, Problem> {
    let document = openapi::document();
    let mut fields = Fields::default();
    shape::check_object(
        document,
        &document["components"]["schemas"][schema],
        &object,
        &mut fields,
    );
    fields.check()?;
    Ok(object)
}

/// A field that may be absent, which leaves things as they are, or null, which takes away what is there.
pub(super) fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// A body that its handler reads field by field; what is wrong with it is said all at once.
pub(super) struct JsonBody {
    values: Map<String, Value>,
    pub(super) fields: Fields,
}

impl JsonBody {
    /// The fields of a body.
    pub(super) fn of(values: Map<String, Value>) -> Self {
        Self {
            values,
            fields: Fields::default(),
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
                self.fields
                    .refuse_call(name, "write this as a text, in quotation marks");
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
                    .refuse_call(name, "write a whole number, without quotation marks");
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
                self.fields.refuse_call(name, message);
                String::new()
            }
        }
    }

    /// Notes what nobody has asked for.
    pub(super) fn refuse_rest(&mut self, known: &[&str]) {
        for name in self.values.keys() {
            let message = format!("there is no such field here; there are {}", known.join(", "));
            self.fields.refuse_call(name.clone(), message);
        }
    }
}

/// A value in which no field stands twice, and no text holds the character that Postgres keeps in none.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        if text.contains('\0') {
            return Err(E::custom("a text holds a character that cannot be kept"));
        }
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the field `{name}` stands there twice")));
            }
            let Strict(value) = entries.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use http::StatusCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_dawdles_is_not_blamed_on_the_database() {
        let never = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let problem = read(never).await.expect_err("a refusal");
        assert_eq!(problem.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn a_body_is_one_object_of_at_most_64_kib() {
        let read = |text: String| async move {
            let read = read(Body::from(text)).await;
            read.map_err(|problem| problem.into_response().status().as_u16())
        };
        assert_eq!(read("{}".to_owned()).await, Ok(Map::new()));
        assert_eq!(read("[]".to_owned()).await, Err(422));
        assert_eq!(read(r#"{"a": 1, "a": 2}"#.to_owned()).await, Err(422));
        assert_eq!(
            read(format!("{{\"a\": \"{}\"}}", "x".repeat(BODY_BYTES_MAX))).await,
            Err(413)
        );
    }
}
