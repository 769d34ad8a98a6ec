//! Pages of what is in one order for good: by id, which is the order of making, or by name.

use std::str::FromStr;

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::call::Call;
use crate::fields::Fields;

/// Entries on one page at most.
pub(super) const PAGE_MAX: u32 = 100;

/// A page as it was asked for.
pub(super) struct Asked<K> {
    /// Where the page before ended.
    pub(super) after: Option<K>,
    limit: u32,
}

impl<K: FromStr> Asked<K> {
    /// What the call's query asks for.
    pub(super) fn read(call: &Call, fields: &mut Fields) -> Self {
        let after = call.query.text(fields, "cursor").and_then(|text| {
            let key = read_cursor(&text);
            if key.is_none() {
                fields.refuse_call("cursor", "write the next_cursor of the page before, unchanged");
            }
            key
        });
        Self {
            after,
            limit: call.query.limit(fields, PAGE_MAX),
        }
    }
}

impl<K> Asked<K> {
    /// How many rows to read: one more than are shown tells whether there is another page.
    pub(super) fn rows_max(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// How many rows are shown.
    pub(super) fn shown_max(&self) -> i64 {
        i64::from(self.limit)
    }

    /// The page of rows that were read with [`Self::rows_max`].
    pub(super) fn page<T>(
        &self,
        mut rows: Vec<T>,
        key: impl Fn(&T) -> String,
        show: impl Fn(&T) -> Value,
    ) -> Json<Value> {
        let places = self.limit as usize;
        let has_more = rows.len() > places;
        rows.truncate(places);
        let next = rows.last().filter(|_| has_more).map(key);
        page(&rows, next.as_deref(), show)
    }
}

impl<K: Ord> Asked<K> {
    /// The page of all rows, which are few and sorted by their key.
    pub(super) fn page_of_all<T>(&self, rows: Vec<T>, key: impl Fn(&T) -> K, show: impl Fn(&T) -> Value) -> Json<Value>
    where
        K: ToString,
    {
        let mut rows = rows;
        rows.sort_by_key(&key);
        if let Some(after) = &self.after {
            rows.retain(|row| key(row) > *after);
        }
        self.page(rows, |row| key(row).to_string(), show)
    }
}

/// Rows, and the key of the last one where there are more.
pub(super) fn page<T>(rows: &[T], next: Option<&str>, show: impl Fn(&T) -> Value) -> Json<Value> {
    Json(json!({
        "entries": rows.iter().map(show).collect::<Value>(),
        "next_cursor": next.map(cursor_text),
    }))
}

/// Where a page ended, as one word that nobody needs to understand.
fn cursor_text(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn read_cursor<K: FromStr>(text: &str) -> Option<K> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    text.parse().ok().filter(|_| !text.contains('\0'))
}
