//! What a request puts before the limits: at which priority, for whom, in which nodes of the tree, with which upstreams.
//!
//! `pipeline` asks with a [`Case`] and takes; `explain` asks with one and takes nothing. That both make it here is why an
//! explanation says what admission would say.

use std::sync::Arc;

use chrono_tz::Tz;
use domain::estimate::Estimate;
use domain::ids::{RequestId, TenantId, UpstreamId};
use domain::ledger::USER_ID_CHARS_MAX;
use domain::limits::{Limit, Scope};
use domain::policy::{Dialect, Route};
use domain::priority::Priority;
use domain::refusals::RefusalCode;
use limits::{Admission, Denial, Now, ScopeLimits, UpstreamCandidate};
use sha2::{Digest as _, Sha256};

use crate::Gateway;
use crate::authenticate::Caller;
use crate::end_users::END_USERS_MAX;
use crate::policy::{ModelPolicy, RequestUser, UpstreamPolicy, is_person_id};
use crate::queue::{Lane, LaneOf};
use crate::refusal::{Refusal, Unavailable};

/// Goes before an end user's name that looks like a person's id, so that nobody is counted as somebody else.
const END_USER_PREFIX: &str = "end-user:";

/// A way to serve a model.
pub(crate) type Way = (Route, Arc<UpstreamPolicy>);

/// A request as the limits see it.
pub(crate) struct Case {
    model: Arc<ModelPolicy>,
    priority: Priority,
    estimate: Estimate,
    /// The nodes it counts in, in the order of the tree.
    pub(crate) scopes: Arc<[ScopeLimits]>,
    /// Ways to serve it, in the order of preference; never empty.
    pub(crate) routes: Vec<Way>,
    /// What its gates are judged by.
    pub(crate) gate_priority: Priority,
    candidates: Vec<UpstreamCandidate>,
    time_zone: Tz,
    rehearsal_percent: Option<u8>,
}

impl Case {
    /// The case of this caller at `now`. Upstreams that share a place are drawn, and those that are left alone for now are
    /// left out.
    ///
    /// # Errors
    /// When no upstream could take it, however much room there is. Where it is only a matter of time,
    /// [`Refusal::unavailable`] says until when.
    pub(crate) fn new(
        gateway: &Gateway,
        caller: &Caller,
        user: &RequestUser,
        model: &Arc<ModelPolicy>,
        dialect: Dialect,
        (priority, estimate): (Priority, Estimate),
        now: Now,
    ) -> Result<Self, Refusal> {
        let mut routes = usable_routes(caller, model);
        let are_there_any = !routes.is_empty();
        routes.retain(|(_, upstream)| upstream.upstream.dialect == dialect);
        if routes.is_empty() {
            return Err(if are_there_any {
                wrong_dialect(dialect)
            } else {
                no_route()
            });
        }
        let tenant = caller.key.tenant_id;
        let (mut routes, shut): (Vec<Way>, Vec<Way>) = routes
            .into_iter()
            .partition(|way| shut_ms(gateway, tenant, way, now) == 0);
        if routes.is_empty()
            && let Some(first_back) = first_back(gateway, tenant, &shut, now)
        {
            return Err(Refusal::unavailable(first_back, gateway.random_unit()));
        }
        put_in_order(&mut routes, gateway.random_u64());
        let candidates = routes
            .iter()
            .enumerate()
            .map(|(index, (_, upstream))| UpstreamCandidate {
                scope: upstream.scope.clone(),
                index,
            })
            .collect();
        let policy = &caller.policy;
        Ok(Self {
            scopes: policy.scopes(&caller.key, &caller.tenant, user, model).into(),
            model: Arc::clone(model),
            priority,
            gate_priority: priority,
            estimate,
            routes,
            candidates,
            time_zone: policy.settings.time_zone,
            rehearsal_percent: policy.settings.rehearsal_percent,
        })
    }

