//! From the journal to Postgres and back to the reader: exactly once, whatever happens in between.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::estimate::{Amounts, Estimate};
use domain::ids::{AdjustmentId, KeyId, LimitId, PersonId, RequestId, TenantId, UpstreamId};
use domain::instances::InstanceStatus;
use domain::ledger::{
    Adjustment, HoldRecord, Identity, JournalRecord, Outcome, RehearsedVerdict, Rejection, Settlement,
};
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::periods::Span;
use domain::policy::Dialect;
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use domain::reports::{Grouping, MonthState, Totals};
use domain::usage::{TokenUsage, UsageSource};
use futures_util::TryStreamExt;
use ledger::{Journal, JournalSettings, Shipper, ShipperSettings};
use sqlx::{Connection, Row};
use store::Store;
use store::adjustments::insert_adjustment;
use store::budgets::{BudgetFilter, Spent};
use store::entries::{EntryFilter, LedgerEntry};
use store::ledger::{ShipBatch, Shipped};
use store::reports::{ReportFilter, ReportQuery};
use tempfile::TempDir;
use test_support::postgres::{TestDatabase, database};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

mod calendar;

const SHIPPER: ShipperSettings = ShipperSettings {
    batch_records_max: 7,
    batch_bytes_max: 1 << 20,
    linger: Duration::ZERO,
    interval: Duration::from_millis(10),
    retry_first: Duration::from_millis(2),
    retry_max: Duration::from_millis(20),
};
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database, a journal and what ships it.
pub(crate) struct Ledger {
    pub(crate) database: TestDatabase,
    pub(crate) store: Store,
    directory: TempDir,
    journal: Arc<Journal>,
}

impl Ledger {
    pub(crate) async fn new() -> Self {
        let database = database().await;
        let store = Store::connect_lazily(database.url()).unwrap();
        let directory = TempDir::new().unwrap();
        let journal = open(directory.path(), "one");
        Self {
            database,
            store,
            directory,
            journal,
        }
    }

    pub(crate) fn append(&self, record: impl Into<Record>) -> u64 {
        self.journal.append(&record.into().0).unwrap()
    }

    pub(crate) async fn drain(&self) {
        drain(&self.journal, &self.store).await;
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let mut connection = self.database.connect().await;
        let query = format!("select count(*) from {table}");
        sqlx::query(sqlx::AssertSqlSafe(query))
            .fetch_one(&mut connection)
            .await
            .unwrap()
            .get(0)
    }

    /// Every total is what the entries add up to.
    pub(crate) async fn check_totals(&self) {
        assert_eq!(self.store.rollup_differences(november()).await.unwrap(), []);
    }
}

pub(crate) struct Record(JournalRecord);

impl From<HoldRecord> for Record {
    fn from(hold: HoldRecord) -> Self {
        Self(JournalRecord::Hold(Box::new(hold)))
    }
}

impl From<Settlement> for Record {
    fn from(settlement: Settlement) -> Self {
        Self(JournalRecord::Settlement(Box::new(settlement)))
    }
}

impl From<Rejection> for Record {
    fn from(rejection: Rejection) -> Self {
        Self(JournalRecord::Rejection(Box::new(rejection)))
    }
}

fn open(directory: &Path, instance: &str) -> Arc<Journal> {
    Journal::open(directory, instance, JournalSettings::default(), at(0))
        .unwrap()
        .0
}

pub(crate) async fn drain(journal: &Arc<Journal>, store: &Store) {
    let shipper = Shipper::with_settings(Arc::clone(journal), store.clone(), SHIPPER);
    shipper.drain(PATIENCE).await.unwrap();
    assert_eq!(journal.status(at(0)).depth, 0);
}

/// Minutes into November 2026.
pub(crate) fn at(minutes: u64) -> DateTime<Utc> {
    november().start + chrono::Duration::minutes(minutes as i64)
}

pub(crate) fn november() -> Span {
    Span {
        start: "2026-11-01T00:00:00Z".parse().unwrap(),
        end: "2026-12-01T00:00:00Z".parse().unwrap(),
    }
}

fn tenant(number: u64) -> TenantId {
    TenantId(Uuid::from_u128(0x7e << 64 | u128::from(number)))
}

fn key(number: u64) -> KeyId {
    KeyId(Uuid::from_u128(0x6b << 64 | u128::from(number)))
}

fn upstream(number: u64) -> UpstreamId {
    UpstreamId(Uuid::from_u128(0x75 << 64 | u128::from(number)))
}

/// None, one or two.
fn tags(number: u64) -> BTreeMap<String, String> {
    let project = ["search", "zażółć\u{0}"][number as usize % 2];
    let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    match number % 5 {
        4 => BTreeMap::new(),
        3 => [tag("project", project), tag("team", "")].into(),
        _ => [tag("project", project)].into(),
    }
}

/// A hold whose tenant, key, user, model, upstream and priority follow from its number.
fn hold(number: u64) -> HoldRecord {
    let amounts = |factor: u64| Amounts {
        input_tokens: 100 * factor,
        output_tokens: 50 * factor,
        cost: Nanos(1_000 * factor as i64),
    };
    HoldRecord {
        identity: Identity {
            id: RequestId(Uuid::from_u128(u128::from(number) + 1)),
            tenant_id: tenant(number % 2),
            user_id: (!number.is_multiple_of(3)).then(|| format!("user {}", number % 3)),
            key_id: key(number % 4),
            model: Some(["small", "large", "other"][number as usize % 3].into()),
            dialect: Dialect::Openai,
            endpoint: "chat/completions".to_owned(),
            priority: Priority::ALL[number as usize % 4],
            is_streamed: number.is_multiple_of(2),
            tags: tags(number),
            instance: "one".to_owned(),
            user_agent: Some("curl/8".to_owned()),
            job_id: None,
        },
        admitted_at: at(number * 7),
        upstream_id: (!number.is_multiple_of(5)).then(|| upstream(number % 5)),
        estimate: Estimate {
            expected: amounts(1),
            ceiling: amounts(2),
        },
        price_id: None,
        is_unpriced: number.is_multiple_of(7),
        queue_ms: 3,
    }
}

