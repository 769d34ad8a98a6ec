//! API keys. Of a secret only its hash is kept; a revoked key stays for audit and reports.

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, PersonId, TenantId};
use domain::key_rotation::Rotation;
use domain::key_rules::{KeyBounds, KeyPowers};
use domain::key_text::SecretHash;
use domain::own_limits::OwnLimits;
use domain::policy::KeySecret;
use domain::priority::Priority;
use sqlx::PgExecutor;
use sqlx::types::Json;
use uuid::Uuid;

use crate::policy::{parse, parse_some, secret_hash};
use crate::{Store, StoreError, Transaction};

/// Keys of one page at most.
pub const KEYS_PAGE_MAX: i64 = 500;
/// Ended secrets that one call deletes at most.
const ENDED_BATCH: i64 = 1_000;

/// A key as the console sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Which one.
    pub id: KeyId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// Whose.
    pub tenant_id: TenantId,
    /// That tenant's name.
    pub tenant_name: String,
    /// The person who owns it; a service account's key has none.
    pub owner_id: Option<PersonId>,
    /// That person's name.
    pub owner_name: Option<String>,
    /// That person's address.
    pub owner_email: Option<String>,
    /// What people call it.
    pub name: String,
    /// What its requests run at, under the tenant's ceiling.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub allowed_models: Option<Vec<String>>,
    /// Whether requests may name an end user.
    pub may_name_users: bool,
    /// Whether a request that could be admitted later is answered with a job rather than refused.
    pub degrades: bool,
    /// Refused from then on.
    pub expires_at: Option<DateTime<Utc>>,
    /// Refused since then.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was issued.
    pub created_at: DateTime<Utc>,
    /// By whom.
    pub created_by: String,
    /// When it got its present secret, if that is not its first.
    pub rotated_at: Option<DateTime<Utc>>,
    /// Until when the secret before works, too, or worked.
    pub old_secret_until: Option<DateTime<Utc>>,
    /// When that one was last shown, as far as gateways have written it down.
    pub old_secret_used_at: Option<DateTime<Utc>>,
    /// When it was last shown with any secret, as far as gateways have written it down.
    pub last_used_at: Option<DateTime<Utc>>,
    /// The most that its owner may give it.
    pub bounds: KeyBounds,
    /// What its owner lets it use at most.
    pub own_limits: OwnLimits,
    /// Raised by every change.
    pub version: i64,
}

impl KeyRow {
    /// What it may do and for how long.
    pub fn powers(&self) -> KeyPowers {
        KeyPowers {
            priority: self.priority,
            models: self.allowed_models.clone(),
            expires_at: self.expires_at,
        }
    }
}

/// Which keys to list.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    /// Only this tenant's.
    pub tenant_id: Option<TenantId>,
    /// Only this person's.
    pub owner_id: Option<PersonId>,
    /// Revoked ones too.
    pub includes_revoked: bool,
    /// Only those with this in their name, their owner's or their tenant's, without regard to case, or in their public id.
    pub containing: Option<String>,
    /// In which order.
    pub order: KeyOrder,
    /// Only those after this place in that order: the page after the one that ended there.
    pub after: Option<KeyPlace>,
    /// So many, at most [`KEYS_PAGE_MAX`].
    pub count: i64,
}

/// The order of a list of keys. Where what it goes by is the same, the id decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// The latest issued first.
    #[default]
    Newest,
    /// By name, without regard to case.
    Name,
    /// The same backwards.
    NameBackwards,
    /// Those that were never used first, the oldest of them before the others; then the longest unused first.
    Unused,
    /// The same backwards: the latest used first.
    Used,
}

/// Where a page ended: its last key, and what the order goes by of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// What the order goes by.
    pub mark: KeyMark,
    /// Which key.
    pub id: KeyId,
}

/// What an order goes by of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyMark {
    /// When it was issued.
    Issued(DateTime<Utc>),
    /// What people call it.
    Name(String),
    /// When it was last used.
    Used(DateTime<Utc>),
    /// That it was never used, and when it was issued.
    Unused(DateTime<Utc>),
}

