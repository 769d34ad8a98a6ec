//! Why an operation was not done, as far as whoever asked can act on it.

use std::borrow::Cow;

use domain::text;
use domain::text::Text;
use store::StoreError;

use crate::live::LiveError;

/// What is wrong with one field of a form, in words for the person who filled it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's name, as in the draft: `name`, `monthly_cost`, `routes.0.weight`.
    pub field: Cow<'static, str>,
    /// What to do about it.
    pub message: Text,
}

impl FieldError {
    /// One error.
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<Text>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Fields that must be corrected first; never empty.
    #[error("some fields need another value: {}", listed(.0))]
    Invalid(Vec<FieldError>),
    /// Whoever asked may not do this.
    #[error("you may not do this")]
    Forbidden,
    /// There is no such thing, or not for whoever asked.
    #[error("there is no such {what}")]
    NotFound {
        /// The noun.
        what: &'static str,
    },
    /// Somebody else changed it since it was read; nothing was written.
    #[error("somebody else changed this {what} meanwhile; read it again, then repeat your change")]
    Conflict {
        /// The noun.
        what: &'static str,
        /// The version the editor had read.
        read: i64,
        /// The version now.
        current: i64,
    },
    /// It is there already: what was asked for would be a second one.
    #[error("there is such a {what} already")]
    Exists {
        /// The noun.
        what: &'static str,
        /// Which one is there, in the words of its address.
        id: String,
    },
    /// The one-time link was used, has ended, or never existed.
    #[error("this link has been used or has ended; ask for another one")]
    LinkEnded,
    /// The database cannot be reached or is too busy; repeating may help.
    #[error("the database cannot be reached; nothing was changed")]
    Unavailable(#[source] StoreError),
    /// It would read more than it may; asking for less helps.
    #[error("this search goes through too much of the ledger; choose a shorter time, a tenant, a key or a request")]
    TooSlow(#[source] StoreError),
    /// Too many people sign in or choose passwords at this moment; repeating helps.
    #[error("too many sign-ins at this moment; try again in a few seconds")]
    Busy,
    /// No gateway can say what is counted now; repeating may help.
    #[error("there are no live figures")]
    Live(#[source] LiveError),
    /// A fault of the program or of the database; its chain belongs in the log.
    #[error("something went wrong; nothing was changed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ControlError {
    /// One field's error.
    pub fn field(field: impl Into<Cow<'static, str>>, message: impl Into<Text>) -> Self {
        Self::Invalid(vec![FieldError::new(field, message)])
    }

    /// The errors of the fields; empty for every other error.
    pub fn fields(&self) -> &[FieldError] {
        match self {
            Self::Invalid(fields) => fields,
            _ => &[],
        }
    }
}

/// Named constraints, each mapped once to the field it speaks of.
fn error_of(constraint: &str) -> Option<FieldError> {
    let (field, message) = match constraint {
        "tenants_name" => ("name", text!("another tenant has this name")),
        "plans_name" => ("name", text!("another plan has this name")),
        "people_email" => ("email", text!("somebody with this address exists already")),
        "upstreams_name" => ("name", text!("another upstream has this name")),
        "models_pkey" => ("name", text!("another model has this name")),
        "alert_webhook_pkey" => ("url", text!("somebody else has set a webhook meanwhile; read it again")),
        "limits_slot" => ("dimension", text!("there is a limit for this already; change that one")),
        _ => return None,
    };
    Some(FieldError::new(field, message))
}

impl From<LiveError> for ControlError {
    fn from(error: LiveError) -> Self {
        Self::Live(error)
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        if error.is_transient() || error.is_in_the_way() {
            return Self::Unavailable(error);
        }
        if matches!(error, StoreError::TooSlow(_)) {
            return Self::TooSlow(error);
        }
        match error.constraint().and_then(error_of) {
            Some(wrong) => Self::Invalid(vec![wrong]),
            None => Self::Internal(Box::new(error)),
        }
    }
}

fn listed(fields: &[FieldError]) -> String {
    fields
        .iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect::<Vec<_>>()
        .join("; ")
}