pub(crate) fn settlement(number: u64) -> Settlement {
    let ended_at = at(number * 7) + chrono::Duration::milliseconds(10 * number as i64);
    Settlement {
        outcome: Outcome::ALL[number as usize % 6],
        status: Some(200),
        usage: TokenUsage {
            input_fresh_tokens: 10 + number,
            cache_read_tokens: number % 3,
            cache_write_5m_tokens: number % 4,
            cache_write_1h_tokens: number % 5,
            output_tokens: 20 + number,
            reasoning_tokens: 5,
        },
        usage_source: if number.is_multiple_of(2) {
            UsageSource::Reported
        } else {
            UsageSource::Estimated
        },
        cost_nanos: Nanos(1_000 + number as i64),
        first_byte_ms: (number.is_multiple_of(2)).then_some(number as i64),
        rehearsed: (0..number % 4).map(|limit| verdict(number, limit)).collect(),
        ..Settlement::abandoned(hold(number), ended_at)
    }
}

/// Limits 0 and 1 sit on the tenant.
fn verdict(number: u64, limit: u64) -> RehearsedVerdict {
    let HoldRecord { identity, .. } = hold(number);
    RehearsedVerdict {
        scope: match limit {
            0 | 1 => Scope::Tenant(identity.tenant_id),
            _ => Scope::Global,
        },
        dimension: Dimension::Requests,
        limit_id: LimitId(Uuid::from_u128(u128::from(limit) + 1)),
        code: RefusalCode::ALL[number as usize % 2],
    }
}

pub(crate) fn rejection(number: u64) -> Rejection {
    let HoldRecord { identity, .. } = hold(number);
    Rejection {
        refused_at: at(number * 7),
        code: RefusalCode::ALL[number as usize % 3],
        status: 429,
        scope: Some(Scope::User(identity.tenant_id, "a:b".into())),
        dimension: Some(Dimension::Requests),
        limit_id: None,
        limit_key: Some("rate_limit:{x}".to_owned()),
        chain: Vec::new(),
        message: "too many requests, retry in 3 s".to_owned(),
        retry_after_seconds: Some(3),
        caller_retries: (number.is_multiple_of(2)).then_some(number as i32 % 5),
        refusal_count: 1 + number as i64 % 3,
        early_count: number as i64 % 2,
        expected_input_tokens: 100,
        expected_output_tokens: 50,
        expected_cost_nanos: Nanos(1_000),
        queue_ms: 0,
        identity,
    }
}

pub(crate) fn adjustment(number: u64) -> Adjustment {
    Adjustment {
        id: AdjustmentId(Uuid::from_u128(u128::from(number) + 1)),
        admitted_at: at(number * 7),
        created_at: at(number * 8),
        request_id: None,
        tenant_id: tenant(number % 2),
        user_id: None,
        key_id: (number.is_multiple_of(2)).then(|| key(number % 4)),
        model: None,
        upstream_id: None,
        priority: Priority::Default,
        input_tokens: -3,
        output_tokens: 0,
        cost_nanos: Nanos(-250),
        reason: "charged too much".to_owned(),
        author: "ann@example.com".to_owned(),
        reference: None,
    }
}

#[tokio::test]
async fn a_batch_sent_twice_counts_once() {
    let ledger = Ledger::new().await;
    let settlements: Vec<Settlement> = (0..20).map(settlement).collect();
    let rejections: Vec<Rejection> = (20..30).map(rejection).collect();
    let batch = |previous_seq, last_seq| ShipBatch {
        previous_seq,
        last_seq,
        settlements: settlements.iter().collect(),
        rejections: rejections.iter().collect(),
    };
    let ship = |previous_seq, last_seq| {
        let batch = batch(previous_seq, last_seq);
        let store = ledger.store.clone();
        async move { store.ship_ledger("one", &batch).await.unwrap() }
    };
    let committed = |settlements, rejections| Shipped::Committed {
        settlements,
        rejections,
    };
    assert_eq!(ship(0, 40).await, committed(20, 10));
    assert_eq!(ship(0, 40).await, Shipped::Elsewhere { mark: 40 });
    // Under other numbers the same entries are recognised by their keys.
    assert_eq!(ship(40, 80).await, committed(0, 0));
    assert_eq!(ledger.count("settlements").await, 20);
    assert_eq!(ledger.count("rejections").await, 10);
    ledger.check_totals().await;
    assert_eq!(ledger.store.ledger_mark("one").await.unwrap(), 80);
}

#[tokio::test]
async fn an_answer_lost_after_the_commit_ships_nothing_twice() {
    for has_met_postgres in [false, true] {
        let ledger = Ledger::new().await;
        let mut previous_seq = 0;
        if has_met_postgres {
            previous_seq = ledger.append(rejection(99));
            ledger.drain().await;
        }
        let settlements: Vec<Settlement> = (0..10).map(settlement).collect();
        let seqs: Vec<u64> = settlements
            .iter()
            .cloned()
            .map(|settlement| ledger.append(settlement))
            .collect();
        let batch = ShipBatch {
            previous_seq,
            last_seq: seqs[5],
            settlements: settlements[..6].iter().collect(),
            rejections: Vec::new(),
        };
        let shipped = ledger.store.ship_ledger("one", &batch).await.unwrap();
        assert!(matches!(shipped, Shipped::Committed { settlements: 6, .. }));
        // The journal has not heard of it.
        ledger.drain().await;
        assert_eq!(ledger.count("settlements").await, 10);
        ledger.check_totals().await;
    }
}

