//! Reads pieces of answers, taking any shape that was not expected for nothing.

use std::fmt;

use domain::parts::TextSize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::COUNTED_TOKENS_MAX;

/// A number of tokens, however it is written; `None` for what is none, or more than [`COUNTED_TOKENS_MAX`].
#[derive(Clone, Copy, Default)]
pub(super) struct Count(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let count = text.parse::<u64>().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            // Casting saturates, and a count is never cut down.
            (number.is_finite() && number >= 0.0).then(|| number.ceil() as u64)
        });
        Ok(Self(count.filter(|count| *count <= COUNTED_TOKENS_MAX)))
    }
}

/// For how long OpenAI has written input to its cache: half an hour, or half a day, which stands where others have an hour.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CacheWrites {
    pub(super) ttl_12h_tokens: Count,
}

/// A value, or its default when it has another shape.
#[derive(Default)]
pub(super) struct Lenient<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).unwrap_or_default()))
    }
}

/// Makes a seed of a visitor, one that takes any other shape for nothing.
macro_rules! lenient_seed {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
    };
    (str) => {
        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
    };
    (seq) => {
        fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(())
        }
    };
    (map) => {
        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(())
        }
    };
}

macro_rules! seed_of_visitor {
    ($name:ident < $($life:lifetime),+ >) => {
        impl<'a> DeserializeSeed<'a> for $name<$($life),+> {
            type Value = ();
            fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

/// Adds up all strings of a value.
pub(super) struct Texts<'s>(pub(super) &'s mut TextSize);
seed_of_visitor!(Texts<'_>);

impl<'a> Visitor<'a> for Texts<'_> {
    type Value = ();
    lenient_seed!();

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        *self.0 += TextSize::of(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut texts: A) -> Result<(), A::Error> {
        while texts.next_element_seed(Texts(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut texts: A) -> Result<(), A::Error> {
        while texts.next_key::<IgnoredAny>()?.is_some() {
            texts.next_value_seed(Texts(self.0))?;
        }
        Ok(())
    }
}

pub(super) use {lenient_seed, seed_of_visitor};

/// A value, if it has the shape that is looked for.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The size of all strings of these values together.
pub(super) fn sizes_of<const N: usize>(raws: [Option<&RawValue>; N]) -> TextSize {
    raws.into_iter()
        .flatten()
        .map(size_of)
        .fold(TextSize::default(), |sum, size| sum + size)
}

/// The size of all strings of a value together.
pub(super) fn size_of(raw: &RawValue) -> TextSize {
    let mut size = TextSize::default();
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    // It was JSON when it was cut out.
    let _ = Texts(&mut size).deserialize(&mut deserializer);
    size
}
