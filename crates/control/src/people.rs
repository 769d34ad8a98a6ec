//! People: set-up of the first operator, invitations, passwords, changing somebody, shutting somebody out.

mod edit;
mod leaving;

pub use edit::PersonEdit;
pub use leaving::{Issued, Kept};

use chrono::{DateTime, Duration, Utc};
use domain::ids::{PersonId, TenantId};
use domain::people::Role;
use domain::text;
use serde_json::{Value, json};
use store::keys::{KeyRow, KeysOf};
use store::one_time_links::LinkPurpose;
use store::one_time_links::OneTimeLink;
use store::people::{Person, PersonValues};
use store::sessions::SessionRow;
use store::{Transaction, one_time_links, people, sessions, tenants};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::tokens::{self, LinkToken};
use crate::{Actor, Control, ControlError, commit, passwords};
use domain::management_tokens::Permission;

/// How long a set-up link can be used, in hours.
pub const SETUP_LINK_HOURS: i64 = 24;
/// How long an invitation or a link to choose another password can be used, in days.
pub const INVITATION_DAYS: i64 = 7;

/// Somebody to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonDraft {
    /// Fields `name`, `email`, `role`, `tenant_id`.
    pub name: String,
    /// Their address, with which they sign in.
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// Whose they are: managers and members, and only those.
    pub tenant_id: Option<TenantId>,
}

/// Somebody who was invited, and the one-time link's token to hand to them.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Who.
    pub person: Person,
    /// Shown once.
    pub token: LinkToken,
    /// When the link ends.
    pub expires_at: DateTime<Utc>,
}

/// What a link that can still be used is for, to be shown before it is used.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    /// What for.
    pub purpose: LinkPurpose,
    /// For whom; nobody yet for set-up.
    pub person: Option<Person>,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
}

/// Somebody on their own page.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonView {
    /// The person.
    pub row: Person,
    /// The keys that they own and that are not revoked.
    pub keys: Vec<KeyRow>,
    /// What they have issued that goes on without them, as far as the reader may run it.
    pub issued: Issued,
    /// Where they are signed in.
    pub sessions: Vec<SessionRow>,
}

impl Control {
    /// Whether nobody exists yet, so that the first operator must be set up.
    pub async fn needs_setup(&self) -> Result<bool, ControlError> {
        Ok(!self.store.has_people().await?)
    }

    /// A one-time link to make the first operator; `None` once anybody exists. Earlier links stay usable until they
    /// end or one of them is used.
    pub async fn create_setup_link(&self, now: DateTime<Utc>) -> Result<Option<LinkToken>, ControlError> {
        self.store.delete_expired_links(now).await?;
        let mut transaction = self.store.begin().await?;
        if people::any_exists(&mut transaction).await? {
            return Ok(None);
        }
        let token = LinkToken::generate(&*self.random);
        let link = OneTimeLink {
            purpose: LinkPurpose::Setup,
            person_id: None,
            expires_at: now + Duration::hours(SETUP_LINK_HOURS),
        };
        one_time_links::insert(&mut transaction, &tokens::hash(token.reveal()), &link, now).await?;
        let change = Change {
            action: "person.setup_link",
            subject: "setup".to_owned(),
            tenant_id: None,
            before: None,
            after: Some(json!({ "expires_at": link.expires_at })),
        };
        self.note(&mut transaction, &START, now, change).await?;
        commit(transaction).await?;
        Ok(Some(token))
    }

    /// What a link is for, while it can be used.
    pub async fn find_link(&self, token: &str, now: DateTime<Utc>) -> Result<LinkInfo, ControlError> {
        let link = self
            .store
            .find_link(&tokens::hash(token), now)
            .await?
            .ok_or(ControlError::LinkEnded)?;
        let person = match link.person_id {
            Some(id) => self.store.find_person(id).await?,
            None if self.store.has_people().await? => return Err(ControlError::LinkEnded),
            None => None,
        };
        Ok(LinkInfo {
            purpose: link.purpose,
            person,
            expires_at: link.expires_at,
        })
    }

