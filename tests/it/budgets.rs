//! Changing a budget keeps what is spent, and is in force on every gateway within a second; it opens again at the first
//! request of its next period, and counts what the report of that period says.

use chrono::{DateTime, Duration, Utc};
use chrono_tz::{Africa, America, Asia, Europe, Tz};
use control::limits::{LimitDraft, NodeLimits};
use control::reports::{MonthlyQuery, ReportFilter};
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope, Target};
use domain::money::Nanos;
use domain::periods::{Month, Period};
use domain::reports::Grouping;
use store::Store;
use store::budgets::BudgetFilter;
use test_redis::RedisServer;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::fleet::{Fleet, until, until_within};
use test_support::http::Browser;
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body, limit};

use crate::fleet::shared;

/// What one request uses of a budget, and a little more is held for it.
const ASK: &str = "Hello. [[sim: tokens=400]]";
/// How soon a change is in force. A busy machine gets more than the second that is promised.
const SPREAD: std::time::Duration = std::time::Duration::from_secs(3);

fn monthly_tokens(tokens: u64) -> NodeLimits {
    NodeLimits {
        monthly_tokens: Some(tokens),
        ..NodeLimits::default()
    }
}

async fn ask(browser: &Browser, key: &str) -> String {
    let answer = browser.post_json(CHAT_PATH, key, &chat_body(ASK)).await;
    match answer.status.as_u16() {
        200 => "admitted".to_owned(),
        _ => answer.code(),
    }
}

/// Two gateways, a tenant with a budget, and an operator at the console.
struct Shop {
    fleet: Fleet,
    browsers: Vec<Browser>,
    operator: Window,
    tenant: TenantId,
    key: String,
}

impl Shop {
    /// Waits until every gateway says this of the tenant's budgets of tokens, and then asks each of them once.
    async fn says(&self, budgets: &[(u64, &str)], expected: &str) {
        for place in 0..self.browsers.len() {
            until_within(SPREAD, "the change is in force here", async || {
                let readings = self.fleet.readings(place, &Scope::Tenant(self.tenant)).await;
                let found: Vec<(u64, &str)> = readings
                    .iter()
                    .filter(|reading| reading.dimension == Dimension::BudgetTokens && reading.is_known)
                    .map(|reading| (reading.limit_value, reading.mode.as_str()))
                    .collect();
                found == budgets
            })
            .await;
        }
        for browser in &self.browsers {
            assert_eq!(ask(browser, &self.key).await, expected, "{budgets:?}");
        }
    }

    /// Fills in the field of the plain form: a blank takes the budget away.
    async fn set(&mut self, tokens: &str) {
        let address = format!("/limits?of=tenant:{}", self.tenant);
        let form = self.operator.visit(&address).await.form("/console/limits/set");
        self.operator.save(&form.fill("monthly_tokens", tokens)).await;
        assert_eq!(self.operator.page.notices(), ["Saved."]);
    }

