//! What other crates' tests rely on.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::timeout;

use crate::{Options, RedisCluster, RedisServer, poll};

/// A running server would have answered many times.
const SILENCE: Duration = Duration::from_millis(100);
const END_WAIT_MAX: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_takes_orders_and_keeps_nothing() {
    let mut server = RedisServer::start().await;
    assert_eq!(server.command(&["SET", "word", "kept"]).await, "OK");
    assert_eq!(server.command(&["GET", "word"]).await, "kept");
    assert_eq!(
        server.command(&["CONFIG", "GET", "maxmemory-policy"]).await,
        "maxmemory-policy\nnoeviction"
    );
    let port = server.port();
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["GET", "word"]).await, "(nil)");
}

#[tokio::test]
async fn a_server_has_what_its_options_say() {
    let options = Options::default()
        .password("secret")
        .user("limited", "other", "~* +@all -script|load")
        .tls()
        .config("maxmemory 64mb");
    let server = RedisServer::start_with(options).await;
    assert!(
        server.url().starts_with("rediss://:secret@localhost:"),
        "{}",
        server.url()
    );
    assert!(
        server
            .url_as("limited")
            .starts_with("rediss://limited:other@localhost:")
    );
    assert!(server.ca_certificate().exists());
    assert_eq!(server.info("maxmemory_human").await, "64.00M");
    assert!(server.command(&["ACL", "LIST"]).await.contains("user limited on"));
}

#[tokio::test]
async fn a_paused_server_says_nothing_until_it_goes_on() {
    let server = RedisServer::start().await;
    server.pause();
    let answer = timeout(SILENCE, server.command(&["PING"])).await;
    assert!(answer.is_err(), "it answers {answer:?}");
    server.resume();
    assert_eq!(server.command(&["PING"]).await, "PONG");
}

#[tokio::test]
async fn a_replica_follows_until_it_is_promoted() {
    let (primary, replica) = (RedisServer::start().await, RedisServer::start().await);
    primary.command(&["SET", "word", "copied"]).await;
    replica.replica_of(&primary).await;
    assert_eq!(replica.command(&["GET", "word"]).await, "copied");
    replica.promote().await;
    assert_eq!(replica.command(&["SET", "word", "own"]).await, "OK");
}

#[tokio::test]
async fn a_cluster_is_complete_and_spread() {
    let cluster = RedisCluster::start().await;
    let key = "{tag}:word";
    let index = cluster.node_of(key).await;
    assert_eq!(cluster.node(index).command(&["SET", key, "placed"]).await, "OK");
    assert_eq!(cluster.url().matches(',').count(), 2);
    assert!(
        cluster.url().starts_with("redis-cluster://127.0.0.1:"),
        "{}",
        cluster.url()
    );
}

#[tokio::test]
async fn a_dropped_server_is_gone() {
    let server = RedisServer::start().await;
    let id = process_id(&server).await;
    drop(server);
    assert!(!is_running(&id));
}

#[tokio::test]
async fn a_server_ends_with_a_process_that_drops_nothing() {
    let mut server = RedisServer::start().await;
    let directory = server.directory.path().to_owned();
    let process = server.process.as_mut().expect("it runs");
    // What the end of this process does to it, whatever the reason.
    drop(process.watch.stdin.take());
    poll::until("the server ends", END_WAIT_MAX, async || {
        if process.has_ended() && !directory.exists() {
            Ok(())
        } else {
            Err("it runs".to_owned())
        }
    })
    .await;
}

async fn process_id(server: &RedisServer) -> String {
    server.info("process_id").await
}

fn is_running(id: &str) -> bool {
    Command::new("sh")
        .args(["-c", r#"kill -0 "$1""#, "kill", id])
        .stderr(Stdio::null())
        .status()
        .expect("sh starts")
        .success()
}
