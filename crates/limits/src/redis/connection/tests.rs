//! Each test talks to a real server of its own.

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;
use test_redis::{Options, RedisCluster, RedisServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::error::ConnectError;
use super::{Arg, CallError, Connection, RedisSettings, Script, ServerFacts};

/// Answers with its argument and counts its runs under its key.
static ECHO: LazyLock<Script> = LazyLock::new(|| Script::new("redis.call('incr', KEYS[1]) return ARGV[1]"));

/// Long enough for a busy machine.
const PATIENT_MS: u64 = 5_000;
/// Short enough to be run out.
const SHORT_MS: u64 = 100;
/// What a busy machine may add to any of them.
const SLACK: Duration = Duration::from_secs(2);
const RETURN_WAIT_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
const CALLS: u64 = 1_000;

#[tokio::test]
async fn a_script_runs_wherever_the_server_has_forgotten_it() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    assert_eq!(echo(&connection, "first").await, "first");
    assert_eq!(echo(&connection, "second").await, "second");
    server.command(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(echo(&connection, "third").await, "third");
    assert_eq!(server.command(&["GET", "{t}:runs"]).await, "3", "each call runs once");
    let sent = server.command(&["INFO", "commandstats"]).await;
    assert!(
        sent.contains("cmdstat_eval:calls=2,"),
        "the text is sent twice only: {sent}"
    );
}

#[tokio::test]
async fn a_user_who_may_not_load_scripts_may_run_them() {
    let options = Options::default().user("limited", "secret", "~* &* +@all -script|load -config -client -ping");
    let server = RedisServer::start_with(options).await;
    let connection = open(&server.url_as("limited"));
    assert_eq!(echo(&connection, "ran").await, "ran");
    let facts = connection.check_server().await.expect("facts");
    assert_eq!(facts.maxmemory_policy.as_deref(), Some("noeviction"));
}

#[tokio::test]
async fn a_server_that_does_not_know_clients_by_name_is_used() {
    let options = Options::default().config("rename-command CLIENT \"\"");
    let server = RedisServer::start_with(options).await;
    assert_eq!(echo(&open(&server.url()), "ran").await, "ran");
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    let script = Script::new("return table.concat({KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}, '|')");
    let args = [
        Arg::from(b"\x00\xff\r\n".as_slice()),
        Arg::from(i64::MIN),
        Arg::from(u64::MAX),
    ];
    let answer = connection
        .call(&script, &["{t}:a", "{t}:b"], &args)
        .await
        .expect("an answer");
    let expected = b"{t}:a|{t}:b|\x00\xff\r\n|-9223372036854775808|18446744073709551615";
    assert_eq!(answer, Value::BulkString(expected.to_vec()));
}

#[tokio::test]
async fn plain_commands_run() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    let set = |value| {
        let args = [
            Arg::from(value),
            Arg::from("NX"),
            Arg::from("PX"),
            Arg::from(60_000_u64),
        ];
        let connection = connection.clone();
        async move {
            connection
                .command("SET", Some(b"lock"), &args)
                .await
                .expect("an answer")
        }
    };
    assert_eq!(set("mine").await, Value::Okay);
    assert_eq!(set("theirs").await, Value::Nil);
    assert_eq!(server.command(&["GET", "lock"]).await, "mine");
}

#[tokio::test]
async fn a_password_and_a_database_are_used() {
    let server = RedisServer::start_with(Options::default().password("se:cr@t")).await;
    let connection = open(&format!("redis://:se:cr%40t@127.0.0.1:{}/5", server.port()));
    assert_eq!(echo(&connection, "in").await, "in");
    assert!(server.command(&["INFO", "keyspace"]).await.contains("db5:keys=1"));
    assert!(server.command(&["CLIENT", "LIST"]).await.contains("name=tollgate"));
}

