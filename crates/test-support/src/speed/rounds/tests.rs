//! Medians, ratios and the table.

use super::{Ratio, Row, markdown, median, number};

fn row(name: &str, decimals: usize, is_compared: bool, columns: &[&[f64]]) -> Row {
    let column = |figures: &&[f64]| figures.iter().map(|figure| Some(*figure)).collect();
    Row {
        name: name.to_owned(),
        decimals,
        is_compared,
        columns: columns.iter().map(column).collect(),
    }
}

#[test]
fn the_median_is_in_the_middle() {
    for (figures, wanted) in [
        (&[][..], None),
        (&[7.0], Some(7.0)),
        (&[9.0, 1.0], Some(5.0)),
        (&[3.0, 100.0, 1.0], Some(3.0)),
        (&[4.0, 1.0, 2.0, 100.0], Some(3.0)),
    ] {
        assert_eq!(median(figures.iter().copied()), wanted, "{figures:?}");
    }
}

#[test]
fn ratios_are_taken_within_a_round() {
    // The machine is half as fast in the second round; the ratio of the medians would be 3.
    let rows = [row("CPU", 2, true, &[&[1.0, 2.0, 1.0], &[2.0, 4.0, 3.0]])];
    let table = markdown(&["nginx", "memory"], &[Ratio { of: 1, to: 0 }], &rows);
    assert_eq!(
        table,
        "| | nginx | memory | memory / nginx |\n|---|---|---|---|\n| CPU | 1.00 | 3.00 | 2.00 (2.00 to 3.00) |\n"
    );
}

#[test]
fn what_was_not_measured_is_a_dash() {
    let mut partial = row("CPU", 0, true, &[&[1_000.0], &[2_500.0]]);
    partial.columns[0][0] = None;
    let rows = [
        partial,
        row("busy", 1, false, &[&[10.0], &[20.0]]),
        row("nobody's", 1, true, &[&[], &[]]),
    ];
    let table = markdown(&["nginx", "memory"], &[Ratio { of: 1, to: 0 }], &rows);
    assert_eq!(
        table,
        "| | nginx | memory | memory / nginx |\n|---|---|---|---|\n| CPU | - | 2,500 | - |\n| busy | 10.0 | 20.0 | - |\n"
    );
}

#[test]
fn one_round_has_no_spread_and_nothing_is_divided_by_zero() {
    let rows = [
        row("one", 0, true, &[&[4.0], &[6.0]]),
        row("zero", 0, true, &[&[0.0], &[6.0]]),
    ];
    let table = markdown(&["a", "b"], &[Ratio { of: 1, to: 0 }], &rows);
    assert!(table.contains("| one | 4 | 6 | 1.50 |\n"), "{table}");
    assert!(table.contains("| zero | 0 | 6 | - |\n"), "{table}");
}

#[test]
fn thousands_have_commas() {
    for (value, decimals, wanted) in [
        (0.0, 0, "0"),
        (999.4, 0, "999"),
        (1_234_567.0, 0, "1,234,567"),
        (-1_234.5, 1, "-1,234.5"),
        (0.0231, 4, "0.0231"),
    ] {
        assert_eq!(number(value, decimals), wanted);
    }
}
