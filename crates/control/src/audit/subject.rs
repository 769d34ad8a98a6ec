//! What an audit entry is about, read from its text.

use domain::ids::{ManagementTokenId, PersonId, PlanId, RequestId, TenantId};
use domain::limits::{Class, Scope, Target};
use store::audit::NamedKind;
use uuid::Uuid;

/// What an entry is about. Limits sit on the thing itself, so that a key's limits and the key are one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditSubject {
    /// A node of the quota tree, or each node of a class below a tenant or plan.
    Target(Target),
    /// A plan.
    Plan(PlanId),
    /// A person.
    Person(PersonId),
    /// A management token.
    ManagementToken(ManagementTokenId),
    /// A request that was adjusted.
    Request(RequestId),
    /// The installation's settings.
    Settings,
    /// The webhook for alerts.
    Webhook,
    /// Anything else, as it was written.
    Other(String),
}

/// What subjects of classes have between the id and the class.
const EVERY: &str = "/every ";

impl AuditSubject {
    /// Reads it; whatever it is, there is an answer.
    pub fn read(text: &str) -> Self {
        Self::find(text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }

    fn find(text: &str) -> Option<Self> {
        match text {
            "settings" => return Some(Self::Settings),
            "webhook" => return Some(Self::Webhook),
            _ => {}
        }
        if let Ok(scope) = text.parse::<Scope>() {
            return Some(Self::Target(Target::Node(scope)));
        }
        let (kind, id) = text.split_once(':')?;
        Some(match (kind, id.split_once(EVERY)) {
            ("tenant", Some((id, class))) => Self::Target(Target::OfTenant(id.parse().ok()?, class.parse().ok()?)),
            ("plan", Some((id, class))) => Self::Target(Target::OfPlan(id.parse().ok()?, class.parse().ok()?)),
            ("plan", None) => Self::Plan(id.parse().ok()?),
            ("person", _) => Self::Person(id.parse().ok()?),
            ("management_token", _) => Self::ManagementToken(id.parse().ok()?),
            ("request", _) => Self::Request(id.parse().ok()?),
            _ => return None,
        })
    }

    /// The text that entries about it have.
    pub fn text(&self) -> String {
        match self {
            Self::Target(Target::Node(scope)) => scope.to_string(),
            Self::Target(Target::OfTenant(tenant, class)) => format!("tenant:{tenant}{EVERY}{}", class.as_str()),
            Self::Target(Target::OfPlan(plan, class)) => format!("plan:{plan}{EVERY}{}", class.as_str()),
            Self::Plan(id) => format!("plan:{id}"),
            Self::Person(id) => format!("person:{id}"),
            Self::ManagementToken(id) => format!("management_token:{id}"),
            Self::Request(id) => format!("request:{id}"),
            Self::Settings => "settings".to_owned(),
            Self::Webhook => "webhook".to_owned(),
            Self::Other(text) => text.clone(),
        }
    }

    /// The texts of everything that belongs to its history: a tenant's or plan's own, and that of each class below it.
    pub fn history(&self) -> Vec<String> {
        let mut texts = vec![self.text()];
        let below: Option<Box<dyn Fn(Class) -> Self>> = match self {
            Self::Target(Target::Node(Scope::Tenant(tenant))) => {
                let tenant: TenantId = *tenant;
                Some(Box::new(move |class| Self::Target(Target::OfTenant(tenant, class))))
            }
            Self::Plan(plan) => {
                let plan = *plan;
                Some(Box::new(move |class| Self::Target(Target::OfPlan(plan, class))))
            }
            _ => None,
        };
        if let Some(below) = below {
            texts.extend(Class::ALL.into_iter().map(|class| below(class).text()));
        }
        texts
    }

    /// Whose name to look up, if it has one that can change.
    pub(super) fn named(&self) -> Option<(NamedKind, Uuid)> {
        Some(match self {
            Self::Target(Target::Node(Scope::Tenant(id)) | Target::OfTenant(id, _)) => (NamedKind::Tenant, id.0),
            Self::Target(Target::Node(Scope::Key(id))) => (NamedKind::Key, id.0),
            Self::Target(Target::Node(Scope::Upstream(id))) => (NamedKind::Upstream, id.0),
            Self::Target(Target::Node(Scope::User(_, user))) => (NamedKind::Person, user.parse().ok()?),
            Self::Target(Target::OfPlan(id, _)) | Self::Plan(id) => (NamedKind::Plan, id.0),
            Self::Person(id) => (NamedKind::Person, id.0),
            Self::ManagementToken(id) => (NamedKind::ManagementToken, id.0),
            Self::Target(Target::Node(Scope::Global | Scope::Model(_) | Scope::ModelGroup(_)))
            | Self::Request(_)
            | Self::Settings
            | Self::Webhook
            | Self::Other(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests;