impl KeyOrder {
    /// The stretches of the list, one after the other: an index of its own leads through each.
    fn stretches(self) -> &'static [Stretch] {
        match self {
            Self::Newest => &[Stretch::Newest],
            Self::Name => &[Stretch::Name],
            Self::NameBackwards => &[Stretch::NameBackwards],
            Self::Unused => &[Stretch::NeverUsed, Stretch::Used],
            Self::Used => &[Stretch::UsedBackwards, Stretch::NeverUsedBackwards],
        }
    }

    /// Where the key stands.
    pub fn place(self, key: &KeyRow) -> KeyPlace {
        let mark = match (self, key.last_used_at) {
            (Self::Newest, _) => KeyMark::Issued(key.created_at),
            (Self::Name | Self::NameBackwards, _) => KeyMark::Name(key.name.clone()),
            (Self::Unused | Self::Used, Some(at)) => KeyMark::Used(at),
            (Self::Unused | Self::Used, None) => KeyMark::Unused(key.created_at),
        };
        KeyPlace { mark, id: key.id }
    }
}

/// A stretch of a list that one index leads through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Newest,
    Name,
    NameBackwards,
    NeverUsed,
    NeverUsedBackwards,
    Used,
    UsedBackwards,
}

impl Stretch {
    /// Its word in the query.
    fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Name => "name",
            Self::NameBackwards => "name_desc",
            Self::NeverUsed => "never_used",
            Self::NeverUsedBackwards => "never_used_desc",
            Self::Used => "used",
            Self::UsedBackwards => "used_desc",
        }
    }

    /// Whether a key with this mark stands in it.
    fn has(self, mark: &KeyMark) -> bool {
        match mark {
            KeyMark::Issued(_) => self == Self::Newest,
            KeyMark::Name(_) => matches!(self, Self::Name | Self::NameBackwards),
            KeyMark::Used(_) => matches!(self, Self::Used | Self::UsedBackwards),
            KeyMark::Unused(_) => matches!(self, Self::NeverUsed | Self::NeverUsedBackwards),
        }
    }
}

/// What can be changed about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValues {
    /// What people call it.
    pub name: String,
    /// What its requests run at.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub allowed_models: Option<Vec<String>>,
    /// Whether requests may name an end user.
    pub may_name_users: bool,
    /// Whether a request that could be admitted later is answered with a job rather than refused.
    pub degrades: bool,
    /// Refused from then on.
    pub expires_at: Option<DateTime<Utc>>,
    /// The most that its owner may give it.
    pub bounds: KeyBounds,
}

/// A key to add.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Which one.
    pub id: KeyId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// Of its whole text.
    pub secret_hash: SecretHash,
    /// Whose.
    pub tenant_id: TenantId,
    /// The person who owns it.
    pub owner_id: Option<PersonId>,
    /// The rest.
    pub values: KeyValues,
    /// When it was issued.
    pub created_at: DateTime<Utc>,
    /// By whom.
    pub created_by: String,
    /// By which person, if it was one.
    pub created_by_id: Option<PersonId>,
}

/// Whose unrevoked keys are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysOf {
    /// Those that a person owns.
    Owner(PersonId),
    /// Those of service accounts that a person issued, or gave a secret that is there: in one tenant only, or in all but one.
    IssuedBy {
        /// Who issued them.
        person: PersonId,
        /// In this tenant only.
        within: Option<TenantId>,
        /// In any tenant but this one.
        without: Option<TenantId>,
    },
}

impl Store {
    /// Keys in the order that is asked for; behind a place of another order there are none.
    pub async fn keys(&self, filter: &KeyFilter) -> Result<Vec<KeyRow>, StoreError> {
        let count = filter.count.clamp(0, KEYS_PAGE_MAX);
        let mut ids = Vec::new();
        let mut after = filter.after.as_ref();
        for stretch in filter.order.stretches() {
            if after.is_some_and(|place| !stretch.has(&place.mark)) {
                continue;
            }
            let missing = count - i64::try_from(ids.len()).unwrap_or(count);
            if missing > 0 {
                ids.extend(self.key_ids(filter, *stretch, after, missing).await?);
            }
            // The stretches behind the one in which the page before ended begin at their beginnings.
            after = None;
        }
        // What is shown beside a key is looked up for the keys of the page alone.
        rows(self.pool(), &ids).await
    }

