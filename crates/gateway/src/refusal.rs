//! What a refused caller is told: the wording of every refusal, decided without input or output.

use domain::limits::{Dimension, Scope};
use domain::readings::LimitAnswer;
use domain::refusals::{RefusalCode, retry_after_seconds};
use limits::Denial;

use crate::queue::{Blocked, Full};

/// A refusal ready to be answered and booked.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// For the caller.
    pub message: String,
    /// The field of the body at fault, where one is.
    pub param: Option<&'static str>,
    /// Whole seconds until a retry makes sense.
    pub retry_after_seconds: Option<u64>,
    /// What admission found; absent where admission was not asked.
    pub denial: Option<Box<Denial>>,
    /// What it waited for where admission was not asked, because others were first.
    pub waited_for: Option<Box<(Scope, Dimension)>>,
    /// Which upstream is tried first again; absent where there is another reason.
    pub unavailable: Option<Box<Unavailable>>,
}

/// Every upstream that could take the request is left alone for now. This one is tried first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable {
    /// The upstream.
    pub scope: Scope,
    /// In so many milliseconds.
    pub retry_after_ms: u64,
}

/// The retry hint of a refusal that heals but cannot be predicted, in milliseconds.
const UNPREDICTED_RETRY_MS: u64 = 1_000;

impl Refusal {
    /// A refusal that no limit made.
    pub(crate) fn plain(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            param: None,
            retry_after_seconds: code
                .is_retryable()
                .then(|| retry_after_seconds(UNPREDICTED_RETRY_MS, 0.0)),
            denial: None,
            waited_for: None,
            unavailable: None,
        }
    }

    /// Every upstream that could take the request is left alone for now. `random` in 0..=1 spreads the retries of many
    /// callers.
    pub(crate) fn unavailable(unavailable: Unavailable, random: f64) -> Self {
        let retry_after = retry_after_seconds(unavailable.retry_after_ms, random);
        Self {
            retry_after_seconds: Some(retry_after),
            unavailable: Some(Box::new(unavailable)),
            ..Self::plain(
                RefusalCode::UpstreamUnavailable,
                format!(
                    "The model's provider does not answer properly at the moment, or has reached its own limit. \
                     Retry in {retry_after} s or choose another model."
                ),
            )
        }
    }

    /// What a denial means for the caller. `random` in 0..=1 spreads the retries of many callers.
    pub(crate) fn from_denial(denial: Box<Denial>, random: f64) -> Self {
        let told = Told {
            code: denial.code,
            scope: &denial.scope,
            dimension: denial.dimension,
            limit_value: denial.limit_value,
            retry_after_ms: denial.retry_after_ms,
        };
        let refusal = told.refusal(random);
        Self {
            denial: Some(denial),
            ..refusal
        }
    }

    /// There is no room, and no place to wait for it.
    pub(crate) fn queue_full(self, full: Full) -> Self {
        let why = match full {
            Full::Places => "So many requests wait here already that no more may.",
            Full::Tenant => "So many requests of your tenant wait here already that no more may.",
        };
        self.of_queue(RefusalCode::QueueFull, why)
    }

    /// It waited as long as it may, and there was no room.
    pub(crate) fn queue_timeout(self, waited_ms: u64) -> Self {
        let why = format!("There was no room for {} s.", waited_ms.div_ceil(1_000));
        self.of_queue(RefusalCode::QueueTimeout, &why)
    }

    fn of_queue(self, code: RefusalCode, why: &str) -> Self {
        Self {
            code,
            message: format!("{why} {}", self.message),
            ..self
        }
    }

    /// Others wait for the same and came first; what they wait for is all that is known. `retry_after_ms` is their wait.
    pub(crate) fn behind(blocked: &Blocked, retry_after_ms: u64, random: f64) -> Self {
        let retry_after = retry_after_seconds(retry_after_ms, random);
        Self {
            retry_after_seconds: Some(retry_after),
            waited_for: Some(Box::new((blocked.scope.clone(), blocked.dimension))),
            ..Self::plain(
                RefusalCode::RateLimitExceeded,
                format!("Others wait for the same. Retry in {retry_after} s."),
            )
        }
    }

    /// Where it was refused, and in what.
    pub(crate) fn place(&self) -> Option<(&Scope, Dimension)> {
        let denied = self.denial.as_deref().map(|denial| (&denial.scope, denial.dimension));
        let of_others = self.waited_for.as_deref().map(|(scope, dimension)| (scope, *dimension));
        let left_alone = self.unavailable.as_ref().map(|left| (&left.scope, Dimension::Requests));
        denied.or(of_others).or(left_alone)
    }

    /// What the caller would be told if this limit refused; `None` where it has room. Without jitter.
    pub(crate) fn from_answer(answer: &LimitAnswer) -> Option<Self> {
        let refusal = answer.refusal?;
        let told = Told {
            code: refusal.code,
            scope: &answer.reading.scope,
            dimension: answer.reading.dimension,
            limit_value: answer.reading.limit_value,
            retry_after_ms: refusal.retry_after_ms,
        };
        Some(told.refusal(0.0))
    }
}

