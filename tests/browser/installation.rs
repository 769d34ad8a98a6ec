//! What every test here begins with.

use chrono::Utc;
use control::limits::NodeLimits;
use domain::ids::TenantId;
use test_support::clock::zone_at_noon;
use test_support::console::Window;
use test_support::tollgate::{Options, Tollgate};

/// One operator, one tenant, one model, and what a browser loads.
pub(crate) async fn start() -> Tollgate {
    let tollgate = started(false).await;
    tollgate.tenant("Research", NodeLimits::default()).await;
    Window::operator(&tollgate).await;
    tollgate
}

/// One operator, and a tenant with requests that ran and that were refused.
pub(crate) async fn used() -> Tollgate {
    let tollgate = started(false).await;
    let limits = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.named_tenant_with_key("Research", limits).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 429);
    tollgate.shipped().await;
    Window::operator(&tollgate).await;
    tollgate
}

/// Nothing, not even an operator.
pub(crate) async fn empty() -> Tollgate {
    started(true).await
}

/// The tenant that there is.
pub(crate) async fn tenant(tollgate: &Tollgate) -> TenantId {
    let tenants = tollgate.control().tenants(&tollgate.actor(), Utc::now()).await;
    tenants.expect("tenants")[0].row.tenant.id
}

async fn started(is_empty: bool) -> Tollgate {
    let site = std::env::var_os("TOLLGATE_SITE_DIR").map(std::path::PathBuf::from);
    let is_built = site.is_some_and(|site| site.join("pkg/tollgate.js").exists());
    assert!(
        is_built,
        "TOLLGATE_SITE_DIR names no built site; run `cargo xtask test`, which builds it and sets that"
    );
    let options = Options {
        time_zone: Some(zone_at_noon()),
        is_empty,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}
