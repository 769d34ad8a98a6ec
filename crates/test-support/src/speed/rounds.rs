//! Figures of several rounds, and the table in Markdown that compares them.
//!
//! What is compared was measured in turn, so that a machine that grows slower meanwhile does so for all: a ratio is taken
//! within each round, and the median of those is shown.

use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is, with its unit.
    pub name: String,
    /// How many decimals say something.
    pub decimals: usize,
    /// Whether ratios of it mean anything.
    pub is_compared: bool,
    /// Of each column, what each round has shown, if anything.
    pub columns: Vec<Vec<Option<f64>>>,
}

/// One column divided by another, by their places.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// What is divided.
    pub of: usize,
    /// By what.
    pub to: usize,
}

/// The table: medians of all columns, and ratios with the lowest and the highest of all rounds.
pub fn markdown(titles: &[&str], ratios: &[Ratio], rows: &[Row]) -> String {
    let mut text = String::from("| |");
    for title in titles {
        let _ = write!(text, " {title} |");
    }
    for ratio in ratios {
        let _ = write!(text, " {} / {} |", titles[ratio.of], titles[ratio.to]);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(titles.len() + ratios.len()));
    for row in rows.iter().filter(|row| row.says_anything()) {
        let _ = write!(text, "| {} |", row.name);
        for column in &row.columns {
            let shown = median(column.iter().flatten().copied());
            let _ = write!(
                text,
                " {} |",
                shown.map_or_else(none, |value| number(value, row.decimals))
            );
        }
        for ratio in ratios {
            let _ = write!(text, " {} |", row.ratio(*ratio));
        }
        text.push('\n');
    }
    text
}

/// The middle one, or what lies between the two in the middle.
pub fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = figures[(figures.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

impl Row {
    fn says_anything(&self) -> bool {
        self.columns.iter().flatten().any(Option::is_some)
    }

    /// The ratio within each round.
    fn ratios(&self, ratio: Ratio) -> Vec<f64> {
        let rounds = self.columns[ratio.of].iter().zip(&self.columns[ratio.to]);
        rounds
            .filter_map(|(of, to)| Some((*of)?).zip(to.filter(|to| *to > 0.0)))
            .map(|(of, to)| of / to)
            .collect()
    }

    fn ratio(&self, ratio: Ratio) -> String {
        let ratios = if self.is_compared {
            self.ratios(ratio)
        } else {
            Vec::new()
        };
        let Some(median) = median(ratios.iter().copied()) else {
            return none();
        };
        let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = ratios.iter().copied().fold(0.0, f64::max);
        match ratios.len() {
            1 => format!("{median:.2}"),
            _ => format!("{median:.2} ({lowest:.2} to {highest:.2})"),
        }
    }
}

fn none() -> String {
    "-".to_owned()
}

/// With commas between thousands.
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if !fraction.is_empty() {
        let _ = write!(shown, ".{fraction}");
    }
    shown
}