#[tokio::test]
async fn a_wrong_password_is_named_as_the_reason() {
    let server = RedisServer::start_with(Options::default().password("secret")).await;
    for login in ["", ":wrong@", "nobody:secret@"] {
        let connection = open(&format!("redis://{login}127.0.0.1:{}", server.port()));
        let reason = unreachable(try_echo(&connection, "in").await);
        assert!(matches!(reason.0, Reason::SignIn), "{login}: {}", reason.1);
        assert!(
            reason.1.contains("WRONGPASS") || reason.1.contains("NOAUTH"),
            "{login}: {}",
            reason.1
        );
    }
}

#[tokio::test]
async fn tls_trusts_the_authority_that_is_named_and_no_other() {
    let server = RedisServer::start_with(Options::default().tls().password("secret")).await;
    let other = RedisServer::start_with(Options::default().tls()).await;
    let mut settings = patient(&server.url());

    settings.ca_certificate = Some(server.ca_certificate());
    let connection = Connection::open(&settings).expect("settings");
    assert_eq!(echo(&connection, "sealed").await, "sealed");

    settings.ca_certificate = Some(other.ca_certificate());
    let connection = Connection::open(&settings).expect("settings");
    let (reason, text) = unreachable(try_echo(&connection, "sealed").await);
    assert!(matches!(reason, Reason::Tls), "{text}");
    assert!(text.contains("invalid peer certificate"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_at_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let connection = open(&format!("redis://127.0.0.1:{port}"));
    let (reason, text) = unreachable(try_echo(&connection, "lost").await);
    assert!(matches!(reason, Reason::NotTaken), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    let began_at = Instant::now();
    unreachable(try_echo(&connection, "lost").await);
    assert!(began_at.elapsed() < SLACK);
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_costs_no_more_than_the_time_out() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let mut settings = patient(&format!("redis://127.0.0.1:{port}"));
    settings.command_timeout_ms = SHORT_MS;
    let connection = Connection::open(&settings).expect("settings");
    let began_at = Instant::now();
    let (reason, text) = unreachable(try_echo(&connection, "lost").await);
    assert!(matches!(reason, Reason::Slow), "{text}");
    assert!(began_at.elapsed() < Duration::from_millis(SHORT_MS) + SLACK);
}

#[tokio::test]
async fn a_paused_server_costs_three_time_outs_and_then_nothing() {
    let server = RedisServer::start().await;
    let connection = open_short(&server.url());
    eventually_echoes(&connection).await;
    server.pause();
    for _ in 0..3 {
        let began_at = Instant::now();
        let error = try_echo(&connection, "late").await.expect_err("nobody answers");
        assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
        assert!(error.may_have_run());
        assert!(began_at.elapsed() < Duration::from_millis(SHORT_MS) + SLACK);
    }
    let began_at = Instant::now();
    for _ in 0..CALLS {
        let (_, text) = unreachable(try_echo(&connection, "late").await);
        assert!(text.contains("answer"), "{text}");
    }
    assert!(began_at.elapsed() < SLACK, "{:?}", began_at.elapsed());
    server.resume();
    eventually_echoes(&connection).await;
}

#[tokio::test]
async fn one_pause_under_many_calls_is_one_silence() {
    let server = RedisServer::start().await;
    let connection = open_short(&server.url());
    eventually_echoes(&connection).await;
    server.pause();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let connection = connection.clone();
        calls.spawn(async move { try_echo(&connection, "late").await });
    }
    let answers = calls.join_all().await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Err(CallError::TimedOut { .. })))
    );
    server.resume();
    // The same connection goes on, and gives each call its own answer.
    let clients = tollgate_clients(&server).await;
    eventually_echoes(&connection).await;
    assert_eq!(tollgate_clients(&server).await, clients);
}

