//! Reading and checking the fields of forms, one message per field, all of them at once.

use std::borrow::Cow;
use std::str::FromStr;

use chrono::{DateTime, Datelike, LocalResult, NaiveDate, NaiveDateTime, TimeZone, Utc};
use chrono_tz::Tz;
use domain::money::Nanos;
use domain::text;
use domain::text::Text;

use crate::{ControlError, FieldError};

/// The longest name of anything, in characters.
pub const NAME_CHARS_MAX: usize = 100;
/// The longest e-mail address, in characters (RFC 5321).
pub const EMAIL_CHARS_MAX: usize = 254;
/// The largest count that a limit takes: beyond every real use, and exact in every program that reads JSON.
pub const COUNT_MAX: u64 = 1_000_000_000_000_000;

/// Years that times are read in: Postgres does not keep every time that can be written.
const YEARS: std::ops::RangeInclusive<i32> = 1970..=9999;

/// Collects what is wrong with a form.
#[derive(Debug, Default)]
pub struct Fields {
    errors: Vec<FieldError>,
}

impl Fields {
    /// Notes an error.
    pub fn refuse(&mut self, field: impl Into<Cow<'static, str>>, message: impl Into<Text>) {
        self.errors.push(FieldError::new(field, message));
    }

    /// Notes an error of a call of the API, which speaks English.
    pub(crate) fn refuse_call(&mut self, field: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.refuse(field, Text::word(message));
    }

    /// Notes an error unless `holds`.
    pub fn require(&mut self, holds: bool, field: impl Into<Cow<'static, str>>, message: impl Into<Text>) {
        if !holds {
            self.refuse(field, message);
        }
    }

