//! Counters in Redis: one call takes a request's part everywhere on one server; in a cluster the tenant's counters are
//! asked first, then the others side by side, and everything is given back where one of them refuses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use domain::error_chain::chain;
use domain::estimate::Amounts;
use domain::limits::{Limit, Scope};
use domain::priority::Priority;
use domain::readings::{Explanation, Reading};
use futures_util::future::join_all;
use redis::Value;

use super::allowances::KEPT_MS;
use super::asked::Asked;
use super::connection::{Arg, CallError, Connection, Script, slot_of};
use super::gateways::{Answered, Heard, LifeSigns};
use super::group::{Branch, Group, Names};
use super::health::{FAILURES_MAX, Health};
use super::known_budgets::KnownBudgets;
use super::open_holds::{OpenHold, OpenHolds};
use super::outbox::{Ending, How, Outbox};
use super::scripts;
use super::server_clock::ServerClock;
use super::shared_hold::SharedHold;
use super::states::{self, Unexpected};
use super::verdict::{self, Looked};
use super::words::Words;
use crate::hold::{Hold, Parts, Request};
use crate::node::Node;
use crate::reading::untouched;
use crate::upstream_room::{STANDS_MS_MAX, Telling};
use crate::{Admission, BudgetKey, Denial, Now, ScopeLimits, Settings, explain, names};

/// Later than any time that is.
const NEVER_MS: i64 = 9_000_000_000_000_000;
/// How long a server remembers that a request has ended, in milliseconds: ends may be repeated for so long.
const ENDED_MS: u64 = 60_000;
/// Journal entries that a budget counts as one past its mark.
const ENTRIES_TOGETHER: u64 = 64;
/// Parts of the journal that a budget counts apart, for each gateway.
const PARTS_APART_MAX: u64 = 1_024;
/// Holds renewed by one call.
const RENEWED_MAX: usize = 50;
/// Such calls that wait for their answers at once.
const RENEWALS_AT_ONCE: usize = 2;
/// Counters read by one call.
const PEEKED_MAX: usize = 500;
/// How long what a provider says is kept, in milliseconds: it says itself when it is over.
const TOLD_MS: u64 = 2 * STANDS_MS_MAX;
/// When a gateway that was never heard of again is forgotten, in milliseconds.
const FORGOTTEN_MS: u64 = 3_600_000;
/// Slots that share a reading of the server's time; a cluster's servers have each their own.
const SLOTS_PER_CLOCK: u16 = 256;

/// Whose time the scripts go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeOf {
    /// The server's.
    Server,
    /// The caller's: for tests that move it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "tests compare both stores by a clock of their own")
    )]
    Caller,
}

/// Why a call was of no use. Nobody knows then whether it was run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailed {
    /// The way to the server, or the server itself.
    #[error("Redis is of no use")]
    Call(#[from] CallError),
    /// It came too late and did nothing.
    #[error("Redis was reached too late")]
    Late,
    /// The request was cancelled before.
    #[error("the request was cancelled before Redis heard of it")]
    Ended,
    /// The reply is none of the script's.
    #[error("Redis gave a reply that the script does not give")]
    Unexpected,
}

impl CallFailed {
    /// Whether it may have changed something, or may still do so.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Self::Late => false,
            Self::Call(error) => error.may_have_run(),
            Self::Ended | Self::Unexpected => true,
        }
    }

    /// Whether no answer came in time.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Late | Self::Call(CallError::TimedOut { .. } | CallError::Broken { .. })
        )
    }
}

impl From<Unexpected> for CallFailed {
    fn from(_: Unexpected) -> Self {
        Self::Unexpected
    }
}

/// What of a budget's base is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It has one.
    Known,
    /// The caller is to read it.
    Read,
    /// Somebody else is about to.
    Wait,
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) instance: String,
    pub(crate) open: OpenHolds,
    pub(crate) budgets: KnownBudgets,
    pub(crate) outbox: Outbox,
    pub(crate) names: Names,
    pub(crate) health: Health,
    connection: Connection,
    pub(crate) is_cluster: bool,
    time: TimeOf,
    entries_together: u64,
    clocks: Box<[ServerClock]>,
}

/// What a script said of some branches.
struct Answer<'a> {
    is_yes: bool,
    /// Which branch after the first was taken; 0 for none.
    chosen: usize,
    now: Now,
    /// For each branch looked at, its scopes.
    branches: Vec<Vec<(usize, Looked<'a>)>>,
}

/// Gives back what a call may have taken when nobody waits for its answer any more.
struct Pending {
    shared: Arc<Shared>,
    groups: Vec<Arc<Group>>,
    at: DateTime<Utc>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        for group in self.groups.drain(..) {
            self.shared.outbox.push(Ending::new(group, How::Cancel, self.at));
        }
    }
}

impl Shared {
    pub(crate) fn new(connection: Connection, settings: Settings, instance: String, time: TimeOf) -> Arc<Self> {
        let is_cluster = connection.is_cluster();
        let clocks = if is_cluster { (1 << 14) / SLOTS_PER_CLOCK } else { 1 };
        Arc::new(Self {
            settings,
            instance,
            open: OpenHolds::default(),
            budgets: KnownBudgets::default(),
            outbox: Outbox::default(),
            names: Names::default(),
            health: Health::new(),
            connection,
            is_cluster,
            time,
            entries_together: match time {
                TimeOf::Server => ENTRIES_TOGETHER,
                TimeOf::Caller => 1,
            },
            clocks: (0..clocks).map(|_| ServerClock::start()).collect(),
        })
    }

