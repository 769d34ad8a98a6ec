//! Names in the audit log as people read them: of actions, of fields, and of what has no page of its own. What programs
//! read, in addresses, files and the JSON API, keeps the code's word; so does what a later release has written.

use leptos::prelude::*;

use crate::format;

/// What an action is called; in English by its code.
pub(super) fn action_name(code: &str) -> String {
    find_action_name(code).map_or_else(|| code.to_owned(), str::to_owned)
}

/// The same with the code, which the filter takes, behind it where it is called something else.
pub(super) fn action(code: &str) -> AnyView {
    let name = action_name(code);
    let is_other = name != code;
    let code = view! { <code>{code.to_owned()}</code> };
    if is_other {
        view! { {name} <br /> <small>{code}</small> }.into_any()
    } else {
        code.into_any()
    }
}

/// `routes.0.weight` as people count: `routes 1 weight`.
pub(super) fn field_name(name: &str) -> String {
    let parts: Vec<String> = name
        .split('.')
        .map(|part| match part.parse::<usize>() {
            Ok(place) => (place + 1).to_string(),
            Err(_) => find_field_word(part).map_or_else(|| format::words(part), str::to_owned),
        })
        .collect();
    parts.join(" ")
}

/// What entries are about that is no node, plan, person or token.
pub(super) fn other_subject(text: &str) -> String {
    match text.split_once(':') {
        None if text == "ledger" => t!("ledger").to_owned(),
        None if text == "setup" => t!("setup", in "subject of the audit log").to_owned(),
        Some(("job", id)) => t!("job:{id}", id),
        Some(("quarantine", place)) => t!("quarantine:{place}", place),
        // An id stays as it is: with a blank in it nobody would find it again.
        Some((kind, id)) => format!("{}:{id}", format::words(kind)),
        None => format::words(text),
    }
}

fn find_action_name(code: &str) -> Option<&'static str> {
    Some(match code {
        "adjustment.book" => t!("adjustment.book", in "action of the audit log"),
        "job.cancel" => t!("job.cancel", in "action of the audit log"),
        "key.edit" => t!("key.edit", in "action of the audit log"),
        "key.end_overlap" => t!("key.end_overlap", in "action of the audit log"),
        "key.issue" => t!("key.issue", in "action of the audit log"),
        "key.own_limits" => t!("key.own_limits", in "action of the audit log"),
        "key.replace_secret" => t!("key.replace_secret", in "action of the audit log"),
        "key.revoke" => t!("key.revoke", in "action of the audit log"),
        "key.rotate" => t!("key.rotate", in "action of the audit log"),
        "ledger.drop" => t!("ledger.drop", in "action of the audit log"),
        "ledger.repair" => t!("ledger.repair", in "action of the audit log"),
        "limit.clear" => t!("limit.clear", in "action of the audit log"),
        "limit.end_increase" => t!("limit.end_increase", in "action of the audit log"),
        "limit.increase" => t!("limit.increase", in "action of the audit log"),
        "limit.set" => t!("limit.set", in "action of the audit log"),
        "limits.set" => t!("limits.set", in "action of the audit log"),
        "management_token.adopt" => t!("management_token.adopt", in "action of the audit log"),
        "management_token.issue" => t!("management_token.issue", in "action of the audit log"),
        "management_token.revoke" => t!("management_token.revoke", in "action of the audit log"),
        "model.create" => t!("model.create", in "action of the audit log"),
        "model.edit" => t!("model.edit", in "action of the audit log"),
        "person.change_password" => t!("person.change_password", in "action of the audit log"),
        "person.choose_language" => t!("person.choose_language", in "action of the audit log"),
        "person.choose_password" => t!("person.choose_password", in "action of the audit log"),
        "person.create" => t!("person.create", in "action of the audit log"),
        "person.disable" => t!("person.disable", in "action of the audit log"),
        "person.edit" => t!("person.edit", in "action of the audit log"),
        "person.enable" => t!("person.enable", in "action of the audit log"),
        "person.end_session" => t!("person.end_session", in "action of the audit log"),
        "person.end_sessions" => t!("person.end_sessions", in "action of the audit log"),
        "person.invite" => t!("person.invite", in "action of the audit log"),
        "person.leave" => t!("person.leave", in "action of the audit log"),
        "person.link" => t!("person.link", in "action of the audit log"),
        "person.set_up" => t!("person.set_up", in "action of the audit log"),
        "person.setup_link" => t!("person.setup_link", in "action of the audit log"),
        "person.sign_in" => t!("person.sign_in", in "action of the audit log"),
        "person.sign_out" => t!("person.sign_out", in "action of the audit log"),
        "plan.create" => t!("plan.create", in "action of the audit log"),
        "plan.edit" => t!("plan.edit", in "action of the audit log"),
        "plan.remove" => t!("plan.remove", in "action of the audit log"),
        "price.add" => t!("price.add", in "action of the audit log"),
        "price.remove" => t!("price.remove", in "action of the audit log"),
        "quarantine.close" => t!("quarantine.close", in "action of the audit log"),
        "quarantine.ship" => t!("quarantine.ship", in "action of the audit log"),
        "settings.create" => t!("settings.create", in "action of the audit log"),
        "settings.rehearsal" => t!("settings.rehearsal", in "action of the audit log"),
        "settings.retention" => t!("settings.retention", in "action of the audit log"),
        "settings.unpriced" => t!("settings.unpriced", in "action of the audit log"),
        "tenant.create" => t!("tenant.create", in "action of the audit log"),
        "tenant.edit" => t!("tenant.edit", in "action of the audit log"),
        "tenant.key_rules" => t!("tenant.key_rules", in "action of the audit log"),
        "tenant.resume" => t!("tenant.resume", in "action of the audit log"),
        "tenant.suspend" => t!("tenant.suspend", in "action of the audit log"),
        "upstream.create" => t!("upstream.create", in "action of the audit log"),
        "upstream.edit" => t!("upstream.edit", in "action of the audit log"),
        "webhook.remove" => t!("webhook.remove", in "action of the audit log"),
        "webhook.replace_secret" => t!("webhook.replace_secret", in "action of the audit log"),
        "webhook.set" => t!("webhook.set", in "action of the audit log"),
        "webhook.test" => t!("webhook.test", in "action of the audit log"),
        _ => return None,
    })
}