    /// What the limits are asked for another way to serve a request that was admitted.
    pub(crate) fn admission_by(&self, id: RequestId, way: usize) -> Admission<'_> {
        Admission {
            upstreams: &self.candidates[way..=way],
            ..self.admission(id)
        }
    }

    /// What the limits are asked, under the request's id.
    pub(crate) fn admission(&self, id: RequestId) -> Admission<'_> {
        Admission {
            id,
            model: &self.model.model.name,
            priority: self.priority,
            gate_priority: self.gate_priority,
            estimate: self.estimate,
            scopes: &self.scopes,
            upstreams: &self.candidates,
            time_zone: self.time_zone,
            rehearsal_percent: self.rehearsal_percent,
        }
    }

    /// Which of its ways is tried first again, and when; `None` where one is open.
    pub(crate) fn first_back(&self, gateway: &Gateway, tenant: TenantId, now: Now) -> Option<Unavailable> {
        first_back(gateway, tenant, &self.routes, now)
    }

    /// Whether it needs what others wait for.
    pub(crate) fn counts_in(&self, of: &LaneOf) -> bool {
        match of {
            LaneOf::Limit(scope, id) => {
                let node = self.scopes.iter().find(|node| node.scope == *scope);
                let limit = node.and_then(|node| node.limits.iter().find(|limit| limit.id == *id));
                limit.is_some_and(|limit| self.is_under(limit))
            }
            // An account that they have not would serve it, and so would one whose limit is none of its own.
            LaneOf::Accounts(ids, limit_id) => {
                let mut limits = self
                    .candidates
                    .iter()
                    .flat_map(|candidate| candidate.scope.limits.iter());
                self.upstream_ids().all(|id| ids.contains(&id))
                    && limits.any(|limit| limit.id == *limit_id && self.is_under(limit))
            }
            // Whoever has come so far has found the door open.
            LaneOf::LeftAlone(..) => false,
        }
    }

    /// What a denial of this request waits for.
    pub(crate) fn lane(&self, denial: &Denial) -> Lane {
        let of = match &denial.scope {
            Scope::Upstream(_) => {
                let mut ids: Vec<_> = self.upstream_ids().collect();
                ids.sort_unstable();
                ids.dedup();
                LaneOf::Accounts(ids.into(), denial.limit_id)
            }
            scope => LaneOf::Limit(scope.clone(), denial.limit_id),
        };
        Lane {
            of,
            is_gate: denial.gate.is_some(),
        }
    }

    fn is_under(&self, limit: &Limit) -> bool {
        limit.applies_to(&self.model.model.name, self.priority)
    }

    fn upstream_ids(&self) -> impl Iterator<Item = UpstreamId> {
        self.routes.iter().map(|(_, upstream)| upstream.upstream.id)
    }

    /// Whether upstreams share the first place.
    pub(crate) fn is_upstream_drawn(&self) -> bool {
        match self.routes.as_slice() {
            [(first, _), (second, _), ..] => first.position == second.position,
            _ => false,
        }
    }
}

/// What it runs at: the key's priority under the ceiling of its tenant and of the rules for people's keys, lower if the caller says so.
pub(crate) fn priority(caller: &Caller, asked: Option<Priority>) -> Priority {
    Priority::effective(caller.key.priority, caller.priority_ceiling(), asked)
}

/// Whom the request is for. Only an application's key may say so; from others the body's field is what it is to the
/// provider, and the header a mistake.
pub(crate) fn user(caller: &Caller, in_header: Option<&str>, in_body: Option<&str>) -> Result<RequestUser, Refusal> {
    if in_header.is_some() && !caller.key.names_users() {
        return Err(Refusal::plain(
            RefusalCode::InvalidRequest,
            "This key may not name users: leave out X-Tollgate-User, or use a service account's key that may.",
        ));
    }
    let named = in_header
        .or(in_body)
        .filter(|name| caller.key.names_users() && !name.is_empty());
    Ok(match (named, caller.key.owner_id) {
        (Some(name), _) if name.chars().count() > USER_ID_CHARS_MAX => {
            RequestUser::EndUser(format!("sha256:{}", hex::encode(Sha256::digest(name.as_bytes()))).into())
        }
        (Some(name), _) if is_person_id(name) => RequestUser::EndUser(format!("{END_USER_PREFIX}{name}").into()),
        (Some(name), _) => RequestUser::EndUser(name.into()),
        (None, Some(owner)) => RequestUser::Owner(owner.to_string().into()),
        (None, None) => RequestUser::Nobody,
    })
}

/// The end user whose use is limited, with the tenant, where the request is for one: such have counters of their own.
pub(crate) fn limited_end_user(
    user: &RequestUser,
    scopes: &[ScopeLimits],
) -> Option<(domain::ids::TenantId, Arc<str>)> {
    let RequestUser::EndUser(name) = user else {
        return None;
    };
    scopes.iter().find_map(|of| match &of.scope {
        Scope::User(tenant, _) if !of.limits.is_empty() => Some((*tenant, Arc::clone(name))),
        _ => None,
    })
}

/// What a caller is told whose tenant names one end user too many.
pub(crate) fn too_many_end_users() -> Refusal {
    Refusal::plain(
        RefusalCode::Overloaded,
        format!(
            "Your tenant names more than {END_USERS_MAX} users in the periods that they are limited by. \
             Retry when some have been idle, or name fewer."
        ),
    )
}

/// What a caller is told when the journal takes no more entries.
pub(crate) fn ledger_full() -> Refusal {
    Refusal::plain(
        RefusalCode::LedgerFull,
        "The gateway cannot book requests at the moment. Retry shortly.",
    )
}

/// What those are told who wait for room while the gateway stops.
pub(crate) fn stopping() -> Refusal {
    Refusal::plain(
        RefusalCode::Overloaded,
        "The gateway is stopping, and there was no room for this request until now. Retry.",
    )
}

