//! One call: who makes it, by which token, and what it asks. Runs before every handler, so that none can forget it.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use domain::management_tokens::{Permission, TokenText};
use http::{HeaderMap, header};

use super::problem::Problem;
use super::query::Query;
use super::{Api, turn};
use crate::Actor;
use crate::management_tokens::ShownToken;

/// What a route asks of its callers.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) permission: Option<Permission>,
    pub(super) parameters: &'static [&'static str],
}

/// A call that was let in.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) actor: Actor,
    pub(super) query: Query,
    pub(super) now: DateTime<Utc>,
}

/// Lets in whoever shows a token that works and is allowed what the route does.
pub(super) async fn admit(State((api, rules)): State<(Api, Rules)>, mut request: Request, next: Next) -> Response {
    if let Some(permission) = rules.permission {
        let peer = request
            .extensions()
            .get::<ConnectInfo<SocketAddr>>()
            .map(|ConnectInfo(address)| address.ip().to_string());
        let token = bearer(request.headers());
        let query = request.uri().query().unwrap_or_default().to_owned();
        match begin(&api, permission, token, peer, &query, rules.parameters).await {
            Ok(call) => request.extensions_mut().insert(call),
            Err(problem) => return problem.into_response(),
        };
        return match turn(&api.turns).await {
            Ok(_turn) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    }
    next.run(request).await
}

async fn begin(
    api: &Api,
    permission: Permission,
    token: Result<TokenText, Problem>,
    peer: Option<String>,
    query: &str,
    parameters: &'static [&'static str],
) -> Result<Call, Problem> {
    let (token, now) = (token?, (api.now)());
    let _door = turn(&api.doors).await?;
    let actor = match api.control.shown_management_token(&token, peer, now).await? {
        ShownToken::Works(actor) => actor,
        ShownToken::Ended(why) => return Err(Problem::unauthorized(why)),
        ShownToken::Unknown => return Err(Problem::unauthorized("nobody has issued this management token")),
    };
    if actor.require_permission(permission).is_err() {
        return Err(Problem::forbidden(format!(
            "this management token lacks the permission {permission}; issue one that has it in the console's settings"
        )));
    }
    let query = Query::read(query, parameters)?;
    Ok(Call { actor, query, now })
}

fn bearer(headers: &HeaderMap) -> Result<TokenText, Problem> {
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, text)) = shown else {
        return Err(Problem::unauthorized(
            "show a management token: `Authorization: Bearer tg-mgmt-...`; operators issue them in the console's settings",
        ));
    };
    TokenText::parse(text.trim()).map_err(|malformed| Problem::unauthorized(malformed.to_string()))
}
