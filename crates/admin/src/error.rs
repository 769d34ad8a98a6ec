//! What a person is told when a page cannot be shown or a write was not done. The one place where the console's errors
//! become texts and statuses; inner texts go to the log only.

use std::error::Error;

use axum::response::{Html, IntoResponse, Response};
use control::ControlError;
use http::StatusCode;
use leptos::prelude::*;

use crate::shell;

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Nothing is there, or nothing that this person may know of.
    NotFound,
    /// It is there, but not for this person.
    Forbidden,
    /// Postgres does not answer.
    Unavailable,
    /// It would have read more than it may.
    TooSlow,
    /// It took longer than anybody waits.
    Late,
    /// A write that does not come from a page of ours.
    ForeignOrigin,
    /// A write that is larger than any form of ours.
    TooLarge,
    /// A link or form that no page of ours has made.
    Malformed,
    /// This code is wrong.
    Internal,
}

impl PageError {
    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::Unavailable | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooSlow => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What it is, in a line.
    pub fn title(self) -> &'static str {
        match self {
            Self::NotFound => t!("Nothing here"),
            Self::Forbidden => t!("Not for your account"),
            Self::Unavailable => t!("The database cannot be reached"),
            Self::ForeignOrigin => t!("This form was not sent from the console"),
            Self::TooLarge => t!("That was too much at once"),
            Self::Malformed => t!("This request cannot be understood"),
            Self::TooSlow => t!("This looks through too much"),
            Self::Late => t!("This takes too long"),
            Self::Internal => t!("Something went wrong here"),
        }
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::NotFound => {
                t!("The address may be mistyped, or what it named is gone. Start again from the overview.")
            }
            Self::Forbidden => {
                t!("Your role does not include this. If you need it, ask an operator to change your role.")
            }
            Self::Unavailable => t!(
                "Nothing was changed. Requests through the gateway go on, and their ledger entries are kept until the \
                 database is back. Wait a moment, then load this page again."
            ),
            Self::ForeignOrigin => t!(
                "Nothing was changed. Open the console in this browser, and send the form from there. Behind a reverse \
                 proxy, let it pass the Host header on unchanged."
            ),
            Self::TooLarge => t!("Nothing was changed. Go back and send less text."),
            Self::TooSlow => t!(
                "It took too long and was given up. Go back and ask for less: a shorter time, one tenant, one key, or a \
                 request by its id."
            ),
            Self::Late => t!(
                "The database does not answer in time. What you sent may have been done or not: look before you repeat it."
            ),
            Self::Malformed => t!("Nothing was changed. Go back, load the page again, and repeat what you did."),
            Self::Internal => t!(
                "The reason is in the server's log. Load the page again; if this stays, tell an operator the time at \
                 which it happened."
            ),
        }
    }

    /// The error as the content of a page.
    pub fn view(self) -> AnyView {
        let status = self.status().as_u16();
        view! {
            <section class="card" role="alert">
                <p class="quiet">{t!("Error {status}", status)}</p>
                <h1>{self.title()}</h1>
                <p>{self.advice()}</p>
                <p class="actions">
                    <a class="button" href="/">
                        {t!("Go to the overview")}
                    </a>
                </p>
            </section>
        }
        .into_any()
    }
}

/// The error as a whole answer, for where no page is being rendered. Needs neither session nor database.
pub fn document(error: &PageError) -> Response {
    let error = *error;
    let html = Owner::new().with(|| shell::bare_document(error.title(), error.view()).to_html());
    let mut response = (error.status(), Html(html)).into_response();
    if error.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            http::HeaderValue::from_static(RETRY_AFTER_SECONDS),
        );
    }
    response
}

/// When to try again while the database is away.
pub const RETRY_AFTER_SECONDS: &str = "5";

impl From<tower_sessions::session::Error> for PageError {
    fn from(error: tower_sessions::session::Error) -> Self {
        use tower_sessions::session::Error as SessionError;
        use tower_sessions::session_store;
        match &error {
            // The store speaks of the database only; what else it says is that a session cannot be read.
            SessionError::Store(session_store::Error::Backend(_)) => {
                tracing::warn!(error = &error as &dyn Error, "the session store cannot be reached");
                Self::Unavailable
            }
            _ => {
                tracing::error!(error = &error as &dyn Error, "a session cannot be read or written");
                Self::Internal
            }
        }
    }
}

impl From<ControlError> for PageError {
    fn from(error: ControlError) -> Self {
        match &error {
            ControlError::Forbidden => Self::Forbidden,
            ControlError::NotFound { .. } | ControlError::LinkEnded => Self::NotFound,
            ControlError::Unavailable(_) | ControlError::Busy | ControlError::Live(_) => {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "an operation of the console had to be given up"
                );
                Self::Unavailable
            }
            ControlError::TooSlow(_) => Self::TooSlow,
            // A page or form that shows fields deals with these before.
            ControlError::Invalid(_) | ControlError::Conflict { .. } | ControlError::Exists { .. } => Self::Malformed,
            ControlError::Internal(_) => {
                tracing::error!(error = &error as &dyn Error, "an operation of the console failed");
                Self::Internal
            }
        }
    }
}
