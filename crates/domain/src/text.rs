//! Texts for people: the English of a sentence or of a part of one, and what stands in its gaps, kept apart, so that a
//! surface with translations tells them in another language. [`Display`](fmt::Display) is the English.

use std::fmt;

/// A text and what stands in its gaps. [`text!`](crate::text!) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    english: &'static str,
    values: Vec<(&'static str, Value)>,
}

/// What stands in a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The same in every language: a name, a figure, a word of the API.
    Word(String),
    /// Told in the language of what is around it.
    Text(Text),
}

impl Text {
    /// A text with gaps such as `{name}` and their values. [`text!`](crate::text!) checks that they match.
    pub fn new(english: &'static str, values: Vec<(&'static str, Value)>) -> Self {
        Self { english, values }
    }

    /// A text of what is the same in every language.
    pub fn word(word: impl Into<String>) -> Self {
        Self::new("{word}", vec![("word", Value::Word(word.into()))])
    }

    /// The text in a language.
    pub fn told(&self, telling: Telling) -> String {
        let values: Vec<(&str, String)> = self
            .values
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    Value::Word(word) => word.clone(),
                    Value::Text(text) => text.told(telling),
                };
                (*name, value)
            })
            .collect();
        let values: Vec<(&str, &dyn fmt::Display)> = values
            .iter()
            .map(|(name, value)| (*name, value as &dyn fmt::Display))
            .collect();
        filled((telling.told)(self.english), &values, telling.closes)
    }
}

/// How a language is told.
#[derive(Clone, Copy, Debug)]
pub struct Telling {
    /// The text for the English one, with the same gaps.
    pub told: fn(&'static str) -> &'static str,
    /// Whether no blank belongs between these two characters, one of the text and one of what stands in its gap.
    pub closes: fn(char, char) -> bool,
}

/// English as it is written.
pub const ENGLISH: Telling = Telling {
    told: |english| english,
    closes: |_, _| false,
};

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(ENGLISH))
    }
}

impl From<Text> for Value {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

/// Whatever is the same in every language stands in a gap as it is written.
macro_rules! words {
    ($($word:ty),+) => {
        $(impl From<$word> for Value {
            fn from(word: $word) -> Self {
                Self::Word(word.to_string())
            }
        })+
    };
}

words!(&str, &String, String, i16, i32, i64, u16, u32, u64, usize);

/// What is wrong with a word that somebody has written is told by its own text.
macro_rules! told {
    ($($error:ty),+ $(,)?) => {
        $(impl From<&$error> for Text {
            fn from(error: &$error) -> Self {
                error.text()
            }
        })+
    };
}

told!(
    crate::jobs::UnknownJobStatus,
    crate::limits::UnknownScope,
    crate::limits::UnknownDimension,
    crate::management_tokens::UnknownPermission,
    crate::money::ParseAmountError,
    crate::people::UnknownRole,
    crate::periods::UnknownPeriod,
    crate::periods::NotAMonth,
    crate::priority::UnknownPriority,
    crate::refusals::UnknownRefusalCode,
);

/// A piece of a text: what stands there, or the name of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it is.
    Plain(&'a str),
    /// A gap of this name.
    Gap(&'a str),
}

/// The pieces of a text in order. A brace that no other one closes is as it is.
pub fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = rest.find('{').unwrap_or(rest.len());
        if start > 0 {
            let (plain, after) = rest.split_at(start);
            rest = after;
            return Some(Piece::Plain(plain));
        }
        match rest.find('}') {
            Some(end) => {
                let gap = &rest[1..end];
                rest = &rest[end + 1..];
                Some(Piece::Gap(gap))
            }
            None => Some(Piece::Plain(std::mem::take(&mut rest))),
        }
    })
}

/// The text with these values in its gaps. A gap without a value stays as it is written. Between the text and a value one
/// blank is left out where `closes` says that none belongs there; values stay as they are.
pub fn filled(text: &str, values: &[(&str, &dyn fmt::Display)], closes: fn(char, char) -> bool) -> String {
    let mut filled = String::with_capacity(text.len() + 16 * values.len());
    let mut is_behind_gap = false;
    for piece in pieces(text) {
        match piece {
            Piece::Plain(plain) => {
                let without = plain.strip_prefix(' ').unwrap_or(plain);
                let is_closed = is_behind_gap && meet(&filled, without, closes);
                filled.push_str(if is_closed { without } else { plain });
            }
            Piece::Gap(gap) => {
                let value = match values.iter().find(|(name, _)| *name == gap) {
                    Some((_, value)) => value.to_string(),
                    None => format!("{{{gap}}}"),
                };
                if let Some(before) = filled.strip_suffix(' ')
                    && meet(before, &value, closes)
                {
                    filled.pop();
                }
                filled.push_str(&value);
            }
        }
        is_behind_gap = matches!(piece, Piece::Gap(_));
    }
    filled
}