/// The model that is asked for, if there is one of this name and the key may use it.
pub(crate) fn model(caller: &Caller, name: &str) -> Result<Arc<ModelPolicy>, Refusal> {
    let Some(model) = caller.policy.find_model(name) else {
        return Err(Refusal {
            param: Some("model"),
            ..Refusal::plain(
                RefusalCode::ModelNotFound,
                "There is no model of this name here. `GET /v1/models` lists those your key may use.",
            )
        });
    };
    if !caller.tenant.lets_use(&caller.key, name) {
        return Err(Refusal {
            param: Some("model"),
            ..Refusal::plain(
                RefusalCode::ModelNotAllowed,
                "This key may not use this model. `GET /v1/models` lists those it may use.",
            )
        });
    }
    Ok(Arc::clone(model))
}

/// What a caller is told whose model nobody serves.
fn no_route() -> Refusal {
    Refusal::plain(
        RefusalCode::UpstreamUnavailable,
        "No provider is configured for this model at the moment. Retry later or choose another model.",
    )
}

/// What a caller is told who asks in this dialect for a model that is served in the other only.
fn wrong_dialect(asked: Dialect) -> Refusal {
    let message = match asked {
        Dialect::Openai => {
            "This model is served in Anthropic's dialect only. Ask for it with `POST /v1/messages`, or choose another model."
        }
        Dialect::Anthropic => {
            "This model is served in OpenAI's dialect only. Ask for it with `POST /v1/chat/completions` or \
             `POST /v1/responses`, or choose another model."
        }
    };
    Refusal {
        param: Some("model"),
        ..Refusal::plain(RefusalCode::InvalidRequest, message)
    }
}

/// The dialect that a model is asked for in when nobody says: OpenAI's, if it is served in both.
pub(crate) fn dialect_of(caller: &Caller, model: &ModelPolicy) -> Dialect {
    let routes = usable_routes(caller, model);
    let speaks = |dialect| routes.iter().any(|(_, upstream)| upstream.upstream.dialect == dialect);
    if !speaks(Dialect::Openai) && speaks(Dialect::Anthropic) {
        Dialect::Anthropic
    } else {
        Dialect::Openai
    }
}

/// Routes whose upstream is there and enabled, and whose credential, should it want one, can be opened.
fn usable_routes(caller: &Caller, model: &ModelPolicy) -> Vec<Way> {
    let routes = model.model.routes.iter().filter_map(|route| {
        let entry = caller.policy.find_upstream(route.upstream_id)?;
        let has_credential = entry.credential.is_some() || entry.upstream.credential_sealed.is_none();
        has_credential.then(|| (route.clone(), Arc::clone(entry)))
    });
    routes.collect()
}

/// For how long the breakers let no request of this tenant go this way, in milliseconds; 0 where they let it.
pub(crate) fn shut_ms(gateway: &Gateway, tenant: TenantId, (route, upstream): &Way, now: Now) -> u64 {
    let (id, now_ms) = (upstream.upstream.id, now.monotonic_ms);
    let until_ms = gateway.breakers.wait_until(id, &route.upstream_model, tenant, now_ms);
    until_ms.map_or(0, |until_ms| until_ms.saturating_sub(now_ms).max(1))
}

fn first_back(gateway: &Gateway, tenant: TenantId, ways: &[Way], now: Now) -> Option<Unavailable> {
    let waits = ways.iter().map(|way| (shut_ms(gateway, tenant, way, now), way));
    let (retry_after_ms, (_, upstream)) = waits.min_by_key(|(shut_ms, _)| *shut_ms)?;
    (retry_after_ms > 0).then(|| Unavailable {
        scope: upstream.scope.scope.clone(),
        retry_after_ms,
    })
}

/// Puts routes in order: by position, and within one position each place by a draw weighted by share.
fn put_in_order<T>(routes: &mut [(Route, T)], random: u64) {
    routes.sort_by_key(|(route, _)| route.position);
    let mut random = random;
    for group in routes.chunk_by_mut(|(one, _), (other, _)| one.position == other.position) {
        for place in 0..group.len().saturating_sub(1) {
            let rest = &mut group[place..];
            let total: u64 = rest.iter().map(|(route, _)| weight(route)).sum();
            random = mixed(random);
            let mut drawn = random % total;
            let chosen = rest.iter().position(|(route, _)| {
                let is_here = drawn < weight(route);
                drawn = drawn.saturating_sub(weight(route));
                is_here
            });
            rest[..=chosen.unwrap_or(0)].rotate_right(1);
        }
    }
}

/// At least 1, as the table has it.
fn weight(route: &Route) -> u64 {
    u64::from(route.weight.max(1).unsigned_abs())
}

/// Another number from a number, as good as drawn (splitmix64): one draw of the caller's serves all places.
fn mixed(random: u64) -> u64 {
    let mut mixed = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
