//! The policy snapshot: everything a request is judged by, immutable and in memory.

mod keeper;

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, LimitId, PlanId, PriceId, TenantId, UpstreamId};
use domain::key_rules::KeyRules;
use domain::key_text::SecretHash;
use domain::limits::{Class, Limit, Scope, Target, effective};
use domain::policy::{Key, KeySecret, Model, Plan, PolicyChanges, Settings, Tenant, Upstream};
use domain::prices::Price;
use domain::priority::Priority;
use limits::ScopeLimits;
use uuid::Uuid;

pub use keeper::{KeeperError, PolicyKeeper, VERSION_INTERVAL_MS};

/// The ceiling of a tenant that states none and has no plan.
pub const DEFAULT_PRIORITY_CEILING: Priority = Priority::High;

/// Opens an upstream's sealed credential.
pub type OpenCredential = Arc<dyn Fn(&Upstream) -> Option<Arc<str>> + Send + Sync>;

/// One version of the policy, ready to be asked.
pub struct PolicySnapshot {
    /// Its version.
    pub version: i64,
    /// The version that came with the last adjustment of the ledger.
    pub adjusted_version: i64,
    /// Settings of the installation.
    pub settings: Settings,
    keys: Arc<HashMap<SecretHash, Arc<Key>>>,
    keys_by_id: Arc<HashMap<KeyId, Arc<Key>>>,
    tenants: HashMap<TenantId, Arc<TenantPolicy>>,
    models: HashMap<String, Arc<ModelPolicy>>,
    upstreams: HashMap<UpstreamId, Arc<UpstreamPolicy>>,
    limits: HashMap<Target, Arc<[Limit]>>,
    no_limits: Arc<[Limit]>,
}

/// A tenant with what follows from its plan.
#[derive(Debug)]
pub struct TenantPolicy {
    /// The tenant.
    pub tenant: Tenant,
    /// The highest priority its keys run at.
    pub priority_ceiling: Priority,
    own: ScopeLimits,
    every_user: Arc<[Limit]>,
    every_end_user: Arc<[Limit]>,
    every_key: Arc<[Limit]>,
}

/// A model with its prices and the scopes it counts in.
#[derive(Debug)]
pub struct ModelPolicy {
    /// The model.
    pub model: Model,
    prices: Vec<Price>,
    scopes: Vec<ScopeLimits>,
}

/// An upstream with its opened credential.
pub struct UpstreamPolicy {
    /// The upstream.
    pub upstream: Upstream,
    /// The credential in clear; absent when it wants none or when it could not be opened.
    pub credential: Option<Arc<str>>,
    /// Its account's limits.
    pub scope: ScopeLimits,
}

/// Whom a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestUser {
    /// The person who owns the key.
    Owner(Arc<str>),
    /// Somebody whom an application's key names.
    EndUser(Arc<str>),
    /// Nobody in particular.
    Nobody,
}

impl RequestUser {
    /// The user's id within the tenant.
    pub fn id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Owner(id) | Self::EndUser(id) => Some(id),
            Self::Nobody => None,
        }
    }

    /// The user whom this id of a scope stands for: end users are never counted under a person's id.
    pub(crate) fn of_id(id: &Arc<str>) -> Self {
        if is_person_id(id) {
            Self::Owner(Arc::clone(id))
        } else {
            Self::EndUser(Arc::clone(id))
        }
    }
}

/// Whether this is how a person's id is written.
pub(crate) fn is_person_id(text: &str) -> bool {
    Uuid::try_parse(text).is_ok_and(|id| id.to_string() == text)
}

impl ModelPolicy {
    /// The price of a request admitted at `admitted_at`; of several valid ones, the one that began last.
    pub fn price_at(&self, admitted_at: DateTime<Utc>) -> Option<&Price> {
        self.prices
            .iter()
            .filter(|price| price.is_valid_at(admitted_at))
            .max_by_key(|price| price.valid_from)
    }
}

impl TenantPolicy {
    /// The rules that a key of this tenant is under: those for people's keys, and none for a service account's.
    fn rules_for(&self, key: &Key) -> Option<&KeyRules> {
        key.owner_id.map(|_| &self.tenant.key_rules)
    }

