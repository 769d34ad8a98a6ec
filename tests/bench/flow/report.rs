//! The figures as tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use simulator::{Stats, Traffic};

use crate::demand::{ACCOUNT_REQUESTS, ACCOUNT_TOKENS, Demand, LATENCY};
use crate::house::Queue;
use crate::ledger::Attempts;
use crate::load::{Calls, Run};
use crate::protection::{Account, Protection};

/// Paced: most refusals of any kind, per attempt.
const PACED_REFUSED_PERCENT_MAX: f64 = 0.1;
/// Paced: the longest 99th percentile of a whole call.
const PACED_P99_MS_MAX: u64 = 4_800;
/// In sequence: how much longer than the account allows the run may take.
const CLOSED_PERCENT_MAX: f64 = 105.0;
/// How many of the codes of refusals are named.
const CODES_MAX: usize = 4;

/// What one gateway showed in one run.
pub(crate) struct Column {
    pub(crate) protection: Protection,
    pub(crate) figures: Figures,
}

/// Everything that was seen.
pub(crate) struct Figures {
    pub(crate) demand: Demand,
    pub(crate) calls: Calls,
    pub(crate) attempts: Attempts,
    pub(crate) provider: Stats,
    pub(crate) traffic: Traffic,
}

impl Figures {
    fn answered(&self) -> usize {
        self.calls.all.iter().filter(|call| call.failure.is_none()).count()
    }

    /// How long the calls took that were answered, or given up, in milliseconds.
    fn calls_ms(&self, is_answered: bool) -> Sorted {
        let calls = self
            .calls
            .all
            .iter()
            .filter(|call| call.failure.is_none() == is_answered);
        Sorted::of(calls.map(|call| call.took.as_millis() as u64))
    }

    fn attempts(&self) -> u64 {
        self.attempts.ran.len() as u64 + self.refused_by_gateway()
    }

    fn refused_by_gateway(&self) -> u64 {
        self.attempts
            .refused
            .iter()
            .map(|refused| refused.refusal_count.unsigned_abs())
            .sum()
    }

    /// Refusals of any kind, of provider and gateway, as callers got them.
    fn refused(&self) -> u64 {
        let passed_on = self.attempts.ran.iter().filter(|ran| ran.status != Some(200)).count();
        passed_on as u64 + self.refused_by_gateway()
    }

    /// How long attempts took at the gateway, those that were refused too, in milliseconds.
    fn attempts_ms(&self) -> Sorted {
        let ran = self.attempts.ran.iter().map(|ran| ran.total_ms.unsigned_abs());
        // Nothing but waiting happens to an attempt that is refused. Of equal ones that share a row, one is known.
        let refused = self.attempts.refused.iter().flat_map(|refused| {
            std::iter::repeat_n(
                refused.queue_ms.unsigned_abs(),
                refused.refusal_count.unsigned_abs() as usize,
            )
        });
        Sorted::of(ran.chain(refused))
    }

    /// Waits of the attempts that ran.
    fn waits_ms(&self) -> Sorted {
        Sorted::of(self.attempts.ran.iter().map(|ran| ran.queue_ms.unsigned_abs()))
    }

    /// What callers were refused with, the most frequent first.
    fn codes(&self) -> String {
        let mut codes: BTreeMap<String, u64> = BTreeMap::new();
        for refused in &self.attempts.refused {
            let code = match &refused.scope {
                Some(scope) => format!("{} ({scope})", refused.code),
                None => refused.code.clone(),
            };
            *codes.entry(code).or_default() += refused.refusal_count.unsigned_abs();
        }
        for ran in self.attempts.ran.iter().filter(|ran| ran.status != Some(200)) {
            let code = match ran.status {
                Some(status) => format!("provider {status}"),
                None => ran.outcome.clone(),
            };
            *codes.entry(code).or_default() += 1;
        }
        let mut codes: Vec<(String, u64)> = codes.into_iter().collect();
        codes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named: Vec<String> = codes
            .into_iter()
            .take(CODES_MAX)
            .map(|(code, count)| format!("{} {code}", grouped(count)))
            .collect();
        if named.is_empty() {
            "none".to_owned()
        } else {
            named.join(", ")
        }
    }

    fn of_account_percent(&self) -> f64 {
        self.calls.took.as_secs_f64() / self.demand.account_seconds() * 100.0
    }
}

