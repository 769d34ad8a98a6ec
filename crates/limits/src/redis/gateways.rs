//! Which gateways are there, and whether they have put all they hold into the counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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
    /// The version of the policy whose budgets count here.
    fn policy_version(&self) -> i64;
}

/// One gateway as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    instance: String,
    silent_ms: i64,
    policy_version: i64,
    /// The last call it has answered.
    answered: i64,
    last_settled: u64,
}

/// What a beat was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The number of the last call.
    pub(crate) call: i64,
    /// False where the server knew nothing of this gateway.
    was_known: bool,
    /// Names what the server remembers; another after it has forgotten everything.
    memory: String,
    gateways: Vec<Seen>,
}

impl Heard {
    pub(crate) fn of(reply: Vec<Value>) -> Result<Self, CallFailed> {
        let [
            _,
            _,
            Value::Int(call),
            Value::Int(was_known),
            Value::BulkString(memory),
            Value::Array(rows),
        ] = &reply[..]
        else {
            return Err(CallFailed::Unexpected);
        };
        let gateways = rows.iter().map(seen).collect::<Option<Vec<_>>>();
        Ok(Self {
            call: *call,
            was_known: *was_known == 1,
            memory: String::from_utf8_lossy(memory).into_owned(),
            gateways: gateways.ok_or(CallFailed::Unexpected)?,
        })
    }

    /// Those that are there.
    fn live(&self) -> impl Iterator<Item = &Seen> {
        self.gateways.iter().filter(|seen| seen.silent_ms <= SILENT_MS_MAX)
    }
}

/// The last call that was answered, of which memory of the server, and under which policy: what is held counts in that
/// policy's budgets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered {
    pub(crate) call: i64,
    pub(crate) memory: String,
    pub(crate) policy_version: i64,
}

/// Who is there, over all beats.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    heard: Heard,
    answered: Answered,
    /// The server does not know any more what it was told before.
    has_forgotten: bool,
    /// Those that were there when the server forgot everything, and have not been heard of since.
    missing: Vec<String>,
    missing_since: Option<Instant>,
}

impl Gateways {
    /// Takes in what a beat was answered.
    pub(crate) fn hear(&mut self, heard: Heard) {
        // What it remembers and not only whether it knows us: the answer that would have said so may have been lost.
        let has_forgotten = !heard.was_known || heard.memory != self.heard.memory;
        if has_forgotten && !self.heard.memory.is_empty() {
            let live = self.heard.live().map(|seen| seen.instance.clone());
            self.missing = live.collect();
            self.missing_since = Some(Instant::now());
            self.has_forgotten = true;
        }
        let is_there = |name: &String| heard.gateways.iter().any(|seen| seen.instance == *name);
        self.missing.retain(|name| !is_there(name));
        self.heard = heard;
    }

    /// Whether the server has forgotten everything since this was asked last.
    pub(crate) fn take_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.has_forgotten)
    }

    /// How many are there, one at least.
    pub(crate) fn count(&self) -> u64 {
        let missing = if self.waits() { self.missing.len() } else { 0 };
        (self.heard.live().count() + missing).max(1) as u64
    }

    pub(crate) fn answered(&self) -> Answered {
        self.answered.clone()
    }

    /// Whether the last call is answered, under whichever policy.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.memory == self.heard.memory && self.answered.call >= self.heard.call
    }

    /// The last call, where it is not answered under this policy.
    pub(crate) fn unanswered(&self, policy_version: i64) -> Option<Answered> {
        let is_answered = self.is_answered() && self.answered.policy_version >= policy_version;
        (!is_answered).then(|| Answered {
            call: self.heard.call,
            memory: self.heard.memory.clone(),
            policy_version,
        })
    }

    /// Everything held here when this call was heard is in the counters.
    pub(crate) fn answer(&mut self, call: Answered) {
        self.answered = call;
    }

    /// The number of the last call.
    pub(crate) fn call(&self) -> i64 {
        self.heard.call
    }

    /// What a budget's base has to contain of each gateway's journal, once all that are there have answered `call` under
    /// this policy.
    pub(crate) fn marks_of_all(&self, call: i64, policy_version: i64) -> Option<BTreeMap<String, u64>> {
        let has_answered = |seen: &Seen| seen.answered >= call && seen.policy_version >= policy_version;
        let is_complete = !self.waits() && self.heard.live().all(has_answered);
        is_complete.then(|| self.marks(call, policy_version))
    }

    /// The same of those that have.
    pub(crate) fn marks(&self, call: i64, policy_version: i64) -> BTreeMap<String, u64> {
        self.heard
            .live()
            .filter(|seen| seen.answered >= call && seen.policy_version >= policy_version)
            .map(|seen| (seen.instance.clone(), seen.last_settled))
            .collect()
    }

    /// Whether somebody may be about to come back whom the server has forgotten.
    fn waits(&self) -> bool {
        let patience = Duration::from_millis(SILENT_MS_MAX.unsigned_abs());
        !self.missing.is_empty() && self.missing_since.is_some_and(|since| since.elapsed() < patience)
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
