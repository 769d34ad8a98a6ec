//! Signing in, throttled by account and by address.

use chrono::{DateTime, Duration, Utc};
use domain::ids::PersonId;
use serde_json::json;
use store::Transaction;
use store::people::Person;
use store::sign_in as failures;

use crate::audit::Change;
use crate::fields::EMAIL_CHARS_MAX;
use crate::passwords::PASSWORD_CHARS_MAX;
use crate::{Actor, Control, ControlError, commit};

/// Failures of one account within [`WINDOW_MINUTES`] after which it must wait.
pub const ACCOUNT_FAILURES_MAX: i64 = 5;
/// Failures from one address within [`WINDOW_MINUTES`] after which it must wait.
pub const PEER_FAILURES_MAX: i64 = 20;
/// How long a failure counts, in minutes.
pub const WINDOW_MINUTES: i64 = 15;

/// How long a failure counts.
pub(crate) fn window() -> Duration {
    Duration::minutes(WINDOW_MINUTES)
}

/// Why somebody was not let in. It does not tell whether the account exists.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// Address or password is wrong, or the account is closed.
    #[error("the address or the password is wrong")]
    Refused,
    /// Too many failures; even the right password is refused until then.
    #[error("too many failed sign-ins; try again in {} min", (.retry_after_seconds + 59) / 60)]
    Throttled {
        /// When to try again, at least 1.
        retry_after_seconds: i64,
    },
    /// It could not be checked.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Control {
    /// Checks a password. A failure is counted before the check and taken back after success, so that many attempts at
    /// once do not get past the bound.
    pub async fn sign_in(
        &self,
        email: &str,
        password: &str,
        peer: Option<String>,
        now: DateTime<Utc>,
    ) -> Result<Person, SignInError> {
        let email = email.trim();
        // Longer ones, and those with control characters, belong to nobody and are not worth a hash or a row.
        if email.chars().count() > EMAIL_CHARS_MAX
            || email.chars().any(char::is_control)
            || password.chars().count() > PASSWORD_CHARS_MAX
        {
            return Err(SignInError::Refused);
        }
        let subjects = Subjects::of(email, peer.as_deref());
        self.count_attempt(&subjects, now).await?;

        let found = self
            .store
            .find_person_by_email(email)
            .await
            .map_err(ControlError::from)?;
        let (person, hash) = found.unzip();
        let is_right = self.passwords.verify(password, hash.flatten()).await?;
        let Some(person) = person.filter(|person| is_right && person.disabled_at.is_none()) else {
            tracing::info!(peer = peer.as_deref().unwrap_or_default(), "sign-in refused");
            return Err(SignInError::Refused);
        };
        self.let_in(&person, peer, &subjects, now).await?;
        Ok(person)
    }

    /// The person of a session, read for each request; `None` once disabled.
    pub async fn person_by_id(&self, id: PersonId) -> Result<Option<Person>, ControlError> {
        let person = self.store.find_person(id).await?;
        Ok(person.filter(|person| person.disabled_at.is_none()))
    }

    /// Notes that a person signed out.
    pub async fn sign_out(&self, actor: &Actor, now: DateTime<Utc>) -> Result<(), ControlError> {
        let Actor::Person(person) = actor else { return Ok(()) };
        let mut transaction = self.store.begin().await?;
        let change = Change {
            action: "person.sign_out",
            subject: format!("person:{}", person.id),
            tenant_id: person.tenant_id,
            before: None,
            after: None,
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Counts an attempt as a failure, or says how long to wait.
    pub(crate) async fn count_attempt(&self, subjects: &Subjects, now: DateTime<Utc>) -> Result<(), SignInError> {
        let mut transaction = self.store.begin().await.map_err(ControlError::from)?;
        failures::lock(&mut transaction, [&subjects.account, &subjects.peer])
            .await
            .map_err(ControlError::from)?;
        let bounds = [
            (&subjects.account, ACCOUNT_FAILURES_MAX),
            (&subjects.peer, PEER_FAILURES_MAX),
        ];
        let mut wait = None;
        for (subject, bound) in bounds {
            wait = wait.max(wait_seconds(&mut transaction, subject, bound, now).await?);
        }
        if let Some(retry_after_seconds) = wait {
            return Err(SignInError::Throttled { retry_after_seconds });
        }
        for (subject, _) in bounds {
            failures::add_failure(&mut transaction, subject, now)
                .await
                .map_err(ControlError::from)?;
        }
        Ok(commit(transaction).await?)
    }

    async fn let_in(
        &self,
        person: &Person,
        peer: Option<String>,
        subjects: &Subjects,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        let mut transaction = self.store.begin().await?;
        subjects.forget_attempt(&mut transaction, now).await?;
        store::people::set_signed_in(&mut transaction, person.id, now).await?;
        let change = Change {
            action: "person.sign_in",
            subject: format!("person:{}", person.id),
            tenant_id: person.tenant_id,
            before: None,
            after: Some(json!({ "role": person.role })),
        };
        self.note(&mut transaction, &Actor::person(person, peer), now, change)
            .await?;
        commit(transaction).await
    }
}

/// What failures are counted by.
pub(crate) struct Subjects {
    account: String,
    peer: String,
}

impl Subjects {
    pub(crate) fn of(email: &str, peer: Option<&str>) -> Self {
        Self {
            account: format!("email:{}", email.to_lowercase()),
            peer: format!("peer:{}", peer.unwrap_or("unknown")),
        }
    }

    /// Takes back what was counted for the attempt at `at`, which was a good one.
    pub(crate) async fn forget_attempt(
        &self,
        transaction: &mut Transaction,
        at: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        failures::forget(transaction, &self.account).await?;
        // Only this attempt's: otherwise one good account would let an address try others without end.
        failures::forget_one(transaction, &self.peer, at).await?;
        Ok(())
    }
}

/// How long the subject must wait: until fewer than `bound` failures count.
async fn wait_seconds(
    transaction: &mut Transaction,
    subject: &str,
    bound: i64,
    now: DateTime<Utc>,
) -> Result<Option<i64>, ControlError> {
    let recent = failures::failures(transaction, subject, now - window(), bound).await?;
    if (recent.len() as i64) < bound {
        return Ok(None);
    }
    let oldest = recent.last().copied().unwrap_or(now);
    Ok(Some((oldest + window() - now).num_seconds().max(0) + 1))
}
