//! Where somebody is signed in, as their account's page and their page among the people show it.

use control::sessions::{SESSIONS_LISTED_MAX, SessionRow};
use leptos::prelude::*;

use crate::table::{self, Tone, badge, words};
use crate::user_agents;
use crate::visit::Visit;

/// A table of sessions; `ending` is the form that ends one, where the visitor may.
pub fn table_of(
    sessions: &[SessionRow],
    visit: &Visit,
    ending: impl Fn(&SessionRow, bool) -> Option<AnyView>,
) -> AnyView {
    if sessions.is_empty() {
        return table::empty(t!("Signed in nowhere."), ().into_any());
    }
    let is_cut = sessions.len() as i64 == SESSIONS_LISTED_MAX;
    let caption = match is_cut {
        true => t!(
            "The {count} used last; times in {zone} time.",
            count = SESSIONS_LISTED_MAX,
            zone = visit.format.zone(),
        ),
        false => t!(
            "Those used last first; times in {zone} time.",
            zone = visit.format.zone()
        ),
    };
    let current = visit.visitor.as_ref().map(|visitor| visitor.session_id);
    let rows = sessions.iter().map(|session| {
        let is_current = current == Some(session.id);
        row(session, is_current, visit, ending(session, is_current))
    });
    table::table(
        caption,
        &[
            words(t!("Program")),
            words(t!("Address")),
            words(t!("Signed in")),
            words(t!("Last seen")),
            words(""),
        ],
        rows.collect(),
    )
}

/// What a session is called: by the program that it was last used by.
pub fn name_of(session: &SessionRow) -> String {
    let name = user_agents::told(session.user_agent.as_deref().unwrap_or_default());
    if name.is_empty() {
        t!("unknown").to_owned()
    } else {
        name
    }
}

fn row(session: &SessionRow, is_current: bool, visit: &Visit, ending: Option<AnyView>) -> AnyView {
    let unknown = || t!("unknown").to_owned();
    let instant = |at: Option<_>| at.map_or_else(unknown, |at| visit.format.bare_minute(at));
    let user_agent = session.user_agent.clone();
    let mark = is_current.then(|| badge(t!("this one", in "a session"), Tone::Good));
    view! {
        <tr>
            <th scope="row" title=user_agent>{name_of(session)} " " {mark}</th>
            <td>{session.peer.clone().unwrap_or_else(unknown)}</td>
            <td class="nowrap">{instant(session.signed_in_at)}</td>
            <td class="nowrap">{instant(session.seen_at)}</td>
            <td class="row-actions">
                <div class="actions actions-end">{ending}</div>
            </td>
        </tr>
    }
    .into_any()
}
