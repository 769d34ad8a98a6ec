//! Which gateways are there, and whether they have put all they hold into the counters.

use std::collections::BTreeMap;

use redis::Value;

use super::shared::CallFailed;

/// A gateway that was silent for longer is not counted and not waited for, in milliseconds.
pub(crate) const SILENT_MS_MAX: i64 = 5_000;

/// What a gateway says of itself twice a second, for the others.
pub trait LifeSigns: Send + Sync {
    /// The time.
    fn now(&self) -> crate::Now;
    /// The number of the last entry of its journal that was settled.
    fn last_settled(&self) -> u64;
    /// The version of the policy in force.
    fn policy_version(&self) -> i64;
}

/// One gateway as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) instance: String,
    pub(crate) silent_ms: i64,
    pub(crate) policy_version: i64,
    /// The last call it has answered.
    pub(crate) answered: i64,
    pub(crate) last_settled: u64,
}

/// What a beat was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The number of the last call.
    pub(crate) call: i64,
    /// False where the server knew nothing of this gateway: it is new, or the server has forgotten everything.
    pub(crate) was_known: bool,
    pub(crate) gateways: Vec<Seen>,
}

impl Heard {
    pub(crate) fn of(reply: Vec<Value>) -> Result<Self, CallFailed> {
        let [_, _, Value::Int(call), Value::Int(was_known), Value::Array(rows)] = &reply[..] else {
            return Err(CallFailed::Unexpected);
        };
        let gateways = rows.iter().map(seen).collect::<Option<Vec<_>>>();
        Ok(Self {
            call: *call,
            was_known: *was_known == 1,
            gateways: gateways.ok_or(CallFailed::Unexpected)?,
        })
    }

    /// Those that are there.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Seen> {
        self.gateways.iter().filter(|seen| seen.silent_ms <= SILENT_MS_MAX)
    }

    /// What a budget's base has to contain of each gateway's journal, once all that are there have answered `call` under
    /// this policy.
    pub(crate) fn all_answered(&self, call: i64, policy_version: i64) -> Option<BTreeMap<String, u64>> {
        let has_answered = |seen: &&Seen| seen.answered >= call && seen.policy_version >= policy_version;
        self.live()
            .all(|seen| has_answered(&seen))
            .then(|| self.answered(call, policy_version))
    }

    /// The same of those that have.
    pub(crate) fn answered(&self, call: i64, policy_version: i64) -> BTreeMap<String, u64> {
        self.live()
            .filter(|seen| seen.answered >= call && seen.policy_version >= policy_version)
            .map(|seen| (seen.instance.clone(), seen.last_settled))
            .collect()
    }
}

fn seen(row: &Value) -> Option<Seen> {
    let Value::Array(row) = row else { return None };
    let [
        Value::BulkString(instance),
        Value::Int(silent_ms),
        Value::Int(policy),
        Value::Int(answered),
        Value::Int(last),
    ] = &row[..]
    else {
        return None;
    };
    Some(Seen {
        instance: String::from_utf8_lossy(instance).into_owned(),
        silent_ms: *silent_ms,
        policy_version: *policy,
        answered: *answered,
        last_settled: last.unsigned_abs(),
    })
}
