//! What a limit sits on, in words, for lists of limits from all over the quota tree.

use control::priorities::NamedLimit;
use domain::limits::{Scope, Target};

use crate::format;
use crate::pages::limits::slot_name;

/// What the limit sits on: `the key triage of Harbor Support`, `each user of Harbor Support`.
pub fn place_of(named: &NamedLimit) -> String {
    let name = named.name.as_deref();
    match &named.limit.target {
        Target::Node(scope) => node_name(scope, name, named.tenant_name.as_deref()),
        Target::OfTenant(tenant, class) => {
            let tenant = name.map_or_else(|| tenant.to_string(), str::to_owned);
            format!("each {} of {tenant}", format::words(class.as_str()))
        }
        Target::OfPlan(plan, class) => {
            let plan = name.map_or_else(|| plan.to_string(), str::to_owned);
            format!("each {} on the plan {plan}", format::words(class.as_str()))
        }
    }
}

/// A node in words; `name` is what its id is called, `tenant` what the tenant of a user or key is called.
pub fn node_name(scope: &Scope, name: Option<&str>, tenant: Option<&str>) -> String {
    let id = scope.identifier();
    let own = name.unwrap_or(&id);
    let of_tenant = tenant.map(|tenant| format!(" of {tenant}")).unwrap_or_default();
    match scope {
        Scope::Global => "the whole installation".to_owned(),
        Scope::ModelGroup(group) => format!("the models of {group}"),
        Scope::Model(model) => format!("the model {model}"),
        Scope::Tenant(_) => format!("the tenant {own}"),
        Scope::User(_, user) => format!("the user {}{of_tenant}", name.unwrap_or(user)),
        Scope::Key(_) => format!("the key {own}{of_tenant}"),
        Scope::Upstream(_) => format!("the upstream {own}"),
    }
}

/// What it limits: `requests per minute`.
pub fn slot_of(named: &NamedLimit) -> String {
    let name = slot_name(&named.limit.slot());
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_lowercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// A level of the quota tree, by the kind of its scopes.
pub fn level_name(kind: &str) -> &'static str {
    match kind {
        "global" => "The whole installation",
        "models" => "Groups of models",
        "model" => "Models",
        "tenant" => "Tenants",
        "user" => "Users",
        "key" => "Keys",
        "upstream" => "Upstreams",
        _ => "Other",
    }
}