    /// The keys of one stretch after a place in it.
    async fn key_ids(
        &self,
        filter: &KeyFilter,
        stretch: Stretch,
        after: Option<&KeyPlace>,
        count: i64,
    ) -> Result<Vec<Uuid>, StoreError> {
        let (name, at) = match after.map(|place| &place.mark) {
            Some(KeyMark::Name(name)) => (Some(name.as_str()), None),
            Some(KeyMark::Issued(at) | KeyMark::Used(at) | KeyMark::Unused(at)) => (None, Some(*at)),
            None => (None, None),
        };
        // Planned for the actual values, of all orders and conditions those of the stretch alone are left, and the join with
        // uses goes or becomes one that leaves keys out: one index leads through the rest. That is tested.
        Ok(sqlx::query_scalar!(
            "select keys.id
             from keys
             left join key_uses on key_uses.key_id = keys.id
             where ($1::uuid is null or tenant_id = $1)
               and ($2::uuid is null or owner_id = $2)
               and ($3 or revoked_at is null)
               and ($4::text is null
                    or strpos(lower(keys.name), lower($4)) > 0
                    or strpos(public_id, $4) > 0
                    or tenant_id in (select id from tenants where strpos(lower(tenants.name), lower($4)) > 0)
                    or owner_id in (select id from people where strpos(lower(people.name), lower($4)) > 0))
               and ($5::text not in ('used', 'used_desc') or key_uses.key_id is not null)
               and ($5 not in ('never_used', 'never_used_desc') or key_uses.key_id is null)
               and ($6::uuid is null or case $5
                        when 'name' then (lower(keys.name), keys.id) > (lower($7::text), $6)
                        when 'name_desc' then (lower(keys.name), keys.id) < (lower($7), $6)
                        when 'used' then (last_used_at, key_uses.key_id) > ($8::timestamptz, $6)
                        when 'used_desc' then (last_used_at, key_uses.key_id) < ($8, $6)
                        when 'never_used' then (keys.created_at, keys.id) > ($8, $6)
                        else (keys.created_at, keys.id) < ($8, $6)
                    end)
             order by
                 case $5 when 'name' then lower(keys.name) end,
                 case $5 when 'name_desc' then lower(keys.name) end desc,
                 case $5 when 'used' then last_used_at when 'never_used' then keys.created_at end,
                 case $5 when 'used_desc' then last_used_at
                         when 'newest' then keys.created_at
                         when 'never_used_desc' then keys.created_at end desc,
                 case when $5 in ('name', 'used', 'never_used') then keys.id end,
                 case when $5 in ('name_desc', 'used_desc', 'newest', 'never_used_desc') then keys.id end desc
             limit $9",
            filter.tenant_id.map(|id| id.0),
            filter.owner_id.map(|id| id.0),
            filter.includes_revoked,
            filter.containing.as_deref(),
            stretch.as_str(),
            after.map(|place| place.id.0),
            name,
            at,
            count,
        )
        .fetch_all(self.pool())
        .await?)
    }

    /// The newest secret of a key.
    pub async fn newest_secret(&self, id: KeyId) -> Result<Option<SecretHash>, StoreError> {
        let hash = sqlx::query_scalar!(
            "select secret_hash from key_secrets where key_id = $1 order by created_at desc limit 1",
            id.0,
        )
        .fetch_optional(self.pool())
        .await?;
        hash.map(secret_hash).transpose()
    }

    /// Deletes a batch of secrets that have ended by `now`; returns how many there were. Gateways go by the end that they know.
    pub async fn delete_ended_secrets(&self, now: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from key_secrets
             where secret_hash = any (array (
                 select secret_hash from key_secrets where valid_until <= $1 order by secret_hash limit $2 for update skip locked))",
            now,
            ENDED_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }

