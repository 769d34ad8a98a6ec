//! The page for addresses that lead nowhere.

use leptos::prelude::*;

use crate::error::PageError;
use crate::page;

/// Nothing is here.
pub fn view() -> AnyView {
    page::behind_the_door(|_| async { Err(PageError::NotFound) })
}
