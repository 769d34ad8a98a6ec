use domain::language::Language;

use super::super::NOUNS;
use super::{action_name, field_name, find_action_name, other_subject};
use crate::language;

#[test]
fn english_readers_see_the_words_of_the_code() {
    assert_eq!(action_name("key.issue"), "key.issue");
    assert_eq!(field_name("routes.0.weight"), "routes 1 weight");
    assert_eq!(
        field_name("cache_write_5m_nanos_per_mtok"),
        "cache write 5m nanos per mtok"
    );
    assert_eq!(other_subject("job:018f"), "job:018f");
    assert_eq!(other_subject("ledger"), "ledger");
}

#[test]
fn ids_stay_as_they_are() {
    assert_eq!(other_subject("quarantine:gateway_1/7"), "quarantine:gateway_1/7");
    assert_eq!(other_subject("job:night_run"), "job:night_run");
    assert_eq!(other_subject("paint_pot:light_blue"), "paint pot:light_blue");
}

#[test]
fn the_filter_suggests_how_actions_begin_and_nothing_else() {
    let lines = include_str!("../names.rs").lines();
    let actions: Vec<&str> = lines
        .filter(|line| line.contains(r#"in "action of the audit log""#))
        .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next())
        .collect();
    assert!(actions.contains(&"key.issue"), "{actions:?}");
    for action in &actions {
        assert!(NOUNS.iter().any(|noun| action.starts_with(noun)), "{action}");
    }
    for noun in NOUNS {
        assert!(actions.iter().any(|action| action.starts_with(noun)), "{noun}");
    }
}

#[test]
fn every_action_of_the_operations_has_a_name() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/src");
    let mut folders = vec![sources];
    let mut actions = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let source = std::fs::read_to_string(path).expect("a source");
                let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c == '_' || c.is_ascii_lowercase());
                let is_noun = |noun: &str| noun == "limits" || NOUNS.contains(&noun);
                let quoted = source.split('"').filter(|text| {
                    text.split_once('.')
                        .is_some_and(|(noun, verb)| is_noun(noun) && is_word(verb))
                });
                actions.extend(quoted.map(str::to_owned));
            }
        }
    }
    assert!(actions.iter().any(|action| action == "key.issue"), "{actions:?}");
    for action in actions {
        assert!(
            find_action_name(&action).is_some(),
            "{action} is told to nobody but by its code"
        );
    }
}

#[test]
fn what_a_later_release_writes_stays_as_it_is_in_every_language() {
    for language in [Language::English, Language::Chinese] {
        language::sync_scope(language, || {
            assert_eq!(action_name("key.paint"), "key.paint");
            assert_eq!(field_name("paint_colour"), "paint colour");
            assert_eq!(other_subject("paint_pot:3"), "paint pot:3");
        });
    }
}
