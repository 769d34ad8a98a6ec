//! People: who signs in to the console.

use chrono::{DateTime, Utc};
use domain::ids::{PersonId, TenantId};
use domain::language::Language;
use domain::people::Role;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// People listed at most.
pub const PEOPLE_MAX: i64 = 5_000;

/// Somebody who signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Which one.
    pub id: PersonId,
    /// Unique without regard to case.
    pub email: String,
    /// What they are called.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Whose they are: managers and members only.
    pub tenant_id: Option<TenantId>,
    /// That tenant's name.
    pub tenant_name: Option<String>,
    /// Whether they have accepted their invitation.
    pub has_password: bool,
    /// Cannot sign in while set.
    pub disabled_at: Option<DateTime<Utc>>,
    /// When they were invited.
    pub created_at: DateTime<Utc>,
    /// When they last signed in.
    pub signed_in_at: Option<DateTime<Utc>>,
    /// The language that they have chosen; absent: the one that their browser asks for.
    pub language: Option<Language>,
    /// Raised by every change.
    pub version: i64,
}

/// What is decided about a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonValues {
    /// Unique without regard to case.
    pub email: String,
    /// What they are called.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Whose they are: managers and members only.
    pub tenant_id: Option<TenantId>,
}

impl Store {
    /// People by name, of one tenant or all; at most [`PEOPLE_MAX`].
    pub async fn people(&self, tenant_id: Option<TenantId>) -> Result<Vec<Person>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select people.id, email, people.name, role, tenant_id, tenants.name as \"tenant_name?\",
                    password_hash is not null as \"has_password!\", disabled_at, people.created_at, signed_in_at,
                    language, people.version
             from people
             left join tenants on tenants.id = people.tenant_id
             where $1::uuid is null or tenant_id = $1
             order by lower(people.name), people.id
             limit $2",
            tenant_id.map(|id| id.0),
            PEOPLE_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_person).collect()
    }

    /// People in the order in which they were added, those after this one, of one tenant or all; at most `count` and
    /// [`PEOPLE_MAX`].
    pub async fn people_after(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<PersonId>,
        count: i64,
    ) -> Result<Vec<Person>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select people.id, email, people.name, role, tenant_id, tenants.name as \"tenant_name?\",
                    password_hash is not null as \"has_password!\", disabled_at, people.created_at, signed_in_at,
                    language, people.version
             from people
             left join tenants on tenants.id = people.tenant_id
             where ($1::uuid is null or tenant_id = $1) and ($2::uuid is null or people.id > $2)
             order by people.id
             limit $3",
            tenant_id.map(|id| id.0),
            after.map(|id| id.0),
            count.clamp(0, PEOPLE_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_person).collect()
    }

    /// One person.
    pub async fn find_person(&self, id: PersonId) -> Result<Option<Person>, StoreError> {
        find(self.pool(), id).await
    }

    /// The person who signs in with this address, and their password's hash (PHC format) if they have one.
    pub async fn find_person_by_email(&self, email: &str) -> Result<Option<(Person, Option<String>)>, StoreError> {
        let row = sqlx::query!(
            "select id, password_hash from people where lower(email) = lower($1)",
            email
        )
        .fetch_optional(self.pool())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let person = self.find_person(row.id.into()).await?;
        Ok(person.map(|person| (person, row.password_hash)))
    }

    /// Whether anybody exists at all.
    pub async fn has_people(&self) -> Result<bool, StoreError> {
        has_people(self.pool()).await
    }
}

/// Whether anybody exists at all.
pub async fn any_exists(transaction: &mut Transaction) -> Result<bool, StoreError> {
    has_people(&mut **transaction).await
}

