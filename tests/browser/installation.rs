//! What every test here begins with.

use control::limits::NodeLimits;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::tollgate::{Options, Tollgate};

/// One operator, one tenant, one model, and what a browser loads.
pub(crate) async fn start() -> Tollgate {
    let site = std::env::var_os("TOLLGATE_SITE_DIR").map(std::path::PathBuf::from);
    let is_built = site.is_some_and(|site| site.join("pkg/tollgate.js").exists());
    assert!(
        is_built,
        "TOLLGATE_SITE_DIR names no built site; run `cargo xtask test`, which builds it and sets that"
    );
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    tollgate.tenant("Research", NodeLimits::default()).await;
    Window::operator(&tollgate).await;
    tollgate
}
