//! Usage is the latest the provider said, in classes that do not overlap; absent is not zero.

use bytes::Bytes;
use domain::parts::TextSize;
use domain::usage::{TokenUsage, UsageSource};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{AnswerUsage, COUNTED_TOKENS_MAX, EventKind, OutputSizes, ReportedUsage, StreamUsage};
use crate::endpoint::Endpoint;
use crate::sse::{SseEvent, SseFramer};

fn reported(usage: &Value) -> ReportedUsage {
    AnswerUsage::read(
        Endpoint::ChatCompletions,
        json!({ "choices": [], "usage": usage }).to_string().as_bytes(),
    )
    .reported
}

fn usage(usage: &Value) -> Option<TokenUsage> {
    reported(usage).to_usage()
}

fn observe(events: &[&str]) -> (StreamUsage, Vec<EventKind>) {
    let mut seen = StreamUsage::of(Endpoint::ChatCompletions);
    let kinds = events.iter().map(|event| seen.observe(event.as_bytes()).kind).collect();
    (seen, kinds)
}

#[test]
fn classes_do_not_overlap() {
    assert_eq!(
        usage(&json!({
            "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": { "cached_tokens": 60, "audio_tokens": 0, "cache_write_tokens": 30 },
            "completion_tokens_details": { "reasoning_tokens": 20 },
        })),
        Some(TokenUsage {
            input_fresh_tokens: 10,
            cache_read_tokens: 60,
            cache_write_5m_tokens: 30,
            cache_write_1h_tokens: 0,
            output_tokens: 50,
            reasoning_tokens: 20,
        })
    );
}

#[test]
fn figures_that_cannot_be_are_kept_within_the_total() {
    let usage = usage(&json!({
        "prompt_tokens": 10, "completion_tokens": 5,
        "prompt_tokens_details": { "cached_tokens": 60, "cache_write_tokens": 7 },
        "completion_tokens_details": { "reasoning_tokens": 20 },
    }))
    .expect("input and output are there");
    assert_eq!(
        (
            usage.input_fresh_tokens,
            usage.cache_read_tokens,
            usage.cache_write_5m_tokens
        ),
        (0, 10, 0)
    );
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (5, 5));
}

#[test]
fn absent_is_not_zero() {
    assert!(reported(&Value::Null).is_empty());
    assert!(reported(&json!({})).is_empty());
    assert!(AnswerUsage::read(Endpoint::ChatCompletions, b"{}").reported.is_empty());
    assert_eq!(usage(&json!({ "prompt_tokens": 7 })), None);
    assert_eq!(usage(&json!({ "prompt_tokens": 7, "completion_tokens": null })), None);
    let zero = usage(&json!({ "prompt_tokens": 7, "completion_tokens": 0 })).expect("zero was said");
    assert_eq!((zero.input_fresh_tokens, zero.output_tokens), (7, 0));
}

#[test]
fn what_was_left_out_is_taken_from_the_estimate_and_what_was_said_is_kept() {
    let complete = reported(&json!({ "prompt_tokens": 7, "completion_tokens": 3 }));
    let (usage, source) = complete.or_estimate(1_000, 1_000);
    assert_eq!(
        (usage.input_fresh_tokens, usage.output_tokens, source),
        (7, 3, UsageSource::Reported)
    );
    let partial = reported(&json!({ "prompt_tokens": 7, "prompt_tokens_details": { "cached_tokens": 4 } }));
    let (usage, source) = partial.or_estimate(1_000, 12);
    assert_eq!((usage.input_fresh_tokens, usage.cache_read_tokens), (3, 4));
    assert_eq!((usage.output_tokens, source), (12, UsageSource::Estimated));
    let (usage, source) = ReportedUsage::default().or_estimate(8, 12);
    assert_eq!(
        (usage.input_fresh_tokens, usage.output_tokens, source),
        (8, 12, UsageSource::Estimated)
    );
}