    /// Makes the first operator. Fields `name`, `email`, `password`.
    pub async fn accept_setup(
        &self,
        token: &str,
        name: &str,
        email: &str,
        password: &str,
        peer: Option<String>,
        now: DateTime<Utc>,
    ) -> Result<Person, ControlError> {
        let info = self.find_link(token, now).await?;
        if info.purpose != LinkPurpose::Setup {
            return Err(ControlError::LinkEnded);
        }
        let draft = PersonDraft {
            name: name.to_owned(),
            email: email.to_owned(),
            role: Role::Operator,
            tenant_id: None,
        };
        let values = checked(&draft, Some(password))?;
        let id = self.new_id(PersonId::new, now);
        let hash = self.passwords.hash(password, &*self.random).await?;

        let mut transaction = self.store.begin().await?;
        people::lock_all(&mut transaction).await?;
        let link = one_time_links::consume(&mut transaction, &tokens::hash(token), now).await?;
        if link.is_none() || people::any_exists(&mut transaction).await? {
            return Err(ControlError::LinkEnded);
        }
        people::insert(&mut transaction, id, &values, Some(&hash), now).await?;
        let made = people::lock(&mut transaction, id).await?.ok_or(GONE)?;
        let change = added("person.set_up", id, &values);
        self.note(&mut transaction, &Actor::person(&made, peer), now, change)
            .await?;
        commit(transaction).await?;
        Ok(made)
    }

    /// Adds somebody with a password at once: command line and demo only.
    pub async fn create_person(
        &self,
        actor: &Actor,
        draft: &PersonDraft,
        password: &str,
        now: DateTime<Utc>,
    ) -> Result<Person, ControlError> {
        if !actor.is_of_the_house() {
            return Err(ControlError::Forbidden);
        }
        let values = checked(draft, Some(password))?;
        let id = self.new_id(PersonId::new, now);
        let hash = self.passwords.hash(password, &*self.random).await?;
        let mut transaction = self.store.begin().await?;
        require_tenant(&mut transaction, values.tenant_id).await?;
        people::insert(&mut transaction, id, &values, Some(&hash), now).await?;
        let made = people::lock(&mut transaction, id).await?.ok_or(GONE)?;
        self.note(&mut transaction, actor, now, added("person.create", id, &values))
            .await?;
        commit(transaction).await?;
        Ok(made)
    }

    /// Adds an operator from the command line.
    pub async fn create_operator(
        &self,
        actor: &Actor,
        name: &str,
        email: &str,
        password: &str,
        now: DateTime<Utc>,
    ) -> Result<Person, ControlError> {
        let draft = PersonDraft {
            name: name.to_owned(),
            email: email.to_owned(),
            role: Role::Operator,
            tenant_id: None,
        };
        self.create_person(actor, &draft, password, now).await
    }

    /// Invites somebody: operators anybody, managers people of their own tenant.
    pub async fn invite_person(
        &self,
        actor: &Actor,
        draft: &PersonDraft,
        now: DateTime<Utc>,
    ) -> Result<Invitation, ControlError> {
        actor.require_permission(Permission::PeopleWrite)?;
        require_may_add(actor, draft)?;
        require_person_for_operator(actor, draft.role)?;
        let values = checked(draft, None)?;
        let id = self.new_id(PersonId::new, now);
        let mut transaction = self.store.begin().await?;
        require_tenant(&mut transaction, values.tenant_id).await?;
        people::insert(&mut transaction, id, &values, None, now).await?;
        let made = people::lock(&mut transaction, id).await?.ok_or(GONE)?;
        let invitation = self.link_for(&mut transaction, made, now).await?;
        self.note(&mut transaction, actor, now, added("person.invite", id, &values))
            .await?;
        commit(transaction).await?;
        Ok(invitation)
    }

    /// A link for somebody who lost their password or their invitation. Earlier links end; the password stays until
    /// another one is chosen.
    pub async fn create_password_link(
        &self,
        actor: &Actor,
        id: PersonId,
        now: DateTime<Utc>,
    ) -> Result<Invitation, ControlError> {
        actor.require_permission(Permission::PeopleWrite)?;
        let mut transaction = self.store.begin().await?;
        let person = self.lock_within(&mut transaction, actor, id).await?;
        if person.disabled_at.is_some() {
            return Err(ControlError::field(
                "person",
                text!("this account is closed; open it first"),
            ));
        }
        let change = Change {
            action: "person.link",
            subject: subject(id),
            tenant_id: person.tenant_id,
            before: None,
            after: Some(json!({ "has_password": person.has_password })),
        };
        let invitation = self.link_for(&mut transaction, person, now).await?;
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(invitation)
    }

