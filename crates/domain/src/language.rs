//! The languages of the console.

use std::str::FromStr;

/// A language that all texts exist in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Chinese in simplified characters.
    Chinese,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// The tag (BCP 47): in SQL, forms and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-Hans",
        }
    }

    /// What its speakers call it.
    pub fn own_name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "简体中文",
        }
    }

    /// The first language of an `Accept-Language` header (RFC 9110, section 12.5.4) that texts exist in, the most wanted
    /// first; English if none is. Every variety of Chinese is met with the one there is.
    pub fn accepted(header: &str) -> Self {
        let mut wanted: Vec<(u32, Self)> = header
            .split(',')
            .take(RANGES_MAX)
            .filter_map(|range| {
                let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
                let primary = tag.trim().split('-').next().unwrap_or_default();
                let language = match primary.to_ascii_lowercase().as_str() {
                    "en" | "*" => Self::English,
                    "zh" => Self::Chinese,
                    _ => return None,
                };
                let weight = thousandths(parameters.trim())?;
                (weight > 0).then_some((weight, language))
            })
            .collect();
        // Stable: among equals, the one named first.
        wanted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        wanted.first().map(|(_, language)| *language).unwrap_or_default()
    }
}

/// Ranges of a header that are looked at.
const RANGES_MAX: usize = 32;

/// A weight such as `q=0.8` in thousandths; one without a parameter.
fn thousandths(parameter: &str) -> Option<u32> {
    if parameter.is_empty() {
        return Some(1_000);
    }
    let weight: f64 = parameter.strip_prefix("q=")?.parse().ok()?;
    // At most 1,000, so it fits.
    (0.0..=1.0).contains(&weight).then_some((weight * 1_000.0) as u32)
}

/// The text is no language of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a language is en or zh-Hans")]
pub struct UnknownLanguage;

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|language| language.as_str() == text)
            .ok_or(UnknownLanguage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_wanted_language_wins() {
        for (header, language) in [
            ("", Language::English),
            ("zh-CN,zh;q=0.9,en;q=0.8", Language::Chinese),
            ("en-GB,en;q=0.9,zh;q=0.8", Language::English),
            ("de-DE,zh-TW;q=0.4,en;q=0.3", Language::Chinese),
            ("fr, en;q=0.1, zh;q=0", Language::English),
            ("zh;q=0.5,en", Language::English),
            ("ZH-Hant", Language::Chinese),
            ("zh;q=x,en;q=2,*;q=0.1", Language::English),
        ] {
            assert_eq!(Language::accepted(header), language, "{header}");
        }
    }
}