#[tokio::test]
async fn silences_with_answers_in_between_do_not_add_up() {
    let server = RedisServer::start().await;
    let connection = open_short(&server.url());
    eventually_echoes(&connection).await;
    let clients = tollgate_clients(&server).await;
    for _ in 0..5 {
        server.pause();
        let error = try_echo(&connection, "late").await.expect_err("nobody answers");
        assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
        server.resume();
        // As patient as a busy machine needs, unlike the call before.
        assert_eq!(server.command(&["PING"]).await, "PONG");
        eventually_echoes(&connection).await;
    }
    assert_eq!(tollgate_clients(&server).await, clients);
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let mut server = RedisServer::start().await;
    let connection = open(&server.url());
    assert_eq!(echo(&connection, "before").await, "before");
    server.kill();
    let error = eventually_fails(&connection).await;
    assert!(
        matches!(error, CallError::Unreachable { .. } | CallError::Broken { .. }),
        "{error}"
    );
    server.restart().await;
    eventually_echoes(&connection).await;
}

#[tokio::test]
async fn a_connection_that_breaks_while_nobody_calls_is_back_before_the_next_call() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    assert_eq!(echo(&connection, "before").await, "before");
    let before = tollgate_clients(&server).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    until(async || is_replaced(&server, &before).await).await;
    assert_eq!(echo(&connection, "after").await, "after");
}

#[tokio::test]
async fn calls_wait_for_the_successor_of_a_connection_that_lasted() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    assert_eq!(echo(&connection, "before").await, "before");
    // Redis counts whole seconds, and perhaps one too many.
    let ages = ["age=0 ", "age=1 "];
    until(async || {
        let list = server.command(&["CLIENT", "LIST"]).await;
        !list
            .lines()
            .any(|line| line.contains("name=tollgate") && ages.iter().any(|age| line.contains(age)))
    })
    .await;
    let before = tollgate_clients(&server).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    for _ in 0..CALLS {
        if let Err(error) = try_echo(&connection, "meanwhile").await {
            assert!(matches!(error, CallError::Broken { .. }), "{}", chain(&error));
        }
    }
    assert!(is_replaced(&server, &before).await);
}

#[tokio::test]
async fn a_full_server_refuses_with_its_own_words() {
    let server = RedisServer::start_with(Options::default().config("maxmemory 1kb")).await;
    let connection = open(&server.url());
    let error = try_echo(&connection, "more").await.expect_err("there is no room");
    let CallError::Refused { answer } = error else {
        panic!("{error}")
    };
    assert!(answer.starts_with("OOM "), "{answer}");
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_looked_up_anew() {
    let (server, other) = (RedisServer::start().await, RedisServer::start().await);
    let connection = open(&server.url());
    assert_eq!(echo(&connection, "before").await, "before");
    let before = tollgate_clients(&server).await;
    server.replica_of(&other).await;
    let error = eventually_fails(&connection).await;
    let CallError::Refused { answer } = error else {
        panic!("{error}")
    };
    assert!(answer.starts_with("READONLY "), "{answer}");
    until(async || is_replaced(&server, &before).await).await;
    server.promote().await;
    eventually_echoes(&connection).await;
}

#[tokio::test]
async fn many_calls_share_a_connection_and_each_gets_its_own_answer() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let connection = connection.clone();
        calls.spawn(async move { (number.to_string(), echo(&connection, &number.to_string()).await) });
    }
    for (asked, answered) in calls.join_all().await {
        assert_eq!(asked, answered);
    }
    assert_eq!(tollgate_clients(&server).await.len(), 1);
    assert_eq!(server.command(&["GET", "{t}:runs"]).await, CALLS.to_string());
}

#[tokio::test]
async fn a_connection_ends_with_its_last_clone() {
    let server = RedisServer::start().await;
    let connection = open(&server.url());
    let clone = connection.clone();
    assert_eq!(echo(&connection, "here").await, "here");
    drop(connection);
    assert_eq!(echo(&clone, "here").await, "here");
    drop(clone);
    until(async || tollgate_clients(&server).await.is_empty()).await;
}

#[tokio::test]
async fn a_server_says_whether_it_forgets() {
    let server = RedisServer::start().await;
    let facts = open(&server.url()).check_server().await.expect("facts");
    assert_eq!(facts.maxmemory_policy.as_deref(), Some("noeviction"));
    assert_eq!(facts.is_cluster, Some(false));
    assert!(facts.version.is_some_and(|version| version.contains('.')));

    let options = Options::default().config("maxmemory-policy allkeys-lru");
    let server = RedisServer::start_with(options.user("blind", "secret", "~* +@all -info")).await;
    let facts = open(&server.url()).check_server().await.expect("facts");
    assert_eq!(facts.maxmemory_policy.as_deref(), Some("allkeys-lru"));
    let facts = open(&server.url_as("blind")).check_server().await.expect("facts");
    assert_eq!(facts, ServerFacts::default());
}

