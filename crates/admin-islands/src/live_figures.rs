//! Keeps the figures of the open page up to date: an event stream brings the page as it is now, and what has changed is put
//! into the regions that are marked for it.
#![expect(missing_docs, reason = "the island macro makes a struct without documentation")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use leptos::ev::{self, MouseEvent};
use leptos::prelude::*;
use leptos::web_sys::{Document, Element, EventSource, HtmlTemplateElement, MessageEvent, Node};
use wasm_bindgen::JsCast as _;
use wasm_bindgen::closure::Closure;

/// Marks the regions, by name.
const REGION: &str = "data-live";
/// How long a refused stream is waited for, at first and at most, in seconds; doubled each time.
const WAIT_SECONDS_MIN: u64 = 2;
const WAIT_SECONDS_MAX: u64 = 60;

/// How it stands with the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has come yet.
    Begun,
    Live,
    Paused,
    /// The server cannot render the page at the moment.
    Late,
    /// The browser or we ask again.
    Lost,
    /// Signed out.
    Ended,
    /// The page is gone, or no longer for this reader.
    Closed,
}

impl State {
    fn class(self) -> &'static str {
        match self {
            Self::Live => "live live-on",
            Self::Late | Self::Lost | Self::Ended | Self::Closed => "live live-off",
            Self::Begun | Self::Paused => "live",
        }
    }
}

/// A button that pauses and resumes the figures, and says how they stand. Stays invisible where scripts do not run.
#[island]
pub fn LiveFigures(
    /// Where the stream is; the page's address is added.
    stream: String,
    /// What is said while figures come.
    live: String,
    /// While the reader wants none.
    paused: String,
    /// While the server cannot give any.
    late: String,
    /// While there is no connection.
    lost: String,
    /// When there will be none any more, because nobody is signed in.
    ended: String,
    /// When there will be none any more for another reason.
    closed: String,
    /// What the button says.
    pause: String,
    /// What it says to go on.
    resume: String,
) -> impl IntoView {
    let is_scripted = RwSignal::new(false);
    let state = RwSignal::new(State::Begun);
    let wait_seconds = StoredValue::new(WAIT_SECONDS_MIN);
    let begin = || {
        let connect = CONNECT.with_borrow(Option::clone);
        if let Some(connect) = connect {
            connect();
        }
    };

    Effect::new(move |_| {
        let stream = stream.clone();
        let connect: Rc<dyn Fn()> = Rc::new(move || {
            let again = move || {
                if state.get_untracked() == State::Lost {
                    begin();
                }
            };
            let told = move |told: Told| match told {
                Told::Content(content) => {
                    renew(&document(), &content);
                    wait_seconds.set_value(WAIT_SECONDS_MIN);
                    state.set(State::Live);
                }
                Told::Same => state.set(State::Live),
                Told::Late => state.set(State::Late),
                Told::Ended(is_signed_out) => {
                    // The stream is dropped after this event.
                    set_timeout(move || follow_by(None), Duration::ZERO);
                    state.set(if is_signed_out { State::Ended } else { State::Closed });
                }
                // The browser asks again by itself.
                Told::Lost => state.set(State::Lost),
                Told::Refused => {
                    state.set(State::Lost);
                    let wait = wait_seconds.get_value();
                    wait_seconds.set_value((wait * 2).min(WAIT_SECONDS_MAX));
                    set_timeout(again, Duration::from_secs(wait));
                }
            };
            follow_by(Connection::open(&stream, told));
        });
        CONNECT.set(Some(connect));
        is_scripted.set(true);
        begin();
        // A browser keeps few connections to one host: a page that nobody sees must not have one.
        let _ = window_event_listener(ev::Custom::<leptos::web_sys::Event>::new("pagehide"), move |_| {
            follow_by(None);
        });
        let seen = Closure::<dyn Fn()>::new(move || match state.get_untracked() {
            State::Paused | State::Ended | State::Closed => {}
            _ if document().hidden() => follow_by(None),
            _ => {
                state.set(State::Begun);
                begin();
            }
        });
        let _ = document().add_event_listener_with_callback("visibilitychange", seen.as_ref().unchecked_ref());
        // As long as the page.
        seen.forget();
    });

    let press = move |_: MouseEvent| {
        if state.get_untracked() == State::Paused {
            state.set(State::Begun);
            begin();
        } else {
            follow_by(None);
            state.set(State::Paused);
        }
    };
    let text = move || match state.get() {
        State::Begun => String::new(),
        State::Live => live.clone(),
        State::Paused => paused.clone(),
        State::Late => late.clone(),
        State::Lost => lost.clone(),
        State::Ended => ended.clone(),
        State::Closed => closed.clone(),
    };
    let label = move || match state.get() {
        State::Paused => resume.clone(),
        _ => pause.clone(),
    };
    view! {
        <span class=move || if is_scripted.get() { state.get().class() } else { "live live-unscripted" }>
            <span class="live-state" role="status">
                {text}
            </span>
            <button
                type="button"
                class="button"
                disabled=move || matches!(state.get(), State::Ended | State::Closed)
                on:click=press
            >
                {label}
            </button>
        </span>
    }
}

