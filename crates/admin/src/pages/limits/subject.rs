//! What a node or class is called, and where it lives in the console.

use domain::limits::{Class, Scope, Target};

use crate::error::PageError;
use crate::terms;
use crate::visit::{Visit, Visitor, address};

/// What a node is called, and where it lives in the console.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) explanation: &'static str,
    pub(super) href: String,
    /// Whose children it belongs to, and what kind of child it is.
    pub(super) parent: Option<(Scope, Class)>,
}

/// Finds it; only what the visitor may see.
pub(super) async fn subject(visit: &Visit, visitor: &Visitor, target: &Target) -> Result<Subject, PageError> {
    let control = &visit.state.control;
    let node = |name: String, href: String, parent: Option<(Scope, Class)>| Subject {
        name,
        explanation: t!("They hold beside those of everything above and below it: the tightest decides."),
        href,
        parent,
    };
    let class = |name: String, href: String, parent: Option<(Scope, Class)>| Subject {
        name,
        explanation: t!("They hold for each of them on its own. One that has a limit of its own keeps that instead."),
        href,
        parent,
    };
    Ok(match target {
        Target::Node(Scope::Global) => node(t!("the whole installation").to_owned(), "/status".to_owned(), None),
        Target::Node(Scope::Model(name)) => {
            let href = address("/models/edit", &[("name", name)]);
            node(t!("the model {model}", model = name), href, None)
        }
        Target::Node(Scope::ModelGroup(group)) => node(t!("the models of {group}", group), "/models".to_owned(), None),
        Target::Node(Scope::Key(id)) => {
            let key = control.key(&visitor.actor, *id).await?;
            let parent = (Scope::Tenant(key.tenant_id), Class::Key);
            node(t!("the key {key}", key = key.name), format!("/keys/{id}"), Some(parent))
        }
        Target::Node(Scope::Upstream(id)) => {
            let upstream = control.upstream(&visitor.actor, *id).await?;
            let href = format!("/upstreams/{id}");
            node(t!("the upstream {upstream}", upstream = upstream.name), href, None)
        }
        Target::Node(Scope::User(tenant, user)) => {
            let person = match user.parse() {
                Ok(id) => control.person_by_id(id).await?,
                Err(_) => None,
            };
            let name = person
                .filter(|person| person.tenant_id == Some(*tenant))
                .map_or_else(|| user.to_string(), |person| person.name);
            let parent = (Scope::Tenant(*tenant), Class::User);
            let href = if visitor.is_member() {
                "/".to_owned()
            } else {
                format!("/tenants/{tenant}")
            };
            node(t!("the user {user}", user = name), href, Some(parent))
        }
        Target::Node(Scope::Tenant(id)) => {
            let tenant = control.tenant(&visitor.actor, *id, visit.now()).await?;
            let parent = (Scope::Global, Class::Tenant);
            let href = format!("/tenants/{id}");
            node(
                t!("the tenant {tenant}", tenant = tenant.row.tenant.name),
                href,
                Some(parent),
            )
        }
        Target::OfTenant(id, each) => {
            let tenant = control.tenant(&visitor.actor, *id, visit.now()).await?;
            let name = t!(
                "each {class} of {tenant}",
                class = terms::class(*each),
                tenant = tenant.row.tenant.name
            );
            class(name, format!("/tenants/{id}"), None)
        }
        Target::OfPlan(id, each) => {
            let plan = control.plan(&visitor.actor, *id).await?;
            let parent = (*each == Class::Tenant).then_some((Scope::Global, Class::Tenant));
            let name = t!(
                "each {class} on the plan {plan}",
                class = terms::class(*each),
                plan = plan.row.plan.name
            );
            class(name, format!("/plans/{id}"), parent)
        }
    })
}
