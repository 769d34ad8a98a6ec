//! One route: who may call it, with what, and what it answers. The description is made of the same rows.

use axum::handler::Handler;
use axum::routing::{MethodRouter, delete, get, patch, post};
use domain::management_tokens::Permission;
use http::Method;

use super::Api;

/// The body of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing is read.
    Nothing,
    /// An object that fits this schema of the description, or is refused.
    Shape(&'static str),
    /// An object that the handler reads field by field; the schema only describes it.
    Fields(&'static str),
}

/// The body of an answer that is no problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// 200 with this schema.
    One(&'static str),
    /// 200 with a page of entries of this schema.
    Page(&'static str),
    /// 201 with this schema.
    Created(&'static str),
    /// 204.
    Nothing,
    /// 200 with this schema, or with a CSV file.
    Report(&'static str),
    /// 200 with the description itself.
    Description,
}

/// One route.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What the token must be allowed; absent where none is asked for.
    pub(super) permission: Option<Permission>,
    /// Fields of the query. Others are refused.
    pub(super) parameters: &'static [&'static str],
    pub(super) asked: Asked,
    pub(super) answered: Answered,
    /// Whether a call that is repeated is known by its idempotency key.
    pub(super) has_idempotency_key: bool,
    /// A few words.
    pub(super) summary: &'static str,
    /// Sentences.
    pub(super) about: &'static str,
    pub(super) handler: MethodRouter<Api>,
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        permission: Option<Permission>,
        answered: Answered,
        handler: MethodRouter<Api>,
    ) -> Self {
        Self {
            method,
            path,
            permission,
            parameters: &[],
            asked: Asked::Nothing,
            answered,
            has_idempotency_key: false,
            summary: "",
            about: "",
            handler,
        }
    }

    /// A route that anybody may read.
    pub(super) fn open<T: 'static>(path: &'static str, answered: Answered, handler: impl Handler<T, Api>) -> Self {
        Self::new(Method::GET, path, None, answered, get(handler))
    }

    /// Something to read.
    pub(super) fn get<T: 'static>(
        path: &'static str,
        permission: Permission,
        answered: Answered,
        handler: impl Handler<T, Api>,
    ) -> Self {
        Self::new(Method::GET, path, Some(permission), answered, get(handler))
    }

    /// Something to make or to do.
    pub(super) fn post<T: 'static>(
        path: &'static str,
        permission: Permission,
        asked: Asked,
        answered: Answered,
        handler: impl Handler<T, Api>,
    ) -> Self {
        Self {
            asked,
            ..Self::new(Method::POST, path, Some(permission), answered, post(handler))
        }
    }

    /// Something to change: fields that are absent stay as they are.
    pub(super) fn patch<T: 'static>(
        path: &'static str,
        permission: Permission,
        asked: Asked,
        answered: Answered,
        handler: impl Handler<T, Api>,
    ) -> Self {
        Self {
            asked,
            ..Self::new(Method::PATCH, path, Some(permission), answered, patch(handler))
        }
    }

    /// Something to take away.
    pub(super) fn delete<T: 'static>(
        path: &'static str,
        permission: Permission,
        handler: impl Handler<T, Api>,
    ) -> Self {
        Self::new(
            Method::DELETE,
            path,
            Some(permission),
            Answered::Nothing,
            delete(handler),
        )
    }

    /// The same with these fields of the query.
    pub(super) fn with(self, parameters: &'static [&'static str]) -> Self {
        Self { parameters, ..self }
    }

    /// The same for what has no name that a repetition could be known by.
    pub(super) fn known_by_key(self) -> Self {
        Self {
            has_idempotency_key: true,
            ..self
        }
    }

    /// The same with what it is for: a few words, and sentences.
    pub(super) fn says(self, summary: &'static str, about: &'static str) -> Self {
        Self { summary, about, ..self }
    }
}
