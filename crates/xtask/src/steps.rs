//! A row of named steps, timed, with a table at the end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What was done so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration, bool)>,
}

impl Steps {
    /// Does one step. A failure is for the caller to stop at; the table shows it.
    pub(crate) fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("==> {name}");
        let started_at = Instant::now();
        let outcome = work();
        let took = started_at.elapsed();
        println!("==> {name}: {} after {}", word(outcome.is_ok()), seconds(took));
        self.done.push((name, took, outcome.is_ok()));
        outcome.context(name)
    }

    /// The table.
    pub(crate) fn summary(&self) -> String {
        let width = self.done.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        let row = |name: &str, took: Duration, rest: &str| format!("  {name:width$} {:>9}  {rest}\n", seconds(took));
        let mut table: String = self
            .done
            .iter()
            .map(|(name, took, is_ok)| row(name, *took, word(*is_ok)))
            .collect();
        table.push_str(&row("total", self.done.iter().map(|(_, took, _)| *took).sum(), ""));
        table
    }
}

fn word(is_ok: bool) -> &'static str {
    if is_ok { "ok" } else { "FAILED" }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