    /// The highest priority that this key of the tenant may run at, whatever it was given before a rule became narrower.
    pub fn ceiling_of(&self, key: &Key) -> Priority {
        let ruled = self.rules_for(key).and_then(|rules| rules.priority_ceiling);
        ruled.map_or(self.priority_ceiling, |most| most.min(self.priority_ceiling))
    }

    /// The models that this key of the tenant may use, where it or the rules name them; all when absent.
    pub fn models_named_for<'a>(&'a self, key: &'a Key) -> Option<Vec<&'a str>> {
        let ruled = self.rules_for(key).and_then(|rules| rules.models.as_ref());
        let names = key.allowed_models.as_ref().or(ruled)?;
        let names = names.iter().map(String::as_str);
        Some(names.filter(|name| self.lets_use(key, name)).collect())
    }

    /// Whether this key of the tenant may use `model`, by its own list and by the rules.
    pub fn lets_use(&self, key: &Key, model: &str) -> bool {
        key.allows_model(model) && self.rules_for(key).is_none_or(|rules| rules.allow_model(model))
    }
}

impl PolicySnapshot {
    /// The key with this secret, if it is valid at `at`, and the secret.
    pub fn find_key(&self, hash: &SecretHash, at: DateTime<Utc>) -> Option<(&Arc<Key>, &KeySecret)> {
        let key = self.keys.get(hash)?;
        let secret = key.secrets.iter().find(|secret| secret.hash == *hash)?;
        let is_valid = secret.valid_until.is_none_or(|until| at < until);
        is_valid.then_some((key, secret))
    }

    /// A key, whatever its secrets.
    pub fn find_key_by_id(&self, id: KeyId) -> Option<&Arc<Key>> {
        self.keys_by_id.get(&id)
    }

    /// A tenant.
    pub fn find_tenant(&self, id: TenantId) -> Option<&Arc<TenantPolicy>> {
        self.tenants.get(&id)
    }

    /// A model that is not disabled.
    pub fn find_model(&self, name: &str) -> Option<&Arc<ModelPolicy>> {
        self.models.get(name).filter(|entry| entry.model.disabled_at.is_none())
    }

    /// Models that `key` of `tenant` may use, by name.
    pub fn models_of(&self, key: &Key, tenant: &TenantPolicy) -> Vec<&Arc<ModelPolicy>> {
        let mut models: Vec<_> = self
            .models
            .values()
            .filter(|entry| entry.model.disabled_at.is_none() && tenant.lets_use(key, &entry.model.name))
            .collect();
        models.sort_by(|one, other| one.model.name.cmp(&other.model.name));
        models
    }

    /// An upstream that is not disabled.
    pub fn find_upstream(&self, id: UpstreamId) -> Option<&Arc<UpstreamPolicy>> {
        self.upstreams
            .get(&id)
            .filter(|entry| entry.upstream.disabled_at.is_none())
    }

