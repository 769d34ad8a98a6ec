//! The ledger's entries as people look for them: filters, pages, and both kinds in one list.

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, PersonId, RequestId, TenantId};
use domain::ledger::{Outcome, Rejection, Settlement};
use domain::refusals::RefusalCode;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::{Store, StoreError, Transaction};

/// How long the reading of a page may take, in milliseconds. What is looked for by an index takes some; what few entries of
/// a long time have, and no index tells, would read all of them.
const SEARCH_TIMEOUT_MS: u32 = 5_000;
/// Entries on one page at most.
pub const PAGE_ENTRIES_MAX: u32 = 200;

/// Which entries to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this person: under their name or with one of their keys.
    pub owner: Option<PersonId>,
    /// For this user: a person's id or an end user's name.
    pub user: Option<String>,
    /// With this key.
    pub key: Option<KeyId>,
    /// For this model.
    pub model: Option<String>,
    /// This request.
    pub request: Option<RequestId>,
    /// With this outcome. Lists of both kinds then leave rejections out.
    pub outcome: Option<Outcome>,
    /// With this tag: its name and value.
    pub tag: Option<(String, String)>,
    /// Refused with this code. Lists of both kinds then leave settlements out.
    pub code: Option<RefusalCode>,
    /// Admitted or refused from here on.
    pub from: Option<DateTime<Utc>>,
    /// Admitted or refused before.
    pub until: Option<DateTime<Utc>>,
}

/// Where a page ended: the next one has entries older than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryCursor {
    /// `admitted_at` or `refused_at` of the last entry.
    pub at: DateTime<Utc>,
    /// Its id.
    pub id: RequestId,
}

/// Entries of a list, the newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryPage<T> {
    /// At most as many as were asked for and [`PAGE_ENTRIES_MAX`].
    pub entries: Vec<Named<T>>,
    /// Where the next page starts; `None` on the last one.
    pub next: Option<EntryCursor>,
}

/// An entry with the names its ids have now.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T> {
    /// As it was written.
    pub entry: T,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// The person's name, where the user is one.
    pub user_name: Option<String>,
}

/// Either kind of entry.
#[derive(Clone, Debug, PartialEq)]
pub enum LedgerEntry {
    /// A request that ran.
    Settlement(Box<Settlement>),
    /// A request that was refused.
    Rejection(Box<Rejection>),
}

impl LedgerEntry {
    /// When it was admitted or refused.
    pub fn at(&self) -> DateTime<Utc> {
        match self {
            Self::Settlement(settlement) => settlement.admitted_at,
            Self::Rejection(rejection) => rejection.refused_at,
        }
    }

    /// Its id.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Settlement(settlement) => settlement.identity.id,
            Self::Rejection(rejection) => rejection.identity.id,
        }
    }
}

impl Store {
    /// A snapshot in which pages are read, within bounds.
    pub(crate) async fn begin_search(&self) -> Result<Transaction, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        sqlx::query!(
            r#"select set_config('statement_timeout', $1, true) as "set!""#,
            SEARCH_TIMEOUT_MS.to_string(),
        )
        .fetch_one(&mut *snapshot)
        .await?;
        Ok(snapshot)
    }

    /// Both kinds of entry in the order of time, the newest first.
    pub async fn ledger_entries(
        &self,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        entries_max: u32,
    ) -> Result<EntryPage<LedgerEntry>, StoreError> {
        // A page of the union lies within the union of the pages.
        let mut entries = Vec::new();
        let mut next = false;
        if filter.code.is_none() {
            let page = self.settlements(filter, after, entries_max).await?;
            next |= page.next.is_some();
            entries.extend(
                page.entries
                    .into_iter()
                    .map(|named| named.map(|entry| LedgerEntry::Settlement(Box::new(entry)))),
            );
        }
        if filter.outcome.is_none() {
            let page = self.rejections(filter, after, entries_max).await?;
            next |= page.next.is_some();
            entries.extend(
                page.entries
                    .into_iter()
                    .map(|named| named.map(|entry| LedgerEntry::Rejection(Box::new(entry)))),
            );
        }
        entries.sort_by_key(|named| std::cmp::Reverse((named.entry.at(), named.entry.id())));
        let places = page_places(entries_max);
        next |= entries.len() > places;
        entries.truncate(places);
        let next = entries.last().filter(|_| next).map(|last| EntryCursor {
            at: last.entry.at(),
            id: last.entry.id(),
        });
        Ok(EntryPage { entries, next })
    }
}

impl<T> Named<T> {
    /// The same names on another form of the entry.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Named<U> {
        Named {
            entry: convert(self.entry),
            tenant_name: self.tenant_name,
            key_name: self.key_name,
            key_public_id: self.key_public_id,
            user_name: self.user_name,
        }
    }
}

/// A row of a list: the entry as JSON, whose field names are the column names, and the names its ids have.
pub(crate) struct EntryRow {
    pub(crate) entry: serde_json::Value,
    pub(crate) tenant_name: Option<String>,
    pub(crate) key_name: Option<String>,
    pub(crate) key_public_id: Option<String>,
    pub(crate) user_name: Option<String>,
}

impl EntryRow {
    pub(crate) fn into_named<T: DeserializeOwned>(self, column: &'static str) -> Result<Named<T>, StoreError> {
        Ok(Named {
            entry: serde_json::from_value(self.entry).map_err(|_| StoreError::Value { column })?,
            tenant_name: self.tenant_name,
            key_name: self.key_name,
            key_public_id: self.key_public_id,
            user_name: self.user_name,
        })
    }
}

/// A tag as the object that contains only it.
pub(crate) fn tag_object(tag: Option<&(String, String)>) -> Option<serde_json::Value> {
    tag.map(|(name, value)| serde_json::json!({ name: value }))
}

/// Bounds what a caller asks for.
pub(crate) fn page_places(entries_max: u32) -> usize {
    entries_max.clamp(1, PAGE_ENTRIES_MAX) as usize
}

/// Cuts the one row too many that tells whether there is a next page.
pub(crate) fn page<T>(mut entries: Vec<Named<T>>, places: usize, cursor: impl Fn(&T) -> EntryCursor) -> EntryPage<T> {
    let has_more = entries.len() > places;
    entries.truncate(places);
    let next = entries.last().filter(|_| has_more).map(|last| cursor(&last.entry));
    EntryPage { entries, next }
}

/// The cursor before the newest entry there can be.
pub(crate) fn start(after: Option<EntryCursor>) -> (Option<DateTime<Utc>>, Option<Uuid>) {
    (after.map(|cursor| cursor.at), after.map(|cursor| cursor.id.into()))
}