#[tokio::test]
async fn a_bad_record_goes_to_quarantine_and_the_good_ones_go_in() {
    let ledger = Ledger::new().await;
    let mut bad_seq = 0;
    for number in 0..30 {
        ledger.append(hold(number));
        let mut settlement = settlement(number);
        if number == 17 {
            // More than a bigint holds.
            settlement.usage.output_tokens = u64::MAX;
            bad_seq = ledger.append(settlement);
        } else {
            ledger.append(settlement);
        }
    }
    ledger.drain().await;
    assert_eq!(ledger.count("settlements").await, 29);
    assert_eq!(ledger.store.count_quarantined().await.unwrap(), 1);
    ledger.check_totals().await;
    let mut connection = ledger.database.connect().await;
    let row = sqlx::query("select seq, record, reason from ledger_quarantine")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(row.get::<i64, _>("seq") as u64, bad_seq);
    let record: serde_json::Value = row.get::<Option<serde_json::Value>, _>("record").unwrap_or_default();
    // The example's tag has a NUL character, which jsonb cannot hold: such a record is kept as bytes.
    assert!(record.is_null(), "{record}");
    let raw: Vec<u8> = sqlx::query("select raw from ledger_quarantine")
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
    let JournalRecord::Settlement(kept) = serde_json::from_slice(&raw).unwrap() else {
        panic!("a settlement was put aside");
    };
    assert_eq!(kept.usage.output_tokens, u64::MAX);
}

#[tokio::test]
async fn damage_on_disk_goes_to_quarantine_as_bytes() {
    let mut ledger = Ledger::new().await;
    for number in 0..12 {
        ledger.append(rejection(number));
    }
    drop(ledger.journal);
    let path = std::fs::read_dir(ledger.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "journal"))
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, &bytes).unwrap();
    ledger.journal = open(ledger.directory.path(), "one");
    drain(&ledger.journal, &ledger.store).await;
    assert_eq!(ledger.count("rejections").await, 11);
    assert_eq!(ledger.count("ledger_quarantine where raw is not null").await, 1);
    ledger.check_totals().await;
}

/// A journal whose segments hold few records.
fn open_small(directory: &Path) -> Arc<Journal> {
    let settings = JournalSettings {
        segment_bytes: 4_000,
        ..JournalSettings::default()
    };
    Journal::open(directory, "one", settings, at(0)).unwrap().0
}

fn segments_of(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "journal"))
        .collect();
    segments.sort();
    segments
}

async fn gaps(ledger: &Ledger) -> Vec<(u64, Option<u64>)> {
    let rows = ledger.store.quarantined().await.unwrap();
    rows.iter().map(|row| (row.seq, row.last_seq)).collect()
}

#[tokio::test]
async fn a_segment_that_has_gone_astray_is_told_once_and_the_rest_arrives() {
    let mut ledger = Ledger::new().await;
    drop(ledger.journal);
    ledger.journal = open_small(ledger.directory.path());
    let seqs: Vec<u64> = (0..12).map(|number| ledger.append(rejection(number))).collect();
    // Postgres is away; the shipper looks after the journal all the same.
    let away = Store::connect_lazily("postgres://nobody@127.0.0.1:1/nothing").unwrap();
    let shipper = Shipper::with_settings(Arc::clone(&ledger.journal), away, SHIPPER);
    shipper.drain(Duration::from_millis(200)).await.unwrap_err();
    drop(shipper);
    drop(ledger.journal);
    let segments = segments_of(ledger.directory.path());
    assert!(segments.len() > 2, "{segments:?}");
    let first_of = |segment: &PathBuf| -> u64 { segment.file_stem().unwrap().to_str().unwrap().parse().unwrap() };
    let lost = (first_of(&segments[1]), first_of(&segments[2]) - 1);
    std::fs::remove_file(&segments[1]).unwrap();
    ledger.journal = open_small(ledger.directory.path());
    drain(&ledger.journal, &ledger.store).await;
    assert_eq!(gaps(&ledger).await, [(lost.0, Some(lost.1))]);
    drop(ledger.journal);
    ledger.journal = open_small(ledger.directory.path());
    drain(&ledger.journal, &ledger.store).await;
    assert_eq!(gaps(&ledger).await, [(lost.0, Some(lost.1))]);
    let arrived = seqs.iter().filter(|seq| !(lost.0..=lost.1).contains(seq)).count();
    assert_eq!(ledger.count("rejections").await, arrived as i64);
    ledger.check_totals().await;
}

#[tokio::test]
async fn what_a_restored_database_lacks_and_the_journal_has_deleted_is_told() {
    let mut ledger = Ledger::new().await;
    drop(ledger.journal);
    ledger.journal = open_small(ledger.directory.path());
    let mut seqs = Vec::new();
    for number in 0..12 {
        seqs.push(ledger.append(rejection(number)));
        ledger.drain().await;
    }
    assert_eq!(segments_of(ledger.directory.path()).len(), 1);
    // As a backup was that was made after the second.
    let mut sql = ledger.database.connect().await;
    for text in ["delete from rejections", "delete from rejection_rollups"] {
        sqlx::query(text).execute(&mut sql).await.unwrap();
    }
    sqlx::query("update ledger_progress set seq = $1")
        .bind(seqs[1] as i64)
        .execute(&mut sql)
        .await
        .unwrap();
    ledger.append(rejection(20));
    ledger.drain().await;
    let told = gaps(&ledger).await;
    let [(first, Some(last))] = told[..] else {
        panic!("one gap is told: {told:?}");
    };
    assert_eq!(first, seqs[1] + 1);
    // What is still here has come again; the rest is what is told.
    let still_here = seqs.iter().filter(|&&seq| seq > last).count();
    assert!(last < seqs[11]);
    assert_eq!(ledger.count("rejections").await, still_here as i64 + 1);
    ledger.check_totals().await;
}

