//! The session: who signed in, what the last form left behind, and a secret on its way to being shown once. The store
//! keeps a session's data sealed, and a browser holds nothing but its id.

use chrono::{DateTime, Duration, Utc};
use control::sessions::{
    PEER_FIELD as PEER, PERSON_FIELD as PERSON, PUBLIC_ID_FIELD as PUBLIC_ID, SEEN_FIELD as SEEN_AT,
    SIGNED_IN_FIELD as SIGNED_IN_AT, USER_AGENT_FIELD as USER_AGENT,
};
use domain::ids::PersonId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_sessions::cookie::SameSite;
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};

use crate::error::PageError;
use crate::form::Draft;
use crate::state::AdminState;
use crate::visit::{Arrival, Visit, Visitor};

const DRAFT: &str = "draft";
const NOTICE: &str = "notice";
const NOTICE_LINK: &str = "notice_link";
const PROBLEM: &str = "problem";
const SECRET: &str = "secret";

/// A session that is not used for so long ends.
const IDLE_HOURS: i64 = 8;
/// A session ends so long after the sign-in, used or not.
const ABSOLUTE_HOURS: i64 = 24;
/// A session of somebody who is not signed in carries one form back and ends soon.
const ANONYMOUS_MINUTES: i64 = 15;
/// The largest form that such a session carries back, in bytes.
const ANONYMOUS_DRAFT_BYTES_MAX: usize = 4_096;
/// Use is noted at most so often: a page costs no write.
const SEEN_EVERY_SECONDS: i64 = 60;
/// How long a secret waits for its page.
const SECRET_SECONDS: i64 = 300;
/// The session cookie's name.
const COOKIE: &str = "tollgate_session";

/// The layer that gives each request its session. `Lax`, not `Strict`: links from invitations and reports must find the
/// session; writes are protected by the origin check.
pub fn layer<S: SessionStore + Clone>(sessions: S, is_secure: bool) -> SessionManagerLayer<S> {
    SessionManagerLayer::new(sessions)
        .with_name(COOKIE)
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_secure(is_secure)
        .with_expiry(Expiry::OnInactivity(time::Duration::hours(IDLE_HOURS)))
}

/// Who is signed in, if the session is young enough and the person may still sign in. A page that is open is used only when
/// somebody asks for it: its figures alone do not keep a session.
pub async fn visitor(state: &AdminState, session: &Session, arrival: &Arrival) -> Result<Option<Visitor>, PageError> {
    let Some(id) = get::<PersonId>(session, PERSON).await? else {
        return Ok(None);
    };
    let now = (state.now)();
    let signed_in_at: Option<DateTime<Utc>> = get(session, SIGNED_IN_AT).await?;
    if signed_in_at.is_none_or(|at| now - at >= Duration::hours(ABSOLUTE_HOURS)) {
        end(session).await?;
        return Ok(None);
    }
    let Some(person) = state.control.person_by_id(id).await? else {
        end(session).await?;
        return Ok(None);
    };
    let session_id = match get(session, PUBLIC_ID).await? {
        Some(id) => id,
        // Begun by an earlier release. Saved at once: what this request does may go by it.
        None => {
            let id = state.control.new_session_id(now);
            put(session, PUBLIC_ID, id).await?;
            session.save().await?;
            id
        }
    };
    let seen_at: Option<DateTime<Utc>> = get(session, SEEN_AT).await?;
    let is_use = !arrival.is_renewal;
    if is_use && seen_at.is_none_or(|at| now - at >= Duration::seconds(SEEN_EVERY_SECONDS)) {
        note_seen(session, arrival, now).await?;
    }
    Ok(Some(Visitor::new(&person, arrival.peer.clone(), session_id)))
}

/// Signs a person in under a new session id, so that an id planted before is worth nothing.
pub async fn begin(visit: &Visit, person: PersonId) -> Result<(), PageError> {
    let (session, now) = (&visit.session, visit.now());
    session.clear().await;
    session.cycle_id().await?;
    session.set_expiry(Some(Expiry::OnInactivity(time::Duration::hours(IDLE_HOURS))));
    put(session, PERSON, person).await?;
    put(session, PUBLIC_ID, visit.state.control.new_session_id(now)).await?;
    put(session, SIGNED_IN_AT, now).await?;
    note_seen(session, &visit.arrival, now).await
}