    /// Every upstream, disabled ones among them.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<UpstreamPolicy>> {
        self.upstreams.values()
    }

    /// The scopes a request counts in, in tree order; upstreams apart. Those without limits are among them: a budget
    /// that comes back to a scope is known to have been away.
    pub fn scopes(
        &self,
        key: &Key,
        tenant: &TenantPolicy,
        user: &RequestUser,
        model: &ModelPolicy,
    ) -> Vec<ScopeLimits> {
        let mut scopes = Vec::with_capacity(6);
        scopes.push(self.node_or_classes(Scope::Global, &[&self.no_limits]));
        scopes.extend(model.scopes.iter().cloned());
        scopes.push(tenant.own.clone());
        scopes.extend(self.user_scope(tenant, user));
        scopes.push(self.key_node(key, tenant));
        scopes
    }

    /// One node with the limits in force on it, of its own and of its class; none where it is not known.
    pub fn limits_on(&self, scope: &Scope) -> ScopeLimits {
        let known = match scope {
            Scope::Global | Scope::ModelGroup(_) | Scope::Model(_) | Scope::Upstream(_) => None,
            Scope::Tenant(id) => self.tenants.get(id).map(|tenant| tenant.own.clone()),
            Scope::User(id, user) => self
                .tenants
                .get(id)
                .and_then(|tenant| self.user_scope(tenant, &RequestUser::of_id(user))),
            Scope::Key(id) => self.keys_by_id.get(id).and_then(|key| {
                let tenant = self.tenants.get(&key.tenant_id)?;
                Some(self.key_node(key, tenant))
            }),
        };
        known.unwrap_or_else(|| self.node_or_classes(scope.clone(), &[&self.no_limits]))
    }

    /// The same as operators have set it: what the owner of a key holds it below is nothing that operators are told of.
    pub fn limits_set_on(&self, scope: &Scope) -> ScopeLimits {
        let key = match scope {
            Scope::Key(id) => self.keys_by_id.get(id).filter(|key| !key.own_limits.are_none()),
            _ => None,
        };
        let tenant = key.and_then(|key| self.tenants.get(&key.tenant_id));
        match (key, tenant) {
            (Some(key), Some(tenant)) => {
                let node = self.node_or_classes(scope.clone(), &[&tenant.every_key]);
                ScopeLimits::of_key(key.id, key.tenant_id, node.limits)
            }
            _ => self.limits_on(scope),
        }
    }

    /// Every limit in force with the node it sits on, classes spread over the nodes that are known: what budgets are
    /// loaded for and the quota tree shows.
    pub fn known_scopes(&self) -> Vec<ScopeLimits> {
        let mut scopes: Vec<ScopeLimits> = Vec::new();
        if let Some(limits) = self.limits.get(&Target::Node(Scope::Global)) {
            scopes.push(ScopeLimits::new(Scope::Global, Arc::clone(limits)));
        }
        for model in self.models.values() {
            for scope in &model.scopes {
                if !scopes.iter().any(|known| known.scope == scope.scope) {
                    scopes.push(scope.clone());
                }
            }
        }
        scopes.extend(self.tenants.values().map(|tenant| tenant.own.clone()));
        let mut users: HashMap<Scope, ScopeLimits> = HashMap::new();
        let mut keys: HashMap<KeyId, ScopeLimits> = HashMap::new();
        for key in self.keys.values() {
            let Some(tenant) = self.tenants.get(&key.tenant_id) else {
                continue;
            };
            if let Some(owner) = key.owner_id {
                let scope = Scope::User(key.tenant_id, owner.to_string().into());
                users
                    .entry(scope.clone())
                    .or_insert_with(|| self.node_or_classes(scope, &[&tenant.every_user]));
            }
            keys.entry(key.id).or_insert_with(|| self.key_node(key, tenant));
        }
        // Users with limits of their own who own no key.
        for (target, limits) in &self.limits {
            if let Target::Node(scope @ Scope::User(..)) = target {
                users
                    .entry(scope.clone())
                    .or_insert_with(|| ScopeLimits::new(scope.clone(), Arc::clone(limits)));
            }
        }
        scopes.extend(users.into_values());
        scopes.extend(keys.into_values());
        scopes.extend(self.upstreams.values().map(|upstream| upstream.scope.clone()));
        scopes.retain(|scope| !scope.limits.is_empty());
        scopes
    }

    /// The models of a group: what a group's budget sums over.
    pub fn models_in_group(&self, group: &str) -> Vec<String> {
        self.models
            .values()
            .filter(|entry| entry.model.group.as_deref() == Some(group))
            .map(|entry| entry.model.name.clone())
            .collect()
    }

    fn user_scope(&self, tenant: &TenantPolicy, user: &RequestUser) -> Option<ScopeLimits> {
        let scope = Scope::User(tenant.tenant.id, Arc::clone(user.id()?));
        Some(match user {
            RequestUser::EndUser(_) => self.node_or_classes(scope, &[&tenant.every_end_user, &tenant.every_user]),
            RequestUser::Owner(_) | RequestUser::Nobody => self.node_or_classes(scope, &[&tenant.every_user]),
        })
    }

    fn key_node(&self, key: &Key, tenant: &TenantPolicy) -> ScopeLimits {
        let node = self.node_or_classes(Scope::Key(key.id), &[&tenant.every_key]);
        // The common case costs no allocation.
        let limits = match key.own_limits.are_none() {
            true => node.limits,
            false => key.own_limits.lower(key.id, &node.limits).into(),
        };
        ScopeLimits::of_key(key.id, key.tenant_id, limits)
    }

    fn node_or_classes(&self, scope: Scope, classes: &[&Arc<[Limit]>]) -> ScopeLimits {
        let own = self.limits.get(&Target::Node(scope.clone()));
        let limits = match (own, classes) {
            // The common case costs no allocation.
            (None, [only]) => Arc::clone(only),
            (None, [first, second]) if first.is_empty() => Arc::clone(second),
            _ => effective(own.into_iter().chain(classes.iter().copied()).map(|limits| &limits[..])).into(),
        };
        ScopeLimits::new(scope, limits)
    }
}