#[tokio::test]
async fn a_killed_gateways_holds_become_abandoned_settlements() {
    let mut ledger = Ledger::new().await;
    ledger.append(hold(0));
    ledger.append(hold(1));
    ledger.append(settlement(0));
    drop(ledger.journal);
    ledger.journal = open(ledger.directory.path(), "one");
    ledger.journal.settle_abandoned(at(60)).unwrap();
    drain(&ledger.journal, &ledger.store).await;
    let id = hold(1).identity.id;
    let found = ledger.store.find_settlement(id).await.unwrap().unwrap().entry;
    assert_eq!(found, without_nul(Settlement::abandoned(hold(1), at(60))));
    assert_eq!(ledger.count("settlements").await, 2);
    ledger.check_totals().await;
}

/// An entry as Postgres keeps it.
pub(crate) fn without_nul(mut settlement: Settlement) -> Settlement {
    for value in settlement.identity.tags.values_mut() {
        *value = value.replace('\0', "\u{fffd}");
    }
    settlement
}

#[tokio::test]
async fn many_gateways_on_the_same_tenants_lose_nothing() {
    /// Each takes the numbers in steps of its own, none of which divides their count.
    const STEPS: [u64; 5] = [7, 11, 13, 17, 19];
    const GATEWAYS: u64 = STEPS.len() as u64;
    const ENTRIES: u64 = 60;
    let ledger = Ledger::new().await;
    let mut shipping = tokio::task::JoinSet::new();
    for (gateway, step) in (0..).zip(STEPS) {
        let store = ledger.store.clone();
        shipping.spawn(async move {
            let directory = TempDir::new().unwrap();
            let journal = open(directory.path(), &format!("gateway {gateway}"));
            for n in 0..ENTRIES {
                // The same few buckets, tenants and keys for all, each in another order.
                let number = (n * step) % ENTRIES;
                let mut settlement = settlement(number);
                settlement.identity.id = RequestId(Uuid::from_u128(u128::from(gateway * ENTRIES + number) + 1));
                let mut rejection = rejection(number);
                rejection.identity.id = settlement.identity.id;
                journal.append(&Record::from(settlement).0).unwrap();
                journal.append(&Record::from(rejection).0).unwrap();
            }
            // Two shippers of one journal do no harm.
            tokio::join!(drain(&journal, &store), drain(&journal, &store));
        });
    }
    shipping.join_all().await;
    assert_eq!(ledger.count("settlements").await, (GATEWAYS * ENTRIES) as i64);
    assert_eq!(ledger.count("rejections").await, (GATEWAYS * ENTRIES) as i64);
    assert_eq!(ledger.store.ledger_marks().await.unwrap().len(), GATEWAYS as usize);
    ledger.check_totals().await;
}

#[tokio::test]
async fn a_deadlock_is_tried_again_without_loss() {
    let ledger = Ledger::new().await;
    // Two roll-ups that are there; the batch locks them in the order of their buckets.
    let (first, second) = (settlement(0), settlement(12));
    ledger.append(first.clone());
    ledger.append(second.clone());
    ledger.drain().await;
    let renamed = |mut settlement: Settlement, id: u128| {
        settlement.identity.id = RequestId(Uuid::from_u128(id));
        settlement
    };
    let again = [renamed(first.clone(), 1_001), renamed(second.clone(), 1_002)];

    let mut other = ledger.database.connect().await;
    // The other side waits longer for the deadlock to resolve, so that the batch is the one that is given up.
    sqlx::raw_sql("set deadlock_timeout = '30s'")
        .execute(&mut other)
        .await
        .unwrap();
    let mut rival = other.begin().await.unwrap();
    let lock = "select 1 from settlement_rollups where bucket_start = $1 for update";
    let bucket = |settlement: &Settlement| domain::periods::bucket_start(settlement.admitted_at);
    sqlx::query(lock)
        .bind(bucket(&second))
        .execute(&mut *rival)
        .await
        .unwrap();

    let previous_seq = ledger.store.ledger_mark("one").await.unwrap();
    let batch = ShipBatch {
        previous_seq,
        last_seq: previous_seq + 2,
        settlements: again.iter().collect(),
        rejections: Vec::new(),
    };
    let locking = async {
        let mut watch = ledger.database.connect().await;
        let waiting = "select exists (select from pg_locks where not granted and locktype = 'transactionid')";
        while !sqlx::query(waiting)
            .fetch_one(&mut watch)
            .await
            .unwrap()
            .get::<bool, _>(0)
        {
            tokio::task::yield_now().await;
        }
        sqlx::query(lock)
            .bind(bucket(&first))
            .execute(&mut *rival)
            .await
            .unwrap();
        rival.commit().await.unwrap();
    };
    let (shipped, ()) = tokio::join!(ledger.store.ship_ledger("one", &batch), locking);
    assert!(matches!(shipped.unwrap(), Shipped::Committed { settlements: 2, .. }));
    assert_eq!(ledger.count("settlements").await, 4);
    ledger.check_totals().await;
    let mut connection = ledger.database.connect().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks: i64 = sqlx::query(deadlocks).fetch_one(&mut connection).await.unwrap().get(0);
    assert!(deadlocks >= 1, "the two sides were in each other's way");
}

