//! An installation whose gateways are the program itself, for what is done to processes: a database, a provider, tenants
//! with keys, and books that are compared when all is over.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use control::keys::{Expiry, KeyDraft, KeyOwner};
use control::limits::NodeLimits;
use control::models::ModelDraft;
use control::prices::PriceDraft;
use control::tenants::TenantDraft;
use control::upstreams::{CredentialChange, UpstreamDraft};
use control::{Actor, Control};
use domain::ids::UpstreamId;
use domain::periods::Span;
use domain::policy::{Dialect, Encoding, Route, Settings};
use domain::prices::{Rates, Unpriced};
use domain::priority::Priority;
use simulator::{Simulator, SimulatorConfig, Stats};
use sqlx::{Connection as _, PgConnection, Row as _};
use store::Store;
use store::random::{Random, SystemRandom};
use store::sealing::SecretKey;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::http::Browser;
use crate::load::{Callers, Tally};
use crate::program::Program;
use crate::tollgate::{CREDENTIAL, SECRET_KEY};

/// What a million tokens of input cost, in nano-units.
const INPUT_NANOS: i64 = 1_000_000_000;
/// What a million tokens of output cost, in nano-units.
const OUTPUT_NANOS: i64 = 2_000_000_000;
/// Tenants, each with two keys.
const TENANTS: usize = 6;
/// Models in OpenAI's dialect.
const MODELS: usize = 4;
/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database, a provider and what operators have made.
pub struct Installation {
    /// The provider.
    pub simulator: Simulator,
    /// Whom load is from.
    pub callers: Callers,
    /// The database, looked at from outside.
    pub store: Store,
    database_url: String,
    gateways_url: String,
}

impl Installation {
    /// Makes one over an empty database.
    ///
    /// # Panics
    /// When that fails.
    pub async fn over(database_url: &str) -> Self {
        let config = SimulatorConfig {
            credential: Some(CREDENTIAL.to_owned()),
            ..SimulatorConfig::default()
        };
        let simulator = Simulator::start(config).await.expect("the simulator starts");
        let store = Store::connect_lazily_with(database_url, 4).expect("a URL");
        store.migrate().await.expect("migrated");
        store.ensure_partitions(Utc::now()).await.expect("partitions");
        let secret_key = SecretKey::from_bytes(SECRET_KEY);
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let settings = Settings {
            time_zone: chrono_tz::UTC,
            currency: "USD".to_owned(),
            unpriced: Unpriced::Refuse,
            rehearsal_percent: None,
        };
        let control = Control::new(store.clone(), secret_key, random);
        control
            .create_settings(&actor(), &settings, Utc::now())
            .await
            .expect("settings");
        let callers = furnish(&control, &simulator.base_url()).await;
        Self {
            simulator,
            callers,
            store,
            database_url: database_url.to_owned(),
            gateways_url: database_url.to_owned(),
        }
    }

    /// From now on gateways reach the database by another way.
    pub fn gateways_reach(&mut self, url: &str) {
        self.gateways_url = url.to_owned();
    }

