//! The requests of this gateway that are under way, for renewing their leases all together.

use std::collections::HashMap;
use std::sync::Arc;

use chrono_tz::Tz;
use domain::ids::RequestId;
use domain::limits::Scope;
use parking_lot::Mutex;

use super::asked::Asked;
use super::group::{Group, Name};
use super::known_budgets::KnownBudgets;
use crate::hold::Request;
use crate::names;

/// By request.
#[derive(Debug, Default)]
pub(crate) struct OpenHolds {
    by_id: Mutex<HashMap<RequestId, Arc<OpenHold>>>,
}

/// What one request holds.
#[derive(Debug)]
pub(crate) struct OpenHold {
    pub(crate) request: Request,
    pub(crate) groups: Vec<Arc<Group>>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) time_zone: Tz,
    pub(crate) name: Name,
}

impl OpenHolds {
    pub(crate) fn put(&self, hold: OpenHold) {
        self.by_id.lock().insert(hold.request.id, Arc::new(hold));
    }

    pub(crate) fn remove(&self, id: RequestId) {
        self.by_id.lock().remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<OpenHold>> {
        self.by_id.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_id.lock().len() as u64
    }
}

impl OpenHold {
    /// What it holds, and what it holds by now of budgets that have begun since it was admitted.
    pub(crate) fn groups_by_now(&self, budgets: &KnownBudgets, is_cluster: bool) -> Vec<Arc<Group>> {
        let mut groups = self.groups.clone();
        let begun = self
            .scopes
            .iter()
            .flat_map(|scope| budgets.counting(scope, &self.request));
        for key in begun {
            let asked = Asked::of_budget(&key, self.time_zone).holding(&self.request.ceiling);
            let is_held = |group: &Arc<Group>| group.counters.iter().any(|held| held.key() == asked.key());
            if groups.iter().any(is_held) {
                continue;
            }
            let tag = names::tag(&key.scope, key.tenant);
            let place = groups.iter().position(|group| !is_cluster || group.tag == tag);
            match place {
                Some(place) => {
                    let group = &groups[place];
                    let mut counters = group.counters.clone();
                    counters.push(asked);
                    groups[place] = Arc::new(Group {
                        record: group.record.clone(),
                        name: group.name,
                        tag: group.tag.clone(),
                        counters,
                    });
                }
                None => {
                    groups.push(Arc::new(Group::alone(tag, asked, &self.name)));
                }
            }
        }
        groups
    }
}