/// A part of a field's name.
fn find_field_word(part: &str) -> Option<&'static str> {
    Some(match part {
        "above_input_tokens" => t!("above input tokens", in "field of the audit log"),
        "admitted_at" => t!("admitted at", in "field of the audit log"),
        "allowed_models" => t!("allowed models", in "field of the audit log"),
        "attempts" => t!("attempts", in "field of the audit log"),
        "author" => t!("author", in "field of the audit log"),
        "base_url" => t!("base url", in "field of the audit log"),
        "budget_cost" => t!("budget cost", in "field of the audit log"),
        "budget_tokens" => t!("budget tokens", in "field of the audit log"),
        "burst" => t!("burst", in "field of the audit log"),
        "cache_read_nanos_per_mtok" => t!("cache read nanos per mtok", in "field of the audit log"),
        "cache_write_1h_nanos_per_mtok" => t!("cache write 1h nanos per mtok", in "field of the audit log"),
        "cache_write_5m_nanos_per_mtok" => t!("cache write 5m nanos per mtok", in "field of the audit log"),
        "concurrency" => t!("concurrency", in "field of the audit log"),
        "context_tokens" => t!("context tokens", in "field of the audit log"),
        "cost_nanos" => t!("cost nanos", in "field of the audit log"),
        "created_at" => t!("created at", in "field of the audit log"),
        "currency" => t!("currency", in "field of the audit log"),
        "degrades" => t!("degrades", in "field of the audit log"),
        "dialect" => t!("dialect", in "field of the audit log"),
        "differing_rows" => t!("differing rows", in "field of the audit log"),
        "dimension" => t!("dimension", in "field of the audit log"),
        "disabled_at" => t!("disabled at", in "field of the audit log"),
        "email" => t!("email", in "field of the audit log"),
        "encoding" => t!("encoding", in "field of the audit log"),
        "ended_sessions" => t!("ended sessions", in "field of the audit log"),
        "entries" => t!("entries", in "field of the audit log"),
        "entries_from" => t!("entries from", in "field of the audit log"),
        "expires_at" => t!("expires at", in "field of the audit log"),
        "from" => t!("from", in "field of the audit log"),
        "gates" => t!("gates", in "field of the audit log"),
        "group" => t!("group", in "field of the audit log"),
        "has_credential" => t!("has credential", in "field of the audit log"),
        "has_password" => t!("has password", in "field of the audit log"),
        "has_strict_budgets" => t!("has strict budgets", in "field of the audit log"),
        "id" => t!("id", in "field of the audit log"),
        "increase" => t!("increase", in "field of the audit log"),
        "input_nanos_per_mtok" => t!("input nanos per mtok", in "field of the audit log"),
        "input_tokens" => t!("input tokens", in "field of the audit log"),
        "input_tokens_per_minute" => t!("input tokens per minute", in "field of the audit log"),
        "is_credential_new" => t!("is credential new", in "field of the audit log"),
        "is_disabled" => t!("is disabled", in "field of the audit log"),
        "is_new" => t!("is new", in "field of the audit log"),
        "is_secret_new" => t!("is secret new", in "field of the audit log"),
        "key_id" => t!("key id", in "field of the audit log"),
        "key_months_max" => t!("key months max", in "field of the audit log"),
        "keys_per_person" => t!("keys per person", in "field of the audit log"),
        "language" => t!("language", in "field of the audit log"),
        "limit" => t!("limit", in "field of the audit log"),
        "lower_percent" => t!("lower percent", in "field of the audit log"),
        "may_name_users" => t!("may name users", in "field of the audit log"),
        "member_models" => t!("member models", in "field of the audit log"),
        "member_priority_ceiling" => t!("member priority ceiling", in "field of the audit log"),
        "mode" => t!("mode", in "field of the audit log"),
        "model" => t!("model", in "field of the audit log"),
        "month" => t!("month", in "field of the audit log"),
        "monthly_cost" => t!("monthly cost", in "field of the audit log"),
        "monthly_tokens" => t!("monthly tokens", in "field of the audit log"),
        "name" => t!("name", in "field of the audit log"),
        "node" => t!("node", in "field of the audit log"),
        "note" => t!("note", in "field of the audit log"),
        "of" => t!("of", in "field of the audit log"),
        "of_plan" => t!("of plan", in "field of the audit log"),
        "of_tenant" => t!("of tenant", in "field of the audit log"),
        "old_secret_until" => t!("old secret until", in "field of the audit log"),
        "origin" => t!("origin", in "field of the audit log"),
        "output_cap_tokens" => t!("output cap tokens", in "field of the audit log"),
        "output_default_tokens" => t!("output default tokens", in "field of the audit log"),
        "output_nanos_per_mtok" => t!("output nanos per mtok", in "field of the audit log"),
        "output_tokens" => t!("output tokens", in "field of the audit log"),
        "output_tokens_per_minute" => t!("output tokens per minute", in "field of the audit log"),
        "own_limits" => t!("own limits", in "field of the audit log"),
        "owner_id" => t!("owner id", in "field of the audit log"),
        "partition" => t!("partition", in "field of the audit log"),
        "period" => t!("period", in "field of the audit log"),
        "permissions" => t!("permissions", in "field of the audit log"),
        "plan_id" => t!("plan id", in "field of the audit log"),
        "position" => t!("position", in "field of the audit log"),
        "policy" => t!("policy", in "field of the audit log"),
        "priority" => t!("priority", in "field of the audit log"),
        "priority_ceiling" => t!("priority ceiling", in "field of the audit log"),
        "public_id" => t!("public id", in "field of the audit log"),
        "rates" => t!("rates", in "field of the audit log"),
        "reason" => t!("reason", in "field of the audit log"),
        "reference" => t!("reference", in "field of the audit log"),
        "rehearsal_percent" => t!("rehearsal percent", in "field of the audit log"),
        "request_id" => t!("request id", in "field of the audit log"),
        "request_input_tokens" => t!("request input tokens", in "field of the audit log"),
        "request_output_tokens" => t!("request output tokens", in "field of the audit log"),
        "request_seconds" => t!("request seconds", in "field of the audit log"),
        "requests" => t!("requests", in "field of the audit log"),
        "requests_per_minute" => t!("requests per minute", in "field of the audit log"),
        "revoked_keys" => t!("revoked keys", in "field of the audit log"),
        "revoked_management_tokens" => t!("revoked management tokens", in "field of the audit log"),
        "revoked_service_keys" => t!("revoked service keys", in "field of the audit log"),
        "role" => t!("role", in "field of the audit log"),
        "rotated_at" => t!("rotated at", in "field of the audit log"),
        "routes" => t!("routes", in "field of the audit log"),
        "row" => t!("row", in "field of the audit log"),
        "rows" => t!("rows", in "field of the audit log"),
        "session_id" => t!("session id", in "field of the audit log"),
        "status" => t!("status", in "field of the audit log"),
        "suspended_at" => t!("suspended at", in "field of the audit log"),
        "table" => t!("table", in "field of the audit log"),
        "target" => t!("target", in "field of the audit log"),
        "tenant_id" => t!("tenant id", in "field of the audit log"),
        "thresholds" => t!("thresholds", in "field of the audit log"),
        "tiers" => t!("tiers", in "field of the audit log"),
        "time_zone" => t!("time zone", in "field of the audit log"),
        "total_tokens" => t!("total tokens", in "field of the audit log"),
        "total_tokens_per_minute" => t!("total tokens per minute", in "field of the audit log"),
        "unpriced" => t!("unpriced", in "field of the audit log"),
        "unreadable" => t!("unreadable", in "field of the audit log"),
        "until" => t!("until", in "field of the audit log"),
        "upper_percent" => t!("upper percent", in "field of the audit log"),
        "upper_waits" => t!("upper waits", in "field of the audit log"),
        "upstream_id" => t!("upstream id", in "field of the audit log"),
        "upstream_model" => t!("upstream model", in "field of the audit log"),
        "user_id" => t!("user id", in "field of the audit log"),
        "valid_from" => t!("valid from", in "field of the audit log"),
        "valid_until" => t!("valid until", in "field of the audit log"),
        "value" => t!("value", in "field of the audit log"),
        "weight" => t!("weight", in "field of the audit log"),
        "window_seconds" => t!("window seconds", in "field of the audit log"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
