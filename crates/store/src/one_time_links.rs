//! One-time links: the first operator's set-up, invitations, password resets. Only the hash of a token is kept.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use domain::ids::PersonId;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// Expired links deleted in one go.
const EXPIRED_BATCH: i64 = 1_000;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPurpose {
    /// Making the first operator.
    Setup,
    /// Choosing a first password.
    Invitation,
    /// Choosing another password.
    Reset,
}

impl LinkPurpose {
    /// The word in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Invitation => "invitation",
            Self::Reset => "reset",
        }
    }
}

/// The text is no purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a link's purpose is one of setup, invitation, reset")]
pub struct UnknownLinkPurpose;

impl FromStr for LinkPurpose {
    type Err = UnknownLinkPurpose;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Setup, Self::Invitation, Self::Reset]
            .into_iter()
            .find(|purpose| purpose.as_str() == text)
            .ok_or(UnknownLinkPurpose)
    }
}

/// A link that can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneTimeLink {
    /// What it is for.
    pub purpose: LinkPurpose,
    /// Whose; set-up links are nobody's.
    pub person_id: Option<PersonId>,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
}

impl Store {
    /// The link with this hash, if it can still be used.
    pub async fn find_link(
        &self,
        token_hash: &[u8; 32],
        now: DateTime<Utc>,
    ) -> Result<Option<OneTimeLink>, StoreError> {
        let row = sqlx::query!(
            "select purpose, person_id, expires_at
             from one_time_links
             where token_hash = $1 and used_at is null and expires_at > $2",
            token_hash.as_slice(),
            now,
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| {
            Ok(OneTimeLink {
                purpose: parse(&row.purpose, "one_time_links.purpose")?,
                person_id: row.person_id.map(Into::into),
                expires_at: row.expires_at,
            })
        })
        .transpose()
    }

    /// Deletes a batch of links that ended before `now`; returns how many there were.
    pub async fn delete_expired_links(&self, now: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from one_time_links
             where token_hash in (select token_hash from one_time_links where expires_at <= $1 limit $2)",
            now,
            EXPIRED_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

/// Adds a link. A person's earlier links end.
pub async fn insert(
    transaction: &mut Transaction,
    token_hash: &[u8; 32],
    link: &OneTimeLink,
    created_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    if let Some(person_id) = link.person_id {
        delete_of(transaction, person_id).await?;
    }
    sqlx::query!(
        "insert into one_time_links (token_hash, purpose, person_id, created_at, expires_at)
         values ($1, $2, $3, $4, $5)",
        token_hash.as_slice(),
        link.purpose.as_str(),
        link.person_id.map(|id| id.0),
        created_at,
        link.expires_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Ends every link of a person that was not used.
pub async fn delete_of(transaction: &mut Transaction, person_id: PersonId) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from one_time_links where person_id = $1 and used_at is null",
        person_id.0
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Uses a link up. `None` if it cannot be used any more; of two who try at once one gets it.
pub async fn consume(
    transaction: &mut Transaction,
    token_hash: &[u8; 32],
    now: DateTime<Utc>,
) -> Result<Option<OneTimeLink>, StoreError> {
    let row = sqlx::query!(
        "update one_time_links
         set used_at = $2
         where token_hash = $1 and used_at is null and expires_at > $2
         returning purpose, person_id, expires_at",
        token_hash.as_slice(),
        now,
    )
    .fetch_optional(&mut **transaction)
    .await?;
    row.map(|row| {
        Ok(OneTimeLink {
            purpose: parse(&row.purpose, "one_time_links.purpose")?,
            person_id: row.person_id.map(Into::into),
            expires_at: row.expires_at,
        })
    })
    .transpose()
}
