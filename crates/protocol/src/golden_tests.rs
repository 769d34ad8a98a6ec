//! Cases as data: `golden/<endpoint>/<case>.<request|response|stream>.<json|txt>`, each with what is read of it, and what it
//! costs, in `<case>.<kind>.expected.json`. To add one, write its file, run the test, and read what it prints before
//! keeping it: `GOLDEN=write` in the environment keeps what is read.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use domain::parts::TextSize;
use domain::prices::Rates;
use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::request::{InferenceRequest, Rewrite};
use crate::sse::{SseEvent, SseFramer};
use crate::usage::{AnswerUsage, EventKind, OutputSizes, ReportedUsage, StreamUsage};

/// One nano-unit and its multiples, so that a cost tells how many tokens of each class were counted.
const RATES: Rates = Rates {
    input_nanos_per_mtok: 1_000_000,
    cache_read_nanos_per_mtok: 100_000,
    cache_write_5m_nanos_per_mtok: 1_250_000,
    cache_write_1h_nanos_per_mtok: 2_000_000,
    output_nanos_per_mtok: 5_000_000,
};

#[test]
fn every_case_reads_as_expected() {
    for endpoint in Endpoint::ALL {
        let name = endpoint.path().replace('/', "_");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
        let cases = check(endpoint, &folder);
        assert!(cases > 0, "{endpoint} has cases");
    }
}

/// Checks every case of a folder; says how many there are.
fn check(endpoint: Endpoint, folder: &Path) -> usize {
    let mut cases = 0;
    let mut wrong = Vec::new();
    for path in files(folder) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let Some((case, kind)) = case_of(&name) else { continue };
        cases += 1;
        let input = Bytes::from(fs::read(&path).expect("a readable case"));
        let actual = match kind {
            "request" => request(endpoint, &input),
            "response" => response(endpoint, &input),
            _ => stream(endpoint, &input),
        };
        let expected_path = folder.join(format!("{case}.{kind}.expected.json"));
        let expected = fs::read(&expected_path).unwrap_or_default();
        if serde_json::from_slice::<Value>(&expected).ok().as_ref() != Some(&actual) {
            if std::env::var_os("GOLDEN").is_some_and(|wish| wish == "write") {
                fs::write(&expected_path, format!("{actual:#}\n")).expect("written");
            }
            wrong.push(format!("{case}.{kind}.expected.json should be\n{actual:#}\n"));
        }
    }
    assert!(wrong.is_empty(), "{endpoint}: {}", wrong.join("\n"));
    cases
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn case_of(name: &str) -> Option<(&str, &str)> {
    let (case, rest) = name.split_once('.')?;
    let (kind, _) = rest.split_once('.')?;
    (!rest.contains("expected")).then_some((case, kind))
}

fn request(endpoint: Endpoint, body: &Bytes) -> Value {
    let request = match InferenceRequest::inspect(endpoint, body) {
        Ok(request) => request,
        Err(error) => return json!({ "error": error.to_string(), "param": error.param() }),
    };
    let parts: Vec<Value> = request
        .parts()
        .map(|part| json!([format!("{:?}", part.kind), part.bytes, part.text]))
        .collect();
    let upstream = request.rewrite(&Rewrite {
        model: "upstream-model",
        asks_for_usage: true,
        output_cap_tokens: Some(1_000),
    });
    json!({
        "model": request.model(),
        "is_streamed": request.is_streamed(),
        "includes_usage": request.includes_usage(),
        "output_cap_tokens": request.output_cap_tokens(),
        "choices": request.choices(),
        "user": request.user(),
        "messages": request.messages(),
        "preamble_tokens": request.preamble_tokens(),
        "parts": parts,
        "upstream": String::from_utf8_lossy(&upstream),
    })
}

fn response(endpoint: Endpoint, body: &Bytes) -> Value {
    let response = AnswerUsage::read(endpoint, body);
    json!({
        "usage": usage(&response.reported),
        "cost_nanos": cost(&response.reported),
        "output": sizes(&response.output),
        "error": response.error.map(|error| json!([error.message, error.kind, error.code])),
    })
}

/// What is read of a stream, and what a caller sees who did not ask for usage.
fn stream(endpoint: Endpoint, body: &Bytes) -> Value {
    let (mut framer, mut seen, mut kinds, mut shown) =
        (SseFramer::new(), StreamUsage::of(endpoint), Vec::new(), Vec::new());
    framer.push(body.clone());
    let mut events: Vec<SseEvent> = std::iter::from_fn(|| framer.next_event().expect("short events")).collect();
    events.extend(framer.finish());
    for event in events {
        let Some(data) = &event.data else {
            shown.extend_from_slice(&event.raw);
            continue;
        };
        let observed = seen.observe(data);
        kinds.push(format!("{:?}", observed.kind));
        match observed.null_usage.and_then(|range| event.without(&range)) {
            _ if observed.kind == EventKind::UsageOnly => {}
            Some((before, after)) => shown.extend([before, after].concat()),
            None => shown.extend_from_slice(&event.raw),
        }
    }
    json!({
        "kinds": kinds,
        "usage": usage(&seen.reported),
        "cost_nanos": cost(&seen.reported),
        "output": sizes(&seen.output),
        "is_finished": seen.is_finished(),
        "error": seen.error.map(|error| json!([error.message, error.kind, error.code])),
        "shown": String::from_utf8_lossy(&shown),
    })
}

fn usage(reported: &ReportedUsage) -> Value {
    json!(reported.to_usage())
}

fn cost(reported: &ReportedUsage) -> Value {
    json!(reported.to_usage().map(|usage| RATES.cost(&usage)))
}

fn sizes(output: &OutputSizes) -> Value {
    let bytes = |size: TextSize| json!([size.ascii_bytes, size.other_bytes]);
    json!({
        "content": bytes(output.content),
        "reasoning": bytes(output.reasoning),
        "tool_calls": bytes(output.tool_calls),
        "pieces": output.pieces,
    })
}
