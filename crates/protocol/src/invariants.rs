//! What holds for any bytes at all: asked by the fuzz targets in `fuzz/`, and by ordinary tests for every file under `golden/`
//! and for every input under `fuzz/regressions/`: those that broke one of these, in the code as it was or with a mistake put in.
//!
//! A check panics where something does not hold; it has no other result.

mod request;
mod sse;
mod usage;

pub use request::check_request;
pub use sse::check_sse;
pub use usage::check_usage;

/// One check.
pub type Check = fn(&[u8]);

/// All of them, by the names of their fuzz targets.
pub const CHECKS: [(&str, Check); 3] = [("sse", check_sse), ("request", check_request), ("usage", check_usage)];

/// The fields of a JSON object in their order, with keys decoded and values as they are written; `None` for all other bytes.
fn fields(text: &[u8]) -> Option<Vec<(String, &str)>> {
    struct Fields;
    impl<'de> serde::de::Visitor<'de> for Fields {
        type Value = Vec<(String, &'de str)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((key, value)) = map.next_entry::<String, &'de serde_json::value::RawValue>()? {
                fields.push((key, value.get()));
            }
            Ok(fields)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let fields = serde::Deserializer::deserialize_map(&mut deserializer, Fields).ok()?;
    deserializer.end().ok()?;
    Some(fields)
}

#[cfg(test)]
mod tests;
