//! What limits in rehearsal would have refused: by level of the quota tree, by limit, and whom.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use control::lookback::Lookback;
use control::priorities::NamedLimit;
use control::rehearsals::{REHEARSED_KEYS_MAX, RehearsalView, RehearsedKey, RehearsedLimit};
use domain::ids::LimitId;
use domain::key_text::masked;
use domain::ledger::RehearsedVerdict;
use domain::limits::{Mode, Scope, Target};
use leptos::prelude::*;

use crate::error::PageError;
use crate::format::{self, Format};
use crate::limit_names::{self, level_name};
use crate::lookbacks;
use crate::page::{self, Page};
use crate::pages::limits;
use crate::shell;
use crate::table::{self, Tone, badge, figures, words};
use crate::terms;
use crate::visit::{Visitor, address};
use terms::refusal_of;

const PATH: &str = "/rehearsal";
/// The levels from the root of the quota tree down, by the kinds of their scopes.
const LEVELS: [&str; 7] = ["global", "models", "model", "tenant", "user", "key", "upstream"];

/// What would have been refused.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let lookback = lookbacks::chosen(&visit);
        let limit = match visit.query("limit") {
            Some(text) => Some(text.parse::<LimitId>().map_err(|_| PageError::NotFound)?),
            None => None,
        };
        let found = visit
            .state
            .control
            .rehearsal(&visitor.actor, limit, lookback, visit.now())
            .await?;
        let chosen = limit.map(|limit| limit.to_string()).unwrap_or_default();
        let is_empty = found.percent.is_none() && found.rehearsal.limits.is_empty();
        let body = if is_empty {
            how_to_begin(visitor)
        } else {
            view! {
                {lookbacks::links(PATH, Lookback::LATELY, lookback, &[("limit", &chosen)])}
                {what_is_rehearsed(&found)}
                {stats(&found)}
                {levels(&found)}
                {by_limit(&found, lookback, visit.now(), &visit.format)}
                {by_key(&found, limit, lookback)}
                {lookbacks::covered(found.span, found.rehearsal.completeness.complete_until, &visit.format)}
            }
            .into_any()
        };
        let content = view! {
            {shell::page_head(
                t!("Rehearsal"),
                t!("What limits that do not refuse yet would have refused, so that you see it before your callers do."),
                ().into_any(),
            )}
            {body}
        };
        Ok(Page::new(t!("Rehearsal"), content.into_any()))
    })
}

fn how_to_begin(visitor: &Visitor) -> AnyView {
    let global = limits::address_of(&Target::Node(Scope::Global));
    let actions = visitor.is_operator().then(|| {
        view! {
            <p class="actions">
                <a class="button button-primary" href=global>{t!("Limits of the whole installation")}</a>
                <a class="button" href="/settings">{t!("Settings")}</a>
            </p>
        }
    });
    let text = t!(
        "Nothing is rehearsed. Set a limit's mode to rehearse: it then counts every request and refuses none, and \
         this page shows how often it would have. Or rehearse all limits at once at a share of their value: at 20 %, \
         say, each limit shows how it would hold against five times today's traffic."
    );
    view! { <section class="card">{table::empty(text, actions.into_any())}</section> }.into_any()
}

fn what_is_rehearsed(found: &RehearsalView) -> AnyView {
    let limits = match found.rehearsed_limits {
        0 => t!("No limit is in rehearsal by itself").to_owned(),
        count => tn!(count as u64, "{n} limit is in rehearsal", "{n} limits are in rehearsal"),
    };
    let settings = view! { <a href="/settings">{t!("settings")}</a> };
    let counted = t!(
        "Only requests that ran are counted: what enforced limits refused never reached the rehearsal. Requests from \
         before it began count as passed."
    );
    let text = match found.percent {
        Some(percent) => tv!(
            "{limits}, and all enforced limits are rehearsed at {share} of their value ({settings}). {counted}",
            limits,
            share = view! { <strong>{format!("{percent} %")}</strong> },
            settings,
            counted,
        ),
        None => tv!(
            "{limits}, and the enforced ones are not rehearsed at a share of their value ({settings}). {counted}",
            limits,
            settings,
            counted,
        ),
    };
    view! { <p>{text}</p> }.into_any()
}

