//! Light live traffic: somebody asks something every second or so, some in a stream, some leaving early, some content with a
//! job.

use std::net::SocketAddr;
use std::time::Duration;

use store::random::{self, SystemRandom};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_client::{ChatRequest, Client, Reply, Settings, Timeouts};

/// The mean pause between two requests, in milliseconds.
const PAUSE_MS: u64 = 1_200;
/// Requests under way at most.
const IN_FLIGHT_MAX: usize = 20;
/// How long a question and its retries may take, in milliseconds.
const CALL_MS: u64 = 120_000;
/// How long who is content with a job waits for room before.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a job is waited for.
const JOB_WAIT: Duration = Duration::from_secs(300);
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
    let settings = Settings {
        timeouts: Timeouts {
            total_ms: CALL_MS,
            ..Timeouts::default()
        },
        asks_for_queue_comments: true,
        ..Settings::default()
    };
    let clients: Vec<Client> = keys
        .iter()
        .filter_map(|key| Client::with_settings(&base_url, key, settings.clone()).ok())
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
    match drawn {
        0..25 => {
            if let Ok(Reply::Deferred(job)) = client.chat_or_job(&request, Some(PATIENCE)).await {
                let _ = client.wait_for_job(&job.id, JOB_WAIT).await;
            }
        }
        25..90 => {
            let _ = client.chat(&request).await;
        }
        // A few leave in the middle of it.
        90..=245 => read_stream(&client, &request, usize::MAX).await,
        246.. => read_stream(&client, &request, 5).await,
    }
}

/// Reads an answer as it comes, until it ends, fails, or has brought `chunks_max` chunks.
async fn read_stream(client: &Client, request: &ChatRequest, chunks_max: usize) {
    let Ok(mut stream) = client.chat_stream(request).await else {
        return;
    };
    for _ in 0..chunks_max {
        let Ok(Some(_)) = stream.next().await else {
            return;
        };
    }
}