#[tokio::test]
async fn a_cluster_is_one_place() {
    let cluster = RedisCluster::start().await;
    let connection = open(&cluster.url());
    let mut used = [false; 3];
    for tag in 0..30 {
        let key = format!("{{{tag}}}:runs");
        assert_eq!(echo_at(&connection, &key, "placed").await.expect("an answer"), "placed");
        used[cluster.node_of(&key).await] = true;
    }
    assert_eq!(used, [true; 3], "all nodes are used");
    let facts = connection.check_server().await.expect("facts");
    assert_eq!(facts.is_cluster, Some(true));
    assert_eq!(facts.maxmemory_policy.as_deref(), Some("noeviction"));
    cluster
        .node(2)
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    let facts = connection.check_server().await.expect("facts");
    assert_eq!(
        facts.maxmemory_policy.as_deref(),
        Some("allkeys-lru"),
        "one node that forgets is enough"
    );

    let stray = open(&cluster.urls()[0]);
    let error = echo_at(&stray, &key_on(&cluster, 1).await, "astray")
        .await
        .expect_err("another node has it");
    assert!(
        matches!(&error, CallError::Refused { answer } if answer.starts_with("MOVED ")),
        "{error}"
    );
}

#[tokio::test]
async fn slots_are_followed_while_they_move() {
    let cluster = RedisCluster::start().await;
    let connection = open(&cluster.url());
    let key = key_on(&cluster, 0).await;
    assert_eq!(echo_at(&connection, &key, "old").await.expect("an answer"), "old");
    let slot = cluster.node(0).command(&["CLUSTER", "KEYSLOT", &key]).await;
    let old = cluster.node(0).command(&["CLUSTER", "MYID"]).await;
    let new = cluster.node(1).command(&["CLUSTER", "MYID"]).await;

    // On its way, the key gone already: the old node says whom to ask.
    cluster
        .node(1)
        .command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old])
        .await;
    cluster
        .node(0)
        .command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new])
        .await;
    cluster.node(0).command(&["DEL", &key]).await;
    assert_eq!(echo_at(&connection, &key, "asking").await.expect("an answer"), "asking");

    // Arrived: the old node says where, and the map is read anew.
    for node in [1, 0, 2] {
        cluster
            .node(node)
            .command(&["CLUSTER", "SETSLOT", &slot, "NODE", &new])
            .await;
    }
    for _ in 0..10 {
        assert_eq!(echo_at(&connection, &key, "moved").await.expect("an answer"), "moved");
    }
    assert_eq!(cluster.node(1).command(&["GET", &key]).await, "11");
}

#[tokio::test]
async fn a_node_that_is_gone_costs_its_own_slots_until_another_has_them() {
    let options = Options::default().config("cluster-require-full-coverage no");
    let mut cluster = RedisCluster::start_with(options).await;
    let connection = open(&cluster.url());
    let mut keys = Vec::new();
    for node in 0..3 {
        let key = key_on(&cluster, node).await;
        assert_eq!(echo_at(&connection, &key, "there").await.expect("an answer"), "there");
        keys.push(key);
    }
    cluster.node_mut(2).kill();
    until(async || {
        matches!(
            echo_at(&connection, &keys[2], "gone").await,
            Err(CallError::Unreachable { .. })
        )
    })
    .await;
    for key in &keys[..2] {
        let began_at = Instant::now();
        assert_eq!(echo_at(&connection, key, "there").await.expect("an answer"), "there");
        assert!(began_at.elapsed() < SLACK);
    }

    let slot = cluster.node(0).command(&["CLUSTER", "KEYSLOT", &keys[2]]).await;
    let heir = cluster.node(0).command(&["CLUSTER", "MYID"]).await;
    for node in [0, 1] {
        cluster
            .node(node)
            .command(&["CLUSTER", "SETSLOT", &slot, "NODE", &heir])
            .await;
    }
    until(async || echo_at(&connection, &keys[2], "back").await.is_ok()).await;
}