    /// Succeeds if nothing was noted.
    pub fn check(self) -> Result<(), ControlError> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(ControlError::Invalid(self.errors))
        }
    }

    /// Whether nothing was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The same errors of fields that stand below another one.
    pub(crate) fn under(mut self, field: &str) -> Self {
        for error in &mut self.errors {
            error.field = format!("{field}.{}", error.field).into();
        }
        self
    }

    /// Takes over another form's errors.
    pub fn add(&mut self, other: Self) {
        self.errors.extend(other.errors);
    }

    /// Reads a count such as `60`, `200,000` or `200000`; `None` when blank or wrong (which is noted). Marks stand between
    /// thousands only: to many people `1,5` is one and a half, and must not become fifteen.
    pub fn count(&mut self, field: impl Into<Cow<'static, str>>, text: &str) -> Option<u64> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let groups: Vec<&str> = text.split(is_thousands_mark).collect();
        let is_grouped =
            groups[1..].iter().all(|group| group.len() == 3) && (groups.len() == 1 || groups[0].len() <= 3);
        let digits = groups.concat();
        let is_whole = !groups[0].is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(count) if is_whole && is_grouped => Some(count),
            _ => {
                self.refuse(
                    field,
                    text!("write a whole number such as 60 or 200,000, or leave this empty"),
                );
                None
            }
        }
    }

    /// Reads an amount of money, at least zero; `None` when blank or wrong (which is noted).
    pub fn amount(&mut self, field: impl Into<Cow<'static, str>>, text: &str) -> Option<Nanos> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        match text.parse::<Nanos>() {
            Ok(amount) if amount >= Nanos::ZERO && !text.starts_with('-') => Some(amount),
            Ok(_) => {
                self.refuse(field, text!("an amount cannot be below zero"));
                None
            }
            Err(error) => {
                self.refuse(field, error.text());
                None
            }
        }
    }

    /// Reads a count with a sign, such as `-1,200` or `1,200`; `None` when blank or wrong (which is noted).
    pub fn signed_count(&mut self, field: &'static str, text: &str) -> Option<i64> {
        let (is_negative, rest) = self.sign(field, text)?;
        let count = self.count(field, rest)?;
        let Ok(count) = i64::try_from(count) else {
            self.refuse(field, text!("this is too large"));
            return None;
        };
        Some(if is_negative { -count } else { count })
    }

    /// Reads an amount of money with a sign, such as `-12.50`; `None` when blank or wrong (which is noted).
    pub fn signed_amount(&mut self, field: &'static str, text: &str) -> Option<Nanos> {
        let (is_negative, rest) = self.sign(field, text)?;
        let amount = self.amount(field, rest)?;
        Some(if is_negative { -amount } else { amount })
    }

    /// Whether a figure is below zero, and the figure without its sign; `None` when there is none. Pages write a minus
    /// sign and people a hyphen.
    fn sign<'a>(&mut self, field: &'static str, text: &'a str) -> Option<(bool, &'a str)> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let (is_negative, rest) = match text.strip_prefix(['-', '\u{2212}']) {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest.trim().is_empty() {
            self.refuse(field, text!("write a figure after the sign"));
            return None;
        }
        Some((is_negative, rest.trim_start()))
    }

    /// A text of at most so many characters: trimmed, without control characters but for line breaks.
    pub fn text(&mut self, field: &'static str, text: &str, chars_max: usize) -> String {
        let text = text.trim();
        if text.chars().count() > chars_max {
            self.refuse(field, text!("at most {count} characters", count = chars_max));
        } else if text
            .chars()
            .any(|character| character.is_control() && character != '\n' && character != '\r')
        {
            self.refuse(field, text!("without control characters"));
        }
        text.to_owned()
    }

    /// Reads one of a few words; `None` when blank or wrong (which is noted).
    pub fn word<T>(&mut self, field: impl Into<Cow<'static, str>>, text: &str) -> Option<T>
    where
        T: FromStr,
        for<'error> Text: From<&'error T::Err>,
    {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        match text.parse() {
            Ok(word) => Some(word),
            Err(error) => {
                self.refuse(field, &error);
                None
            }
        }
    }

    /// Reads an instant with an offset (`2026-11-30T18:00:00Z`), or else a local one as [`Self::local_time`] does; `None`
    /// when blank or wrong (which is noted).
    pub fn instant(&mut self, field: impl Into<Cow<'static, str>>, text: &str, zone: Tz) -> Option<DateTime<Utc>> {
        match DateTime::parse_from_rfc3339(text.trim()) {
            Ok(at) if YEARS.contains(&at.year()) => Some(at.with_timezone(&Utc)),
            Ok(_) => {
                self.refuse(field, text!("write a year between 1970 and 9999"));
                None
            }
            Err(_) => self.local_time(field, text, zone),
        }
    }

    /// Reads a local date, with or without a time (`2026-11-30`, `2026-11-30T18:00`); `None` when blank or wrong (which
    /// is noted). A time that happens twice is the first of both.
    pub fn local_time(&mut self, field: impl Into<Cow<'static, str>>, text: &str, zone: Tz) -> Option<DateTime<Utc>> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let local = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"]
            .into_iter()
            .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
            .or_else(|| {
                text.parse::<NaiveDate>()
                    .ok()
                    .map(|day| day.and_time(chrono::NaiveTime::MIN))
            });
        let Some(local) = local else {
            self.refuse(
                field,
                text!("write a date such as 2026-11-30, with a time if you like: 2026-11-30T18:00"),
            );
            return None;
        };
        if !YEARS.contains(&local.year()) {
            self.refuse(field, text!("write a year between 1970 and 9999"));
            return None;
        }
        match zone.from_local_datetime(&local) {
            LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => Some(at.with_timezone(&Utc)),
            LocalResult::None => {
                self.refuse(
                    field,
                    text!("the clocks are put forward then, so this time does not exist"),
                );
                None
            }
        }
    }

    /// A name: trimmed, not empty, at most [`NAME_CHARS_MAX`], without control characters.
    pub fn name(&mut self, field: &'static str, text: &str) -> String {
        let name = text.trim();
        if name.is_empty() {
            self.refuse(field, text!("give it a name"));
        } else if name.chars().count() > NAME_CHARS_MAX {
            self.refuse(field, text!("at most {count} characters", count = NAME_CHARS_MAX));
        } else if name.chars().any(char::is_control) {
            self.refuse(field, text!("a name has no line breaks or control characters"));
        }
        name.to_owned()
    }

    /// An e-mail address: one `@` with something on both sides, no blanks.
    pub fn email(&mut self, field: &'static str, text: &str) -> String {
        let email = text.trim();
        let is_address = email.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty()
                && !domain.is_empty()
                && !domain.contains('@')
                && !domain.starts_with('.')
                && !domain.ends_with('.')
        });
        if !is_address
            || email
                .chars()
                .any(|character| character.is_whitespace() || character.is_control())
        {
            self.refuse(field, text!("write an e-mail address such as ada@example.com"));
        } else if email.chars().count() > EMAIL_CHARS_MAX {
            self.refuse(field, text!("at most {count} characters", count = EMAIL_CHARS_MAX));
        }
        email.to_owned()
    }
}

/// What people write between thousands.
fn is_thousands_mark(character: char) -> bool {
    matches!(character, ',' | '_' | ' ' | '\u{a0}' | '\u{202f}')
}

#[cfg(test)]
mod tests;