fn meet(before: &str, behind: &str, closes: fn(char, char) -> bool) -> bool {
    let ends = before.chars().next_back().zip(behind.chars().next());
    ends.is_some_and(|(before, behind)| closes(before, behind))
}

/// Whether each gap of the text has a name among these, and each of these a gap; for checks while compiling.
pub const fn fits(text: &str, names: &[&str]) -> bool {
    let text = text.as_bytes();
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'{' {
            let start = at + 1;
            while at < text.len() && text[at] != b'}' {
                at += 1;
            }
            if at == text.len() || !is_among(text, start, at, names) {
                return false;
            }
        }
        at += 1;
    }
    let mut index = 0;
    while index < names.len() {
        if !has_gap(text, names[index].as_bytes()) {
            return false;
        }
        index += 1;
    }
    true
}

const fn is_among(text: &[u8], start: usize, end: usize, names: &[&str]) -> bool {
    let mut index = 0;
    while index < names.len() {
        if is_at(text, start, end, names[index].as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

const fn has_gap(text: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() {
        let end = at + 1 + name.len();
        if text[at] == b'{' && end < text.len() && text[end] == b'}' && is_at(text, at + 1, end, name) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_at(text: &[u8], start: usize, end: usize, name: &[u8]) -> bool {
    if end - start != name.len() {
        return false;
    }
    let mut offset = 0;
    while offset < name.len() {
        if text[start + offset] != name[offset] {
            return false;
        }
        offset += 1;
    }
    true
}

/// A [`Text`]: `text!("at most {count} characters", count)`, `text!("{what} is gone", what = row.name)`. That gaps and values
/// match is checked while compiling.
#[macro_export]
macro_rules! text {
    ($english:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {{
        const { assert!($crate::text::fits($english, &[$(stringify!($name)),*]), "gaps and values differ") };
        $crate::text::Text::new($english, vec![$((stringify!($name), $crate::gap_value!($name $(, $value)?).into())),*])
    }};
}

/// The value of a gap: what is given, or what has the gap's name.
#[doc(hidden)]
#[macro_export]
macro_rules! gap_value {
    ($name:ident) => {
        $name
    };
    ($name:ident, $value:expr) => {
        $value
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_in_every_language() {
        let inner = text!("each key of {tenant}", tenant = "Ada & Co");
        let text = text!("{limit} of {whose} is too large", limit = 60, whose = inner);
        assert_eq!(text.to_string(), "60 of each key of Ada & Co is too large");
        let told = text.told(Telling {
            told: |english| match english {
                "{limit} of {whose} is too large" => "{whose}: {limit} !",
                "each key of {tenant}" => "{tenant}/*",
                other => other,
            },
            ..ENGLISH
        });
        assert_eq!(told, "Ada & Co/*: 60 !");
    }

    #[test]
    fn values_are_not_read_as_gaps() {
        let text = text!("{a}{b}", a = "{b}", b = "x");
        assert_eq!(text.to_string(), "{b}x");
        assert_eq!(filled("{unknown} {", &[], ENGLISH.closes), "{unknown} {");
    }

    #[test]
    fn a_blank_is_left_out_only_where_a_value_begins_or_ends() {
        let closes = |before: char, behind: char| before == 'X' && behind == 'X';
        let tell = |value: &str| filled("aX {value} Xb X X", &[("value", &value)], closes);
        assert_eq!(tell("X X"), "aXX XXb X X");
        assert_eq!(tell("y"), "aX y Xb X X");
        assert_eq!(filled("aX {value} Xb", &[("value", &"X")], ENGLISH.closes), "aX X Xb");
    }

    #[test]
    fn gaps_and_values_must_match() {
        assert!(fits("nothing", &[]));
        assert!(fits("{a} and {b} and {a}", &["b", "a"]));
        assert!(!fits("{a}", &[]));
        assert!(!fits("{a}", &["a", "b"]));
        assert!(!fits("{a", &["a"]));
        assert!(!fits("{ab}", &["a"]));
    }
}