#[tokio::test]
async fn a_cluster_that_is_none_is_named_as_such() {
    let server = RedisServer::start().await;
    let connection = open(&server.url().replace("redis://", "redis-cluster://"));
    let error = try_echo(&connection, "where").await.expect_err("there are no slots");
    let (_, text) = unreachable(Err(error));
    assert!(text.contains("cluster support disabled"), "{text}");
}

fn patient(url: &str) -> RedisSettings {
    RedisSettings {
        connect_timeout_ms: PATIENT_MS,
        command_timeout_ms: PATIENT_MS,
        ..RedisSettings::new(url)
    }
}

fn open(url: &str) -> Connection {
    Connection::open(&patient(url)).expect("settings")
}

fn open_short(url: &str) -> Connection {
    let settings = RedisSettings {
        connect_timeout_ms: SHORT_MS,
        command_timeout_ms: SHORT_MS,
        ..RedisSettings::new(url)
    };
    Connection::open(&settings).expect("settings")
}

async fn echo(connection: &Connection, text: &str) -> String {
    try_echo(connection, text)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)))
}

async fn try_echo(connection: &Connection, text: &str) -> Result<String, CallError> {
    echo_at(connection, "{t}:runs", text).await
}

async fn echo_at(connection: &Connection, key: &str, text: &str) -> Result<String, CallError> {
    let answer = connection.call(&ECHO, &[key], &[Arg::from(text)]).await?;
    Ok(redis::from_redis_value(answer).expect("text"))
}

async fn eventually_echoes(connection: &Connection) {
    until(async || {
        try_echo(connection, "again")
            .await
            .is_ok_and(|answer| answer == "again")
    })
    .await;
}

async fn eventually_fails(connection: &Connection) -> CallError {
    let deadline = Instant::now() + RETURN_WAIT_MAX;
    loop {
        if let Err(error) = try_echo(connection, "failing").await {
            return error;
        }
        assert!(Instant::now() < deadline, "it does not fail");
        sleep(POLL).await;
    }
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + RETURN_WAIT_MAX;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {RETURN_WAIT_MAX:?}");
        sleep(POLL).await;
    }
}

/// The server's own numbers for our connections.
async fn tollgate_clients(server: &RedisServer) -> Vec<String> {
    let list = server.command(&["CLIENT", "LIST"]).await;
    let ours = list.lines().filter(|line| line.contains("name=tollgate"));
    ours.filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect()
}

async fn is_replaced(server: &RedisServer, before: &[String]) -> bool {
    let clients = tollgate_clients(server).await;
    !clients.is_empty() && clients != before
}

/// A key that lives on that node.
async fn key_on(cluster: &RedisCluster, node: usize) -> String {
    for tag in 0..1_000 {
        let key = format!("{{{tag}}}:on");
        if cluster.node_of(&key).await == node {
            return key;
        }
    }
    panic!("no key lives on node {node}")
}

#[derive(Debug)]
enum Reason {
    SignIn,
    Tls,
    NotTaken,
    Slow,
    Other,
}

/// Why a call found nobody, and everything that is said about it.
fn unreachable(answer: Result<String, CallError>) -> (Reason, String) {
    let error = answer.expect_err("it is out of reach");
    let text = chain(&error);
    assert!(!error.may_have_run(), "{text}");
    let CallError::Unreachable { source, .. } = error else {
        panic!("{text}")
    };
    let reason = match &*source {
        ConnectError::SignIn(_) => Reason::SignIn,
        ConnectError::Tls(_) => Reason::Tls,
        ConnectError::NotTaken(_) => Reason::NotTaken,
        ConnectError::Slow(_) => Reason::Slow,
        _ => Reason::Other,
    };
    (reason, text)
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
