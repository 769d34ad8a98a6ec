//! What the limits say now, and what would become of a request that nobody sends. Takes nothing, notes nothing.

use std::sync::Arc;

use domain::ids::RequestId;
use domain::key_text::SecretHash;
use domain::limits::Scope;
use domain::questions::{Answer, Question, ToldRefusal};
use domain::readings::{CounterStore, Explanation, LiveLimit, Readings};
use limits::{Mode, Now, ScopeLimits};

use crate::Gateway;
use crate::authenticate::{Caller, Unauthenticated};
use crate::case::{self, Case};
use crate::pricing::Pricing;
use crate::refusal::Refusal;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No policy was ever read.
    #[error("this gateway has not read its policy yet")]
    NoPolicy,
    /// The policy in force knows no such key.
    #[error("the policy in force does not know this key")]
    UnknownKey,
}

impl Gateway {
    /// Where the counters are kept that answer now.
    pub fn counter_store(&self) -> CounterStore {
        match (self.limits.store_name(), self.limits.mode(self.clock.now())) {
            (_, Mode::Degraded { .. }) => CounterStore::Degraded,
            ("redis", _) => CounterStore::Redis,
            _ => CounterStore::Memory,
        }
    }

    /// What the limits in force on these nodes say.
    ///
    /// # Errors
    /// [`Unanswered::NoPolicy`].
    pub async fn readings(&self, scopes: &[Scope]) -> Result<Readings, Unanswered> {
        let policy = self.policy().ok_or(Unanswered::NoPolicy)?;
        let now = self.clock.now();
        let nodes: Vec<ScopeLimits> = scopes.iter().map(|scope| policy.limits_on(scope)).collect();
        let (store, readings) = self
            .limits
            .read(&nodes, None, None, policy.settings.time_zone, now)
            .await;
        let limits = nodes.iter().flat_map(|node| node.limits.iter());
        Ok(Readings {
            store,
            at: now.wall,
            limits: limits
                .zip(readings)
                .map(|(limit, reading)| LiveLimit {
                    limit: limit.clone(),
                    reading,
                })
                .collect(),
        })
    }

    /// Whether a request that shows this secret would be known now.
    ///
    /// # Errors
    /// [`Unanswered::NoPolicy`].
    pub fn knows_secret(&self, secret: &SecretHash) -> Result<bool, Unanswered> {
        let policy = self.policy().ok_or(Unanswered::NoPolicy)?;
        Ok(policy.find_key(secret, self.clock.now().wall).is_some())
    }

    /// What would become of this request now.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub async fn explain(&self, question: &Question) -> Result<Answer, Unanswered> {
        let policy = self.policy().ok_or(Unanswered::NoPolicy)?;
        let now = self.clock.now();
        let key = policy
            .find_key_by_id(question.key_id)
            .map(Arc::clone)
            .ok_or(Unanswered::UnknownKey)?;
        let tenant = policy
            .find_tenant(key.tenant_id)
            .map(Arc::clone)
            .ok_or(Unanswered::UnknownKey)?;
        let caller = Caller {
            policy,
            key,
            tenant,
            secret: None,
        };
        let mut answer = Answer {
            store: self.counter_store(),
            asked_at: now.wall,
            priority: case::priority(&caller, question.priority),
            user_id: None,
            estimate: None,
            refusal: None,
            explanation: Explanation::default(),
            is_upstream_drawn: false,
        };
        match self.case(&caller, question, &mut answer, now) {
            Err(refusal) => answer.refusal = Some(told(refusal)),
            Ok(case) => {
                let id = RequestId::new(now.wall, self.random());
                let (store, mut explanation) = self.limits.explain(&case.admission(id), now).await;
                answer.store = store;
                answer.refusal = explanation
                    .told
                    .and_then(|index| explanation.answers.get(index))
                    .and_then(Refusal::from_answer)
                    .map(told);
                // What is journalled last refuses last.
                if answer.refusal.is_none() && self.journal.status(now.wall).is_full {
                    explanation.upstream = None;
                    answer.refusal = Some(told(case::ledger_full()));
                }
                answer.is_upstream_drawn = case.is_upstream_drawn();
                answer.explanation = explanation;
            }
        }
        Ok(answer)
    }

    /// The way of `Asked::judge` from the known key to the limits; notes in the answer what it finds out.
    fn case(&self, caller: &Caller, question: &Question, answer: &mut Answer, now: Now) -> Result<Case, Refusal> {
        if !caller.key.has_valid_secret(now.wall) {
            let unknown = Unauthenticated::Unknown;
            return Err(Refusal::plain(unknown.code(), unknown.to_string()));
        }
        if let Some((code, message)) = caller.refusal_at(now.wall) {
            return Err(Refusal::plain(code, message));
        }
        let user = case::user(caller, question.user.as_deref(), None)?;
        answer.user_id = user.id().map(ToString::to_string);
        let model = case::model(caller, &question.model)?;
        let pricing = Pricing::choose(&model, &caller.policy.settings, now.wall)?;
        let tokens = self.estimates.estimate_given(
            question.input_tokens,
            question.output_cap_tokens,
            &model.model,
            &caller.key,
        );
        let estimate = pricing.estimate(tokens.expected, tokens.ceiling);
        answer.estimate = Some(estimate);
        let asked = (answer.priority, estimate);
        let dialect = case::dialect_of(caller, &model);
        let case = Case::new(self, caller, &user, &model, dialect, asked, now)?;
        if let Some((tenant, name)) = case::limited_end_user(&user, &case.scopes) {
            let counted = |scope: &Scope| self.limits.has_counters(scope, now);
            if !self.end_users.would_take(tenant, &name, now.monotonic_ms, counted) {
                return Err(case::too_many_end_users());
            }
        }
        Ok(case)
    }
}

fn told(refusal: Refusal) -> ToldRefusal {
    ToldRefusal {
        code: refusal.code,
        message: refusal.message,
        retry_after_seconds: refusal.retry_after_seconds,
    }
}
