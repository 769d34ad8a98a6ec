//! The way of every form: the post calls a server function, which runs one operation and answers with the address of the
//! page to get next. What was refused goes back to its form with the entered values.
//!
//! Pages write `<form method="post" action=IssueKey::PATH>`: what `ActionForm` renders outside an island, without its
//! demand that the form's content outlive the page.

use std::future::Future;

use control::{ControlError, FieldError};
use domain::text::Text;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use leptos::prelude::*;
use leptos_axum::ResponseOptions;
use serde::Serialize;

use crate::error::PageError;
use crate::form::Draft;
use crate::language;
use crate::session;
use crate::visit::Visit;

/// What an editor is told whose form was overtaken.
fn conflict() -> String {
    let told = t!(
        "Somebody else changed this while you were editing, so nothing was saved. Below is what you entered, and what is \
         stored now where that is another value; save again to replace it."
    );
    told.to_owned()
}

/// A form that was dealt with.
pub struct Done {
    to: String,
    notice: Option<String>,
    link: Option<(String, String)>,
}

impl Done {
    /// Goes on to this address.
    pub fn go(to: impl Into<String>) -> Self {
        Self {
            to: to.into(),
            notice: None,
            link: None,
        }
    }

    /// Goes on and says what was done.
    pub fn say(to: impl Into<String>, notice: impl Into<String>) -> Self {
        Self {
            to: to.into(),
            notice: Some(notice.into()),
            link: None,
        }
    }

    /// The same with a link behind what is said.
    pub fn with_link(self, href: String, text: impl Into<String>) -> Self {
        Self {
            link: Some((href, text.into())),
            ..self
        }
    }

    /// Keeps what is to be said for the next page.
    async fn keep(&self, visit: &Visit) -> Result<(), PageError> {
        if let Some(notice) = &self.notice {
            session::keep_notice(&visit.session, notice.clone()).await?;
        }
        if let Some(link) = &self.link {
            session::keep_notice_link(&visit.session, link.clone()).await?;
        }
        Ok(())
    }
}

/// Why a form was not dealt with.
#[derive(Debug)]
pub enum Refused {
    /// Some of its fields are wrong.
    Fields(Vec<FieldError>),
    /// The form as a whole cannot be accepted now.
    Form(String),
    /// Somebody else changed meanwhile what the form is about.
    Conflict,
    /// Nothing is wrong: the page is to show what it would change, and ask.
    Unconfirmed,
    /// What it would change was shown, and the form is wanted again.
    Back,
    /// There is no way back to the form.
    Page(PageError),
}

impl Refused {
    /// This field is wrong.
    pub fn field(field: &'static str, message: impl Into<Text>) -> Self {
        Self::Fields(vec![FieldError::new(field, message)])
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Invalid(fields) => Self::Fields(fields),
            ControlError::Conflict { .. } | ControlError::Exists { .. } => Self::Conflict,
            ControlError::LinkEnded => {
                Self::Form(t!("This link has been used or has ended. Ask an operator for another one.").to_owned())
            }
            ControlError::Busy => {
                Self::Form(t!("Many people are signing in at this moment. Try again in a few seconds.").to_owned())
            }
            error => Self::Page(error.into()),
        }
    }
}

impl From<PageError> for Refused {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}

/// Runs the operation behind a form. `action` is the form's address, `back` the page that shows the form.
///
/// # Errors
/// None: every ending is an address or an error's page. The type is what server functions give.
pub async fn submit<F, R>(
    action: &str,
    back: &str,
    form: F,
    operation: impl FnOnce(Visit, F) -> R,
) -> Result<(), ServerFnError>
where
    F: Serialize + Clone,
    R: Future<Output = Result<Done, Refused>>,
{
    let (visit, response) = request()?;
    let ended = operation(visit.clone(), form.clone()).await;
    match answer(&visit, action, back, &form, ended).await {
        Ok(address) => see_other(&visit, &response, &address),
        Err(error) => visit.fail(error),
    }
    Ok(())
}

