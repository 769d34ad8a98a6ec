//! Which page is shown under which address. Every page is rendered whole on the server before its first byte is sent, so
//! that its status is the right one.

use leptos::prelude::*;
use leptos_meta::provide_meta_context;
use leptos_router::components::{FlatRoutes, Route, Router};
use leptos_router::{SsrMode, path};

use crate::pages;

/// All pages.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    view! {
        <Router>
            <FlatRoutes fallback=pages::not_found::view>
                <Route path=path!("/sign-in") view=pages::sign_in::view ssr=SsrMode::Async />
                <Route path=path!("/setup") view=pages::setup::view ssr=SsrMode::Async />
                <Route path=path!("/invitation") view=pages::invitation::view ssr=SsrMode::Async />
                <Route path=path!("/") view=pages::overview::view ssr=SsrMode::Async />
                <Route path=path!("/tenants") view=pages::tenants::list ssr=SsrMode::Async />
                <Route path=path!("/tenants/new") view=pages::tenants::new ssr=SsrMode::Async />
                <Route path=path!("/tenants/:id") view=pages::tenants::edit ssr=SsrMode::Async />
                <Route path=path!("/plans") view=pages::plans::list ssr=SsrMode::Async />
                <Route path=path!("/plans/new") view=pages::plans::new ssr=SsrMode::Async />
                <Route path=path!("/plans/:id") view=pages::plans::edit ssr=SsrMode::Async />
                <Route path=path!("/keys") view=pages::keys::list ssr=SsrMode::Async />
                <Route path=path!("/keys/new") view=pages::keys::new ssr=SsrMode::Async />
                <Route path=path!("/keys/issued") view=pages::keys::issued ssr=SsrMode::Async />
                <Route path=path!("/keys/:id") view=pages::keys::detail ssr=SsrMode::Async />
                <Route path=path!("/keys/:id/rotate") view=pages::keys::rotate::view ssr=SsrMode::Async />
                <Route path=path!("/keys/:id/revoke") view=pages::keys::revoke ssr=SsrMode::Async />
                <Route path=path!("/models") view=pages::models::list ssr=SsrMode::Async />
                <Route path=path!("/models/new") view=pages::models::new ssr=SsrMode::Async />
                <Route path=path!("/models/catalogue") view=pages::catalogue::view ssr=SsrMode::Async />
                <Route path=path!("/models/edit") view=pages::models::edit ssr=SsrMode::Async />
                <Route path=path!("/upstreams") view=pages::upstreams::list ssr=SsrMode::Async />
                <Route path=path!("/upstreams/new") view=pages::upstreams::new ssr=SsrMode::Async />
                <Route path=path!("/upstreams/:id") view=pages::upstreams::edit ssr=SsrMode::Async />
                <Route path=path!("/quota-tree") view=pages::quota_tree::view ssr=SsrMode::Async />
                <Route path=path!("/explain") view=pages::explain::view ssr=SsrMode::Async />
                <Route path=path!("/limits") view=pages::limits::edit ssr=SsrMode::Async />
                <Route path=path!("/limits/edit") view=pages::limits::one::edit ssr=SsrMode::Async />
                <Route path=path!("/priorities") view=pages::priorities::view ssr=SsrMode::Async />
                <Route path=path!("/rehearsal") view=pages::rehearsal::view ssr=SsrMode::Async />
                <Route path=path!("/queue") view=pages::queue::view ssr=SsrMode::Async />
                <Route path=path!("/ledger") view=pages::ledger::list ssr=SsrMode::Async />
                <Route path=path!("/ledger/adjustments") view=pages::adjustments::list ssr=SsrMode::Async />
                <Route path=path!("/ledger/adjustments/new") view=pages::adjustments::new ssr=SsrMode::Async />
                <Route path=path!("/ledger/:id/correct") view=pages::adjustments::correct ssr=SsrMode::Async />
                <Route path=path!("/ledger/:id") view=pages::ledger::entry ssr=SsrMode::Async />
                <Route path=path!("/reports/estimates") view=pages::estimates::view ssr=SsrMode::Async />
                <Route path=path!("/reports") view=pages::reports::view ssr=SsrMode::Async />
                <Route path=path!("/people") view=pages::people::list ssr=SsrMode::Async />
                <Route path=path!("/people/new") view=pages::people::new ssr=SsrMode::Async />
                <Route path=path!("/people/link") view=pages::people::link ssr=SsrMode::Async />
                <Route path=path!("/people/:id") view=pages::people::one::view ssr=SsrMode::Async />
                <Route path=path!("/account") view=pages::account::view ssr=SsrMode::Async />
                <Route path=path!("/connect") view=pages::connect::view ssr=SsrMode::Async />
                <Route path=path!("/budget-events") view=pages::budget_events::view ssr=SsrMode::Async />
                <Route path=path!("/alerts") view=pages::alerts::view ssr=SsrMode::Async />
                <Route path=path!("/audit") view=pages::audit::list ssr=SsrMode::Async />
                <Route path=path!("/audit/:id") view=pages::audit::entry ssr=SsrMode::Async />
                <Route path=path!("/settings") view=pages::settings::view ssr=SsrMode::Async />
                <Route path=path!("/settings/webhook") view=pages::webhook::view ssr=SsrMode::Async />
                <Route path=path!("/settings/webhook/secret") view=pages::webhook::secret ssr=SsrMode::Async />
                <Route path=path!("/settings/tokens") view=pages::management_tokens::list ssr=SsrMode::Async />
                <Route path=path!("/settings/tokens/new") view=pages::management_tokens::new ssr=SsrMode::Async />
                <Route path=path!("/settings/tokens/issued") view=pages::management_tokens::issued ssr=SsrMode::Async />
                <Route path=path!("/settings/tokens/:id/revoke") view=pages::management_tokens::revoke ssr=SsrMode::Async />
                <Route path=path!("/status") view=pages::status::view ssr=SsrMode::Async />
                <Route path=path!("/status/quarantine") view=pages::quarantine::view ssr=SsrMode::Async />
            </FlatRoutes>
        </Router>
    }
}
