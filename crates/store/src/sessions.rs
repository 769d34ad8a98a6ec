//! Sessions of the console. What the browser holds is stored as its hash only, and a session's data sealed: a copy of
//! the database opens no session.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use domain::ids::{PersonId, SessionId};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{self, Error};
use uuid::Uuid;

use crate::random::Random;
use crate::sealing::{Purpose, SecretKey};
use crate::{Store, StoreError, Transaction};

/// The field of a session's data that says whose it is (the person's id as text). A session that has it ends with its
/// person.
pub const PERSON_FIELD: &str = "person_id";
/// The field that names the session on pages: a [`SessionId`]. It and those below are kept beside the sealed data, so that a
/// person sees where they are signed in.
pub const PUBLIC_ID_FIELD: &str = "public_id";
/// The field that says since when (an instant).
pub const SIGNED_IN_FIELD: &str = "signed_in_at";
/// The field that says when it was last used (an instant).
pub const SEEN_FIELD: &str = "seen_at";
/// The field that says from which address it was last used.
pub const PEER_FIELD: &str = "peer";
/// The field that says by which program it was last used, as the program calls itself.
pub const USER_AGENT_FIELD: &str = "user_agent";
/// Sessions of one person that are listed, those used last.
pub const SESSIONS_LISTED_MAX: i64 = 100;
/// Expired sessions deleted in one go.
const EXPIRED_BATCH: i64 = 1_000;
/// A session's data at most, bytes.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// How often another id is drawn when one is taken already.
const CREATE_TRIES: usize = 3;

/// A session as its person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Which one.
    pub id: SessionId,
    /// Since when.
    pub signed_in_at: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    pub seen_at: Option<DateTime<Utc>>,
    /// From which address it was last used.
    pub peer: Option<String>,
    /// By which program, as it calls itself.
    pub user_agent: Option<String>,
    /// Ends then unless it is used before.
    pub expires_at: DateTime<Utc>,
}

/// Sessions in Postgres.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Store,
    secret_key: SecretKey,
    random: Arc<dyn Random>,
}

impl Sessions {
    /// Sessions whose data is sealed under `secret_key`.
    pub fn new(store: Store, secret_key: SecretKey, random: Arc<dyn Random>) -> Self {
        Self {
            store,
            secret_key,
            random,
        }
    }

    fn row(&self, record: &Record) -> session_store::Result<Row> {
        let id = stored_id(&record.id);
        let plain = serde_json::to_vec(&record.data).map_err(|error| Error::Encode(error.to_string()))?;
        if plain.len() > DATA_BYTES_MAX {
            return Err(Error::Encode("the session holds too much".to_owned()));
        }
        Ok(Row {
            data: self.secret_key.seal(Purpose::Session, &id, &plain, &*self.random),
            id,
            person_id: lifted(record, PERSON_FIELD)?,
            public_id: lifted(record, PUBLIC_ID_FIELD)?,
            signed_in_at: lifted(record, SIGNED_IN_FIELD)?,
            seen_at: lifted(record, SEEN_FIELD)?,
            peer: lifted(record, PEER_FIELD)?,
            user_agent: lifted(record, USER_AGENT_FIELD)?,
            expires_at: DateTime::from_timestamp(record.expiry_date.unix_timestamp(), 0)
                .ok_or_else(|| Error::Encode("the session ends at no time that can be stored".to_owned()))?,
        })
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> session_store::Result<()> {
        for _ in 0..CREATE_TRIES {
            let row = self.row(record)?;
            let done = sqlx::query!(
                "insert into sessions (id, person_id, data, expires_at, public_id, signed_in_at, seen_at, peer, user_agent)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                 on conflict (id) do nothing",
                row.id,
                row.person_id,
                row.data,
                row.expires_at,
                row.public_id,
                row.signed_in_at,
                row.seen_at,
                row.peer,
                row.user_agent,
            )
            .execute(self.store.pool())
            .await
            .map_err(backend)?;
            if done.rows_affected() == 1 {
                return Ok(());
            }
            record.id = Id::default();
        }
        Err(Error::Backend("no free session id was found".to_owned()))
    }

    /// Saves a session that exists. One that was ended meanwhile stays ended.
    async fn save(&self, record: &Record) -> session_store::Result<()> {
        let row = self.row(record)?;
        sqlx::query!(
            "update sessions
             set person_id = $2, data = $3, expires_at = $4, public_id = $5, signed_in_at = $6, seen_at = $7, peer = $8,
                 user_agent = $9
             where id = $1",
            row.id,
            row.person_id,
            row.data,
            row.expires_at,
            row.public_id,
            row.signed_in_at,
            row.seen_at,
            row.peer,
            row.user_agent,
        )
        .execute(self.store.pool())
        .await
        .map_err(backend)?;
        Ok(())
    }

    async fn load(&self, id: &Id) -> session_store::Result<Option<Record>> {
        let stored = stored_id(id);
        let row = sqlx::query!(
            "select data, expires_at
             from sessions
             left join people on people.id = sessions.person_id
             where sessions.id = $1 and expires_at > now() and people.disabled_at is null",
            stored,
        )
        .fetch_optional(self.store.pool())
        .await
        .map_err(backend)?;
        let Some(row) = row else { return Ok(None) };
        // Sealed under an earlier secret key: the person signs in again.
        let Ok(plain) = self.secret_key.open(Purpose::Session, &stored, &row.data) else {
            return Ok(None);
        };
        Ok(Some(Record {
            id: *id,
            data: serde_json::from_slice(&plain).map_err(|error| Error::Decode(error.to_string()))?,
            expiry_date: OffsetDateTime::from_unix_timestamp(row.expires_at.timestamp())
                .map_err(|error| Error::Decode(error.to_string()))?,
        }))
    }

    async fn delete(&self, id: &Id) -> session_store::Result<()> {
        sqlx::query!("delete from sessions where id = $1", stored_id(id))
            .execute(self.store.pool())
            .await
            .map_err(backend)?;
        Ok(())
    }
}

/// Ends every session of a person.
pub async fn delete_of(transaction: &mut Transaction, person_id: PersonId) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from sessions where person_id = $1", person_id.0)
        .execute(&mut **transaction)
        .await?;
    Ok(done.rows_affected())
}

