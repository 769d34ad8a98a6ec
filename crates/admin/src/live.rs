//! Live figures: an open page is rendered again every few seconds, and what it shows now goes to the browser as
//! server-sent events. The island there puts in what has changed; without it, the page stays as it was loaded.
//!
//! Each rendering passes the door like any other request, so that it ends with the session and shows what its reader may see.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admin_islands::live_figures::LiveFigures;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::get;
use axum::{Router, http};
use domain::ids::PersonId;
use futures_util::{Stream, future, stream};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use leptos::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::error::RETRY_AFTER_SECONDS;

/// Where the stream is; `page` is the address of the page that is open.
pub const PATH: &str = "/console/live";
/// Pages with live figures, and how often they are rendered again, in milliseconds. Gateways report every two seconds; the
/// sums of a month change more slowly and cost more.
const PAGES: [(&str, u64); 4] = [
    ("/", 10_000),
    ("/quota-tree", 2_000),
    ("/queue", 2_000),
    ("/status", 2_000),
];
/// A stream ends after so long, and the browser asks for another.
const STREAM_SECONDS_MAX: u64 = 10 * 60;
/// A comment goes out after such a silence, so that nobody between takes the connection for dead.
const KEEP_ALIVE_SECONDS: u64 = 15;
/// How soon a browser asks again, in milliseconds.
const RETRY_MS: u64 = 2_000;
/// Streams at once.
const STREAMS_MAX: usize = 200;
/// Of these, one person's.
const STREAMS_PER_PERSON_MAX: usize = 12;
/// Renderings at once; the others wait, so that many readers do not take the database from those who click.
const RENDERINGS_MAX: usize = 4;
/// A rendering is given up after so long, in milliseconds, its turn included.
const RENDERING_MS_MAX: u64 = 5_000;
/// The largest page that is followed, in bytes.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Renderings that may fail one after the other before the browser is told to ask again.
const FAILURES_MAX: u32 = 5;
/// Nothing between keeps the answer, neither for others nor until it is whole.
const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    ),
];

/// Marks a request that only renders a page again: it takes no message from the session and is no sign of use.
#[derive(Clone, Copy, Debug)]
pub struct Renewal;

/// Who saw a page; on the answers to renewals.
#[derive(Clone, Copy, Debug)]
pub struct SeenBy(pub PersonId);

/// The element whose content is renewed under this name, which is unique on its page. What is in it must hold no form.
pub fn region(name: &'static str, content: AnyView) -> AnyView {
    view! { <div data-live=name>{content}</div> }.into_any()
}

/// Begins the stream, says how it stands and lets the reader pause it.
pub fn figures() -> AnyView {
    view! {
        <LiveFigures
            stream=PATH.to_owned()
            live=t!("Live").to_owned()
            paused=t!("Paused").to_owned()
            late=t!("The server is busy; trying again").to_owned()
            lost=t!("Connection lost; trying again").to_owned()
            ended=t!("Signed out; reload the page").to_owned()
            closed=t!("No longer to be seen; reload the page").to_owned()
            pause=t!("Pause").to_owned()
            resume=t!("Resume").to_owned()
        />
    }
    .into_any()
}

/// The stream's route. `pages` answers for the pages, the door included; `streams_max` can be open at once, and all end when
/// `stopping` says so.
pub fn router(pages: Router, streams_max: usize, stopping: CancellationToken) -> Router {
    let live = Live {
        pages,
        stopping,
        streams: Arc::new(Semaphore::new(streams_max.min(STREAMS_MAX))),
        renderings: Arc::new(Semaphore::new(RENDERINGS_MAX)),
        of_people: Arc::default(),
    };
    Router::new().route(PATH, get(follow)).with_state(live)
}

#[derive(Clone)]
struct Live {
    pages: Router,
    stopping: CancellationToken,
    streams: Arc<Semaphore>,
    renderings: Arc<Semaphore>,
    of_people: Arc<Mutex<HashMap<PersonId, usize>>>,
}

async fn follow(State(live): State<Live>, request: Request) -> Response {
    let Some((page, every)) = page_of(request.uri().query().unwrap_or_default()) else {
        return (StatusCode::NOT_FOUND, "this page has no live figures").into_response();
    };
    let Ok(place) = Arc::clone(&live.streams).try_acquire_owned() else {
        return too_many();
    };
    let renewed = Renewed {
        page,
        headers: request.headers().clone(),
        peer: request.extensions().get::<ConnectInfo<SocketAddr>>().copied(),
        live,
    };
    let first = match renewed.render().await {
        Ok(first) => first,
        // A browser tells its page no status: only a stream can say that there is nothing more to come.
        Err(status) if status.is_client_error() => {
            let only = stream::once(future::ready(Ok::<_, Infallible>(ended(status))));
            return (HEADERS, Sse::new(only)).into_response();
        }
        Err(status) => return status.into_response(),
    };
    let Some(seat) = Seat::take(&renewed.live.of_people, first.by) else {
        return too_many();
    };
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following = Following {
        renewed,
        ticks,
        until: Instant::now() + Duration::from_secs(STREAM_SECONDS_MAX),
        shown: String::new(),
        next: Some(first.content),
        failures: 0,
        _place: place,
        _seat: seat,
    };
    let events =
        Sse::new(following.events()).keep_alive(KeepAlive::new().interval(Duration::from_secs(KEEP_ALIVE_SECONDS)));
    (HEADERS, events).into_response()
}

/// The last word: the reader is signed out (401), or may not see the page any more.
fn ended(status: StatusCode) -> Event {
    Event::default().event("ended").data(status.as_str())
}

