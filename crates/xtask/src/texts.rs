//! `cargo xtask texts`: brings the translations of the console's texts up to date with the code.
//!
//! A text is a literal in `t!`, `tn!`, `tv!` or `text!`. The macros are found among the code's tokens, also inside of other
//! macros, so that texts in `view!` are found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use polib::catalog::Catalog;
use polib::message::Message;
use polib::po_file;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::workspace::Workspace;

/// Code that people in the console read texts of.
const SOURCES: [&str; 3] = ["crates/admin/src", "crates/control/src", "crates/domain/src"];
const TRANSLATIONS: [&str; 1] = ["crates/admin/texts/zh-Hans.po"];
/// Macros whose first literal is the text.
const ONE_TEXT: [&str; 3] = ["t", "tv", "text"];
/// The macro whose second text, behind a context or not, is the one that is translated.
const BY_NUMBER: &str = "tn";
/// Problems listed at most.
const LISTED_MAX: usize = 40;

/// A text as translations know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Text {
    english: String,
    context: Option<String>,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.english)?;
        match &self.context {
            Some(context) => write!(f, " in {context:?}"),
            None => Ok(()),
        }
    }
}

/// Adds new texts to the files and takes out those that are gone. What waits for a translation is listed.
pub(crate) fn renew(workspace: &Workspace) -> Result<()> {
    let texts = texts(workspace)?;
    for name in TRANSLATIONS {
        let path = workspace.path(name);
        let read = read(&path)?;
        let translations = translations(&read);
        let mut renewed = Catalog::new(read.metadata.clone());
        for text in &texts {
            let mut message = Message::build_singular();
            message.with_msgid(text.english.clone());
            message.with_msgstr(translations.get(text).cloned().unwrap_or_default());
            if let Some(context) = &text.context {
                message.with_msgctxt(context.clone());
            }
            renewed.append_or_update(message.done());
        }
        // Beside it first: translations are not lost when the disk is full.
        let beside = path.with_extension("po.new");
        let mut file = BufWriter::new(File::create(&beside).with_context(|| name.to_owned())?);
        po_file::write(&renewed, &mut file).with_context(|| name.to_owned())?;
        fs::rename(&beside, &path).with_context(|| name.to_owned())?;
        let waiting = texts.iter().filter(|text| !translations.contains_key(text)).count();
        println!(
            "{name}: {} texts, {waiting} of them wait for a translation (msgstr \"\").",
            texts.len()
        );
    }
    Ok(())
}

/// Fails unless each file has each text of the code, with its gaps, and nothing else.
pub(crate) fn compare(workspace: &Workspace) -> Result<()> {
    let texts = texts(workspace)?;
    for name in TRANSLATIONS {
        let translations = translations(&read(&workspace.path(name))?);
        let problems = problems(&texts, &translations);
        if !problems.is_empty() {
            let count = problems.len();
            let listed: Vec<String> = problems.into_iter().take(LISTED_MAX).collect();
            bail!(
                "{name} is not current ({count} problems):\n{}\nrun `cargo xtask texts`, translate what has an empty msgstr, and \
                 commit it",
                listed.join("\n")
            );
        }
        println!("{name} has all {} texts.", texts.len());
    }
    Ok(())
}

fn problems(texts: &BTreeSet<Text>, translations: &BTreeMap<Text, String>) -> Vec<String> {
    let of_texts = texts.iter().filter_map(|text| match translations.get(text) {
        None => Some(format!("not translated: {text}")),
        Some(told) if gaps(told) != gaps(&text.english) => Some(format!("other gaps: {text} is {told:?}")),
        Some(_) => None,
    });
    let unused = translations.keys().filter(|text| !texts.contains(text));
    of_texts
        .chain(unused.map(|text| format!("not in the code: {text}")))
        .collect()
}

/// In order; one that stands there twice, twice.
fn gaps(text: &str) -> Vec<&str> {
    let gaps = text.split('{').skip(1);
    let mut gaps: Vec<&str> = gaps.filter_map(|rest| Some(rest.split_once('}')?.0)).collect();
    gaps.sort_unstable();
    gaps
}

fn read(path: &Path) -> Result<Catalog> {
    let source = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    po_file::parse_from_reader(source.as_bytes()).with_context(|| path.display().to_string())
}

/// What is translated.
fn translations(read: &Catalog) -> BTreeMap<Text, String> {
    read.messages()
        .filter_map(|message| {
            let told = message.msgstr().ok().filter(|told| !told.is_empty())?;
            let text = Text {
                english: message.msgid().to_owned(),
                context: message.msgctxt().map(str::to_owned),
            };
            Some((text, told.to_owned()))
        })
        .collect()
}

