//! Of what answers are read to have used.

use bytes::Bytes;
use domain::usage::UsageSource;
use serde::de::IgnoredAny;

use super::fields;
use crate::endpoint::Endpoint;
use crate::sse::SseFramer;
use crate::usage::{AnswerUsage, COUNTED_TOKENS_MAX, EventKind, Observed, OutputSizes, ReportedUsage, StreamUsage};

/// Estimates to fill gaps with: nothing, something, and more than any provider reports.
const ESTIMATES: [(u64, u64); 4] = [(0, 0), (7, 0), (1_000, 500), (u64::MAX, u64::MAX)];

/// Whatever the endpoint, and whether the bytes are an answer, a stream or the data of one event: the figures read of them
/// add up to what was said, and what is to be cut out can be.
pub fn check_usage(data: &[u8]) {
    for endpoint in Endpoint::ALL {
        let answer = AnswerUsage::read(endpoint, data);
        check_output(&answer.output, data.len());
        check_reported(&answer.reported, &answer.output);

        let mut event = StreamUsage::of(endpoint);
        check_observed(&event.observe(data), data);
        check_stream(&event, data.len());

        let mut stream = StreamUsage::of(endpoint);
        let mut framer = SseFramer::new();
        framer.push(Bytes::copy_from_slice(data));
        let events = std::iter::from_fn(|| framer.next_event().expect("inputs are shorter than the longest event"));
        let mut events: Vec<_> = events.collect();
        events.extend(framer.finish());
        for event in events {
            let Some(data) = &event.data else { continue };
            let observed = stream.observe(data);
            check_observed(&observed, data);
            if let Some((before, after)) = observed.null_usage.and_then(|range| event.without(&range)) {
                assert!(before.len() + after.len() < event.raw.len(), "something was cut");
            }
        }
        check_stream(&stream, data.len());
    }
}

fn check_stream(stream: &StreamUsage, bytes: usize) {
    check_output(&stream.output, bytes);
    check_reported(&stream.reported, &stream.output);
    assert!(!stream.is_understood() || stream.events_unreadable == 0, "all was read");
    assert!(!stream.is_done || stream.is_finished(), "what is done is finished");
}

/// An escape in JSON is longer than what it stands for, and a piece is made of something.
fn check_output(output: &OutputSizes, bytes: usize) {
    assert!(
        output.text().bytes() <= bytes as u64,
        "more text than bytes: {output:?}"
    );
    assert_eq!(output.pieces == 0, output.text().bytes() == 0, "pieces: {output:?}");
}

/// Without the usage that was null, the data is the same object without that field.
fn check_observed(observed: &Observed, data: &[u8]) {
    let Some(range) = &observed.null_usage else { return };
    assert_ne!(
        observed.kind,
        EventKind::Unreadable,
        "nothing is known of what was not read"
    );
    assert!(
        range.start < range.end && range.end <= data.len(),
        "{range:?} of {}",
        data.len()
    );
    let cut = [&data[..range.start], &data[range.end..]].concat();
    let json = serde_json::from_slice::<IgnoredAny>(&cut);
    assert!(json.is_ok(), "cut data is JSON: {json:?}");
    if let Some(mut expected) = fields(data) {
        let last = expected
            .iter()
            .rposition(|field| *field == ("usage".to_owned(), "null"));
        expected.remove(last.expect("there was a null usage"));
        assert_eq!(fields(&cut), Some(expected), "only the usage was cut");
    }
}

/// The classes do not overlap, and their sum is what the provider said.
fn check_reported(reported: &ReportedUsage, output: &OutputSizes) {
    let said = [
        reported.input_tokens,
        reported.output_tokens,
        reported.total_tokens,
        reported.cached_tokens,
        reported.reasoning_tokens,
    ];
    assert!(
        said.into_iter().flatten().all(|tokens| tokens <= COUNTED_TOKENS_MAX),
        "{reported:?}"
    );

    assert_eq!(
        reported.to_usage().is_some(),
        reported.is_complete(),
        "complete or not: {reported:?}"
    );
    if let (Some(usage), Some(input), Some(out)) = (reported.to_usage(), reported.input_tokens, reported.output_tokens)
    {
        assert!(usage.reasoning_tokens <= usage.output_tokens, "{usage:?}");
        if reported.counts_cache_apart {
            let written = reported.cache_write_tokens.unwrap_or(0);
            assert_eq!(usage.input_fresh_tokens, input, "{reported:?}");
            assert_eq!(
                usage.cache_read_tokens,
                reported.cached_tokens.unwrap_or(0),
                "{reported:?}"
            );
            assert_eq!(
                usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
                written,
                "{reported:?}"
            );
            assert_eq!(usage.output_tokens, out, "{reported:?}");
        } else {
            let total = reported.total_tokens.unwrap_or(0).max(input + out);
            assert_eq!(usage.total_tokens(), total, "{reported:?}");
            assert!(
                usage.input_tokens() >= input && usage.output_tokens >= out,
                "{reported:?}"
            );
        }
    }

    for estimate in ESTIMATES {
        check_filled(reported, estimate);
        check_filled(&reported.plausible(output), estimate);
    }
}

/// With gaps filled, what was said still stands.
fn check_filled(reported: &ReportedUsage, (input, output): (u64, u64)) {
    let (usage, source) = reported.or_estimate(input, output);
    assert_eq!(source == UsageSource::Reported, reported.is_complete(), "{reported:?}");
    assert!(usage.reasoning_tokens <= usage.output_tokens, "{usage:?}");
    match reported.to_usage() {
        Some(said) => assert_eq!(usage, said, "{reported:?}"),
        None => {
            assert!(
                usage.output_tokens >= reported.output_tokens.unwrap_or(output),
                "{reported:?}"
            );
            assert!(
                usage.input_tokens() >= reported.input_tokens.unwrap_or(input),
                "{reported:?}"
            );
        }
    }
}
