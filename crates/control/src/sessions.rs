//! Sessions of the console, kept in Postgres: where somebody is signed in, and ending that.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::ids::{PersonId, SessionId};
use domain::management_tokens::Permission;
use serde_json::{Value, json};
use store::people::Person;
pub use store::sessions::{
    PEER_FIELD, PERSON_FIELD, PUBLIC_ID_FIELD, SEEN_FIELD, SESSIONS_LISTED_MAX, SIGNED_IN_FIELD, SessionRow, Sessions,
    USER_AGENT_FIELD,
};
use store::{Transaction, sessions};

use crate::audit::Change;
use crate::{Actor, Control, ControlError, commit};

impl Control {
    /// The store of sessions. A session whose data names its person under [`PERSON_FIELD`] ends with that person.
    pub fn sessions(&self) -> Sessions {
        Sessions::new(self.store.clone(), self.secret_key.clone(), Arc::clone(&self.random))
    }

    /// An id for a session that begins now.
    pub fn new_session_id(&self, now: DateTime<Utc>) -> SessionId {
        self.new_id(SessionId::new, now)
    }

    /// Where somebody is signed in, those used last first: one's own, and of others for operators, auditors, and managers
    /// within their tenant.
    pub async fn sessions_of(
        &self,
        actor: &Actor,
        person: PersonId,
        now: DateTime<Utc>,
    ) -> Result<Vec<SessionRow>, ControlError> {
        if actor.person_id() != Some(person) {
            self.person(actor, person).await?;
        }
        Ok(self.store.sessions_of(person, now).await?)
    }

    /// Ends one session: one's own, and of others for operators, and managers within their tenant.
    pub async fn end_session(
        &self,
        actor: &Actor,
        person: PersonId,
        id: SessionId,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        let mut transaction = self.store.begin().await?;
        let person = self.lock_whose_sessions(&mut transaction, actor, person).await?;
        let was_there = sessions::delete_one(&mut transaction, person.id, id).await?;
        if !was_there {
            return Err(ControlError::NotFound { what: "session" });
        }
        let change = ended("person.end_session", &person, json!({ "session_id": id }));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Ends every session of somebody, one's own too; how many there were. The same people may as may end one.
    pub async fn end_sessions(&self, actor: &Actor, person: PersonId, now: DateTime<Utc>) -> Result<u64, ControlError> {
        let mut transaction = self.store.begin().await?;
        let person = self.lock_whose_sessions(&mut transaction, actor, person).await?;
        let count = sessions::delete_of(&mut transaction, person.id).await?;
        let change = ended("person.end_sessions", &person, json!({ "ended_sessions": count }));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(count)
    }

    async fn lock_whose_sessions(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        person: PersonId,
    ) -> Result<Person, ControlError> {
        if actor.person_id() == Some(person) {
            return self.lock_self(transaction, actor).await;
        }
        actor.require_permission(Permission::PeopleWrite)?;
        self.lock_within(transaction, actor, person).await
    }
}

fn ended(action: &'static str, person: &Person, after: Value) -> Change {
    Change {
        action,
        subject: format!("person:{}", person.id),
        tenant_id: person.tenant_id,
        before: None,
        after: Some(after),
    }
}
