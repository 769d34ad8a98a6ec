//! Texts in the reader's language. Pages write their texts in English, inside [`t!`], [`tn!`] or [`tv!`];
//! `texts/zh-Hans.po` (in GNU gettext's format) has each of them in Chinese. `cargo xtask texts` collects new ones.
//!
//! The language is that of the task which answers a request: [`visit`](crate::visit) finds it, [`scope`] sets it.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;

use domain::language::Language;
use domain::text::{ENGLISH, Piece, Telling, Text, filled, pieces};
use leptos::prelude::*;

const CHINESE: &str = include_str!("../texts/zh-Hans.po");
/// Between a context and its text, as in gettext's own files.
const CONTEXT_END: char = '\u{4}';

static TRANSLATIONS: LazyLock<HashMap<String, String>> = LazyLock::new(|| translations(CHINESE));

tokio::task_local! {
    static LANGUAGE: Language;
}

/// The translations of a file by their English, without those that wait for a translation.
fn translations(source: &str) -> HashMap<String, String> {
    let Ok(read) = polib::po_file::parse_from_reader(source.as_bytes()) else {
        // A test reads the file; English is what is left without one.
        tracing::error!("the translations cannot be read; the console speaks English");
        return HashMap::new();
    };
    read.messages()
        .filter(|message| message.is_singular())
        .filter_map(|message| {
            let told = message.msgstr().ok().filter(|told| !told.is_empty())?;
            let key = match message.msgctxt() {
                Some(context) => format!("{context}{CONTEXT_END}{}", message.msgid()),
                None => message.msgid().to_owned(),
            };
            Some((key, told.to_owned()))
        })
        .collect()
}

/// Runs `work` in this language. What is built in it, and not what is only begun, speaks it.
pub async fn scope<F: Future>(language: Language, work: F) -> F::Output {
    LANGUAGE.scope(language, work).await
}

/// The same for work that does not wait.
pub fn sync_scope<T>(language: Language, work: impl FnOnce() -> T) -> T {
    LANGUAGE.sync_scope(language, work)
}

/// The language of this request; English outside of one.
pub fn current() -> Language {
    LANGUAGE.try_with(|language| *language).unwrap_or_default()
}

/// The text in the reader's language. [`t!`] calls it.
pub fn told(english: &'static str) -> &'static str {
    match current() {
        Language::English => english,
        Language::Chinese => TRANSLATIONS.get(english).map_or(english, String::as_str),
    }
}

/// The text of this context in the reader's language. `key` is the context, U+0004 and the text, as [`t!`] gives it.
pub fn told_in(key: &'static str, english: &'static str) -> &'static str {
    match current() {
        Language::English => english,
        Language::Chinese => TRANSLATIONS.get(key).map_or_else(|| told(english), String::as_str),
    }
}

/// The text in the reader's language with its gaps filled. [`t!`] calls it.
pub fn fill(english: &'static str, values: &[(&str, &dyn Display)]) -> String {
    let telling = telling();
    filled((telling.told)(english), values, telling.closes)
}

/// A text of the operations or the rules in the reader's language.
pub fn text(text: &Text) -> String {
    text.told(telling())
}

/// How the reader's language is told.
fn telling() -> Telling {
    match current() {
        Language::English => ENGLISH,
        Language::Chinese => Telling { told, closes },
    }
}

/// Chinese has a blank beside what is written in Latin letters only, which a translation cannot know of what stands in its
/// gap.
fn closes(before: char, behind: char) -> bool {
    is_chinese(before) && is_chinese(behind)
}

/// A Chinese character or a full-width sign.
fn is_chinese(character: char) -> bool {
    matches!(character, '\u{3000}'..='\u{303f}' | '\u{4e00}'..='\u{9fff}' | '\u{ff00}'..='\u{ff60}')
}

/// Sentences one after the other.
pub fn sentences(parts: &[String]) -> String {
    parts.join(match current() {
        Language::English => " ",
        Language::Chinese => "",
    })
}

/// The text in the reader's language with a view in each gap, which stands there once. [`tv!`] calls it.
pub fn with_views(english: &'static str, mut views: Vec<(&'static str, AnyView)>) -> AnyView {
    pieces(told(english))
        .map(|piece| match piece {
            Piece::Plain(plain) => plain.to_owned().into_any(),
            Piece::Gap(gap) => match views.iter().position(|(name, _)| *name == gap) {
                Some(index) => views.swap_remove(index).1,
                None => ().into_any(),
            },
        })
        .collect_view()
        .into_any()
}

/// A text in the reader's language.
///
/// - `t!("Keys")` is a `&'static str`.
/// - `t!("Issued by {name}", name)`, `t!("Issued by {name}", name = row.name)` is a `String`. That gaps and values match is
///   checked while compiling.
/// - `t!("Open", in "state of an alert")` where one English text has two meanings.
macro_rules! t {
    ($english:literal) => {{
        const { assert!(domain::text::fits($english, &[]), "a gap has no value") };
        $crate::language::told($english)
    }};
    ($english:literal, in $context:literal) => {
        $crate::language::told_in(concat!($context, "\u{4}", $english), $english)
    };
    ($english:literal, $($name:ident $(= $value:expr)?),+ $(,)?) => {{
        const { assert!(domain::text::fits($english, &[$(stringify!($name)),+]), "gaps and values differ") };
        $crate::language::fill($english, &[$((stringify!($name), &domain::gap_value!($name $(, $value)?) as &dyn std::fmt::Display)),+])
    }};
}

/// A text about a number, `{n}` in it, that is one or more: `tn!(count, "{n} key", "{n} keys")`, with more gaps as in
/// [`t!`], and with a context as there: `tn!(count, in "a model's", "{n} token", "{n} tokens")`. The second text is translated.
macro_rules! tn {
    ($count:expr, $(in $context:literal,)? $one:literal, $many:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {{
        const {
            assert!(domain::text::fits($one, &["n" $(, stringify!($name))*]), "gaps and values differ");
            assert!(domain::text::fits($many, &["n" $(, stringify!($name))*]), "gaps and values differ");
        }
        let count: u64 = $count;
        $crate::language::fill_counted(
            count,
            $one,
            ($many, concat!($($context, "\u{4}",)? $many)),
            &[("n", &$crate::format::count(count) as &dyn std::fmt::Display) $(, (stringify!($name), &domain::gap_value!($name $(, $value)?) as &dyn std::fmt::Display))*],
        )
    }};
}

/// The text for this number with its gaps filled; only English has two. `many` is the second text, and what translations
/// know it by. [`tn!`] calls it.
pub fn fill_counted(
    count: u64,
    one: &'static str,
    (many, key): (&'static str, &'static str),
    values: &[(&str, &dyn Display)],
) -> String {
    let text = match current() {
        Language::English if count == 1 => one,
        Language::English => many,
        Language::Chinese => told_in(key, many),
    };
    filled(text, values, telling().closes)
}

/// A text whose gaps are views: `tv!("See {link}.", link = view! { <a href="/keys">{t!("Keys")}</a> })`. Text around
/// elements is one text, because other languages put the elements elsewhere.
macro_rules! tv {
    ($english:literal $(, $name:ident $(= $value:expr)?)+ $(,)?) => {{
        const { assert!(domain::text::fits($english, &[$(stringify!($name)),+]), "gaps and values differ") };
        $crate::language::with_views($english, vec![$((stringify!($name), leptos::prelude::IntoAny::into_any(domain::gap_value!($name $(, $value)?)))),+])
    }};
}

#[cfg(test)]
mod tests;