/// Runs the operation behind a form that is a mere button. What is wrong is said on top of the page `back`.
///
/// # Errors
/// None, as with [`submit`].
pub async fn press<R>(back: &str, operation: impl FnOnce(Visit) -> R) -> Result<(), ServerFnError>
where
    R: Future<Output = Result<Done, Refused>>,
{
    let (visit, response) = request()?;
    let problem = match operation(visit.clone()).await {
        Ok(done) => {
            match done.keep(&visit).await {
                Ok(()) => see_other(&visit, &response, &done.to),
                Err(error) => visit.fail(error),
            }
            return Ok(());
        }
        Err(Refused::Page(error)) => {
            visit.fail(error);
            return Ok(());
        }
        Err(Refused::Fields(fields)) => {
            let told = fields.iter().map(|error| sentence(&language::text(&error.message)));
            language::sentences(&told.collect::<Vec<_>>())
        }
        Err(Refused::Form(message)) => message,
        Err(Refused::Unconfirmed | Refused::Back) => {
            visit.fail(PageError::Malformed);
            return Ok(());
        }
        Err(Refused::Conflict) => {
            t!("Somebody else changed this meanwhile, so nothing was done. Look at it again first.").to_owned()
        }
    };
    match session::keep_problem(&visit.session, problem).await {
        Ok(()) => see_other(&visit, &response, back),
        Err(error) => visit.fail(error),
    }
    Ok(())
}

fn request() -> Result<(Visit, ResponseOptions), ServerFnError> {
    let visit = use_context::<Parts>().and_then(|parts| parts.extensions.get::<Visit>().cloned());
    visit
        .zip(use_context::<ResponseOptions>())
        .ok_or_else(|| ServerFnError::new("a form of the console was called outside its router"))
}

async fn answer<F: Serialize>(
    visit: &Visit,
    action: &str,
    back: &str,
    form: &F,
    ended: Result<Done, Refused>,
) -> Result<String, PageError> {
    let (mut is_conflict, mut is_preview) = (false, false);
    let errors = match ended {
        Ok(done) => {
            done.keep(visit).await?;
            return Ok(done.to);
        }
        Err(Refused::Page(error)) => return Err(error),
        Err(Refused::Fields(fields)) => {
            let errors = fields
                .into_iter()
                .map(|error| (error.field.into_owned(), sentence(&language::text(&error.message))));
            errors.collect()
        }
        Err(Refused::Form(message)) => vec![(String::new(), message)],
        Err(Refused::Conflict) => {
            is_conflict = true;
            vec![(String::new(), conflict())]
        }
        Err(Refused::Unconfirmed) => {
            is_preview = true;
            Vec::new()
        }
        Err(Refused::Back) => Vec::new(),
    };
    let draft = Draft {
        action: action.to_owned(),
        back: back.to_owned(),
        values: serde_json::to_value(form).map_err(|_| PageError::Internal)?,
        errors,
        is_conflict,
        is_preview,
    };
    session::keep_draft(&visit.session, draft).await?;
    Ok(back.to_owned())
}

/// The operations' messages are parts of sentences; beside a field they stand alone.
pub fn sentence(message: &str) -> String {
    let mut characters = message.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    let is_whole = message.ends_with(['.', '。', '？', '！']);
    let end = if is_whole {
        ""
    } else {
        t!(".", in "the end of a sentence")
    };
    format!("{first}{}{end}", characters.as_str())
}

/// `leptos_axum::redirect` answers 302, and 200 to clients that do not say they accept HTML; the answer to a post is 303.
fn see_other(visit: &Visit, response: &ResponseOptions, address: &str) {
    match HeaderValue::from_str(address) {
        Ok(address) => {
            response.insert_header(header::LOCATION, address);
            response.set_status(StatusCode::SEE_OTHER);
        }
        Err(_) => visit.fail(PageError::Internal),
    }
}

/// An id or version that a form of ours has sent; anything else was made by hand.
pub fn parsed_id<T: std::str::FromStr>(text: &str) -> Result<T, Refused> {
    text.parse().map_err(|_| Refused::Page(PageError::Malformed))
}