    /// Chooses the password that an invitation or a password link is for. Every session of the person ends. Field
    /// `password`.
    pub async fn accept_invitation(
        &self,
        token: &str,
        password: &str,
        peer: Option<String>,
        now: DateTime<Utc>,
    ) -> Result<Person, ControlError> {
        let info = self.find_link(token, now).await?;
        let person = info.person.ok_or(ControlError::LinkEnded)?;
        if person.disabled_at.is_some() {
            return Err(ControlError::LinkEnded);
        }
        let mut fields = Fields::default();
        passwords::check_new(&mut fields, password, &person.email);
        fields.check()?;
        let hash = self.passwords.hash(password, &*self.random).await?;

        let mut transaction = self.store.begin().await?;
        let person = people::lock(&mut transaction, person.id)
            .await?
            .filter(|person| person.disabled_at.is_none())
            .ok_or(ControlError::LinkEnded)?;
        one_time_links::consume(&mut transaction, &tokens::hash(token), now)
            .await?
            .ok_or(ControlError::LinkEnded)?;
        people::set_password(&mut transaction, person.id, &hash).await?;
        sessions::delete_of(&mut transaction, person.id).await?;
        let change = Change {
            action: "person.choose_password",
            subject: subject(person.id),
            tenant_id: person.tenant_id,
            before: None,
            after: None,
        };
        self.note(&mut transaction, &Actor::person(&person, peer), now, change)
            .await?;
        let person = people::lock(&mut transaction, person.id).await?.ok_or(GONE)?;
        commit(transaction).await?;
        Ok(person)
    }

