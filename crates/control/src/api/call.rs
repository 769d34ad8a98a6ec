//! One call: who makes it, by which token, and what it asks. Runs before every handler, so that none can forget it.

use std::mem;
use std::net::SocketAddr;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use domain::management_tokens::{Permission, TokenText};
use http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::body::{self, JsonBody};
use super::made::made_id;
use super::problem::Problem;
use super::query::{ID_CHARS, Query};
use super::route::Asked;
use super::{Api, turn};
use crate::Actor;
use crate::fields::Fields;
use crate::management_tokens::ShownToken;

/// What a route asks of its callers.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) permission: Option<Permission>,
    pub(super) parameters: &'static [&'static str],
    pub(super) asked: Asked,
}

/// A call that was let in.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) actor: Actor,
    pub(super) query: Query,
    pub(super) now: DateTime<Utc>,
    /// The parts of the path that the route leaves open.
    path: Vec<(String, String)>,
    headers: HeaderMap,
    body: Map<String, Value>,
}

impl Call {
    /// A part of the path as it was written. What has no such name has no such path.
    fn part(&self, name: &str) -> &str {
        let part = self.path.iter().find(|(known, _)| known == name);
        part.map_or("", |(_, text)| text)
    }

    /// The id in the path.
    pub(super) fn id<T: FromStr>(&self, what: &str) -> Result<T, Problem> {
        let text = self.part("id");
        // Others of its forms would be second addresses of the same thing.
        let id = if text.len() == ID_CHARS {
            text.parse().ok()
        } else {
            None
        };
        id.ok_or_else(|| Problem::not_found(format!("there is no such {what}: its id is a UUID")))
    }

    /// The name in the path.
    pub(super) fn name(&self, what: &str) -> Result<&str, Problem> {
        let name = self.part("name");
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Problem::not_found(format!("there is no such {what}")));
        }
        Ok(name)
    }

    /// The body, which fits the route's schema.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_value(Value::Object(self.body.clone()))
            .map_err(|error| Problem::unreadable(format!("the body cannot be read: {error}")))
    }

    /// The body for a handler that reads it field by field.
    pub(super) fn fields(&self) -> JsonBody {
        JsonBody::of(self.body.clone())
    }

    /// The id of what is to be made, which the caller has given or made an idempotency key for.
    pub(super) fn made_id(&self, what: &'static str, given: &str, fields: &mut Fields) -> Option<Uuid> {
        made_id(&self.actor, &self.headers, what, given, fields)
    }
}

/// Lets in whoever shows a token that works and is allowed what the route does.
pub(super) async fn admit(State((api, rules)): State<(Api, Rules)>, request: Request, next: Next) -> Response {
    let Some(permission) = rules.permission else {
        return next.run(request).await;
    };
    match let_in(&api, rules, permission, request).await {
        Ok(request) => match turn(&api.turns).await {
            Ok(_turn) => next.run(request).await,
            Err(problem) => problem.into_response(),
        },
        Err(problem) => problem.into_response(),
    }
}

/// The request with its [`Call`]. The body is read before the call waits for its turn: one that dawdles holds none.
async fn let_in(api: &Api, rules: Rules, permission: Permission, mut request: Request) -> Result<Request, Problem> {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(address)| address.ip().to_string());
    let (actor, now) = authenticated(api, permission, bearer(request.headers()), peer).await?;
    let query = Query::read(request.uri().query().unwrap_or_default(), rules.parameters)?;
    let body = match rules.asked {
        Asked::Nothing => Map::new(),
        Asked::Shape(schema) => {
            let read = body::read(mem::replace(request.body_mut(), Body::empty())).await?;
            body::shaped(read, schema)?
        }
        Asked::Fields(_) => body::read(mem::replace(request.body_mut(), Body::empty())).await?,
    };
    let (mut parts, rest) = request.into_parts();
    let path = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| Problem::not_found("there is nothing under this path: it is no text"))?;
    let path = path
        .iter()
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    let call = Call {
        actor,
        query,
        now,
        path,
        headers: parts.headers.clone(),
        body,
    };
    parts.extensions.insert(call);
    Ok(Request::from_parts(parts, rest))
}

async fn authenticated(
    api: &Api,
    permission: Permission,
    token: Result<TokenText, Problem>,
    peer: Option<String>,
) -> Result<(Actor, DateTime<Utc>), Problem> {
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
    Ok((actor, now))
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