    /// Opens the form of the budget itself and chooses its mode.
    async fn set_mode(&mut self, mode: &str) {
        self.operator.visit(&format!("/limits?of=tenant:{}", self.tenant)).await;
        let edit = self.operator.page.link("Edit");
        let form = self.operator.visit(&edit).await.form("/console/limits/edit");
        self.operator.save(&form.choose("mode", mode)).await;
        assert_eq!(self.operator.page.notices(), ["Saved."]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_keeps_what_is_spent_whatever_is_done_to_it_at_the_console() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(
        2,
        Options {
            time_zone: Some(zone_at_noon()),
            ..shared(redis.url())
        },
    )
    .await;
    let operator = Window::operator(&fleet.first).await;
    let (tenant, key) = fleet.tenant_with_key(monthly_tokens(700)).await;
    let mut shop = Shop {
        browsers: fleet.browsers(),
        fleet,
        operator,
        tenant,
        key,
    };
    assert_eq!(ask(&shop.browsers[0], &shop.key).await, "admitted");
    shop.says(&[(700, "enforce")], "budget_exhausted").await;
    // Raised, and lowered below what is spent.
    shop.set("100,000").await;
    shop.says(&[(100_000, "enforce")], "admitted").await;
    shop.set("900").await;
    shop.says(&[(900, "enforce")], "budget_exhausted").await;
    // Another mode, and back.
    shop.set_mode("Rehearse: refuses nothing").await;
    shop.says(&[(900, "rehearse")], "admitted").await;
    shop.set_mode("Enforce: refuses").await;
    shop.says(&[(900, "enforce")], "budget_exhausted").await;
    // Taken away; 0 is not the same.
    shop.set("").await;
    shop.says(&[], "admitted").await;
    shop.set("0").await;
    shop.says(&[(0, "enforce")], "budget_exhausted").await;
    shop.set("").await;
    shop.says(&[], "admitted").await;

    // Set again, it counts what was spent before and meanwhile: nine times.
    let booked = shop.fleet.booked(tenant).await;
    assert_eq!(booked.ran, 9);
    shop.set(&(booked.tokens + 100).to_string()).await;
    shop.says(&[(booked.tokens.unsigned_abs() + 100, "enforce")], "budget_exhausted")
        .await;
    let reading = shop
        .fleet
        .reading(1, &Scope::Tenant(tenant), Dimension::BudgetTokens)
        .await;
    assert_eq!((reading.used, reading.held), (booked.tokens, 0));

    // Another period counts what was spent in that: all of it was today.
    shop.set("").await;
    for (words, period) in [("Day", Period::Day), ("Week, from Monday", Period::Week)] {
        let address = format!("/limits/edit?of=tenant:{tenant}&each=&dimension=budget_tokens");
        let form = shop.operator.visit(&address).await.form("/console/limits/add");
        let form = form.fill("value", "1,000,000").choose("period", words);
        shop.operator.save(&form).await;
        // A gateway that reads what is spent just now says so beside it.
        let notices = shop.operator.page.notices();
        assert!(
            notices.iter().any(|notice| notice == "The limit was added."),
            "{notices:?}"
        );
        until_within(SPREAD, "it is open everywhere", async || {
            let mut are_open = true;
            for place in 0..2 {
                let readings = shop.fleet.readings(place, &Scope::Tenant(tenant)).await;
                are_open &= readings
                    .iter()
                    .any(|reading| reading.period == Some(period) && reading.is_known && reading.used >= booked.tokens);
            }
            are_open
        })
        .await;
        let remove = shop.operator.visit(&format!("/limits?of=tenant:{tenant}")).await;
        let remove = remove.form("/console/limits/remove");
        shop.operator.send(&remove).await;
    }
}

/// The next day of this zone that is shorter or longer than others.
fn next_odd_day(zone: Tz) -> DateTime<Utc> {
    let mut day = Period::Day.span(Utc::now(), zone);
    loop {
        day = Period::Day.span(day.end, zone);
        if day.end - day.start != Duration::hours(24) {
            return day.start;
        }
    }
}

/// Moves to the last second of the period of now, spends the budget there, and passes the boundary.
async fn check_reset(tollgate: &Tollgate, period: Period, zone: Tz) {
    let budget = LimitDraft {
        period,
        ..limit(Dimension::BudgetTokens, 700)
    };
    let (tenant, key) = tollgate
        .named_tenant_with_key(
            &format!("{zone} {period} {}", tollgate.clock.wall()),
            NodeLimits::default(),
        )
        .await;
    let end = period.span(tollgate.clock.wall(), zone).end;
    tollgate.clock.set(end - Duration::seconds(30));
    tollgate
        .set_limit(Target::Node(Scope::Tenant(tenant)), 0, &budget)
        .await;
    until("the budget is open", async || {
        let readings = tollgate.running.gateway.readings(&[Scope::Tenant(tenant)]).await;
        readings
            .expect("a policy")
            .limits
            .iter()
            .all(|live| live.reading.is_known)
    })
    .await;
    let browser = tollgate.browser();
    assert_eq!(ask(&browser, &key).await, "admitted", "{zone} {period}");
    let refused = browser.post_json(CHAT_PATH, &key, &chat_body(ASK)).await;
    assert_eq!(refused.code(), "budget_exhausted", "{zone} {period}");
    let wait: i64 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((1..=60).contains(&wait), "{zone} {period}: {wait}");
    tollgate.clock.set(end);
    assert_eq!(
        ask(&browser, &key).await,
        "admitted",
        "{zone} {period}: the first after"
    );
    assert_eq!(ask(&browser, &key).await, "budget_exhausted", "{zone} {period}");
}

async fn check_resets(zone: Tz, redis: Option<&RedisServer>) {
    let options = redis.map_or_else(Options::default, |redis| shared(redis.url()));
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone),
        ..options
    })
    .await;
    for period in [Period::Hour, Period::Day, Period::Week, Period::Month] {
        check_reset(&tollgate, period, zone).await;
    }
}