    /// The unrevoked keys that are meant, expired ones among them; by id. As many as there are: those that work are bounded.
    pub async fn unrevoked_keys(&self, of: KeysOf) -> Result<Vec<KeyRow>, StoreError> {
        let columns = of.columns();
        let ids = sqlx::query_scalar!(
            "select id from keys
             where revoked_at is null
               and (owner_id = $1
                    or ((created_by_id = $2
                         or id in (select key_id from key_secrets where key_secrets.created_by_id = $2))
                        and owner_id is null
                        and ($3::uuid is null or tenant_id = $3)
                        and ($4::uuid is null or tenant_id <> $4)))
             order by id",
            columns.owner,
            columns.issued_by,
            columns.within,
            columns.without,
        )
        .fetch_all(self.pool())
        .await?;
        rows(self.pool(), &ids).await
    }

    /// One key.
    pub async fn find_key(&self, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
        find(self.pool(), id).await
    }
}

/// One key, kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
    sqlx::query!("select 1 as one from keys where id = $1 for no key update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// Whose key it is, if there is such a one.
pub async fn tenant_of(transaction: &mut Transaction, id: KeyId) -> Result<Option<TenantId>, StoreError> {
    let tenant_id = sqlx::query_scalar!("select tenant_id from keys where id = $1", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(tenant_id.map(Into::into))
}

/// How many keys of a tenant, or of one person in it, are neither revoked nor expired.
pub async fn count_live(
    transaction: &mut Transaction,
    tenant_id: TenantId,
    owner_id: Option<PersonId>,
    now: DateTime<Utc>,
) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        "select count(*) as \"count!\"
         from keys
         where tenant_id = $1
           and ($2::uuid is null or owner_id = $2)
           and revoked_at is null
           and (expires_at is null or expires_at > $3)",
        tenant_id.0,
        owner_id.map(|id| id.0),
        now,
    )
    .fetch_one(&mut **transaction)
    .await?)
}

/// Adds a key with its one secret.
pub async fn insert(transaction: &mut Transaction, key: &NewKey) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into keys (id, public_id, tenant_id, owner_id, name, priority, allowed_models, may_name_users,
                           degrades, expires_at, created_at, created_by, created_by_id, priority_bound, models_bound,
                           expires_bound, policy_version)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0)",
        key.id.0,
        key.public_id,
        key.tenant_id.0,
        key.owner_id.map(|id| id.0),
        key.values.name,
        key.values.priority.as_str(),
        key.values.allowed_models.as_deref(),
        key.values.may_name_users,
        key.values.degrades,
        key.values.expires_at,
        key.created_at,
        key.created_by,
        key.created_by_id.map(|id| id.0),
        key.values.bounds.priority.map(Priority::as_str),
        key.values.bounds.models.as_deref(),
        key.values.bounds.expires_at,
    )
    .execute(&mut **transaction)
    .await?;
    insert_secret(transaction, key.id, key.secret_hash, key.created_at, key.created_by_id).await
}

/// Changes a key that is locked.
pub async fn update(transaction: &mut Transaction, id: KeyId, values: &KeyValues) -> Result<(), StoreError> {
    sqlx::query!(
        "update keys
         set name = $2, priority = $3, allowed_models = $4, may_name_users = $5, degrades = $6, expires_at = $7,
             priority_bound = $8, models_bound = $9, expires_bound = $10, version = version + 1
         where id = $1",
        id.0,
        values.name,
        values.priority.as_str(),
        values.allowed_models.as_deref(),
        values.may_name_users,
        values.degrades,
        values.expires_at,
        values.bounds.priority.map(Priority::as_str),
        values.bounds.models.as_deref(),
        values.bounds.expires_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// The secrets of a key that is locked, the newest first.
pub async fn secrets(transaction: &mut Transaction, id: KeyId) -> Result<Vec<KeySecret>, StoreError> {
    let rows = sqlx::query!(
        "select secret_hash, valid_until from key_secrets where key_id = $1 order by created_at desc",
        id.0,
    )
    .fetch_all(&mut **transaction)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(KeySecret {
                hash: secret_hash(row.secret_hash)?,
                valid_until: row.valid_until,
            })
        })
        .collect()
}