    /// Takes the request's part of all counters, or says why not.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Result<Hold, Box<Denial>>, CallFailed> {
        let name = self.names.next(admission.id);
        let upstreams: Vec<Branch<'_>> = admission
            .upstreams
            .iter()
            .map(|candidate| Branch::of_upstream(&candidate.scope, admission, &name, now.wall))
            .collect();
        if self.is_cluster {
            let tree = Branch::of_tags(admission, &name, now.wall);
            return self.admit_by_tags(tree, upstreams, admission, now).await;
        }
        let mut branches = vec![Branch::of_tree(admission, &name, now.wall)];
        branches.extend(upstreams);
        let mut pending = self.pending(&branches, now);
        let outcome = self.ask(&branches, false, admission, now).await;
        let asked = branches.len();
        let mut answer = Self::outcome(outcome, &mut pending, asked)?;
        pending.groups.clear();
        let upstreams = one_by_one(answer.branches.split_off(1));
        let tree = in_order(answer.branches);
        let mut branches = branches.into_iter();
        let main = branches.next().map(|branch| branch.group);
        let chosen = answer.chosen.checked_sub(1).and_then(|index| branches.nth(index));
        if answer.is_yes {
            let groups = main.into_iter().collect();
            let chosen = chosen.map(|branch| (answer.chosen - 1, branch.group));
            return Ok(Ok(self.hold(groups, chosen, &tree, &upstreams, admission, answer.now)));
        }
        verdict::refused(&tree, &upstreams, admission, &self.settings, answer.now)
            .map(Err)
            .ok_or(CallFailed::Unexpected)
    }

    async fn admit_by_tags(
        self: &Arc<Self>,
        tree: Vec<Branch<'_>>,
        upstreams: Vec<Branch<'_>>,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Result<Hold, Box<Denial>>, CallFailed> {
        let mut pending = self.pending(&[], now);
        let (own, shared): (Vec<_>, Vec<_>) = tree.iter().partition(|branch| branch.is_own());
        let mut looked = Vec::new();
        let mut taken: Vec<Arc<Group>> = Vec::new();
        let mut at = now;
        let mut has_room = true;
        // The tenant's own first: what refuses most often takes nothing of the others.
        for branch in own {
            pending.groups.push(Arc::clone(&branch.group));
            let outcome = self.ask(std::slice::from_ref(branch), false, admission, now).await;
            let answer = Self::outcome(outcome, &mut pending, 1)?;
            has_room &= answer.is_yes;
            at = latest(at, answer.now);
            if answer.is_yes {
                taken.push(Arc::clone(&branch.group));
            }
            looked.extend(answer.branches);
        }
        let takes = has_room;
        let first_upstream = upstreams.first().filter(|_| takes);
        let others: Vec<&Branch<'_>> = shared.into_iter().chain(first_upstream).collect();
        if takes {
            pending
                .groups
                .extend(others.iter().map(|branch| Arc::clone(&branch.group)));
        }
        // Where the tenant's own refused, the others are only looked at, for the chain.
        let answers = join_all(others.iter().map(|branch| async {
            match takes {
                true => self.ask(std::slice::from_ref(*branch), false, admission, now).await,
                false => self.look(branch, admission, now).await,
            }
        }))
        .await;
        let mut of_upstreams = Vec::new();
        let mut chosen = None;
        for (index, (branch, answer)) in others.iter().zip(answers).enumerate() {
            if !takes && answer.is_err() {
                // The tenant's own refusal stands, with a shorter chain.
                continue;
            }
            let answer = answer?;
            at = latest(at, answer.now);
            let is_upstream = first_upstream.is_some() && index + 1 == others.len();
            if answer.is_yes && takes {
                taken.push(Arc::clone(&branch.group));
            }
            if is_upstream {
                chosen = answer.is_yes.then_some((0, Arc::clone(&branch.group)));
                of_upstreams.extend(answer.branches);
            } else {
                has_room &= answer.is_yes;
                looked.extend(answer.branches);
            }
        }
        if has_room && chosen.is_none() {
            for (index, branch) in upstreams.iter().enumerate().skip(1) {
                pending.groups.push(Arc::clone(&branch.group));
                let answer = self.ask(std::slice::from_ref(branch), false, admission, now).await?;
                at = latest(at, answer.now);
                of_upstreams.extend(answer.branches);
                if answer.is_yes {
                    taken.push(Arc::clone(&branch.group));
                    chosen = Some((index, Arc::clone(&branch.group)));
                    break;
                }
            }
        }
        let (tree_looked, upstreams_looked) = (in_order(looked), one_by_one(of_upstreams));
        if has_room && (chosen.is_some() || upstreams.is_empty()) {
            pending.groups.clear();
            let groups = tree.iter().map(|branch| Arc::clone(&branch.group)).collect();
            return Ok(Ok(self.hold(
                groups,
                chosen,
                &tree_looked,
                &upstreams_looked,
                admission,
                at,
            )));
        }
        let denial = verdict::refused(&tree_looked, &upstreams_looked, admission, &self.settings, at);
        pending.groups = taken.clone();
        let nothing = Amounts::default();
        let undone = taken
            .iter()
            .map(|group| self.finish(group, How::Undo, &nothing, None, now));
        for undone in join_all(undone).await {
            undone?;
        }
        pending.groups.clear();
        denial.map(Err).ok_or(CallFailed::Unexpected)
    }

    /// Gives back the upstream's part and takes that of the first candidate with room.
    pub(crate) async fn switch_upstream(
        self: &Arc<Self>,
        hold: &mut Hold,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Result<(), Box<Denial>>, CallFailed> {
        let Parts::Shared(parts) = &mut hold.parts else {
            return Err(CallFailed::Unexpected);
        };
        let mut looked = Vec::new();
        let mut at = now;
        let mut chosen = None;
        for candidate in admission.upstreams {
            let tag = names::tag(&candidate.scope.scope, None);
            let held = parts.upstream.as_ref().filter(|held| held.tag == tag);
            let is_same = held.is_some();
            // A retry at the same upstream takes the place of what is held there; anything else is another part.
            let name = held.map_or_else(|| self.names.next(admission.id), |held| held.name);
            let branch = Branch::of_upstream(&candidate.scope, admission, &name, now.wall);
            let mut pending = self.pending(&[], now);
            if !is_same {
                pending.groups.push(Arc::clone(&branch.group));
            }
            let keeps_request = is_same && hold.is_sent_upstream;
            let outcome = self
                .ask(std::slice::from_ref(&branch), keeps_request, admission, now)
                .await;
            let answer = Self::outcome(outcome, &mut pending, usize::from(!is_same))?;
            pending.groups.clear();
            at = latest(at, answer.now);
            looked.extend(answer.branches);
            if answer.is_yes {
                chosen = Some((candidate.index, branch.group));
                break;
            }
        }
        let looked = one_by_one(looked);
        if chosen.is_none() && !admission.upstreams.is_empty() {
            let denial = verdict::refused(&[], &looked, admission, &self.settings, at);
            return denial.map(Err).ok_or(CallFailed::Unexpected);
        }
        let told = verdict::admitted(&[], &looked, admission, &self.settings, at);
        let before = parts.upstream.take();
        hold.upstream_index = chosen.as_ref().map(|(index, _)| *index);
        parts.upstream = chosen.map(|(_, group)| group);
        let was_sent = std::mem::replace(&mut hold.is_sent_upstream, false);
        let is_same = |group: &Arc<Group>| {
            let now_held = parts.upstream.as_ref();
            now_held.is_some_and(|held| held.record == group.record)
        };
        let left = before.filter(|group| !is_same(group));
        self.open.put(parts.open_hold(&hold.request));
        hold.rehearsed.extend(told.rehearsed);
        hold.unknown_budgets.extend(told.unknown_budgets);
        if let Some(group) = left {
            let how = if was_sent { How::Refund } else { How::Cancel };
            self.end(vec![group], how, Amounts::default(), None, now).await;
        }
        Ok(Ok(()))
    }

    /// Ends parts; what the server does not hear of is told later.
    pub(crate) async fn end(&self, groups: Vec<Arc<Group>>, how: How, actual: Amounts, seq: Option<u64>, now: Now) {
        // Whoever drops this before the answers are there leaves everything to the outbox: an end may be repeated.
        let mut unheard = self.outbox.guard(
            groups
                .into_iter()
                .map(|group| Ending {
                    actual,
                    seq,
                    ..Ending::new(group, how, now.wall)
                })
                .collect(),
        );
        if self.health.is_degraded() {
            return;
        }
        let told = unheard
            .endings
            .iter()
            .map(|ending| self.finish(&ending.group, how, &actual, seq, now));
        let told: Vec<_> = join_all(told).await;
        for failed in told.iter().filter_map(|told| told.as_ref().err()) {
            self.note_failure(failed, now);
        }
        let mut told = told.into_iter();
        unheard.endings.retain(|_| !matches!(told.next(), Some(Ok(()))));
    }

    /// A call was of no use.
    pub(crate) fn note_failure(&self, failed: &CallFailed, now: Now) {
        let gives_up = self.counts_failure(failed);
        self.tell_failure(failed, gives_up, now);
    }

    /// A beat was of no use.
    pub(crate) fn note_missed_beat(&self, failed: &CallFailed, now: Now) {
        let gives_up = self.counts_failure(failed) | self.health.missed_beat();
        self.tell_failure(failed, gives_up, now);
    }

    fn counts_failure(&self, failed: &CallFailed) -> bool {
        match failed.is_silence() {
            true => self.health.was_silent(self.timeout()),
            false => self.health.failed(),
        }
    }

    fn tell_failure(&self, failed: &CallFailed, gives_up: bool, now: Now) {
        if gives_up {
            tracing::error!(
                error = chain(failed),
                failures = FAILURES_MAX,
                share_percent = self.health.share_percent(),
                at_ms = now.monotonic_ms,
                "the shared counters do not answer; this gateway admits a part of every limit by its own"
            );
        } else {
            tracing::debug!(error = chain(failed), "a call to the shared counters failed");
        }
    }

    /// What the server does when its memory is full, in its own word.
    pub(crate) async fn eviction(&self) -> Option<String> {
        self.connection.check_server().await.ok()?.maxmemory_policy
    }

    /// What is wrong with how the server is set up, in words.
    pub(crate) async fn complaint(&self) -> Option<String> {
        let facts = self.connection.check_server().await.ok()?;
        if facts.is_cluster == Some(true) && !self.is_cluster {
            return Some(
                "this Redis is a node of a cluster: begin its URL with redis-cluster:// (or rediss-cluster://)"
                    .to_owned(),
            );
        }
        let policy = facts.maxmemory_policy.filter(|policy| policy != "noeviction")?;
        Some(format!(
            "this Redis drops keys when its memory is full (maxmemory-policy is {policy}): counters vanish then; set it to \
             noeviction"
        ))
    }

    /// Says that this gateway is there, and hears who else is.
    pub(crate) async fn beat(
        &self,
        signs: &dyn LifeSigns,
        answered: &Answered,
        calls: bool,
        leaves: bool,
    ) -> Result<Heard, CallFailed> {
        // Looked up before anything is sent: what is settled later finds the budgets of the policy counting.
        let last_settled = signs.last_settled();
        // Of a cluster, a part that is lost is no less lost than the whole.
        self.connection.reach_all().await?;
        let reply = self
            .timely(&scripts::BEAT, signs.now(), |keys, args| {
                keys.push(names::BEATS_KEY);
                args.push(&self.instance);
                args.push(answered.policy_version);
                args.push(answered.call);
                args.push(&answered.memory);
                args.push(last_settled);
                args.push(u8::from(calls));
                args.push(u8::from(leaves));
                args.push(FORGOTTEN_MS);
            })
            .await?;
        Heard::of(reply)
    }

    /// Sets these millionths of what is left of budgets of these values aside for this gateway: how much that is, in
    /// units of the store; nothing where a base is missing.
    pub(crate) async fn set_aside(
        &self,
        budgets: &[(BudgetKey, u64)],
        millionths: u64,
        now: Now,
    ) -> Result<Vec<Option<u64>>, CallFailed> {
        let asked: Vec<(Asked, u64)> = budgets
            .iter()
            .map(|(key, value)| (Asked::of_budget(key, Tz::UTC), *value))
            .collect();
        let mut order: Vec<usize> = (0..asked.len()).collect();
        if self.is_cluster {
            order.sort_by_key(|&index| slot_of(asked[index].0.key().as_bytes()));
        }
        let slot = |index: &usize| slot_of(asked[*index].0.key().as_bytes());
        let same = |one: &usize, other: &usize| !self.is_cluster || slot(one) == slot(other);
        let mut parts = vec![None; asked.len()];
        for chunk in order.chunk_by(same) {
            let reply = self
                .timely(&scripts::SET_ASIDE, now, |keys, args| {
                    args.push(&self.instance);
                    args.push(KEPT_MS);
                    args.push(chunk.len());
                    for &index in chunk {
                        let (asked, value) = &asked[index];
                        asked.to_set_aside(*value, millionths, &self.settings, now.wall, keys, args);
                    }
                })
                .await?;
            let Some(Value::Array(found)) = reply.into_iter().nth(2) else {
                return Err(CallFailed::Unexpected);
            };
            for (&index, part) in chunk.iter().zip(found) {
                parts[index] = match part {
                    Value::Int(part) => Some(part.unsigned_abs()),
                    _ => None,
                };
            }
        }
        Ok(parts)
    }

    /// Tells the server one ending that it did not hear of.
    pub(crate) async fn tell(&self, ending: &Ending, now: Now) -> Result<(), CallFailed> {
        let now = Now { wall: ending.at, ..now };
        self.finish(&ending.group, ending.how, &ending.actual, ending.seq, now)
            .await
    }

    async fn finish(
        &self,
        group: &Group,
        how: How,
        actual: &Amounts,
        seq: Option<u64>,
        now: Now,
    ) -> Result<(), CallFailed> {
        let (mut keys, mut args) = (Words::default(), Words::default());
        self.push_time(now, &mut args);
        keys.push(&group.record);
        args.push(how.as_str());
        args.push(group.name);
        args.push(ENDED_MS);
        args.push(now.wall.timestamp_millis());
        args.push(&self.instance);
        args.push_some(seq);
        args.push(self.entries_together);
        args.push(PARTS_APART_MAX);
        args.push(group.counters.len());
        for counter in &group.counters {
            counter.to_finish(actual, &self.settings, now.wall, &mut keys, &mut args);
        }
        self.call(&scripts::FINISH, &keys, &args).await?;
        Ok(())
    }

    /// Ends what a request of an earlier life of this gateway still holds, and books it in the budgets that held for it.
    pub(crate) async fn settle_lost(
        &self,
        admission: &Admission<'_>,
        actual: &Amounts,
        seq: u64,
        now: Now,
    ) -> Result<(), CallFailed> {
        let name = self.names.next(admission.id);
        let mut branches = match self.is_cluster {
            true => Branch::of_tags(admission, &name, now.wall),
            false => vec![Branch::of_tree(admission, &name, now.wall)],
        };
        let upstreams = admission.upstreams.iter();
        branches.extend(upstreams.map(|candidate| Branch::of_upstream(&candidate.scope, admission, &name, now.wall)));
        let told = branches.iter().map(|branch| async {
            let leased = branch.group.leased();
            if leased.counters.is_empty() {
                return Ok(());
            }
            let (mut keys, mut args) = (Words::default(), Words::default());
            self.push_time(now, &mut args);
            args.push(admission.id);
            args.push(now.wall.timestamp_millis());
            args.push(&self.instance);
            args.push(seq);
            args.push(self.entries_together);
            args.push(PARTS_APART_MAX);
            args.push(leased.counters.len());
            for counter in &leased.counters {
                counter.to_settle_lost(actual, &self.settings, now.wall, &mut keys, &mut args);
            }
            self.call(&scripts::SETTLE_LOST, &keys, &args).await.map(|_| ())
        });
        join_all(told).await.into_iter().collect()
    }

    /// Extends the leases of these holds.
    pub(crate) async fn renew(&self, holds: &[Arc<OpenHold>], now: Now) -> Result<(), CallFailed> {
        let mut groups: Vec<Arc<Group>> = holds
            .iter()
            .flat_map(|hold| hold.groups_by_now(&self.budgets, self.is_cluster))
            .filter(|group| group.counters.iter().any(Asked::is_leased))
            .collect();
        if self.is_cluster {
            groups.sort_by(|one, other| one.tag.cmp(&other.tag));
        }
        let of_tags = groups.chunk_by(|one, other| !self.is_cluster || one.tag == other.tag);
        let calls: Vec<&[Arc<Group>]> = of_tags.flat_map(|groups| groups.chunks(RENEWED_MAX)).collect();
        let mut outcome = Ok(());
        // A few at a time: each has to be answered soon, and so have those of requests.
        for calls in calls.chunks(RENEWALS_AT_ONCE) {
            let renewed = join_all(calls.iter().map(|groups| self.renew_groups(groups, now))).await;
            outcome = renewed.into_iter().fold(outcome, Result::and);
        }
        outcome
    }

    async fn renew_groups(&self, groups: &[Arc<Group>], now: Now) -> Result<(), CallFailed> {
        self.timely(&scripts::RENEW, now, |keys, args| {
            args.push(self.settings.lease_ms);
            args.push(self.settings.orphan_ms);
            args.push(self.record_ms());
            args.push(now.wall.timestamp_millis());
            args.push(groups.len());
            for group in groups {
                keys.push(&group.record);
                args.push(group.name);
                args.push(group.counters.iter().filter(|counter| counter.is_leased()).count());
                for counter in &group.counters {
                    counter.to_renew(&self.settings, now.wall, keys, args);
                }
            }
        })
        .await?;
        Ok(())
    }

    /// Writes down what a provider says of these limits of its account, in answer to a request sent so long ago.
    pub(crate) async fn correct_upstream(
        &self,
        scope: &Scope,
        tellings: &[(&Limit, Telling)],
        sent_ms_ago: u64,
        now: Now,
    ) -> Result<(), CallFailed> {
        let tag = names::tag(scope, None);
        self.timely(&scripts::CORRECT_UPSTREAM, now, |keys, args| {
            args.push(sent_ms_ago);
            args.push(TOLD_MS);
            args.push(tellings.len());
            for (limit, telling) in tellings {
                keys.push(names::told_key(&names::limit_key(scope, &limit.slot(), &tag)));
                args.push(telling.remaining);
                args.push(telling.stands_ms);
                args.push(telling.per_window);
                args.push(u64::from(limit.window_seconds.max(1)) * 1_000);
            }
        })
        .await?;
        Ok(())
    }

    /// Every limit's reading, in the order given.
    pub(crate) async fn peek(
        &self,
        scopes: &[ScopeLimits],
        model: Option<&str>,
        priority: Option<Priority>,
        time_zone: Tz,
        now: Now,
    ) -> Result<Vec<Reading>, CallFailed> {
        let wanted: Vec<(&ScopeLimits, &Limit, Option<Asked>)> = scopes
            .iter()
            .flat_map(|of| of.limits.iter().map(move |limit| (of, limit)))
            .filter(|(_, limit)| {
                model.is_none_or(|model| limit.model.as_deref().is_none_or(|only| only == model))
                    && priority.is_none_or(|priority| limit.priority.is_none_or(|only| only == priority))
            })
            .map(|(of, limit)| {
                let asked = Asked::of(of, limit, 0, Priority::Critical, time_zone, now.wall);
                (of, limit, asked)
            })
            .collect();
        let counters: Vec<&Asked> = wanted.iter().filter_map(|(.., asked)| asked.as_ref()).collect();
        let mut states = self.states(&counters, now).await?.into_iter();
        let span = |limit: &Limit| limit.period.span(now.wall, time_zone);
        wanted
            .iter()
            .map(|(of, limit, asked)| {
                let Some(asked) = asked else {
                    return Ok(untouched(&of.scope, limit, time_zone, now.wall));
                };
                let (at, state) = states.next().ok_or(CallFailed::Unexpected)?;
                let alone = ScopeLimits {
                    limits: Arc::from([Limit::clone(limit)]),
                    ..ScopeLimits::clone(of)
                };
                let mut state = std::iter::once(state);
                let mut node = states::node(&alone, std::slice::from_ref(asked), &[0], &mut state, span, at)?;
                let counter = node.counters.first_mut().ok_or(CallFailed::Unexpected)?;
                counter.advance(limit, &self.settings, time_zone, at);
                Ok(counter.reading(&of.scope, limit, at))
            })
            .collect()
    }

    /// What would happen to this request.
    pub(crate) async fn explain(&self, admission: &Admission<'_>, now: Now) -> Result<Explanation, CallFailed> {
        let name = self.names.next(admission.id);
        let mut branches = vec![Branch::of_tree(admission, &name, now.wall)];
        let upstreams = admission.upstreams.iter();
        branches.extend(upstreams.map(|candidate| Branch::of_upstream(&candidate.scope, admission, &name, now.wall)));
        let counters: Vec<&Asked> = branches.iter().flat_map(|branch| &branch.group.counters).collect();
        let states = self.states(&counters, now).await?;
        let at = states.first().map_or(now, |(at, _)| *at);
        let mut states = states.into_iter().map(|(_, state)| state);
        let mut nodes = Vec::new();
        for branch in &branches {
            nodes.extend(
                nodes_of(branch, &mut states, admission, at)?
                    .into_iter()
                    .map(|(_, node)| node),
            );
        }
        Ok(explain::explain(nodes, admission, &self.settings, at))
    }

    /// Which of these budgets have no base.
    pub(crate) async fn without_base(
        &self,
        keys: &[BudgetKey],
        time_zone: Tz,
        now: Now,
    ) -> Result<Vec<BudgetKey>, CallFailed> {
        let asked: Vec<Asked> = keys.iter().map(|key| Asked::of_budget(key, time_zone)).collect();
        let states = self.states(&asked.iter().collect::<Vec<_>>(), now).await?;
        let is_closed = |state: &Value| !matches!(state, Value::Array(fields) if !matches!(fields.first(), None | Some(Value::Nil)));
        Ok(keys
            .iter()
            .zip(states)
            .filter(|(_, (_, state))| is_closed(state))
            .map(|(key, _)| key.clone())
            .collect())
    }

    /// Lets a budget count from now on. Nobody else is told to read its base for `reading_ms`.
    pub(crate) async fn begin_budget(
        &self,
        key: &BudgetKey,
        time_zone: Tz,
        reading_ms: u64,
        now: Now,
    ) -> Result<Begun, CallFailed> {
        self.budgets.note(key);
        let asked = Asked::of_budget(key, time_zone);
        let reply = self
            .timely(&scripts::BEGIN_BUDGET, now, |keys, args| {
                asked.to_begin(&self.settings, now.wall, keys, args);
                args.push(reading_ms);
                args.push(&self.instance);
            })
            .await?;
        match word(reply.first()) {
            Some(b"known") => Ok(Begun::Known),
            Some(b"read") => Ok(Begun::Read),
            Some(b"wait") => Ok(Begun::Wait),
            _ => Err(CallFailed::Unexpected),
        }
    }

    /// Sets what the ledger says about a budget, which contains each gateway's entries up to its mark. False where more
    /// is known.
    pub(crate) async fn set_budget<'a>(
        &self,
        key: &BudgetKey,
        spent: i64,
        marks: impl ExactSizeIterator<Item = (&'a str, u64)>,
        time_zone: Tz,
        now: Now,
    ) -> Result<bool, CallFailed> {
        let asked = Asked::of_budget(key, time_zone);
        let reply = self
            .timely(&scripts::SET_BUDGET, now, |keys, args| {
                asked.to_set(spent, &self.settings, now.wall, keys, args);
                args.push(marks.len());
                for (instance, mark) in marks {
                    args.push(instance);
                    args.push(mark);
                }
                args.push(&self.instance);
            })
            .await?;
        Ok(word(reply.first()) == Some(b"yes"))
    }

    fn hold(
        self: &Arc<Self>,
        groups: Vec<Arc<Group>>,
        chosen: Option<(usize, Arc<Group>)>,
        tree: &[Looked<'_>],
        upstreams: &[Looked<'_>],
        admission: &Admission<'_>,
        now: Now,
    ) -> Hold {
        let told = verdict::admitted(tree, upstreams, admission, &self.settings, now);
        let request = Request {
            id: admission.id,
            model: admission.model.into(),
            priority: admission.priority,
            ceiling: admission.estimate.ceiling,
            admitted_at: now.wall,
        };
        self.budgets.note_all(admission, now.wall);
        let name = groups.first().map(|group| group.name);
        let parts = SharedHold {
            shared: Arc::clone(self),
            tree: groups,
            upstream_index: chosen.as_ref().map(|(index, _)| *index),
            upstream: chosen.map(|(_, group)| group),
            scopes: admission.scopes.iter().map(|of| of.scope.clone()).collect(),
            time_zone: admission.time_zone,
            name: name.unwrap_or_else(|| self.names.next(admission.id)),
            local: None,
            local_upstream: None,
        };
        self.open.put(parts.open_hold(&request));
        Hold {
            upstream_index: parts.upstream_index.map(|index| admission.upstreams[index].index),
            request,
            parts: Parts::Shared(Box::new(parts)),
            rehearsed: told.rehearsed,
            unknown_budgets: told.unknown_budgets,
            tightest: told.tightest,
            is_sent: false,
            is_sent_upstream: false,
            is_open: true,
        }
    }

    /// Looks at a branch's counters without taking anything.
    async fn look<'a>(
        &self,
        branch: &Branch<'a>,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Answer<'a>, CallFailed> {
        let counters: Vec<&Asked> = branch.group.counters.iter().collect();
        let states = self.states(&counters, now).await?;
        let at = states.first().map_or(now, |(at, _)| *at);
        let mut states = states.into_iter().map(|(_, state)| state);
        Ok(Answer {
            is_yes: true,
            chosen: 0,
            now: at,
            branches: vec![looked_of(branch, &mut states, admission, at)?],
        })
    }

    /// Asks for the first branch and for the first of the others with room.
    async fn ask<'a>(
        &self,
        branches: &[Branch<'a>],
        keeps_request: bool,
        admission: &Admission<'_>,
        now: Now,
    ) -> Result<Answer<'a>, CallFailed> {
        let member = branches.first().map(|branch| branch.group.name.to_string());
        let member = member.unwrap_or_default();
        let reply = self
            .timely(&scripts::ADMIT, now, |keys, args| {
                args.push(&member);
                args.push(self.settings.lease_ms);
                args.push(self.settings.orphan_ms);
                args.push(self.record_ms());
                args.push(now.wall.timestamp_millis());
                args.push(branches.len());
                for branch in branches {
                    keys.push(&branch.group.record);
                    args.push(u8::from(!branch.refuses));
                    args.push(u8::from(keeps_request));
                    args.push(branch.group.counters.len());
                    for counter in &branch.group.counters {
                        counter.to_admit(&self.settings, now.wall, keys, args);
                    }
                }
            })
            .await?;
        let mut reply = reply.into_iter();
        let is_yes = match word(reply.next().as_ref()) {
            Some(b"yes") => true,
            Some(b"no") => false,
            Some(b"ended") => return Err(CallFailed::Ended),
            _ => return Err(CallFailed::Unexpected),
        };
        let mut numbers = [0; 3];
        for number in &mut numbers {
            let Some(Value::Int(found)) = reply.next() else {
                return Err(CallFailed::Unexpected);
            };
            *number = found;
        }
        let [at_ms, chosen, count] = numbers;
        let Some(Value::Array(states)) = reply.next() else {
            return Err(CallFailed::Unexpected);
        };
        let at = at(at_ms, now);
        let mut states = states.into_iter();
        let mut looked = Vec::with_capacity(branches.len());
        for branch in branches.iter().take(usize::try_from(count).unwrap_or(0)) {
            looked.push(looked_of(branch, &mut states, admission, at)?);
        }
        Ok(Answer {
            is_yes,
            chosen: usize::try_from(chosen).unwrap_or(0),
            now: at,
            branches: looked,
        })
    }

    /// The states of counters, each with the time it was read at.
    async fn states(&self, counters: &[&Asked], now: Now) -> Result<Vec<(Now, Value)>, CallFailed> {
        let mut order: Vec<usize> = (0..counters.len()).collect();
        if self.is_cluster {
            order.sort_by_key(|&index| slot_of(counters[index].key().as_bytes()));
        }
        let same = |one: &usize, other: &usize| {
            !self.is_cluster || slot_of(counters[*one].key().as_bytes()) == slot_of(counters[*other].key().as_bytes())
        };
        let chunks: Vec<&[usize]> = order
            .chunk_by(same)
            .flat_map(|chunk| chunk.chunks(PEEKED_MAX))
            .collect();
        let calls = chunks.iter().map(|chunk| async {
            let (mut keys, mut args) = (Words::default(), Words::default());
            self.push_time(now, &mut args);
            args.push(now.wall.timestamp_millis());
            args.push(chunk.len());
            for &index in *chunk {
                counters[index].to_peek(&mut keys, &mut args);
            }
            self.call(&scripts::PEEK, &keys, &args).await
        });
        let mut found: Vec<Option<(Now, Value)>> = counters.iter().map(|_| None).collect();
        for (chunk, reply) in chunks.iter().zip(join_all(calls).await) {
            let Value::Array(reply) = reply? else {
                return Err(CallFailed::Unexpected);
            };
            let mut reply = reply.into_iter();
            let (Some(Value::Int(at_ms)), Some(Value::Array(states))) = (reply.next(), reply.next()) else {
                return Err(CallFailed::Unexpected);
            };
            let mut states = states.into_iter();
            for &index in *chunk {
                // A script's list ends before trailing nothings.
                found[index] = Some((at(at_ms, now), states.next().unwrap_or(Value::Nil)));
            }
        }
        found
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .ok_or(CallFailed::Unexpected)
    }

    /// A call that does nothing once it is late. Where our idea of the server's time was wrong, it is put right and the
    /// call made once more.
    pub(crate) async fn timely(
        &self,
        script: &Script,
        now: Now,
        rest: impl FnOnce(&mut Words, &mut Words),
    ) -> Result<Vec<Value>, CallFailed> {
        let (mut keys, mut args) = (Words::default(), Words::default());
        rest(&mut keys, &mut args);
        for _ in 0..2 {
            let sent = Instant::now();
            let clock = self.clock_of(&keys);
            let deadline = sent + self.timeout();
            let not_after = match self.time {
                TimeOf::Caller => NEVER_MS,
                TimeOf::Server => clock.at(deadline).unwrap_or(0),
            };
            let mut opening = Words::default();
            self.push_time(now, &mut opening);
            opening.push(not_after);
            let Value::Array(reply) = self.call_with(script, &keys, &opening, &args).await? else {
                return Err(CallFailed::Unexpected);
            };
            if let Some(Value::Int(server_ms)) = reply.get(1)
                && self.time == TimeOf::Server
            {
                clock.learn(*server_ms, sent, Instant::now());
            }
            if word(reply.first()) != Some(b"late") {
                return Ok(reply);
            }
        }
        Err(CallFailed::Late)
    }

    async fn call(&self, script: &Script, keys: &Words, args: &Words) -> Result<Value, CallFailed> {
        self.call_with(script, keys, args, &Words::default()).await
    }

    async fn call_with(
        &self,
        script: &Script,
        keys: &Words,
        opening: &Words,
        args: &Words,
    ) -> Result<Value, CallFailed> {
        let keys: Vec<&[u8]> = keys.iter().collect();
        let args: Vec<Arg<'_>> = opening.iter().chain(args.iter()).map(Arg::from).collect();
        Ok(self.connection.call(script, &keys, &args).await?)
    }

    fn push_time(&self, now: Now, args: &mut Words) {
        match self.time {
            TimeOf::Server => args.push(""),
            TimeOf::Caller => args.push(now.monotonic_ms),
        }
    }

    fn timeout(&self) -> Duration {
        self.connection.command_timeout()
    }

    fn clock_of(&self, keys: &Words) -> &ServerClock {
        let slot = match keys.iter().next() {
            Some(key) if self.is_cluster => slot_of(key),
            _ => 0,
        };
        &self.clocks[usize::from(slot / SLOTS_PER_CLOCK)]
    }

    /// How long a server keeps what a request has taken, should nobody end it, in milliseconds.
    fn record_ms(&self) -> u64 {
        self.settings.lease_ms + self.settings.orphan_ms
    }

    fn pending(self: &Arc<Self>, branches: &[Branch<'_>], now: Now) -> Pending {
        Pending {
            shared: Arc::clone(self),
            groups: branches.iter().map(|branch| Arc::clone(&branch.group)).collect(),
            at: now.wall,
        }
    }

    /// The answer, for which the last `asked` groups are pending; what was surely not done needs no giving back.
    fn outcome<'a>(
        outcome: Result<Answer<'a>, CallFailed>,
        pending: &mut Pending,
        asked: usize,
    ) -> Result<Answer<'a>, CallFailed> {
        if outcome.as_ref().is_err_and(|failed| !failed.may_have_run()) {
            pending.groups.truncate(pending.groups.len().saturating_sub(asked));
        }
        outcome
    }
}

