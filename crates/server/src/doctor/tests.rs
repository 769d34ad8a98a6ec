use domain::checklist::Subject;
use domain::text::Text;

use super::*;

fn item(subject: Subject, state: State) -> Item {
    Item {
        subject,
        state,
        found: Text::word("Something was found."),
    }
}

#[test]
fn what_is_to_be_done_counts_before_what_is_not_known() {
    let (good, to_do, unknown) = (
        item(Subject::Queue, State::Good),
        item(Subject::Webhook, State::ToDo),
        item(Subject::Clocks, State::Unknown),
    );
    assert_eq!(outcome(std::slice::from_ref(&good)), State::Good);
    assert_eq!(outcome(&[good.clone(), unknown.clone()]), State::Unknown);
    assert_eq!(outcome(&[good.clone(), unknown, to_do.clone()]), State::ToDo);
    let text = written(&[good, to_do]);
    assert!(text.starts_with("[good] Waiting for room: Something was found.\n[to do] Alerts"));
    assert!(
        text.contains("Set a webhook") && !text.contains("TOLLGATE_QUEUE_TIMEOUT"),
        "{text}"
    );
}
