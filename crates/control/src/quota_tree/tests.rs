//! Which limits are the tightest, and that a page stays bounded.

use domain::budget_events::Thresholds;
use domain::ids::LimitId;
use domain::limits::{Dimension, Limit, Mode, Scope, Target};
use domain::periods::Period;
use domain::readings::{LiveLimit, Reading as LimitReading};
use domain::text::Text;
use uuid::Uuid;

use super::{NODES_SHOWN_MAX, Named, Node, Nodes, Reading, TIGHTEST_SHOWN, tightest};
use crate::live::SCOPES_READ_MAX;

fn model(number: usize) -> Scope {
    Scope::Model(format!("model-{number}").into())
}

fn node(number: usize, limits: Vec<LiveLimit>) -> Node {
    Node {
        scope: model(number),
        name: Text::word(number.to_string()),
        remark: None,
        limits,
        oversubscribed: Vec::new(),
    }
}

fn live(value: u64, utilisation_percent: f64) -> LiveLimit {
    LiveLimit {
        limit: Limit {
            id: LimitId(Uuid::nil()),
            target: Target::Node(Scope::Global),
            dimension: Dimension::Requests,
            value,
            increase: None,
            window_seconds: 60,
            burst: None,
            period: Period::Month,
            model: None,
            priority: None,
            mode: Mode::Enforce,
            gates: None,
            thresholds: Thresholds::default(),
        },
        reading: LimitReading {
            scope: Scope::Global,
            limit_id: LimitId(Uuid::nil()),
            dimension: Dimension::Requests,
            window_seconds: Some(60),
            period: None,
            model: None,
            priority: None,
            mode: Mode::Enforce,
            limit_value: value,
            used: 0,
            held: 0,
            remaining: 0,
            utilisation_percent,
            reset_ms: None,
            is_known: true,
        },
    }
}

#[test]
fn the_fullest_limits_that_can_refuse_come_first() {
    let mut rehearsed = live(10, 99.0);
    rehearsed.limit.mode = Mode::Rehearse;
    let mut unknown = live(10, 98.0);
    unknown.reading.is_known = false;
    let mut nodes = vec![node(0, vec![rehearsed, unknown, live(0, 100.0), live(10, 0.0)])];
    assert_eq!(tightest(&nodes), []);
    nodes.extend((1..20).map(|number| node(number, vec![live(10, number as f64)])));
    let names: Vec<String> = tightest(&nodes)
        .into_iter()
        .map(|tight| tight.name.to_string())
        .collect();
    assert_eq!(names.len(), TIGHTEST_SHOWN);
    assert_eq!(names, ["19", "18", "17", "16", "15"]);
}

#[test]
fn a_page_shows_so_many_nodes_and_says_how_many_more_there_are() {
    let nodes = (0..NODES_SHOWN_MAX + 7).map(|number| node(number, vec![live(1, 1.0)]));
    let nodes = Nodes::with_limits(nodes.chain([node(0, Vec::new())]).collect());
    assert_eq!((nodes.shown.len(), nodes.left_out), (NODES_SHOWN_MAX, 7));
}

#[test]
fn nodes_are_found_by_name_and_no_more_are_read_than_one_reading_takes() {
    let named = |name: String| Named::new(Scope::Model(name.as_str().into()), Text::word(name), None);
    let mut reading = Reading::new(" large ");
    reading.want(vec![named("the root".to_owned())], true);
    reading.want(["Large-1", "small-1"].map(|name| named(name.to_owned())).into(), false);
    let names: Vec<String> = reading.wanted.iter().map(|node| node.name.to_string()).collect();
    assert_eq!(names, ["the root", "Large-1"]);
    reading.want(
        (0..SCOPES_READ_MAX)
            .map(|number| named(format!("large-{number}")))
            .collect(),
        false,
    );
    assert_eq!((reading.wanted.len(), reading.unread), (SCOPES_READ_MAX, 2));
}
