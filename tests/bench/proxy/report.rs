//! The figures of all rounds as a table in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use chrono::Utc;
use test_support::speed::rounds::{Ratio, Row, markdown};

use crate::Arguments;
use crate::loads::Load;
use crate::nginx::Nginx;
use crate::turn::{Measured, Proxy, Spent, Turn};

/// What everything else is compared with.
const BASE: Proxy = Proxy::Nginx;

/// What has been measured.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<Vec<Turn>>);

/// One figure of a turn; the second is that of the same round without a proxy, if there was one.
type Figure = Box<dyn Fn(&Turn, Option<&Turn>) -> Option<f64>>;

/// A line of the table.
struct Line {
    name: String,
    decimals: usize,
    is_compared: bool,
    figure: Figure,
}

impl Rounds {
    pub(crate) fn push(&mut self, turns: Vec<Turn>) {
        self.0.push(turns);
    }

    /// The table, with what is needed to read it.
    pub(crate) fn text(&self, arguments: &Arguments) -> anyhow::Result<String> {
        let proxies = arguments.proxies();
        let titles: Vec<&str> = proxies.iter().map(|proxy| proxy.title()).collect();
        let base = proxies.iter().position(|proxy| *proxy == BASE);
        let compared = |proxy: &Proxy| matches!(proxy, Proxy::Memory | Proxy::Redis);
        let places = proxies.iter().enumerate().filter(|(_, proxy)| compared(proxy));
        let ratios: Vec<Ratio> = base
            .into_iter()
            .flat_map(|to| places.clone().map(move |(of, _)| Ratio { of, to }))
            .collect();
        let rows: Vec<Row> = lines(&arguments.loads())
            .iter()
            .map(|line| self.row(line, &proxies))
            .collect();
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\n{}, {}, {}; rounds: {}, seconds for each load: {}; {} keys, input {}. Medians of all rounds; ratios within each \
             round: their median, the lowest and the highest.\n",
            Utc::now().date_naive(),
            machine(),
            Nginx::version()?,
            arguments.rounds,
            arguments.seconds,
            arguments.keys,
            if arguments.exact {
                "counted exactly"
            } else {
                "guessed by size"
            },
        );
        text.push_str(&markdown(&titles, &ratios, &rows));
        Ok(text)
    }

    fn row(&self, line: &Line, proxies: &[Proxy]) -> Row {
        let column = |proxy: &Proxy| {
            let figures = self
                .0
                .iter()
                .map(|turns| (line.figure)(find(turns, *proxy)?, find(turns, Proxy::Direct)));
            figures.collect()
        };
        Row {
            name: line.name.clone(),
            decimals: line.decimals,
            is_compared: line.is_compared,
            columns: proxies.iter().map(column).collect(),
        }
    }
}

fn find(turns: &[Turn], proxy: Proxy) -> Option<&Turn> {
    turns.iter().find(|turn| turn.proxy == proxy)
}

fn lines(loads: &[Load]) -> Vec<Line> {
    let mut lines: Vec<Line> = loads.iter().flat_map(|load| of_load(*load)).collect();
    lines.push(plain("memory, idle, MiB", 1, |turn| Some(mib(turn.idle?.resident_kib))));
    for load in loads {
        let load = *load;
        let name = format!("memory after {}, MiB", load.title());
        lines.push(plain(&name, 1, move |turn| {
            Some(mib(turn.loads.get(&load)?.memory?.resident_kib))
        }));
    }
    lines.push(plain("memory, the most there ever was, MiB", 1, |turn| {
        let of_loads = turn.loads.values().filter_map(|measured| measured.memory);
        of_loads.map(|memory| memory.resident_kib_max).max().map(mib)
    }));
    lines
}

fn of_load(load: Load) -> Vec<Line> {
    let named = |what: &str| format!("{}: {what}", load.title());
    match load {
        Load::Alone => {
            let mut lines = latencies(load);
            for percent in [50.0, 99.0] {
                lines.push(added(load, percent));
            }
            lines
        }
        Load::Many | Load::Long | Load::Longest => {
            let mut lines = vec![
                of_calls(load, named("requests a second"), 0, |measured| {
                    Some(measured.calls.per_second())
                }),
                share_of_direct(load),
            ];
            lines.extend(latencies(load));
            lines.extend(costs(load, "1,000 requests"));
            lines
        }
        Load::Streams | Load::PacedStreams => {
            let mut lines = vec![
                of_calls(load, named("streams a second"), 0, |measured| {
                    Some(measured.calls.per_second())
                }),
                share_of_direct(load),
            ];
            for percent in [50.0, 99.0] {
                let name = named(&format!("first event, p{percent:.0}, us"));
                lines.push(of_calls(load, name, 0, move |measured| {
                    Some(micros(measured.calls.first.percentile(percent)))
                }));
            }
            lines.extend(costs(load, "1,000 streams"));
            lines
        }
    }
}

