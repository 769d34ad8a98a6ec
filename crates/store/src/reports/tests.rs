use super::*;

#[test]
fn a_month_has_its_days_across_clock_changes() {
    let zone: Tz = "Europe/Berlin".parse().unwrap();
    for (month, count) in [("2026-10", 31), ("2026-03", 31), ("2026-02", 28)] {
        let span = month.parse::<domain::periods::Month>().unwrap().span(zone);
        let days = days(span, zone);
        assert_eq!(days.len(), count, "{month}");
        assert!(
            days.windows(2)
                .all(|pair| pair[0].1.day.succ_opt() == Some(pair[1].1.day))
        );
    }
}
