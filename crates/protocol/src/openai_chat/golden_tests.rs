//! Cases as data: `golden/openai_chat/<case>.<request|response|stream>.<json|txt>`, each with what is read of it in
//! `<case>.<kind>.expected.json`. To add one, write its file, run the test, and read what it prints before keeping it.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use domain::parts::TextSize;
use serde_json::{Value, json};

use super::{ChatRequest, ChatResponse, EventKind, OutputSizes, ReportedUsage, Rewrite, StreamUsage};
use crate::sse::{SseEvent, SseFramer};

#[test]
fn every_case_reads_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/openai_chat");
    let mut cases = 0;
    let mut wrong = Vec::new();
    for path in files(&folder) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let Some((case, kind)) = case_of(&name) else { continue };
        cases += 1;
        let input = Bytes::from(fs::read(&path).expect("a readable case"));
        let actual = match kind {
            "request" => request(&input),
            "response" => response(&input),
            _ => stream(&input),
        };
        let expected = fs::read(folder.join(format!("{case}.{kind}.expected.json"))).unwrap_or_default();
        if serde_json::from_slice::<Value>(&expected).ok().as_ref() != Some(&actual) {
            wrong.push(format!("{case}.{kind}.expected.json should be\n{actual:#}\n"));
        }
    }
    assert!(cases >= 20, "the cases are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

fn request(body: &Bytes) -> Value {
    let request = match ChatRequest::inspect(body) {
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
        "parts": parts,
        "upstream": String::from_utf8_lossy(&upstream),
    })
}

fn response(body: &Bytes) -> Value {
    let response = ChatResponse::read(body);
    json!({ "usage": usage(&response.reported), "output": sizes(&response.output) })
}

/// What is read of a stream, and what a caller sees who did not ask for usage.
fn stream(body: &Bytes) -> Value {
    let (mut framer, mut seen, mut kinds, mut shown) = (SseFramer::new(), StreamUsage::new(), Vec::new(), Vec::new());
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
        "output": sizes(&seen.output),
        "is_finished": seen.is_finished(),
        "error": seen.error.map(|error| json!([error.message, error.kind, error.code])),
        "shown": String::from_utf8_lossy(&shown),
    })
}

fn usage(reported: &ReportedUsage) -> Value {
    json!(reported.to_usage())
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
