//! What lists of ledger entries have in common: filters, cursors, and entries with names.

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use domain::ledger::Outcome;
use domain::money::Nanos;
use domain::refusals::RefusalCode;
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::entries::{EntryCursor, EntryFilter, EntryPage, Named, PAGE_ENTRIES_MAX};
use uuid::Uuid;

use super::Api;
use super::call::Call;
use super::problem::Problem;
use crate::fields::Fields;
use crate::usage_json::money;

/// A list as it was asked for.
pub(super) struct Listed {
    pub(super) filter: EntryFilter,
    pub(super) after: Option<EntryCursor>,
    pub(super) limit: u32,
}

impl Listed {
    /// What the call's query asks for.
    pub(super) async fn read(api: &Api, call: &Call) -> Result<Self, Problem> {
        let zone = api.control.settings().await?.settings.time_zone;
        let query = &call.query;
        let mut fields = Fields::default();
        let outcome = query.text(&mut fields, "outcome").and_then(|word| {
            let outcome = Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == word);
            if outcome.is_none() {
                let words = Outcome::ALL.map(Outcome::as_str).join(", ");
                fields.refuse_call("outcome", format!("an outcome is one of {words}"));
            }
            outcome
        });
        let code = query.text(&mut fields, "code").and_then(|word| {
            let code = word.parse::<RefusalCode>().ok();
            if code.is_none() {
                let words = RefusalCode::ALL.map(RefusalCode::as_str).join(", ");
                fields.refuse_call("code", format!("a code is one of {words}"));
            }
            code
        });
        let tag = query.text(&mut fields, "tag").and_then(|text| {
            let tag = text.split_once('=').filter(|(name, _)| !name.is_empty());
            if tag.is_none() {
                fields.refuse_call("tag", "write a tag's name and value, such as tag=project%3Dsearch");
            }
            tag.map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        let filter = EntryFilter {
            tenant: query.id(&mut fields, "tenant"),
            key: query.id(&mut fields, "key"),
            user: query.text(&mut fields, "user"),
            model: query.text(&mut fields, "model"),
            request: query.id(&mut fields, "request"),
            outcome,
            code,
            tag,
            from: query.instant(&mut fields, "from", zone),
            until: query.instant(&mut fields, "until", zone),
            ..EntryFilter::default()
        };
        let after = cursor(call, &mut fields).map(|(at, id)| EntryCursor { at, id: id.into() });
        let limit = query.limit(&mut fields, PAGE_ENTRIES_MAX);
        fields.check()?;
        Ok(Self { filter, after, limit })
    }
}

/// Where the page before ended, if the call says so.
pub(super) fn cursor(call: &Call, fields: &mut Fields) -> Option<(DateTime<Utc>, Uuid)> {
    let text = call.query.text(fields, "cursor")?;
    let cursor = read_cursor(&text);
    if cursor.is_none() {
        fields.refuse_call("cursor", "write the next_cursor of the page before, unchanged");
    }
    cursor
}

/// Where a page ended, as one word that nobody needs to understand.
pub(super) fn cursor_text(at: DateTime<Utc>, id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}_{id}", at.timestamp_micros()))
}

fn read_cursor(text: &str) -> Option<(DateTime<Utc>, Uuid)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (micros, id) = text.split_once('_')?;
    Some((DateTime::from_timestamp_micros(micros.parse().ok()?)?, id.parse().ok()?))
}

/// A page of entries. What happened before `entries_kept_from` has no entries any more.
pub(super) async fn page<T>(
    api: &Api,
    page: EntryPage<T>,
    entry: impl Fn(&Named<T>) -> Value,
) -> Result<Json<Value>, Problem> {
    let next = page.next.map(|cursor| cursor_text(cursor.at, cursor.id.into()));
    Ok(Json(json!({
        "currency": api.control.settings().await?.settings.currency,
        "entries": page.entries.iter().map(entry).collect::<Value>(),
        "entries_kept_from": api.control.entries_kept_from().await?,
        "next_cursor": next,
    })))
}

/// An entry as the ledger has it, with the names that its ids have now, and amounts also as decimal text: nano-units can
/// be more than some readers of JSON keep exactly.
pub(super) fn named<T: Serialize>(named: &Named<T>, amounts: &[(&str, Nanos)]) -> Map<String, Value> {
    let mut value = match serde_json::to_value(&named.entry) {
        Ok(Value::Object(object)) => object,
        // An entry is an object with text for keys.
        _ => Map::new(),
    };
    for (name, text) in [
        ("tenant_name", &named.tenant_name),
        ("user_name", &named.user_name),
        ("key_name", &named.key_name),
        ("key_public_id", &named.key_public_id),
    ] {
        value.insert(name.to_owned(), json!(text));
    }
    for (name, amount) in amounts {
        value.insert((*name).to_owned(), json!(money(*amount)));
    }
    value
}

#[cfg(test)]
mod tests;
