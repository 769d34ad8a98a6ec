//! What every page promises to whoever looks at it in whichever way: no fault that axe-core finds serious, no text beyond a
//! narrow screen, nothing that moves while it loads, in light and dark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use domain::people::Role;
use serde_json::{Value, json};
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::tollgate::Tollgate;

use crate::chromium::{Chromium, Scripts};
use crate::installation;

/// Widths in CSS pixels.
const WIDE: u32 = 1_280;
const NARROW: u32 = 360;
/// How much of a page may move while it loads; what browsers call good is below 0.1.
const SHIFT_MAX: f64 = 0.02;
/// Pages of one kind that are looked at.
const LOOKS_PER_KIND: usize = 1;
/// Runs axe-core over the page and answers what it finds serious: rule, element, and what it says of it.
const AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'], runOnly: arguments[0] })
        .then(found => done(found.violations
            .filter(fault => ['serious', 'critical'].includes(fault.impact))
            .map(fault => [fault.id, fault.nodes[0].html, fault.nodes[0].failureSummary])))
        .catch(error => done([['axe', String(error), '']]));
";
/// All of WCAG 2.2 up to AA, and what the field calls good practice.
const RULES: [&str; 7] = [
    "wcag2a",
    "wcag2aa",
    "wcag21a",
    "wcag21aa",
    "wcag22a",
    "wcag22aa",
    "best-practice",
];
/// How much of the page has moved so far.
const SHIFT: &str = "
    const done = arguments[arguments.length - 1];
    let moved = 0;
    new PerformanceObserver(list => {
        for (const shift of list.getEntries()) {
            if (!shift.hadRecentInput) moved += shift.value;
        }
    }).observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => setTimeout(() => done(moved), 0));
";
/// What a browser that has nothing yet loads for a first view, in bytes as they come over the network.
const WEIGHT_MAX: u64 = 150_000;
/// What was loaded for this page, as soon as its program is there too.
const WEIGHT: &str = "
    const done = arguments[arguments.length - 1];
    const measure = () => {
        const parts = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
            .filter(part => !part.name.includes('/console/live'));
        return {
            bytes: parts.reduce((sum, part) => sum + part.transferSize, 0),
            parts: parts.map(part => new URL(part.name).pathname + ' ' + part.transferSize),
        };
    };
    const wait = tries => {
        const weight = measure();
        const is_whole = weight.parts.some(part => part.includes('.wasm'));
        if (is_whole || tries === 0) done(weight);
        else setTimeout(wait, 100, tries - 1);
    };
    wait(200);
";
/// How far the page reaches beyond the window, in CSS pixels.
const BEYOND: &str = "return document.documentElement.scrollWidth - document.documentElement.clientWidth;";
/// How far a table reaches beyond its frame, in CSS pixels, whether its headings are shown, and how many of the values in its
/// first row are without their column's name.
const STACKED: &str = "
    const frame = document.querySelector('main .table-frame');
    const cells = [...frame.querySelectorAll('tbody > tr:first-child > *')];
    const named = cell => getComputedStyle(cell, '::before').content !== 'none' && cell.dataset.label;
    return {
        beyond: frame.scrollWidth - frame.clientWidth,
        headings: frame.querySelector('thead').offsetHeight > 0,
        nameless: cells.filter(cell => !named(cell)).length,
    };
";

/// The rules' program, as npm brings it.
fn axe() -> String {
    let modules = std::env::var_os("TOLLGATE_TEST_NODE_MODULES").map(PathBuf::from);
    let modules =
        modules.expect("TOLLGATE_TEST_NODE_MODULES names no packages; run `cargo xtask test`, which installs them");
    std::fs::read_to_string(modules.join("axe-core/axe.min.js")).expect("axe-core is installed")
}

