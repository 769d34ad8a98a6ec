//! Live figures in a browser: they change without a reload, can be paused, and survive a lost connection.

use control::limits::NodeLimits;
use test_support::console::{OPERATOR, PASSWORD};
use test_support::cut::Wire;

use crate::chromium::{Chromium, Scripts};
use crate::installation;

/// How the figures stand, and the button that pauses them.
const STATE: &str = ".live-state";
const BUTTON: &str = ".live button";

#[tokio::test]
async fn figures_change_by_themselves_and_survive_a_lost_connection() {
    let tollgate = installation::start().await;
    let wire = Wire::to(tollgate.url().trim_start_matches("http://").to_owned()).await;
    let chromium = Chromium::start(&format!("http://{}", wire.address()), Scripts::On).await;
    chromium.sign_in(OPERATOR, PASSWORD).await;
    chromium.open("/quota-tree").await;
    chromium.wait_for_text(STATE, "Live").await;

    // Something new appears, and what the reader has typed meanwhile stays.
    chromium.fill("/quota-tree", "find", "half a na").await;
    tollgate.tenant("Sales", NodeLimits::default()).await;
    let sales = |name: &str| format!("//h3[normalize-space()='{name}']");
    chromium.find_path(&sales("Sales")).await;
    let typed = chromium.find("[name='find']").await.prop("value").await;
    assert_eq!(typed.expect("an answer").as_deref(), Some("half a na"));

    wire.cut();
    chromium.wait_for_text(STATE, "Connection lost; trying again").await;
    tollgate.tenant("Support", NodeLimits::default()).await;
    wire.mend();
    chromium.find_path(&sales("Support")).await;
    chromium.wait_for_text(STATE, "Live").await;
    // The browser has told of the lost connection.
    chromium.forget_complaints().await;

    chromium.find(BUTTON).await.click().await.expect("a click");
    chromium.wait_for_text(STATE, "Paused").await;
    chromium.wait_for_text(BUTTON, "Resume").await;
    tollgate.tenant("Logistics", NodeLimits::default()).await;
    chromium.find(BUTTON).await.click().await.expect("a click");
    chromium.find_path(&sales("Logistics")).await;
    chromium.wait_for_text(STATE, "Live").await;
    chromium.end().await;
}

#[tokio::test]
async fn without_scripts_a_link_loads_the_figures_again() {
    let tollgate = installation::start().await;
    let chromium = Chromium::start(&tollgate.url(), Scripts::Off).await;
    chromium.sign_in(OPERATOR, PASSWORD).await;
    chromium.open("/quota-tree").await;
    assert!(!chromium.find(BUTTON).await.is_displayed().await.expect("an answer"));
    tollgate.tenant("Sales", NodeLimits::default()).await;
    let refresh = chromium.find_path("//a[normalize-space()='Refresh']").await;
    refresh.click().await.expect("a click");
    chromium.find_path("//h3[normalize-space()='Sales']").await;
    chromium.end().await;
}