fn nodes_of<'a>(
    branch: &Branch<'a>,
    states: &mut impl Iterator<Item = Value>,
    admission: &Admission<'_>,
    now: Now,
) -> Result<VecDeque<(&'a ScopeLimits, Node)>, CallFailed> {
    let span = |limit: &Limit| limit.period.span(now.wall, admission.time_zone);
    let mut counters = &branch.group.counters[..];
    let mut nodes = VecDeque::new();
    for leaf in &branch.leaves {
        let (own, rest) = counters.split_at(leaf.limits.len());
        counters = rest;
        nodes.push_back((leaf.of, states::node(leaf.of, own, &leaf.limits, states, span, now)?));
    }
    Ok(nodes)
}

fn looked_of<'a>(
    branch: &Branch<'a>,
    states: &mut impl Iterator<Item = Value>,
    admission: &Admission<'_>,
    now: Now,
) -> Result<Vec<(usize, Looked<'a>)>, CallFailed> {
    let nodes = nodes_of(branch, states, admission, now)?;
    let places = branch.leaves.iter().map(|leaf| leaf.place);
    Ok(places
        .zip(nodes)
        .map(|(place, (of, node))| {
            let node = parking_lot::Mutex::new(node);
            (place, Looked { of, node, now })
        })
        .collect())
}

/// The scopes of all branches in the order of the tree.
fn in_order(branches: Vec<Vec<(usize, Looked<'_>)>>) -> Vec<Looked<'_>> {
    let mut all: Vec<_> = branches.into_iter().flatten().collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, looked)| looked).collect()
}

/// The scopes of branches that have one each.
fn one_by_one(branches: Vec<Vec<(usize, Looked<'_>)>>) -> Vec<Looked<'_>> {
    branches.into_iter().flatten().map(|(_, looked)| looked).collect()
}

fn at(server_ms: i64, now: Now) -> Now {
    Now {
        monotonic_ms: server_ms.unsigned_abs(),
        wall: now.wall,
    }
}

fn latest(one: Now, other: Now) -> Now {
    Now {
        monotonic_ms: one.monotonic_ms.max(other.monotonic_ms),
        wall: other.wall,
    }
}

pub(crate) fn word(value: Option<&Value>) -> Option<&[u8]> {
    match value {
        Some(Value::BulkString(bytes)) => Some(bytes),
        Some(Value::SimpleString(text)) => Some(text.as_bytes()),
        _ => None,
    }
}