/// The rows a snapshot is built from, brought up to date by changes.
#[derive(Default)]
pub struct PolicyRows {
    version: i64,
    adjusted_version: i64,
    settings: Option<Settings>,
    tenants: HashMap<TenantId, Tenant>,
    plans: HashMap<PlanId, Plan>,
    keys: Arc<HashMap<KeyId, Arc<Key>>>,
    keys_by_hash: Arc<HashMap<SecretHash, Arc<Key>>>,
    models: HashMap<String, Model>,
    prices: HashMap<PriceId, Price>,
    upstreams: HashMap<UpstreamId, Upstream>,
    limits: HashMap<LimitId, Limit>,
}

impl PolicyRows {
    /// The version they are at.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Takes in newer rows. Taking the same ones twice changes nothing.
    pub fn apply(&mut self, changes: PolicyChanges) {
        self.version = changes.version;
        self.adjusted_version = changes.adjusted_version;
        self.settings = Some(changes.settings);
        for tenant in changes.tenants {
            if tenant.removed_at.is_some() {
                self.tenants.remove(&tenant.id);
            } else {
                self.tenants.insert(tenant.id, tenant);
            }
        }
        for plan in changes.plans {
            if plan.removed_at.is_some() {
                self.plans.remove(&plan.id);
            } else {
                self.plans.insert(plan.id, plan);
            }
        }
        if !changes.keys.is_empty() {
            self.apply_keys(changes.keys);
        }
        for model in changes.models {
            self.models.insert(model.name.clone(), model);
        }
        for row in changes.prices {
            if row.removed_at.is_some() {
                self.prices.remove(&row.price.id);
            } else {
                self.prices.insert(row.price.id, row.price);
            }
        }
        for upstream in changes.upstreams {
            self.upstreams.insert(upstream.id, upstream);
        }
        for row in changes.limits {
            if row.removed_at.is_some() {
                self.limits.remove(&row.limit.id);
            } else {
                self.limits.insert(row.limit.id, row.limit);
            }
        }
    }

    fn apply_keys(&mut self, changed: Vec<Key>) {
        let mut by_hash = HashMap::clone(&self.keys_by_hash);
        let mut by_id = HashMap::clone(&self.keys);
        for key in changed {
            let key = Arc::new(key);
            if let Some(before) = by_id.insert(key.id, Arc::clone(&key)) {
                for secret in &before.secrets {
                    by_hash.remove(&secret.hash);
                }
            }
            for secret in &key.secrets {
                by_hash.insert(secret.hash, Arc::clone(&key));
            }
        }
        self.keys_by_hash = Arc::new(by_hash);
        self.keys = Arc::new(by_id);
    }

    /// Everything as one change from nothing: what is kept on disk for a start without Postgres. `None` before the first.
    pub fn whole(&self) -> Option<PolicyChanges> {
        Some(PolicyChanges {
            version: self.version,
            adjusted_version: self.adjusted_version,
            settings: self.settings.clone()?,
            tenants: self.tenants.values().cloned().collect(),
            plans: self.plans.values().cloned().collect(),
            keys: self.keys.values().map(|key| Key::clone(key)).collect(),
            models: self.models.values().cloned().collect(),
            prices: self
                .prices
                .values()
                .map(|price| domain::policy::PriceRow {
                    price: price.clone(),
                    removed_at: None,
                })
                .collect(),
            upstreams: self.upstreams.values().cloned().collect(),
            limits: self
                .limits
                .values()
                .map(|limit| domain::policy::LimitRow {
                    limit: limit.clone(),
                    removed_at: None,
                })
                .collect(),
        })
    }