// Of the page, and not of the island, which is also rendered on the server, where nothing may belong to one thread.
thread_local! {
    /// The stream that is open.
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
    /// Opens one, in place of the last.
    static CONNECT: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Puts this stream in place of the one that is open.
fn follow_by(connection: Option<Connection>) {
    drop(CONNECTION.replace(connection));
}

/// What a stream says.
enum Told {
    Content(String),
    Same,
    Late,
    /// Whether nobody is signed in.
    Ended(bool),
    Lost,
    Refused,
}

type Listener = Closure<dyn Fn(MessageEvent)>;

/// An open stream; dropping it closes it.
struct Connection {
    source: EventSource,
    _listeners: [Listener; 5],
}

impl Connection {
    fn open(stream: &str, told: impl Fn(Told) + Clone + 'static) -> Option<Self> {
        let location = window().location();
        let page = format!("{}{}", location.pathname().ok()?, location.search().ok()?);
        let page = String::from(js_sys::encode_uri_component(&page));
        let source = EventSource::new(&format!("{stream}?page={page}")).ok()?;
        let listener = |name: &str, heard: Box<dyn Fn(MessageEvent)>| {
            let listener = Closure::wrap(heard);
            let _ = source.add_event_listener_with_callback(name, listener.as_ref().unchecked_ref());
            listener
        };
        let on = |name: &str, what: fn() -> Told| {
            let told = told.clone();
            listener(name, Box::new(move |_| told(what())))
        };
        let listeners = [
            {
                let told = told.clone();
                listener(
                    "message",
                    Box::new(move |event| told(Told::Content(event.data().as_string().unwrap_or_default()))),
                )
            },
            on("same", || Told::Same),
            on("late", || Told::Late),
            {
                let told = told.clone();
                let is_signed_out = |event: &MessageEvent| event.data().as_string().as_deref() == Some("401");
                listener("ended", Box::new(move |event| told(Told::Ended(is_signed_out(&event)))))
            },
            {
                let (told, source) = (told.clone(), source.clone());
                listener(
                    "error",
                    Box::new(move |_| {
                        told(match source.ready_state() == EventSource::CLOSED {
                            true => Told::Refused,
                            false => Told::Lost,
                        });
                    }),
                )
            },
        ];
        Some(Self {
            source,
            _listeners: listeners,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.source.close();
    }
}

/// Puts what is new into the regions of the document.
fn renew(document: &Document, content: &str) {
    let Some(template) = document
        .create_element("template")
        .ok()
        .and_then(|element| element.dyn_into::<HtmlTemplateElement>().ok())
    else {
        return;
    };
    template.set_inner_html(content);
    let Ok(regions) = document.query_selector_all(&format!("[{REGION}]")) else {
        return;
    };
    for at in 0..regions.length() {
        let Some(region) = regions.get(at).and_then(|node| node.dyn_into::<Element>().ok()) else {
            continue;
        };
        let name = region.get_attribute(REGION).unwrap_or_default();
        let fresh = template.content().query_selector(&format!("[{REGION}=\"{name}\"]"));
        if let Ok(Some(fresh)) = fresh {
            follow(&region, &fresh);
        }
    }
}

/// Makes `old` like `new` by the fewest changes, so that focus, selection, scrolling and what is unfolded stay.
fn follow(old: &Node, new: &Node) {
    if old.node_type() != new.node_type() || old.node_name() != new.node_name() {
        if let (Some(parent), Ok(copy)) = (old.parent_node(), new.clone_node_with_deep(true)) {
            let _ = parent.replace_child(&copy, old);
        }
        return;
    }
    match (old.dyn_ref::<Element>(), new.dyn_ref::<Element>()) {
        // Islands look after themselves.
        (Some(element), Some(_)) if element.local_name() == "leptos-island" => return,
        (Some(old), Some(new)) => follow_attributes(old, new),
        _ if old.node_value() != new.node_value() => old.set_node_value(new.node_value().as_deref()),
        _ => {}
    }
    let (olds, news) = (old.child_nodes(), new.child_nodes());
    // A list that moves while it is compared gives other nodes: first all, then their changes.
    let pairs: Vec<_> = (0..olds.length().min(news.length()))
        .filter_map(|at| Some((olds.get(at)?, news.get(at)?)))
        .collect();
    let added: Vec<_> = (olds.length()..news.length()).filter_map(|at| news.get(at)).collect();
    let gone: Vec<_> = (news.length()..olds.length()).filter_map(|at| olds.get(at)).collect();
    for (old, new) in pairs {
        follow(&old, &new);
    }
    for new in added {
        if let Ok(copy) = new.clone_node_with_deep(true) {
            let _ = old.append_child(&copy);
        }
    }
    for node in gone {
        let _ = old.remove_child(&node);
    }
}

fn follow_attributes(old: &Element, new: &Element) {
    for name in new.get_attribute_names().iter().filter_map(|name| name.as_string()) {
        let value = new.get_attribute(&name).unwrap_or_default();
        if old.get_attribute(&name).as_ref() != Some(&value) {
            let _ = old.set_attribute(&name, &value);
        }
    }
    for name in old.get_attribute_names().iter().filter_map(|name| name.as_string()) {
        // Unfolded by the reader.
        if name != "open" && !new.has_attribute(&name) {
            let _ = old.remove_attribute(&name);
        }
    }
}