    /// Starts a gateway over this data directory: the program and its address.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn gateway(&self, data_dir: &Path, variables: &[(&str, &str)]) -> (Program, String) {
        let mut program = self.begin_gateway(data_dir, variables);
        let url = program.says("Tollgate serves on ").await;
        (program, url)
    }

    /// The same without waiting until it serves.
    pub fn begin_gateway(&self, data_dir: &Path, variables: &[(&str, &str)]) -> Program {
        let secret_key: String = SECRET_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut all = vec![
            ("DATABASE_URL", self.gateways_url.as_str()),
            ("TOLLGATE_SECRET_KEY", &secret_key),
        ];
        all.extend(variables);
        Program::start("serve", data_dir, &all)
    }

    /// A connection to its database.
    ///
    /// # Panics
    /// When there is none.
    pub async fn sql(&self) -> PgConnection {
        PgConnection::connect(&self.database_url).await.expect("a connection")
    }

    /// Compares the callers' books and the provider's with the ledger, to the row. `killed` is how many requests were under
    /// way, at most, when gateways were killed: they are in the ledger as abandoned, or as what was known of them.
    ///
    /// # Panics
    /// When anything does not agree.
    pub async fn agrees(&self, tally: &Tally, killed: u64) {
        let mut sql = self.sql().await;
        let ledger = Ledger::read(&mut sql).await;
        let provider = self.simulator.stats();
        self.check_rows(tally, &ledger, killed);
        check_sums(&ledger, &provider, killed);
        self.check_totals(&mut sql, &ledger).await;
    }

    /// Every request that was answered has one row, or is counted in one, and no row is of a request that nobody made.
    fn check_rows(&self, tally: &Tally, ledger: &Ledger, killed: u64) {
        assert_eq!(tally.repeated, 0, "an id was given twice");
        let (mut rows_wanted, mut folded) = (0_u64, 0_u64);
        for (id, seen) in &tally.seen {
            let settled = ledger.settled.get(id);
            let is_refused = ledger.refused.contains(id);
            assert!(!(settled.is_some() && is_refused), "{id} is there twice: {seen:?}");
            match settled {
                Some(row) if seen.is_whole && seen.status == 200 => {
                    assert_eq!(row.outcome, "completed", "{id}: {seen:?}");
                    let (input, output) = seen.usage.expect("an answer tells its usage");
                    assert_eq!((row.input, row.output), (input as i64, output as i64), "{id}: {seen:?}");
                    rows_wanted += 1;
                }
                Some(_) => rows_wanted += 1,
                None if is_refused => folded += 1,
                None => {
                    assert!(
                        seen.status != 200 && !seen.code.is_empty(),
                        "{id} was answered and has no row: {seen:?}"
                    );
                    folded += 1;
                }
            }
        }
        // Refusals that were answered, and those whose answer nobody lived to see.
        let refusals = ledger.refusals as u64;
        assert!(
            (folded..=folded + tally.unanswered).contains(&refusals),
            "{folded} were refused, {} heard nothing, and {refusals} are counted",
            tally.unanswered
        );
        let more = ledger.settled.len() as u64 - rows_wanted;
        assert!(
            more <= tally.unanswered.min(killed),
            "{more} rows are of no request that was made; {} went unanswered, {killed} were killed",
            tally.unanswered
        );
        assert_eq!(ledger.rows, ledger.settled.len() as u64, "a request was settled twice");
        assert!(ledger.abandoned as u64 <= killed, "{} were abandoned", ledger.abandoned);
    }

    /// Costs, roll-ups, quarantine.
    async fn check_totals(&self, sql: &mut PgConnection, ledger: &Ledger) {
        let wrong: i64 = sqlx::query_scalar(
            "select count(*) from settlements
             where usage_source <> 'estimated' and jsonb_array_length(attempts) <= 1
                and cost_nanos <> (input_fresh_tokens * $1 + output_tokens * $2) / 1000000",
        )
        .bind(INPUT_NANOS)
        .bind(OUTPUT_NANOS)
        .fetch_one(&mut *sql)
        .await
        .expect("a count");
        assert_eq!(wrong, 0, "rows whose cost is not tokens times price");
        let now = Utc::now();
        let span = Span {
            start: domain::periods::bucket_start(now - chrono::Duration::hours(6)),
            end: domain::periods::bucket_start(now + chrono::Duration::hours(6)),
        };
        let differences = self.store.rollup_differences(span).await.expect("roll-ups");
        assert!(differences.is_empty(), "{differences:#?}");
        let (requests, cost): (i64, i64) = sqlx::query_as(
            "select coalesce(sum(requests), 0)::bigint, coalesce(sum(cost_nanos), 0)::bigint from settlement_rollups",
        )
        .fetch_one(&mut *sql)
        .await
        .expect("sums");
        assert_eq!((requests as u64, cost), (ledger.rows, ledger.cost));
        let quarantined: Vec<String> = sqlx::query_scalar("select reason from ledger_quarantine")
            .fetch_all(&mut *sql)
            .await
            .expect("the quarantine");
        assert!(quarantined.is_empty(), "{quarantined:?}");
    }
}

