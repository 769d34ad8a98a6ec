//! The state of the installation: gateways, what is degraded, journals, breakers, settings.

use std::collections::HashMap;

use control::rows::Instance;
use domain::ids::UpstreamId;
use domain::instances::STATUS_STALE_MS;
use leptos::prelude::*;

use crate::breakers;
use crate::format;
use crate::live;
use crate::page::{self, Page};
use crate::pages::{quarantine, settings};
use crate::shell;
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::visit::Visit;

/// Gateways and settings.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let instances = visit.state.control.instances(&visitor.actor).await?;
        let settings = visit.state.control.settings().await?.settings;
        let unpriced = settings::unpriced_text(&settings.unpriced, &visit.format);
        let listed = if instances.is_empty() {
            table::empty(t!("No gateway has reported yet."), ().into_any())
        } else {
            table::table(
                t!(
                    "Each gateway reports every two seconds; times in {zone} time.",
                    zone = visit.format.zone()
                ),
                &[
                    words(t!("Gateway")),
                    words(t!("State")),
                    words(t!("Counters")),
                    figures(t!("Policy age")),
                    figures(t!("In flight")),
                    figures(t!("Open holds")),
                    figures(t!("Journal")),
                    figures(t!("Journal lag")),
                    figures(t!("Shipped a second")),
                    figures(t!("Journal on disk")),
                    figures(t!("Quarantine")),
                    words(t!("Version")),
                    words(t!("Started", in "gateways")),
                ],
                instances.iter().map(|instance| row(instance, &visit)).collect(),
            )
        };
        let names: HashMap<UpstreamId, String> = visit
            .state
            .control
            .upstreams(&visitor.actor)
            .await?
            .into_iter()
            .map(|upstream| (upstream.id, upstream.name))
            .collect();
        let (seen, live) = breakers::seen(&instances, visit.now());
        let breakers = if seen.is_empty() {
            table::empty(
                t!(
                    "Every breaker is closed: requests go to all upstreams that are in use. One that fails again and again, \
                     or says that it has no room, is left out for a while and named here."
                ),
                ().into_any(),
            )
        } else {
            let name_of = |id: UpstreamId| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            breakers::table(&seen, live, Some(&name_of), &visit.format)
        };
        let global = view! {
            {live::figures()}
            <a class="button" href=quarantine::ADDRESS>{t!("Quarantine")}</a>
            <a class="button" href="/limits?of=global">{t!("Limits of the installation")}</a>
        };
        let content = view! {
            {shell::page_head(
                t!("Status"),
                t!("The gateways behind this console, and the settings of the installation."),
                global.into_any(),
            )}
            {live::region("gateways", listed)}
            <section class="card">
                <h2>{t!("Upstreams")}</h2>
                {live::region("breakers", breakers)}
            </section>
            <section class="card">
                <h2>{t!("Settings")}</h2>
                {facts(vec![
                    (t!("Console"), view! { <code>{visit.state.public_address.to_string()}</code> }.into_any()),
                    (t!("Gateway"), view! { <code>{visit.state.gateway_address.to_string()}</code> }.into_any()),
                    (t!("Billing currency"), settings.currency.clone().into_any()),
                    (t!("Billing time zone"), settings::zone_text(&settings, &visit).into_any()),
                    (t!("Models without a price"), unpriced.into_any()),
                ])}
                <p class="actions"><a class="button" href="/settings">{t!("Go to the settings")}</a></p>
            </section>
        };
        Ok(Page::new(t!("Status"), content.into_any()))
    })
}

fn row(instance: &Instance, visit: &Visit) -> AnyView {
    let status = &instance.status;
    let silent_ms = (visit.now() - instance.seen_at).num_milliseconds();
    let state = if silent_ms > STATUS_STALE_MS {
        let duration = t!("for {duration}", duration = format::duration_ms(silent_ms));
        view! { {badge(t!("silent"), Tone::Bad)} " " <small>{duration}</small> }.into_any()
    } else if status.degraded.is_empty() {
        badge(t!("well"), Tone::Good)
    } else {
        let texts: Vec<&str> = status.degraded.iter().map(|degraded| degraded.text.as_str()).collect();
        view! { {badge(t!("degraded"), Tone::Warning)} " " <small lang="en">{texts.join("; ")}</small> }.into_any()
    };
    let shipping = match status.journal_drains_in_seconds() {
        Some(seconds) => t!(
            "{rate}, done in {duration}",
            rate = format::count(status.journal_shipped_per_second),
            duration = format::duration_ms(i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX))
        ),
        None => format::count(status.journal_shipped_per_second),
    };
    let on_disk = match status.journal_bytes_max {
        0 => format::bytes(status.journal_bytes),
        max => t!(
            "{used} of {max}",
            used = format::bytes(status.journal_bytes),
            max = format::bytes(max)
        ),
    };
    let milliseconds = |value: u64| format::duration_ms(i64::try_from(value).unwrap_or(i64::MAX));
    view! {
        <tr>
            <th scope="row">{instance.instance.clone()}</th>
            <td class="sentence">{state}</td>
            <td>{counters(&status.counters)}</td>
            <td class="number">{milliseconds(status.policy_age_ms)}</td>
            <td class="number">{format::count(status.in_flight)}</td>
            <td class="number">{format::count(status.open_holds)}</td>
            <td class="number">{tn!(status.journal_depth, "{n} entry", "{n} entries")}</td>
            <td class="number">{milliseconds(status.journal_lag_ms)}</td>
            <td class="number">{shipping}</td>
            <td class="number">{on_disk}</td>
            <td class="number"><a href=quarantine::ADDRESS>{format::count(status.journal_quarantined)}</a></td>
            <td>{status.version.clone()}</td>
            <td class="nowrap">{status.started_at.map(|at| visit.format.bare_minute(at))}</td>
        </tr>
    }
    .into_any()
}

/// Where counters live; the word of a later release stays as it is written.
fn counters(word: &str) -> String {
    match word {
        "memory" => t!("memory", in "where counters live").to_owned(),
        "redis" => t!("redis", in "where counters live").to_owned(),
        "degraded" => t!("degraded").to_owned(),
        other => other.to_owned(),
    }
}