    /// The snapshot of these rows; `None` before the first.
    pub fn snapshot(&self, open_credential: &OpenCredential) -> Option<PolicySnapshot> {
        let settings = self.settings.clone()?;
        let mut by_target: HashMap<Target, Vec<Limit>> = HashMap::new();
        for limit in self.limits.values() {
            by_target.entry(limit.target.clone()).or_default().push(limit.clone());
        }
        let limits: HashMap<Target, Arc<[Limit]>> = by_target
            .into_iter()
            .map(|(target, mut limits)| {
                // One order everywhere, so that two builds of the same rows answer alike.
                limits.sort_by_key(|limit| (limit.dimension, limit.period, limit.window_seconds, limit.id));
                (target, limits.into())
            })
            .collect();
        let node = |scope: Scope| {
            let own = limits.get(&Target::Node(scope.clone())).cloned();
            ScopeLimits::new(scope, own.unwrap_or_else(|| Arc::from([])))
        };
        let mut prices: HashMap<&str, Vec<Price>> = HashMap::new();
        for price in self.prices.values() {
            prices.entry(&price.model).or_default().push(price.clone());
        }
        let models = self
            .models
            .values()
            .map(|model| {
                let group = model
                    .group
                    .iter()
                    .map(|group| node(Scope::ModelGroup(Arc::clone(group))));
                let scopes = group.chain([node(Scope::Model(model.name.as_str().into()))]).collect();
                let prices = prices.remove(model.name.as_str()).unwrap_or_default();
                (
                    model.name.clone(),
                    Arc::new(ModelPolicy {
                        model: model.clone(),
                        prices,
                        scopes,
                    }),
                )
            })
            .collect();
        let upstreams = self
            .upstreams
            .values()
            .map(|upstream| {
                let entry = UpstreamPolicy {
                    credential: open_credential(upstream),
                    scope: node(Scope::Upstream(upstream.id)),
                    upstream: upstream.clone(),
                };
                (upstream.id, Arc::new(entry))
            })
            .collect();
        let tenants = self
            .tenants
            .values()
            .map(|tenant| (tenant.id, Arc::new(self.tenant_policy(tenant, &limits))))
            .collect();
        Some(PolicySnapshot {
            version: self.version,
            adjusted_version: self.adjusted_version,
            settings,
            keys: Arc::clone(&self.keys_by_hash),
            keys_by_id: Arc::clone(&self.keys),
            tenants,
            models,
            upstreams,
            limits,
            no_limits: Arc::from([]),
        })
    }

    fn tenant_policy(&self, tenant: &Tenant, limits: &HashMap<Target, Arc<[Limit]>>) -> TenantPolicy {
        let plan = tenant.plan_id.and_then(|id| self.plans.get(&id));
        let of = |target: Target| limits.get(&target);
        let class = |class: Class| -> Arc<[Limit]> {
            let own = of(Target::OfTenant(tenant.id, class));
            let plan = plan.and_then(|plan| of(Target::OfPlan(plan.id, class)));
            effective(own.into_iter().chain(plan).map(|limits| &limits[..])).into()
        };
        let scope = Scope::Tenant(tenant.id);
        let own = of(Target::Node(scope.clone()));
        let of_plan = plan.and_then(|plan| of(Target::OfPlan(plan.id, Class::Tenant)));
        TenantPolicy {
            priority_ceiling: tenant
                .priority_ceiling
                .or(plan.map(|plan| plan.priority_ceiling))
                .unwrap_or(DEFAULT_PRIORITY_CEILING),
            own: ScopeLimits::new(
                scope,
                effective(own.into_iter().chain(of_plan).map(|limits| &limits[..])).into(),
            ),
            every_user: class(Class::User),
            every_end_user: class(Class::EndUser),
            every_key: class(Class::Key),
            tenant: tenant.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
