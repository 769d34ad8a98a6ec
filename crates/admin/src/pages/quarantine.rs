//! Records of journals that Postgres would not take, and gaps: what they say, why they are here, and what can be done.

use control::quarantine::{NOTE_CHARS_MAX, QUARANTINED_MAX, QuarantineRow, SHIPPED_NOTE, ShippedAgain};
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::page::{self, Page};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press};
use crate::table::{self, Tone, badge, facts};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::visit::{Visit, Visitor};

/// Where it is.
pub const ADDRESS: &str = "/status/quarantine";
/// The longest part of damaged bytes that is shown.
const RAW_SHOWN_BYTES: usize = 2_000;

/// What is in quarantine, for those who see everything.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let rows = visit.state.control.quarantined(&visitor.actor).await?;
        let is_cut = rows.len() as i64 == QUARANTINED_MAX;
        let is_empty = rows.iter().all(|row| row.resolved_at.is_some());
        let listing = Listing::new(&visit, columns(), rows, &[], |row| {
            format!("{} {} {}", row.instance, row.reason, text_of(row).unwrap_or_default())
        })?;
        let (resolved, open): (Vec<_>, Vec<_>) = listing.rows().iter().partition(|row| row.resolved_at.is_some());
        let waiting = if is_empty {
            table::empty(
                t!("Nothing is in quarantine: every record went into the ledger."),
                ().into_any(),
            )
        } else if open.is_empty() {
            table::empty(t!("None of those in quarantine is on this page."), ().into_any())
        } else {
            open.iter()
                .map(|row| card(row, visitor, &visit))
                .collect_view()
                .into_any()
        };
        let done = (!resolved.is_empty()).then(|| {
            view! {
                <h2>{t!("Dealt with")}</h2>
                {resolved.iter().map(|row| card(row, visitor, &visit)).collect_view()}
            }
        });
        let content = view! {
            {shell::page_head(
                t!("Quarantine"),
                t!(
                    "Records of the gateways' journals that Postgres would not take, and records that are known to be lost. \
                     None of them is in any total."
                ),
                view! { <a class="button" href="/status">{t!("Status")}</a> }.into_any(),
            )}
            {is_cut.then(|| view! { <p>{t!("Only {count} are shown.", count = QUARANTINED_MAX)}</p> })}
            {listing.search(&Named { counted: |n| tn!(n, "{n} record", "{n} records"), find: t!("Find among the records") })}
            {listing.orders()}
            {waiting}
            {done}
            {listing.pager()}
        };
        Ok(Page::new(t!("Quarantine"), content.into_any()))
    })
}

fn columns() -> Vec<Column<QuarantineRow>> {
    vec![
        by(table::words(t!("Since")), "since", |one: &QuarantineRow, other| {
            one.quarantined_at.cmp(&other.quarantined_at)
        }),
        by(table::words(t!("Gateway")), "gateway", |one: &QuarantineRow, other| {
            (&one.instance, one.seq).cmp(&(&other.instance, other.seq))
        }),
        by_text(table::words(t!("Why")), "why", |row| &row.reason),
    ]
}

fn card(row: &QuarantineRow, visitor: &Visitor, visit: &Visit) -> AnyView {
    let is_open = row.resolved_at.is_none();
    let number = match row.last_seq {
        Some(last) if last > row.seq => t!("{first} to {last}", first = row.seq, last),
        _ => row.seq.to_string(),
    };
    let state = match (row.resolved_at, row.resolution.as_deref()) {
        (None, _) if row.is_gap() => badge(t!("lost"), Tone::Bad),
        (None, _) => badge(t!("not in the ledger"), Tone::Warning),
        (Some(_), Some("shipped")) => badge(t!("in the ledger"), Tone::Good),
        (Some(_), _) => badge(t!("resolved"), Tone::Good),
    };
    let numbers = if row.is_gap() {
        t!("Numbers", in "records of a journal")
    } else {
        t!("Number", in "records of a journal")
    };
    let mut told = vec![
        (t!("Gateway"), row.instance.clone().into_any()),
        (numbers, number.into_any()),
        (t!("Since"), visit.format.time(row.quarantined_at).into_any()),
        (t!("State"), state),
        (
            t!("Why"),
            view! { <span lang="en">{row.reason.clone()}</span> }.into_any(),
        ),
    ];
    if let Some(at) = row.resolved_at {
        let who = row.resolved_by.clone().unwrap_or_default();
        let when = t!("{time} by {who}", time = visit.format.time(at), who);
        told.push((t!("Dealt with"), when.into_any()));
        told.push((t!("Note"), note_of(row).into_any()));
    }
    let record = text_of(row).map(|text| {
        view! {
            <details>
                <summary>{t!("The record")}</summary>
                <pre>{text}</pre>
            </details>
        }
    });
    view! {
        <section class="card">
            {facts(told)}
            {record}
            {(is_open && visitor.is_operator()).then(|| actions(row))}
        </section>
    }
    .into_any()
}

