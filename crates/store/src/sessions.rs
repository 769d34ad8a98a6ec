//! Sessions of the console. What the browser holds is stored as its hash only, and a session's data sealed: a copy of
//! the database opens no session.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use domain::ids::PersonId;
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
/// Expired sessions deleted in one go.
const EXPIRED_BATCH: i64 = 1_000;
/// A session's data at most, bytes.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// How often another id is drawn when one is taken already.
const CREATE_TRIES: usize = 3;

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
        let person_id = match record.data.get(PERSON_FIELD) {
            None | Some(serde_json::Value::Null) => None,
            Some(value) => Some(
                value
                    .as_str()
                    .and_then(|text| text.parse::<Uuid>().ok())
                    .ok_or_else(|| Error::Encode("the session's person is no id".to_owned()))?,
            ),
        };
        Ok(Row {
            data: self.secret_key.seal(Purpose::Session, &id, &plain, &*self.random),
            id,
            person_id,
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
                "insert into sessions (id, person_id, data, expires_at) values ($1, $2, $3, $4) on conflict do nothing",
                row.id,
                row.person_id,
                row.data,
                row.expires_at,
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
            "update sessions set person_id = $2, data = $3, expires_at = $4 where id = $1",
            row.id,
            row.person_id,
            row.data,
            row.expires_at,
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

impl Store {
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