fn texts(workspace: &Workspace) -> Result<BTreeSet<Text>> {
    let mut found = BTreeSet::new();
    for folder in SOURCES {
        let mut files = Vec::new();
        list(&workspace.path(folder), &mut files)?;
        for path in files {
            let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let tokens: TokenStream = match source.parse() {
                Ok(tokens) => tokens,
                Err(error) => bail!("{}: {error}", path.display()),
            };
            collect(tokens, &mut found);
        }
    }
    Ok(found)
}

/// Sources without those of tests.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            list(&path, files)?;
        } else if name != "tests.rs" && path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn collect(tokens: TokenStream, found: &mut BTreeSet<Text>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_module(&tokens[at..]) {
            at += TEST_MODULE_TOKENS;
            continue;
        }
        if let [
            TokenTree::Ident(name),
            TokenTree::Punct(mark),
            TokenTree::Group(group),
            ..,
        ] = &tokens[at..]
            && mark.as_char() == '!'
        {
            found.extend(text_of(&name.to_string(), group));
        }
        if let TokenTree::Group(group) = &tokens[at] {
            collect(group.stream(), found);
        }
        at += 1;
    }
}

/// Of `# [cfg(test)] mod tests { }`.
const TEST_MODULE_TOKENS: usize = 5;

fn is_test_module(tokens: &[TokenTree]) -> bool {
    let [
        TokenTree::Punct(hash),
        TokenTree::Group(attribute),
        TokenTree::Ident(keyword),
        TokenTree::Ident(_),
        TokenTree::Group(_),
        ..,
    ] = tokens
    else {
        return false;
    };
    hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)" && *keyword == "mod"
}

/// The text of a call of the macro of this name, if it is one of ours and given a literal.
fn text_of(name: &str, call: &Group) -> Option<Text> {
    if call.delimiter() != Delimiter::Parenthesis {
        return None;
    }
    let tokens: Vec<TokenTree> = call.stream().into_iter().collect();
    if name == BY_NUMBER {
        let arguments: Vec<&[TokenTree]> = tokens.split(is_comma).collect();
        let context = arguments.get(1).and_then(|argument| context(argument));
        let many = if context.is_some() { 3 } else { 2 };
        return Some(Text {
            english: string(arguments.get(many)?.first()?)?,
            context,
        });
    }
    if !ONE_TEXT.contains(&name) {
        return None;
    }
    let context = tokens.split(is_comma).nth(1).and_then(context);
    Some(Text {
        english: string(tokens.first()?)?,
        context,
    })
}

/// The context in an argument such as `in "a state"`.
fn context(argument: &[TokenTree]) -> Option<String> {
    match argument {
        [TokenTree::Ident(word), context] if *word == "in" => string(context),
        _ => None,
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')
}

/// The value of a literal that is a string.
fn string(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else {
        return None;
    };
    let literal: syn::LitStr = syn::parse_str(&literal.to_string()).ok()?;
    Some(literal.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(String, Option<String>)> {
        let mut found = BTreeSet::new();
        collect(source.parse().unwrap_or_default(), &mut found);
        found.into_iter().map(|text| (text.english, text.context)).collect()
    }

    #[test]
    fn texts_are_found_wherever_macros_are_called() {
        let source = r#"
            fn page() { view! { <p title=t!("Titled")>{tv!("See {link}", link = view! { <a>{t!("there")}</a> })}</p> } }
            fn others() { tn!(f(a, b), "{n} key", "{n} keys", x); tn!(2, in "a page", "{n} leaf", "{n} leaves"); text!("at most {n} \
                characters", n); t!("Open", in "a state"); other!("no"); "no" }
            #[cfg(test)]
            mod tests { fn no() { t!("no") } }
            macro_rules! t { ($english:literal) => { told($english) }; }
        "#;
        let expected = [
            ("Open", Some("a state")),
            ("See {link}", None),
            ("Titled", None),
            ("at most {n} characters", None),
            ("there", None),
            ("{n} keys", None),
            ("{n} leaves", Some("a page")),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(english, context)| (english.to_owned(), context.map(str::to_owned)))
            .collect();
        assert_eq!(found(source), expected);
    }

    #[test]
    fn what_lacks_differs_or_is_unused_is_told() {
        let text = |english: &str| Text {
            english: english.to_owned(),
            context: None,
        };
        let texts = BTreeSet::from(["a {n}", "b", "c"].map(text));
        let translations = BTreeMap::from([
            (text("a {n}"), "{m}".to_owned()),
            (text("b"), "B".to_owned()),
            (text("d"), "D".to_owned()),
        ]);
        assert_eq!(
            problems(&texts, &translations),
            [
                "other gaps: \"a {n}\" is \"{m}\"",
                "not translated: \"c\"",
                "not in the code: \"d\""
            ]
        );
    }
}
