//! The quota tree with what is used of it now: all of it for those who see everything, a manager's own tenant, a member's
//! own keys.
//!
//! A page of it is bounded: so many nodes of a kind, found by name; a tenant opens to what is below it.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use domain::ids::{PersonId, TenantId};
use domain::key_text::masked;
use domain::limits::{Mode, Scope};
use domain::readings::{CounterStore, LiveLimit, Readings};
use domain::text;
use domain::text::Text;
use store::keys::{KEYS_PAGE_MAX, KeyFilter, KeyRow};
use store::tenants::TenantRow;

use crate::actor::Reach;
use crate::live::SCOPES_READ_MAX;
use crate::oversubscription::Oversubscription;
use crate::plans::LimitSources;
use crate::{Actor, Control, ControlError};

/// Nodes of one kind on a page, at most.
pub const NODES_SHOWN_MAX: usize = 50;
/// Limits that are named as the tightest.
pub const TIGHTEST_SHOWN: usize = 5;

/// What to show of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFilter {
    /// This tenant with its users and keys, instead of the installation.
    pub open: Option<TenantId>,
    /// Only nodes with this in their name, without regard to case; all where it is blank.
    pub containing: String,
}

/// A part of the tree at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaTree {
    /// Who counted.
    pub store: CounterStore,
    /// When it was read.
    pub at: DateTime<Utc>,
    /// The fullest enforced limits of all nodes that were read, shown or not, the fullest first.
    pub tightest: Vec<TightLimit>,
    /// Nodes that were too many to be read.
    pub unread: usize,
    /// What is shown.
    pub part: TreePart,
}

/// Which part it is.
#[derive(Clone, Debug, PartialEq)]
pub enum TreePart {
    /// Everything that tenants share, and the tenants.
    Installation {
        /// The root; it may have no limits.
        global: Node,
        /// Groups of models with limits, then models with limits.
        models: Nodes,
        /// Upstreams with limits: the account side.
        upstreams: Nodes,
        /// All tenants, with limits or without: they open.
        tenants: Nodes,
    },
    /// One tenant and what is below it.
    Tenant {
        /// The tenant.
        tenant: Node,
        /// What it and each node below it may use, own and of its plan.
        sources: Vec<LimitSources>,
        /// Users with limits.
        users: Nodes,
        /// Keys with limits.
        keys: Nodes,
    },
    /// A member's own.
    Own {
        /// The member as a user, if that has limits.
        users: Nodes,
        /// Their keys with limits.
        keys: Nodes,
    },
}

/// Nodes of one kind, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes {
    /// At most [`NODES_SHOWN_MAX`].
    pub shown: Vec<Node>,
    /// How many more there are of those that were read.
    pub left_out: usize,
}

/// A node with its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Which one.
    pub scope: Scope,
    /// What it is called.
    pub name: Text,
    /// What else there is to say, in a few words.
    pub remark: Option<Text>,
    /// The limits in force on it.
    pub limits: Vec<LiveLimit>,
    /// Where its children may together use more than it has.
    pub oversubscribed: Vec<Oversubscription>,
}

/// A limit that is among the tightest.
#[derive(Clone, Debug, PartialEq)]
pub struct TightLimit {
    /// On which node.
    pub scope: Scope,
    /// What that is called.
    pub name: Text,
    /// The limit.
    pub limit: LiveLimit,
}

impl Control {
    /// The part of the tree that is asked for, read now. Members and managers have their own and nothing else to choose.
    pub async fn quota_tree(
        &self,
        actor: &Actor,
        filter: &TreeFilter,
        now: DateTime<Utc>,
    ) -> Result<QuotaTree, ControlError> {
        match (actor.reach()?, filter.open) {
            (Reach::Everything, None) => self.installation(actor, filter, now).await,
            (Reach::Everything, Some(tenant)) => self.open_tenant(actor, tenant, filter, now).await,
            (Reach::Tenant(own), open) if open.is_none_or(|open| open == own) => {
                self.open_tenant(actor, own, filter, now).await
            }
            (Reach::Own(own, person), open) if open.is_none_or(|open| open == own) => {
                self.own(own, person, filter, now).await
            }
            (Reach::Tenant(_) | Reach::Own(..), _) => Err(ControlError::NotFound { what: "tenant" }),
        }
    }