/// A way to Postgres that can be closed and opened.
struct Gate {
    address: SocketAddr,
    postgres: SocketAddr,
    open: Option<JoinHandle<()>>,
}

impl Gate {
    async fn closed(postgres: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            postgres,
            open: None,
        }
    }

    async fn open(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let postgres = self.postgres;
        self.open = Some(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(postgres).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        }));
    }

    /// Cuts every connection.
    async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.abort();
            let _ = open.await;
        }
    }
}

#[tokio::test]
async fn postgres_may_be_away_and_come_back_again_and_again() {
    let ledger = Ledger::new().await;
    let url = url::Url::parse(ledger.database.url()).unwrap();
    let postgres = tokio::net::lookup_host((url.host_str().unwrap(), url.port().unwrap()))
        .await
        .unwrap()
        .next()
        .unwrap();
    let mut gate = Gate::closed(postgres).await;
    let mut gated = url.clone();
    gated.set_host(Some("127.0.0.1")).unwrap();
    gated.set_port(Some(gate.address.port())).unwrap();
    let store = Store::connect_lazily(gated.as_str()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Shipper::with_settings(Arc::clone(&ledger.journal), store, SHIPPER).run(stop.clone()));
    let mut shipped = ledger.journal.shipped();
    let mut last_seq = 0;
    for round in 0..3 {
        for number in round * 40..round * 40 + 40 {
            ledger.append(hold(number));
            last_seq = ledger.append(settlement(number));
        }
        while ledger.journal.status(at(0)).last_error.is_none() {
            tokio::task::yield_now().await;
        }
        assert!(ledger.journal.status(at(0)).depth >= 80);
        gate.open().await;
        if round < 2 {
            // Cut in the middle of it.
            let middle = last_seq - 40;
            tokio::time::timeout(PATIENCE, shipped.wait_for(|seq| *seq >= middle))
                .await
                .unwrap()
                .unwrap();
            gate.close().await;
        }
    }
    tokio::time::timeout(PATIENCE, shipped.wait_for(|seq| *seq >= last_seq))
        .await
        .unwrap()
        .unwrap();
    stop.cancel();
    running.await.unwrap();
    assert_eq!(ledger.count("settlements").await, 120);
    let status = ledger.journal.status(at(0));
    assert_eq!((status.depth, status.last_error), (0, None));
    ledger.check_totals().await;
}

/// Settlements 0 to 59, rejections 60 to 89, adjustments 0 to 5.
async fn filled() -> Ledger {
    let ledger = Ledger::new().await;
    for number in 0..60 {
        ledger.append(settlement(number));
    }
    for number in 60..90 {
        ledger.append(rejection(number));
    }
    ledger.drain().await;
    for number in 0..6 {
        let mut transaction = ledger.store.begin().await.unwrap();
        assert!(insert_adjustment(&mut transaction, &adjustment(number)).await.unwrap());
        assert!(
            !insert_adjustment(&mut transaction, &adjustment(number)).await.unwrap(),
            "the same again"
        );
        transaction.commit().await.unwrap();
    }
    ledger.check_totals().await;
    ledger
}

#[tokio::test]
async fn a_roll_up_that_was_changed_is_found() {
    let ledger = filled().await;
    let mut connection = ledger.database.connect().await;
    let change = "update settlement_rollups set cost_nanos = cost_nanos + 1
                  where bucket_start = (select min(bucket_start) from settlement_rollups)";
    let changed = sqlx::raw_sql(change)
        .execute(&mut connection)
        .await
        .unwrap()
        .rows_affected();
    let change = "update rehearsal_rollups set requests = requests + 1 where scope_kind = ''";
    let changed = changed
        + sqlx::raw_sql(change)
            .execute(&mut connection)
            .await
            .unwrap()
            .rows_affected();
    let change = "update tag_rollups set requests = requests + 1 where tag_name = 'team'";
    let changed = changed
        + sqlx::raw_sql(change)
            .execute(&mut connection)
            .await
            .unwrap()
            .rows_affected();
    let change = "delete from rejections where id = (select max(id::text)::uuid from rejections)";
    sqlx::raw_sql(change).execute(&mut connection).await.unwrap();
    let differences = ledger.store.rollup_differences(november()).await.unwrap();
    assert_eq!(differences.len() as u64, changed + 1);
    let first = &differences[0];
    let cost = |row: &Option<serde_json::Value>| row.as_ref().unwrap()["cost_nanos"].as_i64().unwrap();
    assert_eq!(
        (first.table, cost(&first.stored)),
        ("settlement_rollups", cost(&first.from_entries) + 1)
    );
    assert_eq!(differences.last().unwrap().table, "rejection_rollups");
}

