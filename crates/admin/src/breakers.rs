//! What gateways say of upstreams that are not simply in use, put together.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use control::rows::Instance;
use domain::ids::UpstreamId;
use domain::instances::{BreakerState, BreakerStatus, STATUS_STALE_MS};
use leptos::prelude::*;

use crate::format::Format;
use crate::table::{self, Column, Tone, badge, words};

/// What gateways that see one upstream and model alike say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which upstream.
    pub upstream_id: UpstreamId,
    /// The model's name there; absent where all of its models are meant.
    pub upstream_model: Option<String>,
    /// What its breaker does.
    pub state: BreakerState,
    /// Since when, where it was first so.
    pub since: DateTime<Utc>,
    /// When the last of them tries it again.
    pub until: Option<DateTime<Utc>>,
    /// What led to it, as the first of them says.
    pub reason: String,
    /// The gateways, by name.
    pub gateways: Vec<String>,
}

/// What every gateway that is there says: by upstream and model, the worst state first. Also how many gateways there are.
pub fn seen(instances: &[Instance], now: DateTime<Utc>) -> (Vec<Seen>, usize) {
    let live: Vec<&Instance> = instances
        .iter()
        .filter(|instance| (now - instance.seen_at).num_milliseconds() <= STATUS_STALE_MS)
        .collect();
    let mut seen: BTreeMap<(UpstreamId, Option<String>, u8), Seen> = BTreeMap::new();
    for instance in &live {
        for breaker in &instance.status.breakers {
            let place = (breaker.upstream_id, breaker.upstream_model.clone(), rank(breaker.state));
            match seen.get_mut(&place) {
                Some(seen) => {
                    seen.since = seen.since.min(breaker.since);
                    seen.until = seen.until.max(breaker.until);
                    seen.gateways.push(instance.instance.clone());
                    seen.gateways.sort();
                }
                None => {
                    seen.insert(place, of(instance, breaker));
                }
            }
        }
    }
    (seen.into_values().collect(), live.len())
}

fn of(instance: &Instance, breaker: &BreakerStatus) -> Seen {
    Seen {
        upstream_id: breaker.upstream_id,
        upstream_model: breaker.upstream_model.clone(),
        state: breaker.state,
        since: breaker.since,
        until: breaker.until,
        reason: breaker.reason.clone(),
        gateways: vec![instance.instance.clone()],
    }
}

fn rank(state: BreakerState) -> u8 {
    match state {
        BreakerState::Open => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Cooling => 2,
        BreakerState::Closed => 3,
    }
}

/// A table of them. With the upstreams' names as the first column where `name_of` is given; `live` gateways are there.
pub fn table(seen: &[Seen], live: usize, name_of: Option<&dyn Fn(UpstreamId) -> String>, format: &Format) -> AnyView {
    let mut columns: Vec<Column> = vec![
        words(t!("Model")),
        words(t!("Breaker")),
        words(t!("Since", in "breaker")),
        words(t!("Tried again")),
        words(t!("Reason")),
        words(t!("Seen by")),
    ];
    if name_of.is_some() {
        columns.insert(0, words(t!("Upstream")));
    }
    let rows = seen
        .iter()
        .map(|seen| {
            let upstream = name_of.map(|name_of| {
                let href = format!("/upstreams/{}", seen.upstream_id);
                view! { <th scope="row"><a href=href>{name_of(seen.upstream_id)}</a></th> }
            });
            let model = seen
                .upstream_model
                .clone()
                .unwrap_or_else(|| t!("all of them", in "models of an upstream").to_owned());
            let until = match (seen.until, seen.state) {
                (Some(at), _) => format.bare_time(at),
                (None, BreakerState::HalfOpen) => t!("now, with a few requests").to_owned(),
                (None, _) => String::new(),
            };
            let gateways = if seen.gateways.len() == live && live > 1 {
                t!("all {live} gateways", live)
            } else {
                seen.gateways.join(", ")
            };
            view! {
                <tr>
                    {upstream}
                    <td>{model}</td>
                    <td>{state(seen.state)}</td>
                    <td class="nowrap">{format.bare_time(seen.since)}</td>
                    <td class="nowrap">{until}</td>
                    <td class="sentence" lang="en">{seen.reason.clone()}</td>
                    <td>{gateways}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let caption = t!(
        "What is not listed is closed: its requests go through. Each gateway decides for itself; times in {zone} time.",
        zone = format.zone()
    );
    table::table(caption, &columns, rows)
}

/// A breaker's state as a word.
pub fn state(state: BreakerState) -> AnyView {
    match state {
        BreakerState::Closed => badge(t!("closed", in "state of a breaker"), Tone::Good),
        BreakerState::Cooling => badge(t!("cooling", in "state of a breaker"), Tone::Warning),
        BreakerState::Open => badge(t!("open", in "state of a breaker"), Tone::Bad),
        BreakerState::HalfOpen => badge(t!("half-open", in "state of a breaker"), Tone::Warning),
    }
}

#[cfg(test)]
mod tests;
