//! One request to the console: who makes it, what the last form left behind, and how it ends. The layer here runs before
//! any page or form, so that both find the same answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use control::Actor;
use control::rows::Person;
use domain::ids::{SessionId, TenantId};
use domain::language::Language;
use domain::people::Role;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tower_sessions::Session;

use crate::error::{self, PageError};
use crate::form::Draft;
use crate::format::Format;
use crate::language;
use crate::live::{Renewal, SeenBy};
use crate::session::{self, Messages};
use crate::state::AdminState;

/// Pages and forms that are open to people who are not signed in.
const OPEN_PATHS: [&str; 6] = [
    "/sign-in",
    "/setup",
    "/invitation",
    "/console/sign-in",
    "/console/setup",
    "/console/invitation",
];
/// Characters of a program's name for itself that are kept.
const USER_AGENT_CHARS_MAX: usize = 256;
/// What stays readable in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/');

/// Who is signed in.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// As the operations know them.
    pub actor: Actor,
    /// What they are called.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Whose they are: managers and members only.
    pub tenant_id: Option<TenantId>,
    /// The language that they have chosen.
    pub language: Option<Language>,
    /// The session that they are here by.
    pub session_id: SessionId,
}

impl Visitor {
    /// The person, coming from `peer`, by this session.
    pub fn new(person: &Person, peer: Option<String>, session_id: SessionId) -> Self {
        Self {
            session_id,
            language: person.language,
            actor: Actor::person(person, peer),
            name: person.name.clone(),
            role: person.role,
            tenant_id: person.tenant_id,
        }
    }

    /// Sees only their own keys and usage.
    pub fn is_member(&self) -> bool {
        self.role == Role::Member
    }

    /// Runs one tenant.
    pub fn is_manager(&self) -> bool {
        self.role == Role::Manager
    }

    /// May change everything.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// Sees every tenant.
    pub fn sees_everything(&self) -> bool {
        matches!(self.role, Role::Operator | Role::Auditor)
    }

    /// Issues and revokes keys, for others or for themselves.
    pub fn issues_keys(&self) -> bool {
        self.role != Role::Auditor
    }
}

/// What a page or form knows about its request.
#[derive(Clone)]
pub struct Visit {
    /// What the console was started with.
    pub state: AdminState,
    /// Who is signed in.
    pub visitor: Option<Visitor>,
    /// What the request says of itself.
    pub arrival: Arrival,
    /// How values are written.
    pub format: Format,
    /// A form on its way back.
    pub draft: Option<Draft>,
    /// What was just done.
    pub notice: Option<String>,
    /// What can be done about that: where it leads, and what it says.
    pub notice_link: Option<(String, String)>,
    /// Why the last button did nothing.
    pub problem: Option<String>,
    /// The session.
    pub session: Session,
    /// Set by a form that could not be dealt with; the answer is then the error's page.
    failure: Arc<OnceLock<PageError>>,
    /// Set by a page that shows a secret.
    has_secret: Arc<AtomicBool>,
    /// Set by a page that shows the one that waited for it.
    uses_secret: Arc<AtomicBool>,
}

impl Visit {
    /// The path asked for.
    pub fn path(&self) -> &str {
        self.arrival.uri.path()
    }

    /// The language of the answer: the one that who is signed in has chosen, else the one that their program asks for.
    pub fn language(&self) -> Language {
        let chosen = self.visitor.as_ref().and_then(|visitor| visitor.language);
        chosen.unwrap_or(self.arrival.language)
    }

    /// The first value of a field of the query, unless empty. A NUL character, which Postgres does not take, becomes
    /// U+FFFD, as in the ledger.
    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.arrival.uri.query().unwrap_or_default();
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(field, value)| field == name && !value.is_empty())
            .map(|(_, value)| value.replace('\0', "\u{fffd}"))
    }

    /// Every value of a field of the query.
    pub fn queries(&self, name: &str) -> Vec<String> {
        let query = self.arrival.uri.query().unwrap_or_default();
        url::form_urlencoded::parse(query.as_bytes())
            .filter(|(field, _)| field == name)
            .map(|(_, value)| value.into_owned())
            .collect()
    }

    /// Who is signed in; pages behind the door have somebody.
    pub fn visitor(&self) -> Result<&Visitor, PageError> {
        self.visitor.as_ref().ok_or(PageError::Forbidden)
    }

    /// The time of this request.
    pub fn now(&self) -> DateTime<Utc> {
        (self.state.now)()
    }

    /// The actor of an operation.
    pub fn actor(&self) -> Result<&Actor, PageError> {
        self.visitor().map(|visitor| &visitor.actor)
    }

    /// The secret that waits to be shown once, for the page that shows it. It is used up with that page, so a page that
    /// cannot be shown loses nothing; nor does a HEAD request, which shows nothing.
    pub async fn secret<T: DeserializeOwned>(&self) -> Result<Option<T>, PageError> {
        self.shows_secret();
        if !self.arrival.is_page() {
            return Ok(None);
        }
        let secret = session::secret(&self.session, self.now()).await?;
        if secret.is_some() {
            self.uses_secret.store(true, Ordering::Relaxed);
        }
        Ok(secret)
    }

    /// The page is there: the secret that it shows is not shown again.
    pub async fn end_secret(&self) -> Result<(), PageError> {
        if self.uses_secret.load(Ordering::Relaxed) {
            session::forget_secret(&self.session).await?;
        }
        Ok(())
    }

    /// Says that the page shows a secret. What is sent of it must not depend on how the secret compresses.
    pub fn shows_secret(&self) {
        self.has_secret.store(true, Ordering::Relaxed);
    }

    /// Makes the answer to this request the error's page.
    pub fn fail(&self, error: PageError) {
        let _ = self.failure.set(error);
    }
}