#[tokio::test]
async fn a_budget_opens_with_the_first_request_of_its_next_period_in_tokyo() {
    check_resets(Asia::Tokyo, None).await;
}

#[tokio::test]
async fn a_budget_opens_with_the_first_request_of_its_next_period_in_kolkata() {
    check_resets(Asia::Kolkata, None).await;
}

#[tokio::test]
async fn a_shared_budget_opens_with_the_first_request_of_its_next_period_in_kathmandu() {
    let redis = RedisServer::start().await;
    check_resets(Asia::Kathmandu, Some(&redis)).await;
}

#[tokio::test]
async fn a_budget_opens_after_days_of_twenty_three_and_twenty_five_hours() {
    for zone in [Europe::Berlin, America::New_York, Africa::Cairo] {
        let tollgate = Tollgate::start_with(Options {
            time_zone: Some(zone),
            ..Options::default()
        })
        .await;
        tollgate.clock.set(next_odd_day(zone));
        for period in [Period::Day, Period::Week, Period::Month] {
            check_reset(&tollgate, period, zone).await;
        }
    }
}

#[tokio::test]
async fn the_report_of_a_month_is_what_its_budget_has_spent_to_the_nano() {
    let zone = Asia::Kathmandu;
    let tollgate = Tollgate::start_with(Options {
        time_zone: Some(zone),
        ..Options::default()
    })
    .await;
    let budget = NodeLimits {
        monthly_cost: Some(Nanos::from_units(1_000)),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(budget).await;
    let browser = tollgate.browser();
    let month = Month::containing(tollgate.clock.wall(), zone);
    let end = month.span(zone).end;
    tollgate.clock.set(end - Duration::seconds(60));
    for tokens in [1, 77, 400] {
        let body = chat_body(&format!("Hello. [[sim: tokens={tokens}]]"));
        assert_eq!(browser.post_json(CHAT_PATH, &key, &body).await.status, 200);
    }
    // Admitted in the old month, ended in the new one.
    let under_way = tollgate.park(&key).await;
    tollgate.clock.set(end);
    tollgate.simulator.release_all();
    assert_eq!(under_way.await.expect("it ends").status, 200);
    let body = chat_body("Hello. [[sim: tokens=33]]");
    assert_eq!(browser.post_json(CHAT_PATH, &key, &body).await.status, 200);
    tollgate.shipped().await;

    let reported = async |month: Month| {
        let query = MonthlyQuery {
            month,
            filter: ReportFilter {
                tenant: Some(tenant),
                ..ReportFilter::default()
            },
            grouping: Grouping::NONE,
        };
        let now = tollgate.clock.wall();
        let report = tollgate.control().monthly_report(&tollgate.actor(), &query, now).await;
        let totals = report.expect("a report").report.totals;
        (totals.requests, totals.charged())
    };
    let mut sql = tollgate.sql().await;
    let mut spent = Vec::new();
    for (month, count) in [(month, 4), (month.next(), 1)] {
        let span = month.span(zone);
        let (requests, charged) = reported(month).await;
        assert_eq!(requests, count, "{month}");
        let rows: i64 = sqlx::query_scalar(
            "select sum(cost_nanos)::bigint from settlements where tenant_id = $1 and admitted_at >= $2 and admitted_at < $3",
        )
        .bind(uuid::Uuid::from(tenant))
        .bind(span.start)
        .bind(span.end)
        .fetch_one(&mut sql)
        .await
        .expect("a sum");
        assert_eq!(Nanos(rows), charged, "{month}");
        spent.push(charged);
    }
    let now = tollgate.running.gateway.readings(&[Scope::Tenant(tenant)]).await;
    assert_eq!(
        Nanos(now.expect("a policy").limits[0].reading.used),
        spent[1],
        "the new month's budget"
    );
    // The old month's budget, as one that is read anew at its end would be.
    let filter = BudgetFilter {
        tenant: Some(tenant),
        ..BudgetFilter::everything(month.span(zone))
    };
    let store = Store::connect_lazily(tollgate.database.url()).expect("a store");
    let (sum, _) = store.budget_spent(&filter).await.expect("a sum");
    assert_eq!(sum.cost, spent[0]);
}