/// The table of a run.
pub(crate) fn table(run: Run, demand: &Demand, columns: &[Column]) -> String {
    let mut table = format!("### {}\n\n", run.title());
    let _ = writeln!(
        table,
        "{} users with {} requests each. The provider's account: {ACCOUNT_REQUESTS} requests and {} tokens in any 60 \
         seconds. The model: `{LATENCY}`.\n",
        demand.users,
        demand.requests_each,
        grouped(ACCOUNT_TOKENS),
    );
    let mut rows = Rows::new(columns);
    rows.row("requests", |figures| grouped(figures.demand.requests() as u64));
    rows.row("answered", |figures| {
        counted(figures.answered() as u64, figures.demand.requests() as u64)
    });
    rows.row("attempts", |figures| grouped(figures.attempts()));
    rows.row("tries at the provider", |figures| {
        grouped(
            figures
                .attempts
                .ran
                .iter()
                .map(|ran| u64::from(ran.tries.unsigned_abs()))
                .sum(),
        )
    });
    rows.row("429s the provider gave, of what it was asked", |figures| {
        counted(figures.provider.requests_limited, figures.provider.requests_received)
    });
    rows.row("attempts refused or failed, by anybody", |figures| {
        counted(figures.refused(), figures.attempts())
    });
    rows.row("... with", Figures::codes);
    rows.row("whole call, answered: p50 / p90 / p99 / max", |figures| {
        figures.calls_ms(true).spread()
    });
    rows.row("whole call, given up: p50 / p90 / p99 / max", |figures| {
        figures.calls_ms(false).spread()
    });
    rows.row("attempt at the gateway: p50 / p90 / p99 / max", |figures| {
        figures.attempts_ms().spread()
    });
    rows.row("wait in the queue: p50 / p90 / p99 / max", |figures| {
        figures.waits_ms().spread()
    });
    rows.row("most requests at the provider in any second", |figures| {
        grouped(figures.traffic.peak_per_second())
    });
    rows.row("most requests it answered in any minute", |figures| {
        grouped(figures.traffic.peak_requests_per_minute())
    });
    rows.row("most tokens in any minute", |figures| {
        grouped(figures.traffic.peak_tokens_per_minute())
    });
    rows.row("most tokens of one user in any minute", |figures| {
        grouped(figures.traffic.peak_user_tokens_per_minute())
    });
    rows.row("duration, of what the account takes for all of it", |figures| {
        format!(
            "{:.1} s, {:.1} %",
            figures.calls.took.as_secs_f64(),
            figures.of_account_percent()
        )
    });
    table + &rows.text
}

/// Whether the gateway with everything did what it must, in words.
pub(crate) fn verdicts(run: Run, everything: &Column) -> (String, bool) {
    let figures = &everything.figures;
    let limited = figures.provider.requests_limited;
    let verdicts = match run {
        Run::Paced => {
            let refused_percent = percent(figures.refused(), figures.attempts());
            let p99_ms = figures.calls_ms(true).percentile(99.0);
            vec![
                (
                    format!("refusals {refused_percent:.2} %, at most {PACED_REFUSED_PERCENT_MAX} %"),
                    refused_percent < PACED_REFUSED_PERCENT_MAX,
                ),
                (
                    format!("p99 {}, at most {}", seconds(p99_ms), seconds(PACED_P99_MS_MAX)),
                    p99_ms <= PACED_P99_MS_MAX,
                ),
                (format!("{limited} 429s of the provider, none wanted"), limited == 0),
            ]
        }
        Run::Closed => {
            let (answered, requests) = (figures.answered(), figures.demand.requests());
            let of_account = figures.of_account_percent();
            vec![
                (format!("{limited} 429s of the provider, none wanted"), limited == 0),
                (
                    format!("{} of {} answered", grouped(answered as u64), grouped(requests as u64)),
                    answered == requests,
                ),
                (
                    format!("{of_account:.1} % of the time the account takes, at most {CLOSED_PERCENT_MAX} %"),
                    of_account <= CLOSED_PERCENT_MAX,
                ),
            ]
        }
    };
    let are_met = verdicts.iter().all(|(_, is_met)| *is_met);
    let mut text = format!("Targets of {}:\n\n", everything.protection.title());
    for (what, is_met) in verdicts {
        let _ = writeln!(text, "- {}: {what}", if is_met { "met" } else { "MISSED" });
    }
    (text, are_met)
}

/// What the gateway with everything was told.
pub(crate) fn settings(queue: Queue, account: Account) -> String {
    format!(
        "Settings of everything: {} requests in {} s and {} tokens a minute with a burst of {} on the account, {} places \
         in the queue, {} s of waiting at most.",
        account.requests,
        account.seconds,
        grouped(account.tokens),
        grouped(account.burst_tokens),
        queue.places,
        queue.timeout_ms / 1_000,
    )
}

/// The lines of a table, a column for each gateway.
struct Rows<'a> {
    columns: &'a [Column],
    text: String,
}

impl<'a> Rows<'a> {
    fn new(columns: &'a [Column]) -> Self {
        let titles: String = columns
            .iter()
            .map(|column| format!(" {} |", column.protection.title()))
            .collect();
        let text = format!("| |{titles}\n|---|{}\n", "---|".repeat(columns.len()));
        Self { columns, text }
    }

    fn row(&mut self, name: &str, cell: impl Fn(&Figures) -> String) {
        let cells: String = self
            .columns
            .iter()
            .map(|column| format!(" {} |", cell(&column.figures)))
            .collect();
        let _ = writeln!(self.text, "| {name} |{cells}");
    }
}

/// Figures in ascending order.
struct Sorted(Vec<u64>);

impl Sorted {
    fn of(figures: impl Iterator<Item = u64>) -> Self {
        let mut figures: Vec<u64> = figures.collect();
        figures.sort_unstable();
        Self(figures)
    }

    /// The smallest that so many percent do not exceed; 0 of none.
    fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.0.len() as f64 * percent / 100.0).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    fn spread(&self) -> String {
        match self.0.last() {
            // Nothing waited, or nothing was given up.
            None | Some(0) => "-".to_owned(),
            Some(max) => {
                let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| seconds(self.percentile(percent)));
                format!("{p50} / {p90} / {p99} / {}", seconds(*max))
            }
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{:.2} s", Duration::from_millis(ms).as_secs_f64())
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn counted(part: u64, whole: u64) -> String {
    format!("{} ({:.2} %)", grouped(part), percent(part, whole))
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