fn latencies(load: Load) -> Vec<Line> {
    let line = |percent: f64| {
        let name = format!("{}: p{percent:.0}, us", load.title());
        of_calls(load, name, 0, move |measured| {
            Some(micros(measured.calls.whole.percentile(percent)))
        })
    };
    [50.0, 99.0].map(line).into()
}

/// What a proxy adds to the latency without one.
fn added(load: Load, percent: f64) -> Line {
    Line {
        name: format!("{}: p{percent:.0} added, us", load.title()),
        decimals: 0,
        is_compared: true,
        figure: Box::new(move |turn, direct| {
            let direct = direct.filter(|_| turn.proxy != Proxy::Direct)?;
            let of = |turn: &Turn| Some(micros(turn.loads.get(&load)?.calls.whole.percentile(percent)));
            Some(of(turn)? - of(direct)?)
        }),
    }
}

/// How near the upstream was to being the limit.
fn share_of_direct(load: Load) -> Line {
    Line {
        name: format!("{}: of what the upstream can, %", load.title()),
        decimals: 0,
        is_compared: false,
        figure: Box::new(move |turn, direct| {
            let rate = |turn: &Turn| Some(turn.loads.get(&load)?.calls.per_second());
            Some(rate(turn)? * 100.0 / rate(direct?)?)
        }),
    }
}

/// Processor time for each of `what`, until everything was in the ledger, and how much of it there was to have.
fn costs(load: Load, what: &str) -> Vec<Line> {
    let named = |name: &str| format!("{}: {name}", load.title());
    let per_thousand = |name: &str, spent: fn(&Spent) -> Duration| {
        let name = named(&format!("{name} per {what}, s"));
        of_proxy(load, name, 4, move |measured| {
            let spent = spent(&measured.in_all).as_secs_f64();
            Some(spent * 1_000.0 / measured.calls.count() as f64)
        })
    };
    let apart = |line: Line| Line {
        is_compared: false,
        ..line
    };
    vec![
        per_thousand("processor time", |spent| spent.proxy),
        per_thousand("processor time with Redis's own", |spent| spent.proxy + spent.redis),
        apart(per_thousand("Redis's own", |spent| spent.redis)),
        apart(per_thousand("Postgres's own", |spent| spent.postgres)),
        apart(of_proxy(load, named("the proxy's processor busy, %"), 0, |measured| {
            Some(busy(measured, measured.under_load.proxy))
        })),
        apart(of_calls(load, named("the other processor busy, %"), 0, |measured| {
            let Spent {
                redis, postgres, bench, ..
            } = measured.under_load;
            Some(busy(measured, redis + postgres + bench))
        })),
        apart(of_proxy(load, named("ledger caught up after, s"), 1, |measured| {
            Some(measured.caught_up.as_secs_f64())
        })),
    ]
}

fn busy(measured: &Measured, spent: Duration) -> f64 {
    spent.as_secs_f64() * 100.0 / measured.calls.elapsed.as_secs_f64()
}

fn plain(name: &str, decimals: usize, figure: impl Fn(&Turn) -> Option<f64> + 'static) -> Line {
    Line {
        name: name.to_owned(),
        decimals,
        is_compared: true,
        figure: Box::new(move |turn, _| figure(turn)),
    }
}

/// What callers have seen of a load.
fn of_calls(load: Load, name: String, decimals: usize, figure: impl Fn(&Measured) -> Option<f64> + 'static) -> Line {
    plain(&name, decimals, move |turn| figure(turn.loads.get(&load)?))
}

/// What was seen of the proxy under a load. Nothing of what it does not have: nginx has no ledger.
fn of_proxy(load: Load, name: String, decimals: usize, figure: impl Fn(&Measured) -> Option<f64> + 'static) -> Line {
    plain(&name, decimals, move |turn| match turn.proxy {
        Proxy::Direct => None,
        Proxy::Nginx | Proxy::Memory | Proxy::Redis => figure(turn.loads.get(&load)?).filter(|figure| *figure > 0.0),
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000_000.0
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1_024.0
}

/// In words.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unnamed processor", |(_, model)| model.trim());
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} processors ({model}), Linux {}", release.trim())
}
