//! Counts agree with the encodings' own, and a ceiling is never below what a provider would count for text.

use domain::parts::{Part, PartKind, TextSize};
use domain::policy::Encoding;
use proptest::prelude::*;

use super::{Around, CACHED_BYTES_MIN, Counter, InputEstimate, guess_output, guess_text};
use crate::books::{LEARNED_AFTER, Ratio, RatioBook};

fn text(text: &str) -> Part<'_> {
    Part {
        kind: PartKind::Text,
        bytes: text.len() as u64,
        text: text.into(),
    }
}

fn medium(kind: PartKind, bytes: u64) -> Part<'static> {
    Part {
        kind,
        bytes,
        text: "".into(),
    }
}

fn one_message() -> Around {
    Around {
        messages: 1,
        preamble_tokens: 0,
    }
}

fn estimate<'a>(encoding: Encoding, parts: impl IntoIterator<Item = Part<'a>>) -> InputEstimate {
    Counter::new().estimate_input(encoding, Ratio::ONE, one_message(), parts)
}

#[test]
fn exact_counts_are_those_of_the_published_encodings() {
    let counter = Counter::new();
    for (sample, o200k, cl100k) in [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ] {
        assert_eq!(counter.count_text(Encoding::O200kBase, sample), o200k, "{sample}");
        assert_eq!(counter.count_text(Encoding::Cl100kBase, sample), cl100k, "{sample}");
    }
}

#[test]
fn a_long_text_counts_the_same_the_second_time() {
    let counter = Counter::new();
    let long = "A system prompt that comes with every request. ".repeat(CACHED_BYTES_MIN);
    let first = counter.count_text(Encoding::O200kBase, &long);
    assert_eq!(first, bpe_openai::o200k_base().count(&long) as u64);
    assert_eq!(counter.count_text(Encoding::O200kBase, &long), first);
    assert_ne!(counter.count_text(Encoding::O200kBase, &long[1..]), 0);
}

#[test]
fn an_exact_estimate_expects_the_count_and_holds_15_percent_more() {
    let estimate = estimate(Encoding::O200kBase, [text("hello world"); 1]);
    // Two of text, four around the message, three for the reply.
    assert_eq!((estimate.expected_tokens, estimate.ceiling_tokens), (9, 11));
}

#[test]
fn scripts_weigh_differently_when_guessed() {
    let ascii = guess_text(TextSize::of(&"word ".repeat(100)));
    let chinese = guess_text(TextSize::of(&"数据正在到达".repeat(100)));
    assert_eq!((ascii, chinese), (150, 720));
    assert!(chinese >= Counter::new().count_text(Encoding::O200kBase, &"数据正在到达".repeat(100)));
    assert_eq!(guess_output(TextSize::of("hi"), 9), 9, "each piece is a token at least");
}

#[test]
fn a_learned_ratio_moves_what_is_expected() {
    let book = RatioBook::new();
    let sample = "word ".repeat(400);
    let before = estimate(Encoding::Ratio, [text(&sample)]);
    for _ in 0..LEARNED_AFTER {
        book.observe("m", before.guess_tokens, 2 * before.guess_tokens);
    }
    let counter = Counter::new();
    let after = counter.estimate_input(Encoding::Ratio, book.ratio("m"), one_message(), [text(&sample)]);
    assert_eq!(
        after.guess_tokens, before.guess_tokens,
        "learning does not feed on itself"
    );
    assert!(after.expected_tokens.abs_diff(2 * before.expected_tokens) <= 1);
    assert!(after.ceiling_tokens >= after.expected_tokens);
}

#[test]
fn a_ceiling_is_not_below_what_is_expected_however_dear_the_model_has_been() {
    let book = RatioBook::new();
    for _ in 0..LEARNED_AFTER {
        book.observe("m", 1, 1_000);
    }
    let sample = "word ".repeat(400);
    let estimate = Counter::new().estimate_input(Encoding::Ratio, book.ratio("m"), one_message(), [text(&sample)]);
    assert!(estimate.expected_tokens > sample.len() as u64);
    assert!(estimate.ceiling_tokens >= estimate.expected_tokens);
}

#[test]
fn media_are_bounded_by_part() {
    let weigh = |kind, bytes| {
        let with = estimate(Encoding::O200kBase, [medium(kind, bytes)]);
        let without = estimate(Encoding::O200kBase, []);
        (
            with.expected_tokens - without.expected_tokens,
            with.ceiling_tokens - without.ceiling_tokens,
        )
    };
    let (small, large) = (
        weigh(PartKind::Image { is_low_detail: true }, 9_000_000),
        weigh(PartKind::Image { is_low_detail: false }, 9_000_000),
    );
    assert!(small.0 < large.0 && large.1 < 15_000);
    assert!(weigh(PartKind::Audio, 1_000).0 < weigh(PartKind::Audio, 1_000_000).0);
    assert!(weigh(PartKind::Audio, u64::MAX).1 <= 115_000);
    assert!(weigh(PartKind::File, u64::MAX).1 <= 230_000);
    assert!(weigh(PartKind::File, 0).0 > 0, "a document that is only named");
}

#[test]
fn a_size_that_is_given_has_the_head_room_of_a_text_of_that_size() {
    let prose = "The quick brown fox jumps over the lazy dog, and nobody minds. ".repeat(200);
    for encoding in Encoding::ALL {
        let counted = estimate(encoding, [text(&prose)]);
        let given = InputEstimate::given(encoding, counted.guess_tokens);
        assert_eq!(given.expected_tokens, counted.expected_tokens, "{encoding:?}");
        let difference = given.ceiling_tokens.abs_diff(counted.ceiling_tokens);
        assert!(difference * 100 < counted.ceiling_tokens, "{given:?}, {counted:?}");
    }
}

#[test]
fn a_definition_weighs_more_than_its_text() {
    let schema = r#"{"type":"function","function":{"name":"f"}}"#;
    let definition = Part {
        kind: PartKind::Definition,
        ..text(schema)
    };
    assert!(
        estimate(Encoding::O200kBase, [definition]).expected_tokens
            > estimate(Encoding::O200kBase, [text(schema)]).expected_tokens
    );
}

proptest! {
    #[test]
    fn a_ceiling_is_never_below_the_count_of_the_joined_text(
        parts in prop::collection::vec("\\PC{0,60}", 0..6),
        encoding in prop::sample::select(vec![Encoding::O200kBase, Encoding::Cl100kBase]),
    ) {
        let counter = Counter::new();
        let estimate = counter.estimate_input(encoding, Ratio::ONE, Around { messages: parts.len(), preamble_tokens: 0 }, parts.iter().map(|part| text(part)));
        prop_assert!(estimate.ceiling_tokens >= counter.count_text(encoding, &parts.concat()));
        prop_assert!(estimate.ceiling_tokens >= estimate.expected_tokens);
    }

    #[test]
    fn a_guessed_ceiling_is_bounded_by_the_bytes(sample in "\\PC{0,400}") {
        let estimate = estimate(Encoding::Ratio, [text(&sample)]);
        prop_assert!(estimate.ceiling_tokens >= estimate.expected_tokens);
        prop_assert!(estimate.ceiling_tokens <= (sample.len() as u64 + 7) * 23 / 10 + 10);
    }
}