#[test]
fn reasoning_that_is_only_in_the_total_is_charged() {
    for details in [json!({ "reasoning_tokens": 30 }), json!(null)] {
        let usage = usage(&json!({
            "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45, "completion_tokens_details": details,
        }))
        .expect("usage");
        assert_eq!((usage.output_tokens, usage.reasoning_tokens), (35, 30));
    }
}

#[test]
fn cached_input_that_is_only_in_the_total_is_input() {
    let usage = usage(&json!({
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 105, "prompt_tokens_details": { "cached_tokens": 90 },
    }))
    .expect("usage");
    assert_eq!(
        (usage.input_fresh_tokens, usage.cache_read_tokens, usage.output_tokens),
        (10, 90, 5)
    );
}

#[test]
fn what_could_be_cached_input_or_reasoning_is_charged_as_the_dearer_reasoning() {
    let usage = usage(&json!({
        "prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 55,
        "prompt_tokens_details": { "cached_tokens": 10 }, "completion_tokens_details": { "reasoning_tokens": 10 },
    }))
    .expect("usage");
    assert_eq!((usage.input_tokens(), usage.cache_read_tokens), (40, 10));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (15, 10));
}

#[test]
fn other_providers_names_for_cached_input_are_understood() {
    for other in [
        json!({ "prompt_cache_hit_tokens": 6 }),
        json!({ "cached_tokens": 6, "prompt_tokens_details": "none" }),
    ] {
        let mut said = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
        said.as_object_mut()
            .expect("an object")
            .extend(other.as_object().expect("an object").clone());
        let usage = usage(&said).expect("usage");
        assert_eq!((usage.input_fresh_tokens, usage.cache_read_tokens), (4, 6));
    }
}

#[test]
fn numbers_may_be_written_as_fractions_and_nonsense_is_no_figure() {
    let said = reported(&json!({ "prompt_tokens": 10.0, "completion_tokens": 4.2, "total_tokens": -3 }));
    assert_eq!(
        (said.input_tokens, said.output_tokens, said.total_tokens),
        (Some(10), Some(5), None)
    );
    let said = reported(&json!({ "prompt_tokens": "many", "completion_tokens": [4] }));
    assert!(said.is_empty());
}

#[test]
fn figures_that_no_request_can_have_count_as_not_said() {
    for absurd in [json!(u64::MAX), json!(COUNTED_TOKENS_MAX + 1), json!(1e300)] {
        let said = reported(&json!({ "prompt_tokens": 7, "completion_tokens": absurd, "total_tokens": absurd }));
        assert_eq!((said.input_tokens, said.output_tokens), (Some(7), None), "{absurd}");
        let (usage, source) = said.or_estimate(1_000, 12);
        assert_eq!(
            (usage.input_tokens(), usage.output_tokens, source),
            (7, 12, UsageSource::Estimated)
        );
    }
    let most = reported(&json!({ "prompt_tokens": COUNTED_TOKENS_MAX, "completion_tokens": 1 }));
    assert_eq!(most.input_tokens, Some(COUNTED_TOKENS_MAX));
}

#[test]
fn zeros_are_no_figures_where_something_was_read_or_written() {
    let zeros = json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 });
    let body = json!({ "choices": [{ "message": { "content": "some words" } }], "usage": zeros });
    let read = AnswerUsage::read(Endpoint::ChatCompletions, body.to_string().as_bytes());
    let (usage, source) = read.reported.plausible(&read.output).or_estimate(9, 4);
    assert_eq!(
        (usage.input_tokens(), usage.output_tokens, source),
        (9, 4, UsageSource::Estimated)
    );
    let silent = reported(&json!({ "prompt_tokens": 9, "completion_tokens": 0 })).plausible(&OutputSizes::default());
    assert_eq!(
        silent.to_usage().map(|usage| usage.output_tokens),
        Some(0),
        "an answer may be empty"
    );
}

#[test]
fn a_total_says_nothing_of_parts_that_were_guessed() {
    let said = reported(&json!({ "completion_tokens": 20, "total_tokens": 50 }));
    let (usage, source) = said.or_estimate(10, 99);
    assert_eq!(
        (usage.input_tokens(), usage.output_tokens, source),
        (10, 20, UsageSource::Estimated)
    );
}