/// What the provider has said it used is what the ledger has, but for what it told gateways that were killed: none of it
/// twice, and no request of it without a row.
fn check_sums(ledger: &Ledger, provider: &Stats, killed: u64) {
    let sent = (
        provider.prompt_tokens_sent as i64,
        provider.completion_tokens_sent as i64,
    );
    if killed == 0 {
        assert_eq!(ledger.attempts as u64, provider.requests_received, "tries");
    }
    // A caller that has left is followed for ten seconds, which a slow machine may need for it.
    if killed == 0 && ledger.unreported == 0 {
        assert_eq!((ledger.reported_input, ledger.reported_output), sent, "tokens");
    }
    let (rows, received) = (ledger.attempts as u64, provider.requests_received);
    let most = rows + ledger.abandoned as u64;
    assert!(
        rows <= received && received <= most,
        "{received} arrived, {rows} to {most} are booked"
    );
    assert!(ledger.reported_input <= sent.0 && ledger.reported_output <= sent.1);
    // No request of the load uses more.
    let missing = (sent.0 - ledger.reported_input, sent.1 - ledger.reported_output);
    let unreported = ledger.unreported as i64;
    assert!(
        missing.0 <= unreported * 200 && missing.1 <= unreported * 100,
        "{missing:?} of {unreported}"
    );
}

struct SettledRow {
    outcome: String,
    input: i64,
    output: i64,
}

/// What the database says.
struct Ledger {
    settled: std::collections::HashMap<Uuid, SettledRow>,
    refused: HashSet<Uuid>,
    rows: u64,
    refusals: i64,
    abandoned: usize,
    /// Tries of those that were not abandoned.
    attempts: i64,
    reported_input: i64,
    reported_output: i64,
    /// Rows whose figures are estimates.
    unreported: usize,
    cost: i64,
}

impl Ledger {
    async fn read(sql: &mut PgConnection) -> Self {
        let rows = sqlx::query(
            "select id, outcome, usage_source, input_fresh_tokens + cache_read_tokens as input, output_tokens, cost_nanos,
                    jsonb_array_length(attempts)::bigint as attempts
             from settlements",
        )
        .fetch_all(&mut *sql)
        .await
        .expect("settlements");
        let mut ledger = Self {
            settled: std::collections::HashMap::new(),
            refused: HashSet::new(),
            rows: rows.len() as u64,
            refusals: 0,
            abandoned: 0,
            attempts: 0,
            reported_input: 0,
            reported_output: 0,
            unreported: 0,
            cost: 0,
        };
        for row in rows {
            let settled = SettledRow {
                outcome: row.get("outcome"),
                input: row.get("input"),
                output: row.get("output_tokens"),
            };
            match row.get::<String, _>("usage_source").as_str() {
                "reported" => {
                    ledger.reported_input += settled.input;
                    ledger.reported_output += settled.output;
                }
                "estimated" => ledger.unreported += 1,
                _ => {}
            }
            if settled.outcome == "abandoned" {
                ledger.abandoned += 1;
            } else {
                ledger.attempts += row.get::<i64, _>("attempts");
            }
            ledger.cost += row.get::<i64, _>("cost_nanos");
            ledger.settled.insert(row.get("id"), settled);
        }
        let rejections: Vec<(Uuid, i64)> = sqlx::query_as("select id, refusal_count from rejections")
            .fetch_all(&mut *sql)
            .await
            .expect("rejections");
        for (id, count) in rejections {
            ledger.refusals += count;
            ledger.refused.insert(id);
        }
        ledger
    }
}