/// Lets all that answers speak the language that the program asks for, until it is known who asks.
pub async fn speak(request: Request, next: Next) -> Response {
    let accepted = accepted_language(request.headers());
    language::scope(accepted, next.run(request)).await
}

/// Finds out who asks, sends strangers to the door, and turns failures into pages.
pub async fn layer(State(state): State<AdminState>, session: Session, request: Request, next: Next) -> Response {
    let arrival = Arrival {
        uri: request.uri().clone(),
        method: request.method().clone(),
        peer: request
            .extensions()
            .get::<ConnectInfo<SocketAddr>>()
            .map(|ConnectInfo(address)| address.ip().to_string()),
        language: accepted_language(request.headers()),
        is_renewal: request.extensions().get::<Renewal>().is_some(),
        user_agent: request.headers().get(header::USER_AGENT).map(|name| {
            let name = String::from_utf8_lossy(name.as_bytes());
            name.chars().take(USER_AGENT_CHARS_MAX).collect()
        }),
    };
    let visit = match begin(state, session, arrival).await {
        Ok(visit) => visit,
        Err(error) => return error::document(&error),
    };
    language::scope(visit.language(), answer(visit, request, next)).await
}

/// Lets the page or form answer, or the door.
async fn answer(visit: Visit, mut request: Request, next: Next) -> Response {
    let method = visit.arrival.method.clone();
    if visit.visitor.is_none() && !OPEN_PATHS.contains(&visit.path()) {
        return to_the_door(&visit, &method);
    }
    let (failure, has_secret) = (visit.failure.clone(), visit.has_secret.clone());
    let seen_by = visit.visitor.as_ref().and_then(|visitor| visitor.actor.person_id());
    // What strangers are shown may hold the token of their link.
    let is_inside = visit.visitor.is_some() && method == Method::GET;
    request.extensions_mut().insert(visit);
    let mut response = next.run(request).await;
    if let Some(person) = seen_by {
        response.extensions_mut().insert(SeenBy(person));
    }
    if is_inside && !has_secret.load(Ordering::Relaxed) {
        response.extensions_mut().insert(WithoutSecret);
    }
    match failure.get() {
        Some(error) => error::document(error),
        // Forms end in an address or in a failure; what is left is a body that no form of ours has sent.
        None if !is_read(&method) && response.status().is_server_error() => error::document(&PageError::Malformed),
        None => response,
    }
}

/// Stands with answers to people who are signed in that show no secret.
#[derive(Clone, Copy, Debug)]
pub struct WithoutSecret;

/// What a request says of itself.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The address asked for.
    pub uri: Uri,
    /// What is asked.
    pub method: Method,
    /// The address it comes from, for audit and throttling.
    pub peer: Option<String>,
    /// What the program that asks calls itself; at most 256 characters of it.
    pub user_agent: Option<String>,
    /// The language that its program asks for.
    pub language: Language,
    /// An open page is rendered again.
    pub is_renewal: bool,
}

impl Arrival {
    /// Whether a page is to be shown, and not only its headers or an open page's figures.
    fn is_page(&self) -> bool {
        self.method == Method::GET && !self.is_renewal
    }
}

async fn begin(state: AdminState, session: Session, arrival: Arrival) -> Result<Visit, PageError> {
    let settings = state.control.settings().await?.settings;
    let visitor = session::visitor(&state, &session, &arrival).await?;
    let messages = if arrival.is_page() {
        session::take_messages(&session).await?
    } else {
        Messages::default()
    };
    let address = arrival.uri.path_and_query().map_or("", |address| address.as_str());
    Ok(Visit {
        format: Format::new(&settings),
        // A draft belongs to the page that its form is on: to one tenant, not to another one's form of the same kind.
        draft: messages.draft.filter(|draft| draft.back == address),
        arrival,
        state,
        visitor,
        notice: messages.notice,
        notice_link: messages.notice_link,
        problem: messages.problem,
        session,
        failure: Arc::default(),
        has_secret: Arc::default(),
        uses_secret: Arc::default(),
    })
}

/// A page leads to the sign-in and back; a form cannot be repeated after it, so it leads to the sign-in only.
fn to_the_door(visit: &Visit, method: &Method) -> Response {
    let address = visit
        .arrival
        .uri
        .path_and_query()
        .map_or("/", |address| address.as_str());
    match (is_read(method), address) {
        (true, "/") => see_other("/sign-in"),
        (true, address) => see_other(&format!("/sign-in?next={}", utf8_percent_encode(address, QUERY))),
        (false, _) => see_other("/sign-in?ended=1"),
    }
}

fn accepted_language(headers: &HeaderMap) -> Language {
    let header = headers
        .get(header::ACCEPT_LANGUAGE)
        .and_then(|value| value.to_str().ok());
    header.map(Language::accepted).unwrap_or_default()
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The answer to a post: get this address instead.
pub fn see_other(address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(_) => error::document(&PageError::Internal),
    }
}

/// `address` if it leads to a page of this console, else the overview: a link to the sign-in must not lead elsewhere.
pub fn local_address(address: Option<&str>) -> String {
    address
        .filter(|address| {
            address.starts_with('/') && !address.starts_with("//") && !address.contains(['\\', '\r', '\n', '\t'])
        })
        .unwrap_or("/")
        .to_owned()
}

/// A path with fields of a query, encoded.
pub fn address(path: &str, fields: &[(&str, &str)]) -> String {
    let query: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY)))
        .collect();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", query.join("&"))
    }
}

#[cfg(test)]
mod tests;