    /// People by name: all for those who see everything, a manager's own tenant.
    pub async fn people(&self, actor: &Actor, tenant: Option<TenantId>) -> Result<Vec<Person>, ControlError> {
        actor.require_permission(Permission::PeopleRead)?;
        let tenant = match actor.reach()? {
            Reach::Everything => tenant,
            Reach::Tenant(own) if tenant.is_none_or(|asked| asked == own) => Some(own),
            Reach::Tenant(_) | Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        Ok(self.store.people(tenant).await?)
    }

    /// One person: any for those who see everything, a manager's own tenant's, oneself.
    pub async fn person(&self, actor: &Actor, id: PersonId) -> Result<Person, ControlError> {
        actor.require_permission(Permission::PeopleRead)?;
        self.person_within_reach(actor, id).await
    }

    /// One person for an operation on them, which asks for a permission of its own.
    pub(crate) async fn person_within_reach(&self, actor: &Actor, id: PersonId) -> Result<Person, ControlError> {
        let reach = actor.reach()?;
        let person = self.store.find_person(id).await?;
        person
            .filter(|person| match reach {
                Reach::Everything => true,
                Reach::Tenant(own) => person.tenant_id == Some(own),
                Reach::Own(own, oneself) => person.tenant_id == Some(own) && person.id == oneself,
            })
            .ok_or(GONE)
    }

    /// How many unrevoked keys somebody owns, for an operation that asks its caller to know it.
    pub(crate) async fn count_owned_keys(&self, id: PersonId) -> Result<usize, ControlError> {
        Ok(self.store.unrevoked_keys(KeysOf::Owner(id)).await?.len())
    }

    /// The person whose address this is, for whoever may see them.
    pub(crate) async fn person_with_email(&self, actor: &Actor, email: &str) -> Result<Option<PersonId>, ControlError> {
        let Some((person, _)) = self.store.find_person_by_email(email.trim()).await? else {
            return Ok(None);
        };
        match self.person_within_reach(actor, person.id).await {
            Ok(person) => Ok(Some(person.id)),
            Err(ControlError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// People in the order in which they were added, those after this one: all for those who see everything, a manager's
    /// own tenant. At most `count` and [`store::people::PEOPLE_MAX`].
    pub async fn people_after(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        after: Option<PersonId>,
        count: i64,
    ) -> Result<Vec<Person>, ControlError> {
        actor.require_permission(Permission::PeopleRead)?;
        let (mut tenant, mut owner) = (tenant, None);
        actor.narrow(&mut tenant, &mut owner)?;
        if owner.is_some() {
            return Err(ControlError::Forbidden);
        }
        Ok(self.store.people_after(tenant, after, count).await?)
    }

    /// Somebody with what hangs on them: for those who see everything, and managers of their tenant.
    pub async fn person_view(
        &self,
        actor: &Actor,
        id: PersonId,
        now: DateTime<Utc>,
    ) -> Result<PersonView, ControlError> {
        if matches!(actor.reach()?, Reach::Own(..)) {
            return Err(ControlError::Forbidden);
        }
        let row = self.person(actor, id).await?;
        Ok(PersonView {
            keys: self.store.unrevoked_keys(KeysOf::Owner(id)).await?,
            issued: self.issued_by(actor, id, now).await?,
            sessions: self.store.sessions_of(id, now).await?,
            row,
        })
    }

    /// Shuts somebody out: their sessions and links end, their keys are revoked, and so is what they have issued unless it
    /// is to be kept, which of management tokens operators alone can say. Not oneself, and not the last operator.
    pub async fn disable_person(
        &self,
        actor: &Actor,
        id: PersonId,
        version: i64,
        kept: Kept,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::PeopleWrite)?;
        let mut transaction = self.store.begin().await?;
        let operators = people::lock_operators(&mut transaction).await?;
        let person = self.lock_within(&mut transaction, actor, id).await?;
        require_version(&person, version)?;
        if actor.person_id() == Some(id) {
            return Err(ControlError::field(
                "person",
                text!("you cannot close your own account"),
            ));
        }
        if operators == [id] {
            return Err(ControlError::field(
                "person",
                text!("this is the last operator; invite another one first"),
            ));
        }
        if person.disabled_at.is_some() {
            return Ok(());
        }
        people::set_disabled(&mut transaction, id, Some(now)).await?;
        one_time_links::delete_of(&mut transaction, id).await?;
        let sessions = sessions::delete_of(&mut transaction, id).await?;
        let owned = self.revoke_owned(&mut transaction, actor, id, now).await?;
        let issued = self.revoke_issued(&mut transaction, actor, id, None, kept, now).await?;
        let change = Change {
            action: "person.disable",
            subject: subject(id),
            tenant_id: person.tenant_id,
            before: Some(json!({ "disabled_at": null })),
            after: Some(json!({
                "disabled_at": now,
                "ended_sessions": sessions,
                "revoked_keys": owned,
                "revoked_service_keys": issued.service_keys,
                "revoked_management_tokens": issued.management_tokens,
            })),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Lets somebody in again. Their keys stay revoked.
    pub async fn enable_person(
        &self,
        actor: &Actor,
        id: PersonId,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::PeopleWrite)?;
        let mut transaction = self.store.begin().await?;
        let person = self.lock_within(&mut transaction, actor, id).await?;
        require_version(&person, version)?;
        if person.disabled_at.is_none() {
            return Ok(());
        }
        people::set_disabled(&mut transaction, id, None).await?;
        let change = Change {
            action: "person.enable",
            subject: subject(id),
            tenant_id: person.tenant_id,
            before: Some(json!({ "disabled_at": person.disabled_at })),
            after: Some(json!({ "disabled_at": null })),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// The acting person, locked, if they are still who they were when they were asked in.
    pub(crate) async fn lock_self(&self, transaction: &mut Transaction, actor: &Actor) -> Result<Person, ControlError> {
        let Actor::Person(acting) = actor else {
            return Err(ControlError::Forbidden);
        };
        people::lock(transaction, acting.id)
            .await?
            .filter(|person| {
                person.disabled_at.is_none() && person.role == acting.role && person.tenant_id == acting.tenant_id
            })
            .ok_or(ControlError::Forbidden)
    }

    /// The person, locked, if the actor may change them.
    pub(crate) async fn lock_within(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        id: PersonId,
    ) -> Result<Person, ControlError> {
        if let Actor::Person(acting) = actor
            && !matches!(acting.role, Role::Operator | Role::Manager)
        {
            return Err(ControlError::Forbidden);
        }
        let person = people::lock(transaction, id).await?;
        person
            .filter(|person| match person.tenant_id {
                Some(tenant) => actor.may_run(tenant),
                None => actor.is_operator(),
            })
            .ok_or(ControlError::NotFound { what: "person" })
            .and_then(|person| require_person_for_operator(actor, person.role).map(|()| person))
    }

    async fn link_for(
        &self,
        transaction: &mut Transaction,
        person: Person,
        now: DateTime<Utc>,
    ) -> Result<Invitation, ControlError> {
        let token = LinkToken::generate(&*self.random);
        let link = OneTimeLink {
            purpose: if person.has_password {
                LinkPurpose::Reset
            } else {
                LinkPurpose::Invitation
            },
            person_id: Some(person.id),
            expires_at: now + Duration::days(INVITATION_DAYS),
        };
        one_time_links::insert(transaction, &tokens::hash(token.reveal()), &link, now).await?;
        Ok(Invitation {
            person,
            token,
            expires_at: link.expires_at,
        })
    }
}

/// Who makes set-up links.
const START: Actor = Actor::System { name: "start" };

/// A row that was there a statement ago, in the same transaction.
const GONE: ControlError = ControlError::NotFound { what: "person" };

fn subject(id: PersonId) -> String {
    format!("person:{id}")
}

fn added(action: &'static str, id: PersonId, person: &PersonValues) -> Change {
    Change {
        action,
        subject: subject(id),
        tenant_id: person.tenant_id,
        before: None,
        after: Some(shown(person)),
    }
}

/// Programs make no operators and open no doors to them: whoever holds a token of a program would be one soon.
fn require_person_for_operator(actor: &Actor, role: Role) -> Result<(), ControlError> {
    match (actor, role) {
        (Actor::Token(_), Role::Operator) => Err(ControlError::Forbidden),
        _ => Ok(()),
    }
}

fn shown(person: &PersonValues) -> Value {
    json!({ "name": person.name, "email": person.email, "role": person.role, "tenant_id": person.tenant_id })
}

/// The draft as it is written, if it may be; with the password that comes with it, if one does.
fn checked(draft: &PersonDraft, password: Option<&str>) -> Result<PersonValues, ControlError> {
    let mut fields = Fields::default();
    let name = fields.name("name", &draft.name);
    let email = fields.email("email", &draft.email);
    if draft.role.belongs_to_tenant() {
        fields.require(
            draft.tenant_id.is_some(),
            "tenant_id",
            text!("choose the tenant they belong to"),
        );
    } else {
        fields.require(
            draft.tenant_id.is_none(),
            "tenant_id",
            text!("operators and auditors belong to no tenant"),
        );
    }
    if let Some(password) = password {
        passwords::check_new(&mut fields, password, &email);
    }
    fields.check()?;
    Ok(PersonValues {
        email,
        name,
        role: draft.role,
        tenant_id: draft.tenant_id,
    })
}

fn require_may_add(actor: &Actor, draft: &PersonDraft) -> Result<(), ControlError> {
    let may = match draft.tenant_id {
        Some(tenant) if draft.role.belongs_to_tenant() => actor.may_run(tenant),
        _ => actor.is_operator(),
    };
    if may { Ok(()) } else { Err(ControlError::Forbidden) }
}

async fn require_tenant(transaction: &mut Transaction, tenant: Option<TenantId>) -> Result<(), ControlError> {
    let Some(tenant) = tenant else { return Ok(()) };
    match tenants::lock(transaction, tenant).await? {
        Some(_) => Ok(()),
        None => Err(ControlError::field("tenant_id", text!("there is no such tenant"))),
    }
}

fn require_version(person: &Person, read: i64) -> Result<(), ControlError> {
    if person.version == read {
        return Ok(());
    }
    Err(ControlError::Conflict {
        what: "person",
        read,
        current: person.version,
    })
}