/// What a gateway's metric says; 0 while it is not there.
pub async fn metric(url: &str, name: &str) -> f64 {
    let text = Browser::new(url).get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// Waits until nothing is under way at a gateway, and nothing waits in its journal.
///
/// # Panics
/// When something goes on waiting.
pub async fn drained(url: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (holds, depth, lost) = (
            metric(url, "tollgate_holds").await,
            metric(url, "tollgate_journal_depth").await,
            metric(url, "tollgate_ledger_lost_total").await,
        );
        assert!(lost == 0.0, "{lost} entries were lost");
        if holds == 0.0 && depth == 0.0 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{holds} are held, {depth} records are not shipped"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

async fn furnish(control: &Control, base_url: &str) -> Callers {
    let openai = upstream(control, Dialect::Openai, "openai", base_url).await;
    let anthropic = upstream(control, Dialect::Anthropic, "anthropic", base_url).await;
    let mut models = Vec::new();
    for number in 0..MODELS {
        models.push(model(control, &format!("sim-{number}"), openai).await);
    }
    let anthropic_model = model(control, "sim-anthropic", anthropic).await;
    let failing_model = model(control, "sim-failing@status=500", openai).await;
    let mut keys = Vec::new();
    for number in 0..TENANTS {
        for _ in 0..2 {
            keys.push(
                key(
                    control,
                    &format!("Tenant {number} {}", keys.len()),
                    NodeLimits::default(),
                )
                .await,
            );
        }
    }
    let tight = NodeLimits {
        requests_per_minute: Some(2),
        ..NodeLimits::default()
    };
    Callers {
        keys,
        tight_key: Some(key(control, "Tight", tight).await),
        models,
        anthropic_model,
        failing_model: Some(failing_model),
    }
}

fn actor() -> Actor {
    Actor::System { name: "test" }
}

async fn upstream(control: &Control, dialect: Dialect, name: &str, base_url: &str) -> UpstreamId {
    let draft = UpstreamDraft {
        name: name.into(),
        dialect,
        base_url: base_url.into(),
        credential: CredentialChange::Replace(CREDENTIAL.into()),
        is_disabled: false,
    };
    let made = control.create_upstream(&actor(), &draft, Utc::now()).await;
    made.expect("an upstream")
}

async fn model(control: &Control, upstream_model: &str, upstream_id: UpstreamId) -> String {
    let name = upstream_model.split('@').next().unwrap_or_default().to_owned();
    let draft = ModelDraft {
        name: name.as_str().into(),
        group: None,
        context_tokens: 128_000,
        output_cap_tokens: 4_096,
        output_default_tokens: 100,
        encoding: Encoding::Ratio,
        is_disabled: false,
        routes: vec![Route {
            upstream_id,
            upstream_model: upstream_model.into(),
            position: 0,
            weight: 1,
        }],
    };
    let made = control.create_model(&actor(), &draft, Utc::now()).await;
    made.expect("a model");
    let price = PriceDraft {
        valid_from: Some(Utc::now() - chrono::Duration::days(400)),
        rates: Rates::flat(INPUT_NANOS, OUTPUT_NANOS),
        tiers: Vec::new(),
    };
    let priced = control.add_price(&actor(), &name, &price, Utc::now()).await;
    priced.expect("a price");
    name
}

async fn key(control: &Control, tenant: &str, limits: NodeLimits) -> String {
    let draft = TenantDraft {
        name: tenant.into(),
        plan_id: None,
        priority_ceiling: Some(Priority::Critical),
        has_strict_budgets: false,
        limits,
    };
    let made = control.create_tenant(&actor(), &draft, Utc::now()).await;
    let tenant = made.expect("a tenant");
    let draft = KeyDraft {
        name: "application".into(),
        priority: Priority::Default,
        allowed_models: None,
        may_name_users: true,
        degrades: false,
        expiry: Expiry::Never,
    };
    let issued = control
        .issue_key(&actor(), tenant, KeyOwner::Service, &draft, Utc::now())
        .await;
    issued.expect("a key").text.reveal().to_owned()
}