    async fn installation(
        &self,
        actor: &Actor,
        filter: &TreeFilter,
        now: DateTime<Utc>,
    ) -> Result<QuotaTree, ControlError> {
        let models = self.store.models(now).await?;
        let mut groups: BTreeSet<&str> = BTreeSet::new();
        groups.extend(models.iter().filter_map(|row| row.model.group.as_deref()));
        let mut shared: Vec<Named> = groups
            .into_iter()
            .map(|group| {
                let remark = text!("group of models");
                Named::new(Scope::ModelGroup(group.into()), Text::word(group), Some(remark))
            })
            .collect();
        shared.extend(models.iter().map(|row| {
            let (name, remark) = (&row.model.name, row.model.disabled_at.map(|_| text!("disabled")));
            Named::new(Scope::Model(name.as_str().into()), Text::word(name), remark)
        }));
        let upstreams = self.store.upstreams().await?;
        let upstreams = upstreams.iter().map(|row| {
            let remark = row.disabled_at.map(|_| text!("disabled"));
            Named::new(Scope::Upstream(row.id), Text::word(&row.name), remark)
        });
        let upstreams: Vec<Named> = upstreams.collect();
        let tenants: Vec<Named> = self.store.tenants().await?.iter().map(named_tenant).collect();
        let mut reading = Reading::new(&filter.containing);
        let root = Named::new(Scope::Global, text!("The installation"), None);
        reading.want(vec![root], true);
        for wanted in [shared, upstreams, tenants] {
            reading.want(wanted, false);
        }
        let mut read = reading.read(self, &self.oversubscriptions(actor, now).await?).await?;
        let global = read.take(|scope| matches!(scope, Scope::Global));
        let models = read.take(|scope| matches!(scope, Scope::ModelGroup(_) | Scope::Model(_)));
        let upstreams = read.take(|scope| matches!(scope, Scope::Upstream(_)));
        let tenants = read.take(|scope| matches!(scope, Scope::Tenant(_)));
        Ok(read.tree(TreePart::Installation {
            global: global
                .into_iter()
                .next()
                .ok_or(ControlError::NotFound { what: "node" })?,
            models: Nodes::with_limits(models),
            upstreams: Nodes::with_limits(upstreams),
            tenants: Nodes::of(tenants),
        }))
    }

    async fn open_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        filter: &TreeFilter,
        now: DateTime<Utc>,
    ) -> Result<QuotaTree, ControlError> {
        const NO_TENANT: ControlError = ControlError::NotFound { what: "tenant" };
        let row = self.store.find_tenant(id).await?.ok_or(NO_TENANT)?;
        let sources = self.limit_sources(actor, id).await?;
        let people = self.store.people(Some(id)).await?;
        let keys = self.keys_in_force(id, None, filter, now).await?;
        let most = i64::try_from(SCOPES_READ_MAX).unwrap_or(i64::MAX);
        let with_limits = self.store.users_with_limits(id, most).await?;
        let mut names: HashMap<String, (String, Text)> = people
            .into_iter()
            .filter(|person| person.disabled_at.is_none())
            .map(|person| (person.id.to_string(), (person.name, Text::word(person.email))))
            .collect();
        for user in with_limits {
            names.entry(user.clone()).or_insert((user, text!("end user")));
        }
        let users = names
            .into_iter()
            .map(|(user, (name, remark))| Named::new(Scope::User(id, user.into()), Text::word(name), Some(remark)));
        let mut users: Vec<Named> = users.collect();
        users.sort_by_key(Named::in_lower_case);
        let mut reading = Reading::new(&filter.containing);
        reading.want(vec![named_tenant(&row)], true);
        // Found by name already, also by their owners'.
        reading.want(keys, true);
        reading.want(users, false);
        let mut read = reading.read(self, &self.oversubscriptions(actor, now).await?).await?;
        let tenant = read.take(|scope| matches!(scope, Scope::Tenant(_)));
        let (users, keys) = (read.take(is_user), read.take(is_key));
        Ok(read.tree(TreePart::Tenant {
            tenant: tenant.into_iter().next().ok_or(NO_TENANT)?,
            sources,
            users: Nodes::with_limits(users),
            keys: Nodes::with_limits(keys),
        }))
    }

    async fn own(
        &self,
        tenant: TenantId,
        person: PersonId,
        filter: &TreeFilter,
        now: DateTime<Utc>,
    ) -> Result<QuotaTree, ControlError> {
        let mut reading = Reading::new(&filter.containing);
        let user = Scope::User(tenant, person.to_string().into());
        let you = Named::new(user, text!("You"), Some(text!("all your keys together")));
        reading.want(vec![you], true);
        reading.want(self.keys_in_force(tenant, Some(person), filter, now).await?, true);
        let mut read = reading.read(self, &[]).await?;
        let (users, keys) = (read.take(is_user), read.take(is_key));
        Ok(read.tree(TreePart::Own {
            users: Nodes::with_limits(users),
            keys: Nodes::with_limits(keys),
        }))
    }

    /// The newest keys that requests may use, by name.
    async fn keys_in_force(
        &self,
        tenant: TenantId,
        owner: Option<PersonId>,
        filter: &TreeFilter,
        now: DateTime<Utc>,
    ) -> Result<Vec<Named>, ControlError> {
        let filter = KeyFilter {
            tenant_id: Some(tenant),
            owner_id: owner,
            containing: Some(filter.containing.trim().to_owned()).filter(|text| !text.is_empty()),
            count: KEYS_PAGE_MAX,
            ..KeyFilter::default()
        };
        let mut keys = self.store.keys(&filter).await?;
        keys.retain(|key| key.expires_at.is_none_or(|at| now < at));
        keys.sort_by_key(|key| key.name.to_lowercase());
        Ok(keys.iter().map(named_key).collect())
    }
}