/// Ends every session of a person but one; how many there were.
pub async fn delete_others(
    transaction: &mut Transaction,
    person_id: PersonId,
    kept: SessionId,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from sessions where person_id = $1 and public_id is distinct from $2",
        person_id.0,
        kept.0,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(done.rows_affected())
}

/// Ends one session of a person; whether there was such a one.
pub async fn delete_one(transaction: &mut Transaction, person_id: PersonId, id: SessionId) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "delete from sessions where person_id = $1 and public_id = $2",
        person_id.0,
        id.0,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(done.rows_affected() > 0)
}

impl Store {
    /// The sessions of a person that have not ended at `now`, those used last first; at most [`SESSIONS_LISTED_MAX`].
    pub async fn sessions_of(&self, person_id: PersonId, now: DateTime<Utc>) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query!(
            "select public_id as \"public_id!\", signed_in_at, seen_at, peer, user_agent, expires_at
             from sessions
             where person_id = $1 and expires_at > $2 and public_id is not null
             order by seen_at desc nulls last, public_id
             limit $3",
            person_id.0,
            now,
            SESSIONS_LISTED_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| SessionRow {
                id: row.public_id.into(),
                signed_in_at: row.signed_in_at,
                seen_at: row.seen_at,
                peer: row.peer,
                user_agent: row.user_agent,
                expires_at: row.expires_at,
            })
            .collect())
    }

    /// Deletes a batch of sessions that ended before `now`; returns how many there were.
    pub async fn delete_expired_sessions(&self, now: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from sessions where id in (select id from sessions where expires_at <= $1 limit $2)",
            now,
            EXPIRED_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

struct Row {
    id: String,
    person_id: Option<Uuid>,
    data: Vec<u8>,
    expires_at: DateTime<Utc>,
    public_id: Option<Uuid>,
    signed_in_at: Option<DateTime<Utc>>,
    seen_at: Option<DateTime<Utc>>,
    peer: Option<String>,
    user_agent: Option<String>,
}

/// A field of a session's data that has a column of its own.
fn lifted<T: DeserializeOwned>(record: &Record, field: &str) -> session_store::Result<Option<T>> {
    let Some(value) = record.data.get(field) else {
        return Ok(None);
    };
    serde_json::from_value(value.clone()).map_err(|_| Error::Encode(format!("the session's {field} cannot be read")))
}

/// What is stored in place of the id that the browser holds.
fn stored_id(id: &Id) -> String {
    hex::encode(Sha256::digest(id.to_string()))
}

/// The trait carries texts only, so the chain is written out here.
fn backend(error: sqlx::Error) -> Error {
    let error = StoreError::from(error);
    match std::error::Error::source(&error) {
        Some(source) => Error::Backend(format!("{error}: {source}")),
        None => Error::Backend(error.to_string()),
    }
}