/// Sets what the owner of a locked key lets it use at most.
pub async fn set_own_limits(transaction: &mut Transaction, id: KeyId, own: &OwnLimits) -> Result<(), StoreError> {
    sqlx::query!(
        "update keys set own_limits = $2, version = version + 1 where id = $1",
        id.0,
        Json(own) as _,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Gives a key that is locked a new secret, and does with the others as was decided.
pub async fn rotate(
    transaction: &mut Transaction,
    id: KeyId,
    rotation: &Rotation,
    secret_hash: SecretHash,
    created_at: DateTime<Utc>,
    created_by_id: Option<PersonId>,
) -> Result<(), StoreError> {
    remove_secrets(transaction, &rotation.removed).await?;
    if let Some((hash, valid_until)) = rotation.kept {
        sqlx::query!(
            "update key_secrets set valid_until = $2 where secret_hash = $1",
            hash.0.as_slice(),
            valid_until,
        )
        .execute(&mut **transaction)
        .await?;
    }
    insert_secret(transaction, id, secret_hash, created_at, created_by_id).await?;
    tell_gateways(transaction, id).await
}

/// Ends these secrets of a key that is locked.
pub async fn end_secrets(transaction: &mut Transaction, id: KeyId, hashes: &[SecretHash]) -> Result<(), StoreError> {
    remove_secrets(transaction, hashes).await?;
    tell_gateways(transaction, id).await
}

async fn insert_secret(
    transaction: &mut Transaction,
    id: KeyId,
    secret_hash: SecretHash,
    created_at: DateTime<Utc>,
    created_by_id: Option<PersonId>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into key_secrets (secret_hash, key_id, created_at, created_by_id) values ($1, $2, $3, $4)",
        secret_hash.0.as_slice(),
        id.0,
        created_at,
        created_by_id.map(|id| id.0),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn remove_secrets(transaction: &mut Transaction, hashes: &[SecretHash]) -> Result<(), StoreError> {
    let hashes: Vec<Vec<u8>> = hashes.iter().map(|hash| hash.0.to_vec()).collect();
    sqlx::query!("delete from key_secrets where secret_hash = any($1)", &hashes)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Secrets are part of their key's row in the policy: the row is written with them.
async fn tell_gateways(transaction: &mut Transaction, id: KeyId) -> Result<(), StoreError> {
    sqlx::query!("update keys set version = version + 1 where id = $1", id.0)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Revokes a key that is locked.
pub async fn revoke(transaction: &mut Transaction, id: KeyId, revoked_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "update keys set revoked_at = $2, version = version + 1 where id = $1 and revoked_at is null",
        id.0,
        revoked_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// The unrevoked keys that are meant, expired ones among them, kept from other writers until the transaction ends; by id.
pub async fn lock_unrevoked(transaction: &mut Transaction, of: KeysOf) -> Result<Vec<KeyRow>, StoreError> {
    // All rows before any is changed: the first change also takes the policy's version, for which holders of the other rows
    // may wait.
    let columns = of.columns();
    let ids = sqlx::query_scalar!(
        "select id from keys
         where revoked_at is null
           and (owner_id = $1
                or ((created_by_id = $2
                     or id in (select key_id from key_secrets where key_secrets.created_by_id = $2))
                    and owner_id is null
                    and ($3::uuid is null or tenant_id = $3)
                    and ($4::uuid is null or tenant_id <> $4)))
         order by id
         for no key update",
        columns.owner,
        columns.issued_by,
        columns.within,
        columns.without,
    )
    .fetch_all(&mut **transaction)
    .await?;
    rows(&mut **transaction, &ids).await
}

/// Revokes keys that are locked.
pub async fn revoke_all(
    transaction: &mut Transaction,
    ids: &[KeyId],
    revoked_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    sqlx::query!(
        "update keys set revoked_at = $2, version = version + 1 where id = any($1) and revoked_at is null",
        &ids,
        revoked_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// [`KeysOf`] as a query takes it.
struct KeysOfColumns {
    owner: Option<Uuid>,
    issued_by: Option<Uuid>,
    within: Option<Uuid>,
    without: Option<Uuid>,
}

impl KeysOf {
    fn columns(self) -> KeysOfColumns {
        match self {
            Self::Owner(owner) => KeysOfColumns {
                owner: Some(owner.0),
                issued_by: None,
                within: None,
                without: None,
            },
            Self::IssuedBy {
                person,
                within,
                without,
            } => KeysOfColumns {
                owner: None,
                issued_by: Some(person.0),
                within: within.map(|id| id.0),
                without: without.map(|id| id.0),
            },
        }
    }
}

async fn find(executor: impl PgExecutor<'_>, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
    Ok(rows(executor, &[id.0]).await?.pop())
}

/// These keys, in this order.
async fn rows(executor: impl PgExecutor<'_>, ids: &[Uuid]) -> Result<Vec<KeyRow>, StoreError> {
    let rows = sqlx::query_as!(
        Columns,
        "select keys.id, public_id, keys.tenant_id, tenants.name as tenant_name, owner_id,
                people.name as \"owner_name?\", people.email as \"owner_email?\", keys.name, priority, allowed_models,
                may_name_users, degrades, expires_at, revoked_at, keys.created_at, created_by, rotated_at,
                old_secret_until, secrets.old_secret_used_at, key_uses.last_used_at as \"last_used_at?\",
                priority_bound, models_bound, expires_bound,
                own_limits as \"own_limits: Json<OwnLimits>\", keys.version
         from unnest($1::uuid[]) with ordinality as asked (id, place)
         join keys on keys.id = asked.id
         join tenants on tenants.id = keys.tenant_id
         left join people on people.id = keys.owner_id
         left join key_uses on key_uses.key_id = keys.id
         cross join lateral (
             select nullif(max(created_at), keys.created_at) as rotated_at, max(valid_until) as old_secret_until,
                    max(last_used_at) filter (where valid_until is not null) as old_secret_used_at
             from key_secrets
             where key_id = keys.id
         ) as secrets
         order by asked.place",
        ids,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(Columns::into_row).collect()
}

struct Columns {
    id: Uuid,
    public_id: String,
    tenant_id: Uuid,
    tenant_name: String,
    owner_id: Option<Uuid>,
    owner_name: Option<String>,
    owner_email: Option<String>,
    name: String,
    priority: String,
    allowed_models: Option<Vec<String>>,
    may_name_users: bool,
    degrades: bool,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    created_by: String,
    rotated_at: Option<DateTime<Utc>>,
    old_secret_until: Option<DateTime<Utc>>,
    old_secret_used_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    priority_bound: Option<String>,
    models_bound: Option<Vec<String>>,
    expires_bound: Option<DateTime<Utc>>,
    own_limits: Json<OwnLimits>,
    version: i64,
}

impl Columns {
    fn into_row(self) -> Result<KeyRow, StoreError> {
        Ok(KeyRow {
            id: self.id.into(),
            public_id: self.public_id,
            tenant_id: self.tenant_id.into(),
            tenant_name: self.tenant_name,
            owner_id: self.owner_id.map(Into::into),
            owner_name: self.owner_name,
            owner_email: self.owner_email,
            name: self.name,
            priority: parse(&self.priority, "keys.priority")?,
            allowed_models: self.allowed_models,
            may_name_users: self.may_name_users,
            degrades: self.degrades,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            created_at: self.created_at,
            created_by: self.created_by,
            rotated_at: self.rotated_at,
            old_secret_until: self.old_secret_until,
            old_secret_used_at: self.old_secret_used_at,
            last_used_at: self.last_used_at,
            bounds: KeyBounds {
                priority: parse_some(self.priority_bound, "keys.priority_bound")?,
                models: self.models_bound,
                expires_at: self.expires_bound,
            },
            own_limits: self.own_limits.0,
            version: self.version,
        })
    }
}