fn is_user(scope: &Scope) -> bool {
    matches!(scope, Scope::User(..))
}

fn is_key(scope: &Scope) -> bool {
    matches!(scope, Scope::Key(_))
}

/// A node that is to be read.
#[derive(Clone, Debug)]
struct Named {
    scope: Scope,
    name: Text,
    remark: Option<Text>,
}

impl Named {
    fn new(scope: Scope, name: Text, remark: Option<Text>) -> Self {
        Self { scope, name, remark }
    }

    /// The name, to be compared without regard to case.
    fn in_lower_case(&self) -> String {
        self.name.to_string().to_lowercase()
    }
}

fn named_tenant(row: &TenantRow) -> Named {
    let remark = match (row.tenant.suspended_at, &row.plan_name) {
        (Some(_), _) => Some(text!("suspended")),
        (None, Some(plan)) => Some(text!("plan {plan}", plan)),
        (None, None) => None,
    };
    Named::new(Scope::Tenant(row.tenant.id), Text::word(&row.tenant.name), remark)
}

fn named_key(key: &KeyRow) -> Named {
    let owner = match &key.owner_name {
        Some(owner) => Text::word(owner),
        None => text!("service account"),
    };
    let remark = text!("{key}, {owner}", key = masked(&key.public_id), owner);
    Named::new(Scope::Key(key.id), Text::word(&key.name), Some(remark))
}

/// The nodes that are read together: what matches, as far as one reading goes.
struct Reading {
    containing: String,
    wanted: Vec<Named>,
    unread: usize,
}

impl Reading {
    fn new(containing: &str) -> Self {
        Self {
            containing: containing.trim().to_lowercase(),
            wanted: Vec::new(),
            unread: 0,
        }
    }

    /// Adds nodes, those only that match unless all of them do.
    fn want(&mut self, mut nodes: Vec<Named>, matches: bool) {
        if !matches {
            nodes.retain(|node| node.in_lower_case().contains(&self.containing));
        }
        let room = SCOPES_READ_MAX.saturating_sub(self.wanted.len());
        self.unread += nodes.len().saturating_sub(room);
        nodes.truncate(room);
        self.wanted.append(&mut nodes);
    }

    async fn read(self, control: &Control, oversubscribed: &[Oversubscription]) -> Result<Read, ControlError> {
        let scopes = self.wanted.iter().map(|node| node.scope.clone()).collect();
        let Readings { store, at, limits } = control.live.readings(scopes).await?;
        let mut by_scope: HashMap<Scope, Vec<LiveLimit>> = HashMap::new();
        for live in limits {
            by_scope.entry(live.reading.scope.clone()).or_default().push(live);
        }
        let nodes = self.wanted.into_iter().map(|node| Node {
            limits: by_scope.remove(&node.scope).unwrap_or_default(),
            oversubscribed: oversubscribed
                .iter()
                .filter(|found| found.parent == node.scope)
                .cloned()
                .collect(),
            scope: node.scope,
            name: node.name,
            remark: node.remark,
        });
        let nodes: Vec<Node> = nodes.collect();
        Ok(Read {
            store,
            at,
            tightest: tightest(&nodes),
            unread: self.unread,
            nodes,
        })
    }
}

struct Read {
    store: CounterStore,
    at: DateTime<Utc>,
    tightest: Vec<TightLimit>,
    unread: usize,
    nodes: Vec<Node>,
}

impl Read {
    fn take(&mut self, is_wanted: impl Fn(&Scope) -> bool) -> Vec<Node> {
        self.nodes.extract_if(.., |node| is_wanted(&node.scope)).collect()
    }

    fn tree(self, part: TreePart) -> QuotaTree {
        QuotaTree {
            store: self.store,
            at: self.at,
            tightest: self.tightest,
            unread: self.unread,
            part,
        }
    }
}

impl Nodes {
    fn of(mut nodes: Vec<Node>) -> Self {
        let left_out = nodes.len().saturating_sub(NODES_SHOWN_MAX);
        nodes.truncate(NODES_SHOWN_MAX);
        Self { shown: nodes, left_out }
    }

    fn with_limits(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| !node.limits.is_empty());
        Self::of(nodes)
    }
}

/// The fullest limits that refuse and of which something is used. One of zero is full by intention.
fn tightest(nodes: &[Node]) -> Vec<TightLimit> {
    let mut all: Vec<(&Node, &LiveLimit)> = nodes
        .iter()
        .flat_map(|node| node.limits.iter().map(move |live| (node, live)))
        .filter(|(_, live)| {
            live.limit.mode == Mode::Enforce
                && live.limit.value > 0
                && live.reading.is_known
                && live.reading.utilisation_percent > 0.0
        })
        .collect();
    all.sort_by(|(_, one), (_, other)| {
        let (one, other) = (one.reading.utilisation_percent, other.reading.utilisation_percent);
        other.total_cmp(&one)
    });
    all.truncate(TIGHTEST_SHOWN);
    all.into_iter()
        .map(|(node, live)| TightLimit {
            scope: node.scope.clone(),
            name: node.name.clone(),
            limit: live.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
