//! Light live traffic: somebody asks something every second or so, some in a stream, some leaving early.

use std::net::SocketAddr;
use std::time::Duration;

use store::random::{self, SystemRandom};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_client::{ChatRequest, Client, Settings};

/// The mean pause between two requests, in milliseconds.
const PAUSE_MS: u64 = 1_200;
/// Requests under way at most.
const IN_FLIGHT_MAX: usize = 20;
const QUESTIONS: [&str; 6] = [
    "Summarise yesterday's incident in three sentences.",
    "Which of these tickets are about billing?",
    "Rewrite this paragraph for people who are in a hurry.",
    "Name five synonyms of 'robust' and say when to use each.",
    "Translate the release notes into Portuguese.",
    "What could make this query slow, and how would I find out?",
];
const MODELS: [&str; 4] = ["sim-small", "sim-small", "sim-large", "sim-reasoning"];

/// Sends requests with `keys` until told to stop.
pub(super) async fn run(gateway: SocketAddr, keys: Vec<String>, stop: CancellationToken) {
    let base_url = format!("http://{gateway}/v1");
    let clients: Vec<Client> = keys
        .iter()
        .filter_map(|key| Client::with_settings(&base_url, key, Settings::default()).ok())
        .collect();
    if clients.is_empty() {
        return;
    }
    let calls = TaskTracker::new();
    loop {
        let drawn: [u8; 5] = random::bytes(&SystemRandom);
        let pause_ms = PAUSE_MS / 2 + PAUSE_MS * u64::from(drawn[0]) / 256;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
        }
        if calls.len() >= IN_FLIGHT_MAX {
            continue;
        }
        let client = clients[usize::from(drawn[1]) % clients.len()].clone();
        let request = ChatRequest::new(MODELS[usize::from(drawn[2]) % MODELS.len()])
            .system("You answer briefly.")
            .user(QUESTIONS[usize::from(drawn[3]) % QUESTIONS.len()]);
        calls.spawn(stop.clone().run_until_cancelled_owned(call(client, request, drawn[4])));
    }
}

/// One call. What becomes of it is seen in the ledger.
async fn call(client: Client, request: ChatRequest, drawn: u8) {
    if drawn < 90 {
        let _ = client.chat(&request).await;
        return;
    }
    let Ok(mut stream) = client.chat_stream(&request).await else {
        return;
    };
    // A few leave in the middle of it.
    let mut chunks_left = if drawn > 245 { 5 } else { u32::MAX };
    while let Ok(Some(_)) = stream.next().await {
        chunks_left -= 1;
        if chunks_left == 0 {
            return;
        }
    }
}