#[tokio::test]
async fn budgets_are_what_the_entries_add_up_to() {
    let ledger = filled().await;
    let span = Span {
        start: at(30),
        end: at(315),
    };
    let everything = BudgetFilter::everything(span);
    let filters = [
        everything.clone(),
        BudgetFilter {
            tenant: Some(tenant(1)),
            ..everything.clone()
        },
        BudgetFilter {
            tenant: Some(tenant(1)),
            user: Some("user 2".to_owned()),
            ..everything.clone()
        },
        BudgetFilter {
            key: Some(key(2)),
            ..everything.clone()
        },
        BudgetFilter {
            key: Some(key(2)),
            models: Some(vec!["small".to_owned()]),
            ..everything.clone()
        },
        BudgetFilter {
            models: Some(vec!["small".to_owned(), "large".to_owned()]),
            ..everything.clone()
        },
        BudgetFilter {
            models: Some(Vec::new()),
            ..everything.clone()
        },
        BudgetFilter {
            upstream: Some(upstream(3)),
            ..everything.clone()
        },
        BudgetFilter {
            priority: Some(Priority::Default),
            tenant: Some(tenant(1)),
            ..everything.clone()
        },
        BudgetFilter {
            tenant: Some(tenant(9)),
            ..everything.clone()
        },
        BudgetFilter {
            key: Some(key(2)),
            tenant: Some(tenant(1)),
            ..everything.clone()
        },
    ];
    let sums = ledger.store.budgets_spent(&filters).await.unwrap();
    for (filter, spent) in filters.iter().zip(&sums.spent) {
        let mut expected = Spent::default();
        for entry in (0..60).map(settlement) {
            let identity = &entry.identity;
            let counts = span.contains(entry.admitted_at)
                && filter.tenant.is_none_or(|tenant| tenant == identity.tenant_id)
                && filter
                    .user
                    .as_ref()
                    .is_none_or(|user| Some(user) == identity.user_id.as_ref())
                && filter.key.is_none_or(|key| key == identity.key_id)
                && filter
                    .models
                    .as_ref()
                    .is_none_or(|models| models.iter().any(|model| identity.model.as_deref() == Some(model)))
                && filter
                    .upstream
                    .is_none_or(|upstream| Some(upstream) == entry.upstream_id)
                && filter.priority.is_none_or(|priority| priority == identity.priority);
            if counts {
                expected.tokens += entry.usage.total_tokens() as i64;
                expected.cost += entry.cost_nanos;
            }
        }
        for entry in (0..6).map(adjustment) {
            let counts = span.contains(entry.admitted_at)
                && filter.tenant.is_none_or(|tenant| tenant == entry.tenant_id)
                && filter.key.is_none_or(|key| Some(key) == entry.key_id)
                && filter.priority.is_none_or(|priority| priority == entry.priority)
                && filter.user.is_none()
                && filter.models.is_none()
                && filter.upstream.is_none();
            if counts {
                expected.tokens += entry.input_tokens + entry.output_tokens;
                expected.cost += entry.cost_nanos;
            }
        }
        assert_eq!(*spent, expected, "{filter:?}");
    }
    assert!(sums.spent[0].tokens > 0 && sums.spent[4].tokens > 0 && sums.spent[7].tokens > 0);
    let mark = ledger.journal.status(at(0)).shipped_seq;
    assert_eq!(sums.marks, [("one".to_owned(), mark)].into());
}

#[tokio::test]
async fn pages_show_every_entry_once_newest_first() {
    let ledger = Ledger::new().await;
    for number in 0..23 {
        // Many at the same instant: the id decides.
        let mut settlement = settlement(number);
        settlement.admitted_at = at(number / 8);
        ledger.append(settlement);
        let mut rejection = rejection(100 + number);
        rejection.refused_at = at(number / 8);
        ledger.append(rejection);
    }
    ledger.drain().await;
    for entries_max in [1, 5, 46, 1_000] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = ledger
                .store
                .ledger_entries(&EntryFilter::default(), after, entries_max)
                .await
                .unwrap();
            assert!(page.entries.len() <= entries_max as usize);
            seen.extend(page.entries.iter().map(|named| (named.entry.at(), named.entry.id())));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 46);
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "in order, none twice");
    }
}

#[tokio::test]
async fn entries_are_found_by_what_they_say() {
    let ledger = filled().await;
    let check = async |filter: EntryFilter,
                       settlements: &dyn Fn(&Settlement) -> bool,
                       rejections: &dyn Fn(&Rejection) -> bool| {
        let page = ledger.store.ledger_entries(&filter, None, 200).await.unwrap();
        assert_eq!(page.next, None);
        let found: HashSet<RequestId> = page.entries.iter().map(|named| named.entry.id()).collect();
        let expected: HashSet<RequestId> = (0..60)
            .map(settlement)
            .filter(settlements)
            .map(|entry| entry.identity.id)
            .chain(
                (60..90)
                    .map(rejection)
                    .filter(rejections)
                    .map(|entry| entry.identity.id),
            )
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{filter:?}");
    };
    let all = EntryFilter::default;
    check(all(), &|_| true, &|_| true).await;
    let by_key = EntryFilter {
        key: Some(key(2)),
        ..all()
    };
    check(by_key, &|entry| entry.identity.key_id == key(2), &|entry| {
        entry.identity.key_id == key(2)
    })
    .await;
    let by_tenant = EntryFilter {
        tenant: Some(tenant(1)),
        ..all()
    };
    let is_tenant = |identity: &Identity| identity.tenant_id == tenant(1);
    check(by_tenant, &|entry| is_tenant(&entry.identity), &|entry| {
        is_tenant(&entry.identity)
    })
    .await;
    let by_model = EntryFilter {
        model: Some("large".to_owned()),
        user: Some("user 1".to_owned()),
        ..all()
    };
    let is_large = |identity: &Identity| identity.model.as_deref() == Some("large");
    check(by_model, &|entry| is_large(&entry.identity), &|entry| {
        is_large(&entry.identity)
    })
    .await;
    let by_outcome = EntryFilter {
        outcome: Some(Outcome::TimedOut),
        ..all()
    };
    check(by_outcome, &|entry| entry.outcome == Outcome::TimedOut, &|_| false).await;
    let code = RefusalCode::PriorityGated;
    check(
        EntryFilter {
            code: Some(code),
            ..all()
        },
        &|_| false,
        &|entry| entry.code == code,
    )
    .await;
    let by_time = EntryFilter {
        from: Some(at(70)),
        until: Some(at(140)),
        ..all()
    };
    check(
        by_time,
        &|entry| at(70) <= entry.admitted_at && entry.admitted_at < at(140),
        &|_| false,
    )
    .await;
    let id = rejection(70).identity.id;
    check(
        EntryFilter {
            request: Some(id),
            ..all()
        },
        &|_| false,
        &|entry| entry.identity.id == id,
    )
    .await;

    let found = ledger
        .store
        .find_settlement(settlement(8).identity.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.entry, without_nul(settlement(8)));
    let mut expected = rejection(70);
    for value in expected.identity.tags.values_mut() {
        *value = value.replace('\0', "\u{fffd}");
    }
    assert_eq!(ledger.store.find_rejection(id).await.unwrap().unwrap().entry, expected);
    assert_eq!(ledger.store.find_settlement(id).await.unwrap(), None);
}