#[test]
fn what_could_not_be_read_is_not_taken_for_nothing() {
    let (seen, _) = observe(&[r#"{"choices":[{"delta":{"content":"x"}}]}"#, "[DONE]"]);
    assert!(seen.is_understood());
    for events in [&["oops"][..], &[], &["[DONE]"], &[r#"{"choices":[]}"#, "oops"]] {
        assert!(!observe(events).0.is_understood(), "{events:?}");
    }
}

#[test]
fn running_usage_is_the_latest_and_never_a_sum() {
    let chunk = |completion: u64| {
        json!({ "choices": [{ "delta": { "content": "x" } }], "usage": { "prompt_tokens": 9, "completion_tokens": completion } })
            .to_string()
    };
    let (seen, kinds) = observe(&[&chunk(1), &chunk(2), &chunk(15), "[DONE]"]);
    assert_eq!(seen.reported.output_tokens, Some(15));
    assert_eq!(seen.reported.input_tokens, Some(9));
    assert_eq!(
        kinds[2],
        EventKind::Delta,
        "a chunk with choices is the caller's, whatever else it carries"
    );
    assert_eq!(seen.output.pieces, 3);
}

#[test]
fn a_later_chunk_without_a_figure_keeps_the_earlier_one() {
    let (seen, _) = observe(&[
        r#"{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}}"#,
        r#"{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":null}}"#,
        r#"{"choices":[],"usage":null}"#,
    ]);
    let usage = seen.reported.to_usage().expect("both are known now");
    assert_eq!(
        (usage.input_fresh_tokens, usage.cache_read_tokens, usage.output_tokens),
        (6, 3, 4)
    );
}

#[test]
fn the_usage_only_chunk_is_told_from_the_others() {
    let (seen, kinds) = observe(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
        r#"{"choices":[],"prompt_filter_results":[]}"#,
        " [DONE] ",
        "oops",
    ]);
    use EventKind::{Delta, Done, Unreadable, UsageOnly};
    assert_eq!(kinds, [Delta, Delta, UsageOnly, Delta, Done, Unreadable]);
    assert!(seen.has_finish_reason && seen.is_done && seen.is_finished());
    assert_eq!(seen.output.pieces, 0);
}

#[test]
fn text_reasoning_and_tool_arguments_are_all_measured() {
    let (seen, _) = observe(&[
        r#"{"choices":[{"delta":{"content":"数据 ok"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"hmm","reasoning":"hmm"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\":1}"}}]}},{"delta":{"refusal":"no"}}]}"#,
        r#"{"choices":[{"delta":{"function_call":{"name":"g","arguments":"{}"}}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"abc"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":null,"audio":{"data":"xxxxxxxx"}},"finish_reason":null}]}"#,
    ]);
    let ascii = |ascii_bytes| TextSize {
        ascii_bytes,
        other_bytes: 0,
    };
    let other = TextSize {
        ascii_bytes: 0,
        other_bytes: 6,
    };
    // " ok", "no", and "text" with "abc": the type is counted too, which an estimate can bear.
    assert_eq!(seen.output.content, ascii(3 + 2 + 7) + other);
    assert_eq!(
        seen.output.reasoning,
        ascii(3),
        "the same text under two names counts once"
    );
    assert_eq!(seen.output.tool_calls, ascii(1 + 3 + 4 + 1 + 2));
    assert_eq!(seen.output.pieces, 7);
    assert!(!seen.is_finished());
}

#[test]
fn an_error_within_a_stream_is_seen() {
    let (seen, kinds) = observe(&[r#"{"error":{"message":"overloaded","type":"server_error","code":"busy"}}"#]);
    assert_eq!(kinds, [EventKind::Error]);
    let error = seen.error.expect("an error");
    assert_eq!(
        (error.message.as_deref(), error.code.as_deref()),
        (Some("overloaded"), Some("busy"))
    );
    let (seen, kinds) = observe(&[r#"{"choices":[{"delta":{"content":"x"}}],"error":null}"#]);
    assert_eq!((kinds, seen.error), (vec![EventKind::Delta], None));
}

fn event(raw: &str) -> SseEvent {
    let mut framer = SseFramer::new();
    framer.push(Bytes::copy_from_slice(raw.as_bytes()));
    framer.next_event().ok().flatten().expect("an event")
}

#[test]
fn null_usage_can_be_cut_out_so_that_a_caller_who_did_not_ask_does_not_see_it() {
    for (with, without) in [
        (r#"{"choices":[{}],"usage":null}"#, r#"{"choices":[{}]}"#),
        (
            r#"{"choices":[{}], "usage" : null , "id":"x"}"#,
            r#"{"choices":[{}] , "id":"x"}"#,
        ),
        (r#"{"usage":null, "choices":[{}]}"#, r#"{ "choices":[{}]}"#),
        (r#"{ "usage":null }"#, "{ }"),
    ] {
        let event = event(&format!("data: {with}\n\n"));
        let observed = StreamUsage::of(Endpoint::ChatCompletions).observe(event.data.as_deref().unwrap_or_default());
        let (before, after) = event.without(&observed.null_usage.expect(with)).expect(with);
        assert_eq!(
            [before, after].concat(),
            format!("data: {without}\n\n").as_bytes(),
            "{with}"
        );
    }
    for none in [
        r#"{"choices":[{}]}"#,
        r#"{"choices":[{"usage":null}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1}}"#,
        r#"{"us\u0061ge":null}"#,
    ] {
        assert_eq!(
            StreamUsage::of(Endpoint::ChatCompletions)
                .observe(none.as_bytes())
                .null_usage,
            None,
            "{none}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_end_in_an_observation(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut seen = StreamUsage::of(Endpoint::ChatCompletions);
        seen.observe(&data);
        prop_assert!(seen.reported.is_empty());
    }

    #[test]
    fn any_shape_of_the_fields_ends_in_an_observation(
        words in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"choices\":", "\"delta\":", "\"usage\":", "null", "1e999", "-1", "\"\\ud800\"",
            "\"prompt_tokens\":", "\"prompt_tokens_details\":", "\"tool_calls\":", "\"content\":", "\"x\"", "true", " ",
        ]), 0..40),
    ) {
        let data = words.concat();
        let observed = StreamUsage::of(Endpoint::ChatCompletions).observe(data.as_bytes());
        if let Some(range) = observed.null_usage {
            prop_assert!(data.get(range).is_some());
        }
    }

    #[test]
    fn usage_never_exceeds_what_was_said(figures in prop::array::uniform6(prop::option::of(any::<u64>()))) {
        let [input_tokens, output_tokens, total_tokens, cached_tokens, cache_write_tokens, reasoning_tokens] = figures;
        let said = ReportedUsage {
            input_tokens, output_tokens, total_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
            ..ReportedUsage::default()
        };
        if let Some(usage) = said.to_usage() {
            prop_assert!(Some(usage.input_tokens()) >= input_tokens);
            prop_assert!(Some(usage.output_tokens) >= output_tokens);
            prop_assert!(usage.reasoning_tokens <= usage.output_tokens);
            let parts = input_tokens.unwrap_or(0).saturating_add(output_tokens.unwrap_or(0));
            prop_assert_eq!(usage.total_tokens(), total_tokens.unwrap_or(0).max(parts));
        }
    }

    #[test]
    fn a_cut_out_field_leaves_the_same_json_without_it(
        fields in prop::collection::btree_map("[a-z]{1,4}", any::<Option<String>>(), 0..4),
        place in 0_usize..5,
        blank in prop::sample::select(vec!["", " ", "\t "]),
    ) {
        prop_assume!(!fields.contains_key("usage"));
        let mut written: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}{blank}:{blank}{}", json!(name), json!(value))).collect();
        written.insert(place.min(written.len()), format!("\"usage\"{blank}:{blank}null"));
        let data = format!("{{{blank}{}{blank}}}", written.join(&format!("{blank},{blank}")));
        let range = StreamUsage::of(Endpoint::ChatCompletions).observe(data.as_bytes()).null_usage.expect("it is there");
        let rest = format!("{}{}", &data[..range.start], &data[range.end..]);
        prop_assert_eq!(serde_json::from_str::<Value>(&rest).ok(), Some(json!(fields)), "{}", rest);
    }
}

fn observe_messages(events: &[&str]) -> StreamUsage {
    let mut seen = StreamUsage::of(Endpoint::Messages);
    for event in events {
        seen.observe(event.as_bytes());
    }
    seen
}

#[test]
fn cumulative_usage_is_kept_and_not_added_up() {
    let seen = observe_messages(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}"#,
    ]);
    let usage = seen.reported.to_usage().expect("input and output");
    assert_eq!((usage.input_fresh_tokens, usage.output_tokens), (7, 15));

    let chunk = |output: u64| {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": output, "total_tokens": 9 + output });
        json!({ "choices": [{ "delta": { "content": "x" } }], "usage": usage }).to_string()
    };
    let chunks = [chunk(1), chunk(2), chunk(3)];
    let (seen, _) = observe(&chunks.each_ref().map(String::as_str));
    let usage = seen.reported.to_usage().expect("input and output");
    assert_eq!((usage.input_fresh_tokens, usage.output_tokens), (9, 3));
}

#[test]
fn cached_input_is_charged_once_in_both_shapes() {
    let openai = usage(&json!({
        "prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010,
        "prompt_tokens_details": { "cached_tokens": 600 },
    }));
    let body = json!({
        "type": "message", "content": [{ "type": "text", "text": "Hi" }],
        "usage": { "input_tokens": 400, "cache_read_input_tokens": 600, "output_tokens": 10 },
    });
    let anthropic = AnswerUsage::read(Endpoint::Messages, body.to_string().as_bytes());
    let anthropic = anthropic.reported.plausible(&anthropic.output).to_usage();
    assert_eq!(openai, anthropic);
    let rates = domain::prices::Rates {
        input_nanos_per_mtok: 10_000_000,
        cache_read_nanos_per_mtok: 1_000_000,
        ..domain::prices::Rates::default()
    };
    let cost = rates.cost(&anthropic.expect("usage"));
    assert_eq!(cost, domain::money::Nanos(400 * 10 + 600));
}

#[test]
fn a_prompt_that_a_cache_answered_whole_is_plausible() {
    let body = json!({
        "content": [{ "type": "text", "text": "Hi" }],
        "usage": { "input_tokens": 0, "cache_read_input_tokens": 600, "output_tokens": 10 },
    });
    let read = AnswerUsage::read(Endpoint::Messages, body.to_string().as_bytes());
    let (usage, source) = read.reported.plausible(&read.output).or_estimate(50, 5);
    assert_eq!(
        (usage.input_fresh_tokens, usage.cache_read_tokens, source),
        (0, 600, UsageSource::Reported)
    );
}

#[test]
fn input_that_nobody_reported_is_estimated_without_what_the_cache_is_known_to_hold() {
    let body = json!({ "content": [], "usage": { "cache_read_input_tokens": 600 } });
    let read = AnswerUsage::read(Endpoint::Messages, body.to_string().as_bytes());
    let (usage, source) = read.reported.or_estimate(1_000, 5);
    assert_eq!(
        (usage.input_tokens(), usage.cache_read_tokens, source),
        (1_000, 600, UsageSource::Estimated)
    );
}

#[test]
fn embeddings_have_no_output_and_count_tokens_uses_nothing() {
    let read = AnswerUsage::read(
        Endpoint::Embeddings,
        br#"{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#,
    );
    let (usage, source) = read.reported.plausible(&read.output).or_estimate(100, 100);
    assert_eq!(
        (usage.input_fresh_tokens, usage.output_tokens, source),
        (8, 0, UsageSource::Reported)
    );
    let read = AnswerUsage::read(Endpoint::CountTokens, br#"{"input_tokens":2095}"#);
    assert!(read.reported.is_empty());
}