/// Keeps everybody else from adding people until the transaction ends; for the first of them.
pub async fn lock_all(transaction: &mut Transaction) -> Result<(), StoreError> {
    sqlx::query!("lock table people in share row exclusive mode")
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// One person, kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: PersonId) -> Result<Option<Person>, StoreError> {
    sqlx::query!("select 1 as one from people where id = $1 for no key update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// The ids of the operators who can sign in, kept from other writers until the transaction ends.
pub async fn lock_operators(transaction: &mut Transaction) -> Result<Vec<PersonId>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from people
         where role = 'operator' and disabled_at is null and password_hash is not null
         order by id
         for no key update"
    )
    .fetch_all(&mut **transaction)
    .await?;
    Ok(ids.into_iter().map(Into::into).collect())
}

/// Adds a person, with a password's hash or to be invited. Constraint `people_email`: the address is taken.
pub async fn insert(
    transaction: &mut Transaction,
    id: PersonId,
    person: &PersonValues,
    password_hash: Option<&str>,
    created_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into people (id, email, name, role, tenant_id, password_hash, created_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
        id.0,
        person.email,
        person.name,
        person.role.as_str(),
        person.tenant_id.map(|id| id.0),
        password_hash,
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes a person who is locked. Constraint `people_email`: the address is taken.
pub async fn update(transaction: &mut Transaction, id: PersonId, person: &PersonValues) -> Result<(), StoreError> {
    sqlx::query!(
        "update people
         set email = $2, name = $3, role = $4, tenant_id = $5, version = version + 1
         where id = $1",
        id.0,
        person.email,
        person.name,
        person.role.as_str(),
        person.tenant_id.map(|id| id.0),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Replaces the password's hash.
pub async fn set_password(transaction: &mut Transaction, id: PersonId, password_hash: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "update people set password_hash = $2, version = version + 1 where id = $1",
        id.0,
        password_hash,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Shuts a person out, or lets them in again.
pub async fn set_disabled(
    transaction: &mut Transaction,
    id: PersonId,
    disabled_at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update people set disabled_at = $2, version = version + 1 where id = $1",
        id.0,
        disabled_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Chooses the language of a person who is locked; `None` is the one that their browser asks for.
pub async fn set_language(
    transaction: &mut Transaction,
    id: PersonId,
    language: Option<Language>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update people set language = $2 where id = $1",
        id.0,
        language.map(Language::as_str),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Notes a sign-in.
pub async fn set_signed_in(
    transaction: &mut Transaction,
    id: PersonId,
    signed_in_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!("update people set signed_in_at = $2 where id = $1", id.0, signed_in_at)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn has_people(executor: impl PgExecutor<'_>) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!("select exists (select from people) as \"exists!\"")
        .fetch_one(executor)
        .await?)
}

async fn find(executor: impl PgExecutor<'_>, id: PersonId) -> Result<Option<Person>, StoreError> {
    sqlx::query_as!(
        Columns,
        "select people.id, email, people.name, role, tenant_id, tenants.name as \"tenant_name?\",
                password_hash is not null as \"has_password!\", disabled_at, people.created_at, signed_in_at,
                language, people.version
         from people
         left join tenants on tenants.id = people.tenant_id
         where people.id = $1",
        id.0,
    )
    .fetch_optional(executor)
    .await?
    .map(Columns::into_person)
    .transpose()
}

struct Columns {
    id: Uuid,
    email: String,
    name: String,
    role: String,
    tenant_id: Option<Uuid>,
    tenant_name: Option<String>,
    has_password: bool,
    disabled_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    signed_in_at: Option<DateTime<Utc>>,
    language: Option<String>,
    version: i64,
}

impl Columns {
    fn into_person(self) -> Result<Person, StoreError> {
        Ok(Person {
            id: self.id.into(),
            email: self.email,
            name: self.name,
            role: parse(&self.role, "people.role")?,
            tenant_id: self.tenant_id.map(Into::into),
            tenant_name: self.tenant_name,
            has_password: self.has_password,
            disabled_at: self.disabled_at,
            created_at: self.created_at,
            signed_in_at: self.signed_in_at,
            // One that a later release knows is no reason to know the person no more.
            language: self.language.and_then(|tag| tag.parse().ok()),
            version: self.version,
        })
    }
}