/// Two tenants, a person with key 2, and a gateway that has said how far it is.
async fn with_names(ledger: &Ledger) -> PersonId {
    let person = Uuid::from_u128(0xabc);
    let mut connection = ledger.database.connect().await;
    for number in 0..2 {
        sqlx::query("insert into tenants (id, name, created_at) values ($1, $2, now())")
            .bind(tenant(number).0)
            .bind(format!("tenant {number}"))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    sqlx::query("insert into people (id, email, name, role, tenant_id, created_at) values ($1, 'ann@example.com', 'Ann', 'member', $2, now())")
        .bind(person)
        .bind(tenant(0).0)
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query(
        "insert into keys (id, public_id, tenant_id, owner_id, name, priority, created_at, created_by)
         values ($1, 'public2', $2, $3, 'laptop', 'high', now(), 'Ann')",
    )
    .bind(key(2).0)
    .bind(tenant(0).0)
    .bind(person)
    .execute(&mut connection)
    .await
    .unwrap();
    PersonId(person)
}

#[tokio::test]
async fn names_and_a_persons_own_entries_are_shown() {
    let ledger = filled().await;
    let person = with_names(&ledger).await;
    let mut own = settlement(95);
    own.identity.user_id = Some(person.to_string());
    ledger.append(own.clone());
    ledger.drain().await;
    let filter = EntryFilter {
        owner: Some(person),
        ..EntryFilter::default()
    };
    let page = ledger.store.ledger_entries(&filter, None, 200).await.unwrap();
    assert_eq!(page.entries.len(), 15 + 7 + 1, "with key 2, and under the own name");
    for named in &page.entries {
        let identity = match &named.entry {
            LedgerEntry::Settlement(settlement) => &settlement.identity,
            LedgerEntry::Rejection(rejection) => &rejection.identity,
        };
        let is_own = identity.id == own.identity.id;
        assert_eq!(named.user_name.as_deref(), is_own.then_some("Ann"));
        assert_eq!(named.key_name.as_deref(), (!is_own).then_some("laptop"));
        assert_eq!(named.key_public_id.as_deref(), (!is_own).then_some("public2"));
        assert!(
            named
                .tenant_name
                .as_deref()
                .is_some_and(|name| name.starts_with("tenant "))
        );
    }
    let report = ledger
        .store
        .report(
            &ReportQuery::new(
                november(),
                ReportFilter {
                    owner: Some(person),
                    ..ReportFilter::default()
                },
                Grouping {
                    user: true,
                    key: true,
                    ..Grouping::NONE
                },
            ),
            at(90_000),
        )
        .await
        .unwrap();
    assert_eq!(report.totals.requests, 16);
    assert!(report.rows.iter().any(|row| row.user_name.as_deref() == Some("Ann")));
    assert!(report.rows.iter().any(|row| row.key_name.as_deref() == Some("laptop")));
}

/// The sums that can be added over rows.
fn sums(totals: &[Totals]) -> (u64, u64, i64, Nanos, u64, u64, u64) {
    (
        totals.iter().map(|totals| totals.requests).sum(),
        totals.iter().map(Totals::refused_requests).sum(),
        totals.iter().map(Totals::charged_tokens).sum(),
        totals.iter().map(Totals::charged).sum(),
        totals.iter().map(|totals| totals.adjustments).sum(),
        totals.iter().map(|totals| totals.total_latencies.count()).sum(),
        totals.iter().map(|totals| totals.first_byte_latencies.count()).sum(),
    )
}

#[tokio::test]
async fn a_reports_rows_add_up_to_its_totals_however_it_is_divided() {
    let ledger = filled().await;
    let none = Grouping::NONE;
    let mut sizes = Vec::new();
    for grouping in [
        none,
        Grouping { tenant: true, ..none },
        Grouping { user: true, ..none },
        Grouping {
            key: true,
            model: true,
            ..none
        },
        Grouping { priority: true, ..none },
        Grouping {
            tenant: true,
            user: true,
            key: true,
            model: true,
            priority: true,
        },
    ] {
        let query = ReportQuery::new(november(), ReportFilter::default(), grouping);
        let report = ledger.store.report(&query, at(90_000)).await.unwrap();
        let rows: Vec<Totals> = report.rows.iter().map(|row| row.totals.clone()).collect();
        let whole = sums(std::slice::from_ref(&report.totals));
        assert_eq!(sums(&rows), whole, "{grouping:?}");
        let expected_cost: Nanos = (0..60).map(|number| settlement(number).cost_nanos).sum();
        let refused: i64 = (60..90).map(|number| rejection(number).refusal_count).sum();
        assert_eq!(
            (whole.0, whole.1 as i64, whole.3, whole.4),
            (60, refused, expected_cost + Nanos(-250 * 6), 6)
        );
        assert_eq!((whole.5, whole.6), (60, 30));

        let stream = ledger.store.stream_report(query, at(90_000)).await.unwrap();
        assert_eq!(
            (stream.totals, stream.completeness),
            (report.totals, report.completeness)
        );
        assert_eq!(stream.rows.try_collect::<Vec<_>>().await.unwrap(), report.rows);
        sizes.push(report.rows.len());
    }
    assert_eq!(sizes[..2], [1, 2]);
    assert_eq!(sizes[4], 4);
}

#[tokio::test]
async fn downloads_that_nobody_reads_leave_room_for_everybody_else() {
    let ledger = filled().await;
    // More rows than wait for their reader.
    sqlx::query(
        "insert into settlement_rollups
         select (jsonb_populate_record(null::settlement_rollups, row || jsonb_build_object('model', number::text))).*
         from (select to_jsonb(rollup) as row from settlement_rollups as rollup limit 1) as one,
            generate_series(1, 1000) as number",
    )
    .execute(&mut ledger.database.connect().await)
    .await
    .unwrap();
    let by_model = || {
        ReportQuery::new(
            november(),
            ReportFilter::default(),
            Grouping {
                model: true,
                ..Grouping::NONE
            },
        )
    };
    let mut unread = Vec::new();
    let refused = loop {
        assert!(unread.len() < 10, "as many as anybody likes");
        match ledger.store.stream_report(by_model(), at(90_000)).await {
            Ok(stream) => unread.push(stream),
            Err(error) => break error,
        }
    };
    assert!(refused.is_transient(), "{refused}");
    ledger.store.report(&by_model(), at(90_000)).await.unwrap();
    unread.pop();
    let stream = ledger.store.stream_report(by_model(), at(90_000)).await.unwrap();
    assert!(stream.rows.try_collect::<Vec<_>>().await.unwrap().len() > 1_000);
}

#[tokio::test]
async fn an_overview_has_every_day_and_the_largest_first() {
    let ledger = filled().await;
    let zone = chrono_tz::Asia::Kolkata;
    let span = "2026-11".parse::<domain::periods::Month>().unwrap().span(zone);
    let overview = ledger
        .store
        .overview(span, &ReportFilter::default(), zone, at(90_000))
        .await
        .unwrap();
    assert_eq!(overview.days.len(), 30);
    // The first settlements lie on 1 November at half past five in this zone.
    let day_ends = at(18 * 60 + 30);
    let on_first = (0..60)
        .filter(|&number| settlement(number).admitted_at < day_ends)
        .count();
    assert_eq!(overview.days[0].requests, on_first as u64);
    assert_eq!(overview.days.iter().map(|day| day.requests).sum::<u64>(), 60);
    let charged: Nanos = overview.days.iter().map(|day| day.charged).sum();
    assert_eq!(charged, overview.totals.charged());
    let refused: u64 = overview.days.iter().map(|day| day.refused_requests).sum();
    assert_eq!(refused, overview.totals.refused_requests());
    for top in [&overview.top_tenants, &overview.top_keys, &overview.top_models] {
        assert!(
            top.windows(2)
                .all(|pair| pair[0].totals.charged() >= pair[1].totals.charged())
        );
    }
    assert_eq!(overview.top_tenants.len(), 2);
    let nobody = ReportFilter {
        tenant: Some(tenant(9)),
        ..ReportFilter::default()
    };
    let overview = ledger.store.overview(span, &nobody, zone, at(90_000)).await.unwrap();
    assert_eq!((overview.totals, overview.top_keys.len()), (Totals::default(), 0));
}

#[tokio::test]
async fn a_month_is_closing_until_every_gateway_has_shipped_it() {
    let ledger = filled().await;
    let query = ReportQuery::new(november(), ReportFilter::default(), Grouping::NONE);
    let end = november().end;
    let later = end + chrono::Duration::minutes(5);
    let report = async |complete_until: DateTime<Utc>| {
        let status = InstanceStatus {
            complete_until: Some(complete_until),
            ..InstanceStatus::default()
        };
        ledger.store.report_instance("one", later, &status).await.unwrap();
        ledger.store.report(&query, later).await.unwrap().completeness
    };
    // Folded refusals may reach the journal two minutes late.
    let delay = chrono::Duration::minutes(2);
    let before_end = end - chrono::Duration::seconds(1);
    let completeness = report(before_end + delay).await;
    assert_eq!(
        (completeness.state, completeness.complete_until),
        (MonthState::Closing, before_end)
    );
    assert_eq!(completeness.waiting_for, ["one"]);
    assert_eq!(report(end + delay).await.state, MonthState::Final);
}

#[tokio::test]
async fn an_entry_of_a_month_without_a_partition_is_kept_and_the_months_ahead_are_made() {
    let ledger = Ledger::new().await;
    let mut early = settlement(1);
    early.admitted_at = "2026-05-03T00:00:00Z".parse().unwrap();
    ledger.append(early.clone());
    ledger.drain().await;
    assert_eq!(ledger.count("settlements_default").await, 1);
    // That month's partition cannot be made any more; the others can, again and again.
    for _ in 0..2 {
        ledger
            .store
            .ensure_partitions("2026-05-20T00:00:00Z".parse().unwrap())
            .await
            .unwrap();
    }
    let mut june = settlement(2);
    june.admitted_at = "2026-06-03T00:00:00Z".parse().unwrap();
    ledger.append(june);
    ledger.drain().await;
    assert_eq!(ledger.count("settlements_2026_06").await, 1);
    assert_eq!(
        ledger
            .store
            .find_settlement(early.identity.id)
            .await
            .unwrap()
            .unwrap()
            .entry,
        without_nul(early)
    );
}