fn too_many() -> Response {
    let headers = [(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS))];
    let text = "too many pages are followed at once; this one stays as it is";
    (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
}

/// The address in the query, if its page has live figures, and how often they change.
fn page_of(query: &str) -> Option<(http::Uri, Duration)> {
    let (_, page) = url::form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == "page")?;
    let page: http::Uri = page.parse().ok()?;
    // An address of this console, and not of another host.
    let is_local = page.authority().is_none() && page.scheme().is_none();
    let (_, every) = PAGES.into_iter().find(|(path, _)| is_local && page.path() == *path)?;
    Some((page, Duration::from_millis(every)))
}

/// What a reader sees of a page now.
struct Rendering {
    content: String,
    by: PersonId,
}

/// One page as its reader asked for it.
struct Renewed {
    page: http::Uri,
    headers: HeaderMap,
    peer: Option<ConnectInfo<SocketAddr>>,
    live: Live,
}

impl Renewed {
    /// The page's content now, or the status with which it was refused; in time, whatever does not answer.
    async fn render(&self) -> Result<Rendering, StatusCode> {
        let rendered = timeout(Duration::from_millis(RENDERING_MS_MAX), self.rendered()).await;
        rendered.unwrap_or(Err(StatusCode::SERVICE_UNAVAILABLE))
    }

    async fn rendered(&self) -> Result<Rendering, StatusCode> {
        let closed = |_| StatusCode::SERVICE_UNAVAILABLE;
        let _turn = self.live.renderings.acquire().await.map_err(closed)?;
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.page.clone();
        for name in [header::COOKIE, header::HOST, header::ACCEPT_LANGUAGE] {
            if let Some(value) = self.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        request.extensions_mut().insert(Renewal);
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        let response = self.live.pages.clone().oneshot(request).await;
        let response = response.unwrap_or_else(|never: Infallible| match never {});
        match response.status() {
            StatusCode::OK => {}
            // To the sign-in.
            status if status.is_redirection() => return Err(StatusCode::UNAUTHORIZED),
            status => return Err(status),
        }
        let by = response.extensions().get::<SeenBy>().copied();
        let SeenBy(by) = by.ok_or(StatusCode::UNAUTHORIZED)?;
        let body = to_bytes(response.into_body(), PAGE_BYTES_MAX).await;
        let body = body.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let document = String::from_utf8_lossy(&body);
        let content = content_of(&document).ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok(Rendering {
            content: content.to_owned(),
            by,
        })
    }
}

/// The main part of a document of ours.
fn content_of(document: &str) -> Option<&str> {
    let start = document.find("<main")?;
    let end = document.rfind("</main>")?;
    document.get(start..end + "</main>".len())
}

/// One browser that is kept up to date.
struct Following {
    renewed: Renewed,
    ticks: Interval,
    until: Instant,
    /// What the browser has.
    shown: String,
    /// What it gets at once.
    next: Option<String>,
    failures: u32,
    _place: OwnedSemaphorePermit,
    _seat: Seat,
}

impl Following {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(Some(self), |following| async move {
            let mut following = following?;
            match following.event().await {
                Some(Told::More(event)) => Some((Ok(event), Some(following))),
                Some(Told::Last(event)) => Some((Ok(event), None)),
                None => None,
            }
        })
    }

    /// The next thing to tell; `None` at the end of the stream's time.
    async fn event(&mut self) -> Option<Told> {
        if let Some(content) = self.next.take() {
            self.shown.clone_from(&content);
            let event = Event::default().retry(Duration::from_millis(RETRY_MS));
            return Some(Told::More(event.data(content)));
        }
        let stopping = self.renewed.live.stopping.clone();
        tokio::select! {
            () = stopping.cancelled() => return None,
            () = tokio::time::sleep_until(self.until) => return None,
            _ = self.ticks.tick() => {}
        }
        let rendering = tokio::select! {
            () = stopping.cancelled() => return None,
            rendering = self.renewed.render() => rendering,
        };
        match rendering {
            Ok(rendering) => {
                self.failures = 0;
                // What is the same goes out too, but in a word: the reader sees that it is of now.
                let is_same = rendering.content == self.shown;
                self.shown = rendering.content;
                Some(Told::More(match is_same {
                    true => Event::default().event("same").data("-"),
                    false => Event::default().data(&self.shown),
                }))
            }
            Err(status) if status.is_server_error() => {
                self.failures += 1;
                (self.failures < FAILURES_MAX).then(|| Told::More(Event::default().event("late").data(status.as_str())))
            }
            Err(status) => Some(Told::Last(ended(status))),
        }
    }
}

/// One event, and whether more follow.
enum Told {
    More(Event),
    Last(Event),
}

/// One of a person's streams; its end gives it back.
struct Seat {
    of_people: Arc<Mutex<HashMap<PersonId, usize>>>,
    person: PersonId,
}

impl Seat {
    fn take(of_people: &Arc<Mutex<HashMap<PersonId, usize>>>, person: PersonId) -> Option<Self> {
        let mut taken = of_people.lock().unwrap_or_else(PoisonError::into_inner);
        let seats = taken.entry(person).or_default();
        if *seats >= STREAMS_PER_PERSON_MAX {
            return None;
        }
        *seats += 1;
        Some(Self {
            of_people: Arc::clone(of_people),
            person,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of_people.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seats) = taken.get_mut(&self.person) {
            *seats = seats.saturating_sub(1);
            if *seats == 0 {
                taken.remove(&self.person);
            }
        }
    }
}

#[cfg(test)]
mod tests;