/// What a limit says that refuses.
struct Told<'a> {
    code: RefusalCode,
    scope: &'a Scope,
    dimension: Dimension,
    limit_value: u64,
    retry_after_ms: Option<u64>,
}

impl Told<'_> {
    fn refusal(&self, random: f64) -> Refusal {
        let retry_after = self
            .code
            .is_retryable()
            .then(|| retry_after_seconds(self.retry_after_ms.unwrap_or(UNPREDICTED_RETRY_MS), random));
        Refusal {
            message: self.message(retry_after),
            code: self.code,
            param: None,
            retry_after_seconds: retry_after,
            denial: None,
            waited_for: None,
            unavailable: None,
        }
    }

    fn message(&self, retry_after: Option<u64>) -> String {
        let retry = retry_after
            .map(|seconds| format!(" Retry in {seconds} s."))
            .unwrap_or_default();
        let whose = whose(self.scope);
        let what = what(self.dimension);
        let value = self.limit_value;
        match self.code {
            RefusalCode::RequestTooLarge => format!(
                "This request is too large: {whose} allows {value} {what}. Make the prompt shorter or ask for less output."
            ),
            RefusalCode::BudgetExhausted => {
                format!(
                    "The budget of {whose} is spent for this period.{retry} Ask whoever manages it for a higher budget."
                )
            }
            RefusalCode::BudgetHeld => {
                format!("The rest of the budget of {whose} is held by requests that are still running.{retry}")
            }
            RefusalCode::BudgetUnknown => {
                format!("What {whose} has spent is not known yet, so nothing is admitted on its budget.{retry}")
            }
            RefusalCode::ConcurrencyLimitExceeded if self.scope.is_own() => {
                format!("Too many requests at once: {whose} allows {value} in flight.{retry}")
            }
            RefusalCode::RateLimitExceeded if self.scope.is_own() => {
                format!("Too many requests: {whose} allows {value} {what}.{retry}")
            }
            _ => format!("The service is busy.{retry}"),
        }
    }
}

/// Ids are left out: the caller knows its own, and those of others are none of its business.
fn whose(scope: &Scope) -> &'static str {
    match scope {
        Scope::Global => "this service",
        Scope::ModelGroup(_) => "this group of models",
        Scope::Model(_) => "this model",
        Scope::Tenant(_) => "your tenant",
        Scope::User(..) => "your user",
        Scope::Key(_) => "your API key",
        Scope::Upstream(_) => "the provider",
    }
}

fn what(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => "requests per window",
        Dimension::InputTokens => "input tokens per window",
        Dimension::OutputTokens => "output tokens per window",
        Dimension::TotalTokens => "tokens per window",
        Dimension::Concurrency => "requests in flight",
        Dimension::BudgetTokens => "tokens per period",
        Dimension::BudgetCost => "of cost per period",
        Dimension::RequestInputTokens => "input tokens per request",
        Dimension::RequestOutputTokens => "output tokens per request",
        Dimension::RequestSeconds => "seconds per request",
    }
}