fn stats(found: &RehearsalView) -> AnyView {
    let rehearsal = &found.rehearsal;
    let triggered = rehearsal.limits.iter().filter(|limit| limit.requests() > 0).count();
    let of_requests = tn!(
        rehearsal.requests,
        "of {n} request ({share})",
        "of {n} requests ({share})",
        share = format::share(rehearsal.refused, rehearsal.requests),
    );
    view! {
        <dl class="stats">
            <div class="stat">
                <dt>{t!("Would have been refused")}</dt>
                <dd>
                    <span class="figure">{format::count(rehearsal.refused)}</span>
                    <div>
                        <small>{of_requests}</small>
                    </div>
                </dd>
            </div>
            <div class="stat">
                <dt>{t!("Limits that would have refused")}</dt>
                <dd><span class="figure">{format::count(triggered as u64)}</span></dd>
            </div>
        </dl>
    }
    .into_any()
}

fn levels(found: &RehearsalView) -> AnyView {
    let rehearsal = &found.rehearsal;
    let rows = LEVELS
        .into_iter()
        .map(|level| {
            let refused = rehearsal.refused_by_level.get(level).copied().unwrap_or(0);
            view! {
                <tr>
                    <th scope="row">{level_name(level)}</th>
                    <td class="number">{format::count(refused)}</td>
                    <td class="number">{format::share(refused, rehearsal.requests)}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    view! {
        <section class="card">
            <h2>{t!("By level")}</h2>
            {table::table(
                t!("From the root of the quota tree down. A request that several levels would have refused counts in \
                    each of them."),
                &[words(t!("Level")), figures(t!("Would be refused")), figures(t!("Of all requests"))],
                rows,
            )}
        </section>
    }
    .into_any()
}

fn by_limit(found: &RehearsalView, lookback: Lookback, at: DateTime<Utc>, format: &Format) -> AnyView {
    let rehearsal = &found.rehearsal;
    let body = if rehearsal.limits.is_empty() {
        table::empty(t!("No limit would have refused anything in this time."), ().into_any())
    } else {
        table::table(
            t!("The most frequent first. A request that several limits would have refused counts in each of them."),
            &[
                words(t!("Limit of")),
                words(t!("Limit")),
                figures(t!("Value")),
                words(t!("Mode")),
                figures(t!("Would be refused")),
                figures(t!("Of all requests")),
                words(t!("As", in "refusals")),
                words(t!("Whom")),
            ],
            rehearsal
                .limits
                .iter()
                .map(|limit| limit_row(limit, found, lookback, at, format))
                .collect(),
        )
    };
    let cut = rehearsal.is_cut.then(|| {
        let text = t!("Only the limits that would have refused most are listed.");
        view! { <p class="notice notice-warning">{text}</p> }
    });
    view! {
        <section class="card">
            <h2>{t!("By limit")}</h2>
            {cut}
            {body}
        </section>
    }
    .into_any()
}

fn limit_row(
    limit: &RehearsedLimit,
    found: &RehearsalView,
    lookback: Lookback,
    at: DateTime<Utc>,
    format: &Format,
) -> AnyView {
    let id = limit.id.to_string();
    let requests = found.rehearsal.requests;
    let (place, slot, value, mode) = match &limit.limit {
        Some(named) => {
            let place = limit_names::place_of(named);
            let href = limits::address_of(&named.limit.target);
            let mode = match (named.is_removed, named.limit.mode) {
                (true, _) => badge(t!("removed"), Tone::Quiet),
                (false, Mode::Enforce) => badge(t!("enforced"), Tone::Good),
                (false, Mode::Rehearse) => badge(t!("rehearsed"), Tone::Warning),
            };
            (
                view! { <a href=href>{place}</a> }.into_any(),
                limits::slot_name(&named.limit.slot()),
                value(named, found.percent, at, format),
                mode,
            )
        }
        None => (
            t!("{level}: {id}", level = level_name(&limit.level), id).into_any(),
            String::new(),
            ().into_any(),
            ().into_any(),
        ),
    };
    let whom = (limit.requests() > 0).then(|| {
        let href = lookbacks::address_of(PATH, lookback, &[("limit", &id)]);
        view! { <a href=format!("{href}#keys")>{t!("Keys")}</a> }
    });
    view! {
        <tr>
            <th scope="row">{place}</th>
            <td>{slot}</td>
            <td class="number">{value}</td>
            <td>{mode}</td>
            <td class="number">{format::count(limit.requests())}</td>
            <td class="number">{format::share(limit.requests(), requests)}</td>
            <td>{codes(&limit.refused)}</td>
            <td>{whom}</td>
        </tr>
    }
    .into_any()
}

/// The limit's value, and what it is rehearsed at where that is a share of it.
fn value(named: &NamedLimit, percent: Option<u8>, at: DateTime<Utc>, format: &Format) -> AnyView {
    let limit = &named.limit;
    let text = |value| limits::value_text(limit.dimension, value, format);
    let share = percent
        .filter(|_| limit.mode == Mode::Enforce && !named.is_removed)
        .map(|percent| {
            // Rounded up, as admission does: what admits something still does.
            let share = (u128::from(limit.value_at(at)) * u128::from(percent)).div_ceil(100);
            let share = text(u64::try_from(share).unwrap_or(u64::MAX));
            view! { " " <div><small>{t!("rehearsed at {share}", share)}</small></div> }
        });
    view! { {limits::value_in_force(limit, at, format)} {share} }.into_any()
}

/// One code in words, several with their counts.
fn codes(refused: &BTreeMap<String, u64>) -> String {
    match refused.len() {
        0 => t!("never").to_owned(),
        1 => refused.keys().map(|code| refusal_of(code)).collect(),
        _ => refused
            .iter()
            .map(|(code, count)| format!("{} {}", refusal_of(code), format::count(*count)))
            .collect::<Vec<_>>()
            .join(t!(", ", in "list")),
    }
}

fn by_key(found: &RehearsalView, limit: Option<LimitId>, lookback: Lookback) -> AnyView {
    let rehearsal = &found.rehearsal;
    let named = rehearsal
        .limits
        .iter()
        .find(|known| Some(known.id) == limit)
        .and_then(|known| known.limit.as_ref());
    let (whose, all) = match limit {
        None => (t!("By any limit.").to_owned(), None),
        Some(_) => {
            let href = format!("{}#keys", lookbacks::address_of(PATH, lookback, &[]));
            let whose = named.map_or(t!("By this limit.").to_owned(), |named| {
                t!(
                    "By {limit} of {place}.",
                    limit = limit_names::slot_of(named),
                    place = limit_names::place_of(named),
                )
            });
            (whose, Some(view! { <a href=href>{t!("By any limit")}</a> }))
        }
    };
    let body = if rehearsal.keys.is_empty() {
        table::empty(
            t!("No key's requests would have been refused in this time."),
            ().into_any(),
        )
    } else {
        table::table(
            t!(
                "{whose} The {count} that would have been refused most.",
                whose,
                count = REHEARSED_KEYS_MAX
            ),
            &[
                words(t!("Key")),
                words(t!("Tenant")),
                figures(t!("Would be refused")),
                figures(t!("Of its requests")),
                figures(t!("Share")),
            ],
            rehearsal.keys.iter().map(key_row).collect(),
        )
    };
    view! {
        <section class="card" id="keys">
            <div class="card-head">
                <h2>{t!("Whom it would have met")}</h2>
                {all}
            </div>
            {body}
        </section>
    }
    .into_any()
}

fn key_row(key: &RehearsedKey) -> AnyView {
    let id = key.key_id.to_string();
    let name = match (&key.key_name, &key.key_public_id) {
        (Some(name), _) => name.clone(),
        (None, Some(public_id)) => masked(public_id),
        (None, None) => id.clone(),
    };
    let entries = address("/ledger", &[("kind", "settlement"), ("key", &id)]);
    view! {
        <tr>
            <th scope="row"><a href=format!("/keys/{id}")>{name}</a></th>
            <td><a href=format!("/tenants/{}", key.tenant_id)>{key.tenant_name.clone()}</a></td>
            <td class="number">{format::count(key.refused)}</td>
            <td class="number"><a href=entries>{format::count(key.requests)}</a></td>
            <td class="number">{format::share(key.refused, key.requests)}</td>
        </tr>
    }
    .into_any()
}

/// What rehearsed limits would have done to one request, in words; nothing where none would have done anything. `limits`
/// are those that the verdicts name, `name_of` is what the node's id is called.
pub fn verdicts(
    verdicts: &[RehearsedVerdict],
    limits: &[NamedLimit],
    name_of: impl Fn(&Scope) -> Option<String>,
) -> AnyView {
    if verdicts.is_empty() {
        return ().into_any();
    }
    let items = verdicts
        .iter()
        .map(|verdict| {
            let named = limits.iter().find(|named| named.limit.id == verdict.limit_id);
            let slot = named.map_or_else(|| terms::dimension(verdict.dimension).to_owned(), limit_names::slot_of);
            let name = name_of(&verdict.scope).or_else(|| named.and_then(|named| named.name.clone()));
            let node = limit_names::node_name(&verdict.scope, name.as_deref(), None);
            let text = tv!(
                "It would have been refused by {limit} of {place} ({code}).",
                limit = slot,
                place = node,
                code = view! { <code>{verdict.code.as_str()}</code> },
            );
            view! { <li>{text}</li> }
        })
        .collect_view();
    view! {
        <section class="card">
            <h2>{t!("In rehearsal")}</h2>
            <p class="quiet">{t!("The request ran. Limits in rehearsal only say what they would have done.")}</p>
            <ul class="plain-list">{items}</ul>
        </section>
    }
    .into_any()
}
