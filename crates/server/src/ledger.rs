//! `tollgate ledger verify`: every roll-up, budget and cost against the entries that it is made of.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use chrono::{DateTime, Duration, NaiveDate, Utc};
use chrono_tz::Tz;
use control::{Actor, Control};
use domain::ids::TenantId;
use domain::limits::Dimension;
use domain::money::Nanos;
use domain::periods::{BUCKET_MINUTES, Month, Period, Span, bucket_start, day_start};
use gateway::budgets::budgets_in_force;
use gateway::policy::{OpenCredential, PolicyRows, PolicySnapshot};
use serde_json::Value;
use store::Store;
use store::random::SystemRandom;
use store::rollups::{DIFFERENCES_MAX, RollupDifference};
use store::sealing::SecretKey;
use store::verification::OddCost;

use crate::command_line;
use crate::config::LedgerVerifyArgs;
use crate::serve::{OpenStore, Signals};

/// What a check ends with that found a difference.
const DIFFERS: u8 = 1;
/// What it ends with when it could not be done.
const FAILED: u8 = 2;
/// Columns that tell rows of one bucket and tenant apart, over all tables.
const PARTS_OF_KEYS: [&str; 12] = [
    "grain",
    "key_id",
    "user_id",
    "model",
    "upstream_id",
    "priority",
    "scope_kind",
    "limit_id",
    "code",
    "dimension",
    "tag_name",
    "tag_value",
];
/// Columns that say when and whose, which every line begins with.
const WHEN_AND_WHOSE: [&str; 4] = ["bucket_start", "day", "month", "tenant_id"];
/// How a row writes that it has no key or upstream.
const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// Checks, prints, and says how it ended.
pub async fn verify(args: LedgerVerifyArgs) -> ExitCode {
    let checked = match Signals::install() {
        Ok(mut signals) => signals.unless_told(check(args)).await,
        Err(error) => Err(error),
    };
    match checked {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(DIFFERS),
        Err(error) => {
            eprintln!("tollgate: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

async fn check(args: LedgerVerifyArgs) -> anyhow::Result<u64> {
    let open = OpenStore::open(&args.database).await?;
    let checked = check_store(&open.store, &args, &command_line::actor(), Utc::now()).await;
    open.close().await;
    checked
}

/// How many differences there are in the ledger of `store`.
async fn check_store(store: &Store, args: &LedgerVerifyArgs, actor: &Actor, now: DateTime<Utc>) -> anyhow::Result<u64> {
    const UNREADABLE: &str = "the ledger cannot be read; is the schema up to date (`tollgate migrate`)?";
    let changes = store.policy_changes(0).await.context(UNREADABLE)?;
    let changes = changes.ok_or_else(|| anyhow!("the database has no settings yet; there is nothing to check"))?;
    let names = changes.tenants.iter().map(|tenant| (tenant.id, tenant.name.clone()));
    let mut check = Check {
        store,
        zone: changes.settings.time_zone,
        tenants: names.collect(),
        // Roll-ups of what was before have no entries to be compared with.
        kept_from: store.entries_kept_from().await?,
        repairs: args.repair.then(|| Repairs {
            // A repair seals nothing, so any key will do.
            control: Control::new(
                store.clone(),
                SecretKey::generate(&SystemRandom),
                Arc::new(SystemRandom),
            ),
            actor: actor.clone(),
            now,
        }),
        told: Told::new(args.differences),
    };
    let mut rows = PolicyRows::default();
    rows.apply(changes);
    let sealed: OpenCredential = Arc::new(|_| None);
    let policy = rows
        .snapshot(&sealed)
        .ok_or_else(|| anyhow!("the database has no settings yet"))?;
    check.walk(args.from, args.until).await.context(UNREADABLE)?;
    check.budgets(&policy, now).await.context(UNREADABLE)?;
    check.notes().await.context(UNREADABLE)?;
    Ok(check.told.end())
}

/// One check, and what it has found so far.
struct Check<'a> {
    store: &'a Store,
    zone: Tz,
    tenants: HashMap<TenantId, String>,
    kept_from: Option<DateTime<Utc>>,
    /// How differences are repaired, if they are to be.
    repairs: Option<Repairs>,
    told: Told,
}

/// Who repairs what differs, and by what.
struct Repairs {
    control: Control,
    actor: Actor,
    now: DateTime<Utc>,
}

impl Check<'_> {
    /// Every month of the ledger, day by day, so that each statement reads a day of entries at most.
    async fn walk(&mut self, from: Option<NaiveDate>, until: Option<NaiveDate>) -> anyhow::Result<()> {
        let mut start = from.map_or(DateTime::UNIX_EPOCH, |day| day_start(day, self.zone));
        let until = until.map(|day| day_start(day, self.zone));
        while let Some(at) = self.next(start, until).await? {
            let month = Month::containing(at, self.zone);
            let month_end = month.span(self.zone).end;
            let end = until.map_or(month_end, |until| until.min(month_end));
            let before = self.told.count;
            let mut days = 0_u64;
            let mut next = Some(at);
            while let Some(at) = next {
                let day = Period::Day.span(at, self.zone);
                self.day(day).await?;
                days += 1;
                next = self.next(day.end.max(start), Some(end)).await?;
            }
            // These follow the roll-ups by 15 minutes, whether or not there are entries left.
            let first_day = month.first_day();
            let mut differences = self.store.calendar_differences(first_day).await?;
            if let Some(Repairs { control, actor, now }) = &self.repairs
                && !differences.is_empty()
            {
                self.say_made_anew(&differences);
                control.rebuild_calendar(actor, first_day, &differences, *now).await?;
                differences = self.store.calendar_differences(first_day).await?;
            }
            self.tell_rollups(&differences);
            let found = self.told.count - before;
            eprintln!("{month}: {days} days with entries or sums, {found} differences");
            start = end;
        }
        Ok(())
    }

    /// The next instant at which there is something to check.
    async fn next(&self, from: DateTime<Utc>, until: Option<DateTime<Utc>>) -> anyhow::Result<Option<DateTime<Utc>>> {
        let next = self.store.next_in_ledger(from).await?;
        Ok(next.filter(|at| until.is_none_or(|until| *at < until)))
    }

    /// A day's roll-ups and costs.
    async fn day(&mut self, day: Span) -> anyhow::Result<()> {
        let Some(day) = kept(day, self.kept_from) else {
            return Ok(());
        };
        let mut differences = self.store.rollup_differences(day).await?;
        if let Some(Repairs { control, actor, now }) = &self.repairs
            && !differences.is_empty()
        {
            self.say_made_anew(&differences);
            control.rebuild_rollups(actor, day, &differences, *now).await?;
            differences = self.store.rollup_differences(day).await?;
        }
        self.tell_rollups(&differences);
        for odd in self.store.odd_costs(day).await? {
            if !odd.settlement.costs_as_priced(&odd.price) {
                self.told.tell(&odd_line(&odd));
            }
        }
        Ok(())
    }

    fn say_made_anew(&self, differences: &[RollupDifference]) {
        for difference in differences {
            println!("made anew: {}", self.line(difference));
        }
    }

    fn tell_rollups(&mut self, differences: &[RollupDifference]) {
        let mut of_table: HashMap<&str, i64> = HashMap::new();
        for difference in differences {
            *of_table.entry(difference.table).or_default() += 1;
            let line = self.line(difference);
            self.told.tell(&line);
        }
        self.told.is_cut |= of_table.values().any(|count| *count >= DIFFERENCES_MAX);
    }

    fn line(&self, difference: &RollupDifference) -> String {
        let tenant = self.tenants.get(&difference.tenant_id);
        let named = tenant.map_or(String::new(), |name| format!(" ({name})"));
        format!(
            "{} {} tenant {}{named}{}",
            difference.table,
            difference.bucket_start.format("%F %R UTC"),
            difference.tenant_id,
            columns(difference.stored.as_ref(), difference.from_entries.as_ref()),
        )
    }

    /// What every budget in force is known to have spent in its present period, against the entries.
    async fn budgets(&mut self, policy: &PolicySnapshot, now: DateTime<Utc>) -> anyhow::Result<()> {
        // The longest periods there are.
        let (month, week) = (Period::Month.span(now, self.zone), Period::Week.span(now, self.zone));
        let span = Span {
            start: month.start.min(week.start),
            end: month.end.max(week.end),
        };
        let users = self.store.users_in_ledger(span).await?;
        let mut budgets = budgets_in_force(policy, users, now);
        let all = budgets.len();
        budgets.retain(|(key, _)| self.kept_from.is_none_or(|kept| kept <= key.span.start));
        let filters: Vec<_> = budgets.iter().map(|(_, filter)| filter.clone()).collect();
        let before = self.told.count;
        let checks = self.store.check_budgets(&filters).await?;
        for ((key, _), check) in budgets.iter().zip(checks) {
            let (known, from_entries) = match key.dimension {
                Dimension::BudgetCost => (check.known.cost.to_string(), check.from_entries.cost.to_string()),
                _ => (check.known.tokens.to_string(), check.from_entries.tokens.to_string()),
            };
            if known != from_entries {
                let of_model = key
                    .model
                    .as_ref()
                    .map_or(String::new(), |model| format!(" model {model}"));
                self.told.tell(&format!(
                    "{} of {}{of_model} from {}: known {known}, from entries {from_entries}",
                    key.dimension.as_str(),
                    key.scope,
                    key.span.start.format("%F %R UTC"),
                ));
            }
        }
        let found = self.told.count - before;
        eprintln!("Budgets: {} of {all} in force, {found} differences", budgets.len());
        Ok(())
    }

    /// What is no difference, and worth knowing.
    async fn notes(&self) -> anyhow::Result<()> {
        let quarantined = self.store.count_quarantined().await?;
        if quarantined > 0 {
            println!(
                "note: {quarantined} records of journals are in quarantine (table ledger_quarantine): they are in no sum"
            );
        }
        let mut marks: Vec<_> = self.store.ledger_marks().await?.into_iter().collect();
        marks.sort();
        for (instance, mark) in marks {
            println!("note: the journal of {instance} is contained up to record {mark}");
        }
        if let Some(kept) = self.kept_from {
            println!(
                "note: entries are kept from {} on; what is older is not compared with entries",
                kept.format("%F %R UTC")
            );
        }
        Ok(())
    }
}

/// What was found, and how much of it is printed.
struct Told {
    places: u32,
    count: u64,
    /// Whether there may be more than was read.
    is_cut: bool,
}

impl Told {
    fn new(places: u32) -> Self {
        Self {
            places,
            count: 0,
            is_cut: false,
        }
    }

    fn tell(&mut self, line: &str) {
        self.count += 1;
        if self.count <= u64::from(self.places) {
            println!("{line}");
        }
    }

    fn end(&self) -> u64 {
        let rest = self.count.saturating_sub(u64::from(self.places));
        if rest > 0 {
            println!("and {rest} more; --differences prints more of them");
        }
        match (self.count, self.is_cut) {
            (0, _) => println!("Everything agrees."),
            (count, false) => println!("{count} differences."),
            (count, true) => println!("{count} differences at least."),
        }
        self.count
    }
}

/// The part of a span that has its entries still, from a full quarter of an hour on.
fn kept(span: Span, kept_from: Option<DateTime<Utc>>) -> Option<Span> {
    let start = kept_from.map_or(span.start, |kept| {
        let bucket = bucket_start(kept);
        let first = if bucket == kept {
            kept
        } else {
            bucket + Duration::minutes(BUCKET_MINUTES)
        };
        first.max(span.start)
    });
    (start < span.end).then_some(Span { start, end: span.end })
}

/// Which row it is, and the columns that differ: what is stored and what the entries come to.
fn columns(stored: Option<&Value>, from_entries: Option<&Value>) -> String {
    let row = stored.or(from_entries);
    let part = |name: &&str| {
        let value = row?.get(name)?.as_str()?;
        (!value.is_empty() && value != NIL).then(|| format!(" {name}={value}"))
    };
    let key: String = PARTS_OF_KEYS.iter().filter_map(part).collect();
    match (stored, from_entries) {
        (None, Some(row)) => format!("{key}: missing, from entries {}", figures(row)),
        (Some(row), None) => format!("{key}: without entries, stored {}", figures(row)),
        (stored, from_entries) => {
            let empty = serde_json::Map::new();
            let stored = stored.and_then(Value::as_object).unwrap_or(&empty);
            let from_entries = from_entries.and_then(Value::as_object).unwrap_or(&empty);
            let differing: Vec<String> = stored
                .iter()
                .filter(|(name, value)| from_entries.get(*name) != Some(value))
                .map(|(name, value)| {
                    let other = from_entries.get(name).unwrap_or(&Value::Null);
                    format!("{name} stored {value}, from entries {other}")
                })
                .collect();
            format!("{key}: {}", differing.join("; "))
        }
    }
}

/// The figures of a row that are not zero.
fn figures(row: &Value) -> String {
    let is_figure = |name: &str| !PARTS_OF_KEYS.contains(&name) && !WHEN_AND_WHOSE.contains(&name);
    let figures: Vec<String> = row
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| is_figure(name) && value.as_i64().is_some_and(|value| value != 0))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if figures.is_empty() {
        "nothing".to_owned()
    } else {
        figures.join(", ")
    }
}

fn odd_line(odd: &OddCost) -> String {
    let settlement = &odd.settlement;
    let priced: Nanos = odd.price.cost(&settlement.usage);
    format!(
        "settlement {} of {}: costs {}, its tokens at price {} cost {priced}",
        settlement.identity.id,
        settlement.admitted_at.format("%F %R UTC"),
        settlement.cost_nanos,
        odd.price.id,
    )
}

#[cfg(test)]
mod tests;
