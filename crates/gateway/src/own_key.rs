//! `GET /v1/key`: what a caller's own key may do, and what is left of the limits on it, its user and its tenant. Uses
//! nothing and leaves no row, like listing models.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use domain::ids::RequestId;
use domain::limits::Scope;
use domain::refusals::RefusalCode;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{HeaderMap, Request};
use limits::ScopeLimits;
use protocol::headers;
use protocol::own_key::{OwnKey, own_key_body};

use crate::authenticate::Caller;
use crate::refusal::Refusal;
use crate::routes::{caller, json};
use crate::{Gateway, case, error};

/// Limits that are told of, at most: more than anybody configures on three nodes.
const LIMITS_TOLD_MAX: usize = 300;
/// Keys that are looked at at the same time, at most. Each asks the counters, in Redis once for each node.
pub(crate) const LOOKED_AT_ONCE: usize = 64;

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, _: Request<Body>) -> Response {
    let caller = match caller(&gateway, &headers) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    match look(&gateway, &caller, &headers).await {
        Ok(response) => response,
        Err(refusal) => {
            let id = RequestId::new(gateway.clock.now().wall, gateway.random());
            error::refused(headers::dialect(&headers), id, &refusal)
        }
    }
}

async fn look(gateway: &Gateway, caller: &Caller, headers: &HeaderMap) -> Result<Response, Refusal> {
    let named =
        headers::user(headers).map_err(|error| Refusal::plain(RefusalCode::InvalidRequest, error.to_string()))?;
    let user = case::user(caller, named, None)?;
    let _place = gateway.keys_looked_at.try_acquire().map_err(|_| {
        let message = "Too many keys are looked at at this moment. Retry shortly.";
        Refusal::plain(RefusalCode::Overloaded, message)
    })?;
    let (key, policy) = (&caller.key, &caller.policy);
    let tenant = Scope::Tenant(key.tenant_id);
    let user = user.id().map(|user| Scope::User(key.tenant_id, Arc::clone(user)));
    let mut room = LIMITS_TOLD_MAX;
    let nodes: Vec<ScopeLimits> = [Some(tenant), user, Some(Scope::Key(key.id))]
        .into_iter()
        .flatten()
        .map(|scope| {
            let mut node = policy.limits_on(&scope);
            if node.limits.len() > room {
                node.limits = node.limits.iter().take(room).cloned().collect();
            }
            room -= node.limits.len();
            node
        })
        .collect();
    let now = gateway.clock.now();
    let zone = policy.settings.time_zone;
    let (store, readings) = gateway.limits.read(&nodes, None, None, zone, now).await;
    let mut response = json(own_key_body(&OwnKey {
        key,
        priority: case::priority(caller, None),
        models: caller.tenant.models_named_for(key),
        secret_valid_until: caller.secret.as_ref().and_then(|secret| secret.valid_until),
        currency: &policy.settings.currency,
        store,
        at: now.wall,
        readings: &readings,
    }));
    let told = response.headers_mut();
    told.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    error::set_key_expires(told, caller.ends_soon_at(now.wall));
    Ok(response)
}
