//! How the list of keys is ordered, and where a page of it ended, as its address has them.

use chrono::DateTime;
use control::rows::{KeyMark, KeyOrder, KeyPlace};

use crate::table::Direction;

/// Before the time of a key that was never used.
const NEVER_USED: &str = "never-";

/// A column that the list can be ordered by. Of the others there is no index, and this list has as many rows as there are keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// What people call it.
    ByName,
    /// When it was last used.
    ByUse,
}

impl Sort {
    /// Its word in the address.
    fn as_str(self) -> &'static str {
        match self {
            Self::ByName => "name",
            Self::ByUse => "used",
        }
    }

    /// The column with this word.
    pub(super) fn read(word: &str) -> Option<Self> {
        [Self::ByName, Self::ByUse]
            .into_iter()
            .find(|sort| sort.as_str() == word)
    }

    /// The order by this column.
    pub(super) fn order(self, direction: Direction) -> KeyOrder {
        match (self, direction) {
            (Self::ByName, Direction::Ascending) => KeyOrder::Name,
            (Self::ByName, Direction::Descending) => KeyOrder::NameBackwards,
            (Self::ByUse, Direction::Ascending) => KeyOrder::Unused,
            (Self::ByUse, Direction::Descending) => KeyOrder::Used,
        }
    }

    /// What an order is made of; the order of time has no column.
    pub(super) fn of(order: KeyOrder) -> Option<(Self, Direction)> {
        match order {
            KeyOrder::Newest => None,
            KeyOrder::Name => Some((Self::ByName, Direction::Ascending)),
            KeyOrder::NameBackwards => Some((Self::ByName, Direction::Descending)),
            KeyOrder::Unused => Some((Self::ByUse, Direction::Ascending)),
            KeyOrder::Used => Some((Self::ByUse, Direction::Descending)),
        }
    }
}

/// What the list says of its order.
pub(super) fn caption(order: KeyOrder) -> &'static str {
    match order {
        KeyOrder::Newest => t!("The newest first. Spend and refusals are this month's."),
        KeyOrder::Name => t!("By name. Spend and refusals are this month's."),
        KeyOrder::NameBackwards => t!("By name, backwards. Spend and refusals are this month's."),
        KeyOrder::Unused => {
            t!("Those never used first, then the longest unused. Spend and refusals are this month's.")
        }
        KeyOrder::Used => t!("The latest used first. Spend and refusals are this month's."),
    }
}

/// The address's fields for an order. Ascending goes without saying.
pub(super) fn fields(order: KeyOrder) -> (&'static str, &'static str) {
    match Sort::of(order) {
        None => ("", ""),
        Some((sort, Direction::Ascending)) => (sort.as_str(), ""),
        Some((sort, direction)) => (sort.as_str(), direction.as_str()),
    }
}

/// A place as addresses have it. An id holds no underscore.
pub(super) fn place_text(place: &KeyPlace) -> String {
    let mark = match &place.mark {
        KeyMark::Issued(at) | KeyMark::Used(at) => at.timestamp_micros().to_string(),
        KeyMark::Unused(issued) => format!("{NEVER_USED}{}", issued.timestamp_micros()),
        KeyMark::Name(name) => name.clone(),
    };
    format!("{mark}_{}", place.id)
}

/// The place in an order that an address names.
pub(super) fn place(order: KeyOrder, text: &str) -> Option<KeyPlace> {
    let (mark, id) = text.rsplit_once('_')?;
    let time = |text: &str| DateTime::from_timestamp_micros(text.parse().ok()?);
    let mark = match order {
        KeyOrder::Newest => KeyMark::Issued(time(mark)?),
        KeyOrder::Name | KeyOrder::NameBackwards => KeyMark::Name(mark.to_owned()),
        KeyOrder::Unused | KeyOrder::Used => match mark.strip_prefix(NEVER_USED) {
            Some(issued) => KeyMark::Unused(time(issued)?),
            None => KeyMark::Used(time(mark)?),
        },
    };
    let id = id.parse().ok()?;
    Some(KeyPlace { mark, id })
}

#[cfg(test)]
mod tests;