/// One address of each kind of page: ids and queries make no difference.
fn kinds(addresses: impl IntoIterator<Item = String>) -> Vec<String> {
    let kind = |address: &str| -> String {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let is_id = |part: &str| part.len() == 36 && part.matches('-').count() == 4;
        let parts: Vec<&str> = path
            .split('/')
            .map(|part| if is_id(part) { ":id" } else { part })
            .collect();
        let fields: BTreeSet<&str> = query.split('&').filter_map(|field| field.split('=').next()).collect();
        // Which node the limits are of decides what the page has.
        let of = query.split('&').find(|field| field.starts_with("of="));
        let of = of.map(|of| of.split("%3A").next().unwrap_or_default());
        format!("{} {:?} {:?}", parts.join("/"), fields, of)
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<String> = addresses.into_iter().collect();
    kept.retain(|address| {
        let looks = seen.entry(kind(address)).or_default();
        *looks += 1;
        *looks <= LOOKS_PER_KIND
    });
    kept
}

/// What is wrong with the pages that this person can reach.
async fn faults(tollgate: &Tollgate, window: &mut Window, email: &str) -> Vec<String> {
    let pages = window.walk().await;
    let addresses = kinds(
        pages
            .iter()
            .filter(|page| page.is_html())
            .map(|page| page.address.clone()),
    );
    let chromium = Chromium::start(&tollgate.url(), Scripts::On).await;
    chromium.sign_in(email, PASSWORD).await;
    let axe = axe();
    let mut faults = Vec::new();
    for address in addresses {
        for (width, scheme) in [(WIDE, "light"), (NARROW, "dark")] {
            chromium.look(width, scheme).await;
            chromium.open(&address).await;
            let mut tell = |what: String| faults.push(format!("{address} {width} {scheme}: {what}"));
            let moved = chromium.answer(SHIFT, vec![]).await.as_f64().unwrap_or(f64::MAX);
            if moved > SHIFT_MAX {
                tell(format!("{moved:.3} of it moves while it loads"));
            }
            let beyond = chromium.run(BEYOND).await.as_i64().unwrap_or(i64::MAX);
            if beyond > 0 {
                tell(format!("it reaches {beyond} px beyond the window"));
            }
            chromium.run(&axe).await;
            let found = chromium.answer(AXE, vec![json!(RULES)]).await;
            for fault in found.as_array().into_iter().flatten() {
                tell(
                    fault
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .collect::<Vec<_>>()
                        .join(" | "),
                );
            }
        }
    }
    chromium.end().await;
    faults
}

#[tokio::test]
async fn a_first_view_is_light() {
    let tollgate = installation::used().await;
    let chromium = Chromium::start(&tollgate.url(), Scripts::On).await;
    chromium.sign_in(OPERATOR, PASSWORD).await;
    for address in ["/", "/quota-tree", "/ledger", "/limits?of=global"] {
        chromium.forget_cached().await;
        chromium.open(address).await;
        let weight = chromium.answer(WEIGHT, vec![]).await;
        let bytes = weight["bytes"].as_u64().unwrap_or(u64::MAX);
        println!("{address}: {weight}");
        assert!(bytes <= WEIGHT_MAX, "{address}: {weight}");
        let wasm = weight["parts"].as_array().into_iter().flatten();
        assert!(
            wasm.filter_map(Value::as_str).any(|part| part.contains(".wasm")),
            "{address}: {weight}"
        );
    }
    chromium.end().await;
}

#[tokio::test]
async fn the_logs_are_read_without_sideways_scrolling_on_a_narrow_screen() {
    let tollgate = installation::used().await;
    let chromium = Chromium::start(&tollgate.url(), Scripts::On).await;
    chromium.sign_in(OPERATOR, PASSWORD).await;
    for address in ["/audit", "/ledger"] {
        chromium.look(NARROW, "light").await;
        chromium.open(address).await;
        let narrow = chromium.run(STACKED).await;
        let stacked = json!({ "beyond": 0, "headings": false, "nameless": 0 });
        assert_eq!(narrow, stacked, "{address}");
        chromium.look(WIDE, "light").await;
        chromium.open(address).await;
        let wide = chromium.run(STACKED).await;
        assert_eq!(wide["headings"], json!(true), "{address}: {wide}");
    }
    chromium.end().await;
}

#[tokio::test]
async fn an_operators_pages_are_for_everybody() {
    let tollgate = installation::used().await;
    let mut window = Window::open(&tollgate, "/sign-in").await;
    window.sign_in(OPERATOR, PASSWORD).await;
    let faults = faults(&tollgate, &mut window, OPERATOR).await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn a_members_pages_are_for_everybody() {
    let tollgate = installation::used().await;
    let tenant = installation::tenant(&tollgate).await;
    let mut window = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let faults = faults(&tollgate, &mut window, "member@example.com").await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn pages_at_the_door_and_of_an_empty_installation_are_for_everybody() {
    let tollgate = installation::empty().await;
    let mut window = Window::operator(&tollgate).await;
    let mut found = faults(&tollgate, &mut window, OPERATOR).await;
    let chromium = Chromium::start(&tollgate.url(), Scripts::On).await;
    let axe = axe();
    for address in ["/sign-in", "/invitation?token=none", "/setup?token=none"] {
        chromium.look(NARROW, "dark").await;
        chromium.visit(address).await;
        chromium.run(&axe).await;
        let serious = chromium.answer(AXE, vec![json!(RULES)]).await;
        if serious.as_array().is_none_or(|serious| !serious.is_empty()) {
            found.push(format!("{address}: {serious}"));
        }
    }
    chromium.forget_complaints().await;
    chromium.end().await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}
