//! What people do about their own account.

use chrono::{DateTime, Utc};
use domain::ids::SessionId;
use domain::language::Language;
use domain::text;
use serde_json::json;
use store::{one_time_links, people, sessions};

use crate::audit::Change;
use crate::fields::Fields;
use crate::passwords::{self, PASSWORD_CHARS_MAX};
use crate::sign_in::{SignInError, Subjects};
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// Replaces one's own password, and ends every other session and link of one's own: whoever else knows the old one is
    /// out. Asks for the current one, and counts a wrong one as a failed sign-in, so that a window left open is no place to
    /// guess it. Field `password`; a wrong current one is [`SignInError::Refused`]. How many sessions ended.
    pub async fn change_password(
        &self,
        actor: &Actor,
        current: &str,
        password: &str,
        kept: SessionId,
        now: DateTime<Utc>,
    ) -> Result<u64, SignInError> {
        let Actor::Person(acting) = actor else {
            return Err(ControlError::Forbidden.into());
        };
        let mut fields = Fields::default();
        passwords::check_new(&mut fields, password, &acting.email);
        fields.require(
            password != current,
            "password",
            text!("choose another one than the present one"),
        );
        fields.check()?;
        if current.chars().count() > PASSWORD_CHARS_MAX {
            return Err(SignInError::Refused);
        }
        let subjects = Subjects::of(&acting.email, acting.peer.as_deref());
        self.count_attempt(&subjects, now).await?;
        let found = self
            .store
            .find_person_by_email(&acting.email)
            .await
            .map_err(ControlError::from)?
            .filter(|(person, _)| person.id == acting.id);
        let (read, hash) = found.unzip();
        if !self.passwords.verify(current, hash.flatten()).await? {
            tracing::info!(person_id = %acting.id, "a change of password was refused");
            return Err(SignInError::Refused);
        }
        let read = read.ok_or(ControlError::Forbidden)?;
        let hash = self.passwords.hash(password, &*self.random).await?;
        Ok(self
            .replace_password(actor, &subjects, read.version, &hash, kept, now)
            .await?)
    }

    /// Chooses one's own language; `None` is the one that the browser asks for.
    pub async fn choose_language(
        &self,
        actor: &Actor,
        language: Option<Language>,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        let mut transaction = self.store.begin().await?;
        let person = self.lock_self(&mut transaction, actor).await?;
        if person.language == language {
            return Ok(());
        }
        people::set_language(&mut transaction, person.id, language).await?;
        let shown = |language: Option<Language>| Some(json!({ "language": language.map(Language::as_str) }));
        let change = Change {
            action: "person.choose_language",
            subject: format!("person:{}", person.id),
            tenant_id: person.tenant_id,
            before: shown(person.language),
            after: shown(language),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    async fn replace_password(
        &self,
        actor: &Actor,
        subjects: &Subjects,
        version: i64,
        hash: &str,
        kept: SessionId,
        now: DateTime<Utc>,
    ) -> Result<u64, ControlError> {
        let mut transaction = self.store.begin().await?;
        let person = self.lock_self(&mut transaction, actor).await?;
        if person.version != version {
            return Err(ControlError::Conflict {
                what: "account",
                read: version,
                current: person.version,
            });
        }
        subjects.forget_attempt(&mut transaction, now).await?;
        people::set_password(&mut transaction, person.id, hash).await?;
        one_time_links::delete_of(&mut transaction, person.id).await?;
        let ended = sessions::delete_others(&mut transaction, person.id, kept).await?;
        let change = Change {
            action: "person.change_password",
            subject: format!("person:{}", person.id),
            tenant_id: person.tenant_id,
            before: None,
            after: Some(json!({ "ended_sessions": ended })),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(ended)
    }
}
