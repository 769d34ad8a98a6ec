//! What a limit sits on, in words, for lists of limits from all over the quota tree.

use control::priorities::NamedLimit;
use domain::limits::{Scope, Target};

use crate::pages::limits::slot_name;
use crate::terms;

/// What the limit sits on: `the key triage of Harbor Support`, `each user of Harbor Support`.
pub fn place_of(named: &NamedLimit) -> String {
    let name = named.name.as_deref();
    match &named.limit.target {
        Target::Node(scope) => node_name(scope, name, named.tenant_name.as_deref()),
        Target::OfTenant(tenant, class) => {
            let tenant = name.map_or_else(|| tenant.to_string(), str::to_owned);
            t!("each {class} of {tenant}", class = terms::class(*class), tenant)
        }
        Target::OfPlan(plan, class) => {
            let plan = name.map_or_else(|| plan.to_string(), str::to_owned);
            t!("each {class} on the plan {plan}", class = terms::class(*class), plan)
        }
    }
}

/// A node in words; `name` is what its id is called, `tenant` what the tenant of a user or key is called.
pub fn node_name(scope: &Scope, name: Option<&str>, tenant: Option<&str>) -> String {
    let id = scope.identifier();
    let own = name.unwrap_or(&id);
    match (scope, tenant) {
        (Scope::Global, _) => t!("the whole installation").to_owned(),
        (Scope::ModelGroup(group), _) => t!("the models of {group}", group),
        (Scope::Model(model), _) => t!("the model {model}", model),
        (Scope::Tenant(_), _) => t!("the tenant {tenant}", tenant = own),
        (Scope::User(_, user), None) => t!("the user {user}", user = name.unwrap_or(user)),
        (Scope::User(_, user), Some(tenant)) => {
            t!("the user {user} of {tenant}", user = name.unwrap_or(user), tenant)
        }
        (Scope::Key(_), None) => t!("the key {key}", key = own),
        (Scope::Key(_), Some(tenant)) => t!("the key {key} of {tenant}", key = own, tenant),
        (Scope::Upstream(_), _) => t!("the upstream {upstream}", upstream = own),
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
        "global" => t!("The whole installation"),
        "models" => t!("Groups of models"),
        "model" => t!("Models"),
        "tenant" => t!("Tenants"),
        "user" => t!("Users"),
        "key" => t!("Keys"),
        "upstream" => t!("Upstreams"),
        _ => t!("Other"),
    }
}