/// What was done about it: in the words of whoever did it, or of the house.
fn note_of(row: &QuarantineRow) -> String {
    match row.note.as_deref() {
        Some(SHIPPED_NOTE) => t!("written to the ledger").to_owned(),
        note => note.unwrap_or_default().to_owned(),
    }
}

/// The record as it may be read: JSON set out, or the beginning of what is none.
fn text_of(row: &QuarantineRow) -> Option<String> {
    if let Some(record) = &row.record {
        return serde_json::to_string_pretty(record).ok();
    }
    let raw = row.raw.as_deref()?;
    let shown = &raw[..raw.len().min(RAW_SHOWN_BYTES)];
    let more = if raw.len() > shown.len() {
        format!("\n{}", t!("… of {count} bytes", count = raw.len()))
    } else {
        String::new()
    };
    Some(format!("{}{more}", shown.escape_ascii()))
}

fn actions(row: &QuarantineRow) -> AnyView {
    let ship = (!row.is_gap()).then(|| {
        view! {
            <form class="actions" method="post" action=ShipAgain::PATH>
                <input type="hidden" name="instance" value=row.instance.clone() />
                <input type="hidden" name="seq" value=row.seq.to_string() />
                <button class="button" type="submit">{t!("Ship again")}</button>
            </form>
        }
    });
    view! {
        {ship}
        <form class="form" method="post" action=CloseQuarantined::PATH>
            <input type="hidden" name="instance" value=row.instance.clone() />
            <input type="hidden" name="seq" value=row.seq.to_string() />
            // Many such forms are on one page, so that the label holds its field.
            <label class="field">
                <span>{t!("What was done about it")}</span>
                <input type="text" name="note" required maxlength=NOTE_CHARS_MAX.to_string() />
                <span class="hint">{t!("For example the adjustment that books it, or why there is nothing to book.")}</span>
            </label>
            <div class="actions">
                <button class="button" type="submit">{t!("Mark as resolved")}</button>
            </div>
        </form>
    }
    .into_any()
}

/// What the form that marks one as resolved sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CloseForm {
    instance: String,
    seq: String,
    note: String,
}

/// Tries again to write a record to the ledger.
#[server(prefix = "/console", endpoint = "quarantine/ship")]
pub async fn ship_again(instance: String, seq: String) -> Result<(), ServerFnError> {
    press(ADDRESS, |visit: Visit| async move {
        let (seq, now) = (parsed_id(&seq)?, visit.now());
        let shipped = visit
            .state
            .control
            .ship_again(visit.actor()?, &instance, seq, now)
            .await?;
        let notice = match shipped {
            ShippedAgain::Written => t!("The record is in the ledger now, and in every total."),
            ShippedAgain::WasThere => t!("The ledger had it already; nothing was counted twice."),
        };
        Ok::<_, Refused>(Done::say(ADDRESS, notice))
    })
    .await
}

/// Marks a record or a gap as dealt with.
#[server(prefix = "/console", endpoint = "quarantine/close")]
pub async fn close_quarantined(#[server(flatten)] form: CloseForm) -> Result<(), ServerFnError> {
    press(ADDRESS, |visit: Visit| async move {
        let (seq, now) = (parsed_id(&form.seq)?, visit.now());
        let control = &visit.state.control;
        control
            .close_quarantined(visit.actor()?, &form.instance, seq, &form.note, now)
            .await?;
        Ok::<_, Refused>(Done::say(ADDRESS, t!("Marked as resolved.")))
    })
    .await
}