async fn note_seen(session: &Session, arrival: &Arrival, now: DateTime<Utc>) -> Result<(), PageError> {
    put(session, SEEN_AT, now).await?;
    put(session, PEER, &arrival.peer).await?;
    put(session, USER_AGENT, &arrival.user_agent).await
}

/// Goes on under another session id: whoever has a copy of the one before is out.
pub async fn renew(session: &Session) -> Result<(), PageError> {
    Ok(session.cycle_id().await?)
}

/// Ends the session in the store and in the browser.
pub async fn end(session: &Session) -> Result<(), PageError> {
    Ok(session.flush().await?)
}

/// Keeps a refused form for the page that shows it again. Anybody can make sessions that nobody has signed in to, so those
/// keep no more than people enter at the door.
pub async fn keep_draft(session: &Session, draft: Draft) -> Result<(), PageError> {
    if shorten_anonymous(session).await? && draft.values.to_string().len() > ANONYMOUS_DRAFT_BYTES_MAX {
        return Ok(());
    }
    put(session, DRAFT, draft).await
}

/// Keeps what was done for the next page.
pub async fn keep_notice(session: &Session, notice: String) -> Result<(), PageError> {
    shorten_anonymous(session).await?;
    put(session, NOTICE, notice).await
}

/// Keeps a link that stands behind the notice: where it leads, and what it says.
pub async fn keep_notice_link(session: &Session, link: (String, String)) -> Result<(), PageError> {
    put(session, NOTICE_LINK, link).await
}

/// Keeps why a button did nothing for the next page.
pub async fn keep_problem(session: &Session, problem: String) -> Result<(), PageError> {
    put(session, PROBLEM, problem).await
}

/// What the last form left behind for the page after it.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// A form on its way back.
    pub draft: Option<Draft>,
    /// What was done.
    pub notice: Option<String>,
    /// What can be done about that: where it leads, and what it says.
    pub notice_link: Option<(String, String)>,
    /// Why nothing was done.
    pub problem: Option<String>,
}

/// What the last form left behind; found once.
pub async fn take_messages(session: &Session) -> Result<Messages, PageError> {
    Ok(Messages {
        draft: take(session, DRAFT).await?,
        notice: take(session, NOTICE).await?,
        notice_link: take(session, NOTICE_LINK).await?,
        problem: take(session, PROBLEM).await?,
    })
}

/// Keeps a secret for the one page that shows it.
pub async fn keep_secret<T: Serialize>(session: &Session, secret: T, now: DateTime<Utc>) -> Result<(), PageError> {
    put(session, SECRET, (now, secret)).await
}

/// The secret, if it is of this kind and it is not too late. It stays until [`forget_secret`].
pub async fn secret<T: DeserializeOwned>(session: &Session, now: DateTime<Utc>) -> Result<Option<T>, PageError> {
    let kept: Option<(DateTime<Utc>, serde_json::Value)> = get(session, SECRET).await?;
    let Some((at, secret)) = kept else {
        return Ok(None);
    };
    if now - at >= Duration::seconds(SECRET_SECONDS) {
        forget_secret(session).await?;
        return Ok(None);
    }
    Ok(serde_json::from_value(secret).ok())
}

/// Forgets the secret: it was shown, or it is too late.
pub async fn forget_secret(session: &Session) -> Result<(), PageError> {
    take::<serde_json::Value>(session, SECRET).await?;
    Ok(())
}

/// Lets the session of somebody who is not signed in end soon; whether it is one.
async fn shorten_anonymous(session: &Session) -> Result<bool, PageError> {
    let is_anonymous = get::<PersonId>(session, PERSON).await?.is_none();
    if is_anonymous {
        session.set_expiry(Some(Expiry::OnInactivity(time::Duration::minutes(ANONYMOUS_MINUTES))));
    }
    Ok(is_anonymous)
}

async fn get<T: DeserializeOwned>(session: &Session, field: &str) -> Result<Option<T>, PageError> {
    Ok(session.get(field).await?)
}

/// Removes a field that is there. To `Session::remove` an absent field is a change too, and would cost each page a write.
async fn take<T: DeserializeOwned>(session: &Session, field: &str) -> Result<Option<T>, PageError> {
    if session.get_value(field).await?.is_none() {
        return Ok(None);
    }
    Ok(session.remove(field).await?)
}

async fn put(session: &Session, field: &str, value: impl Serialize) -> Result<(), PageError> {
    Ok(session.insert(field, value).await?)
}
