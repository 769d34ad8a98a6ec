//! A higher value of one limit for a while: it ends by itself at the end of a day.

use chrono::{DateTime, Days, NaiveDate, Utc};
use chrono_tz::Tz;
use domain::ids::LimitId;
use domain::limits::{Dimension, Increase, Limit, Target};
use domain::money::Nanos;
use domain::periods::end_of_day;
use domain::text;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::limits;

use super::draft::check_value;
use super::{changed, require_version, shown};
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// How far ahead the last day of an increase may be.
pub const INCREASE_DAYS_MAX: u64 = 366;
/// The longest reason, in characters.
pub const INCREASE_REASON_CHARS_MAX: usize = 500;

const VALUE: &str = "increase_value";
const LAST_DAY: &str = "increase_last_day";
const REASON: &str = "increase_reason";

/// An increase as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncreaseDraft {
    /// Field `increase_value`: above the limit's own, in its unit.
    pub value: u64,
    /// Field `increase_last_day`: the last day of it, in the billing zone; at most [`INCREASE_DAYS_MAX`] days ahead.
    pub last_day: NaiveDate,
    /// Field `increase_reason`: why, for the audit log; at most [`INCREASE_REASON_CHARS_MAX`] characters.
    pub reason: String,
}

/// The same as a form's texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IncreaseText {
    /// Requests, tokens, seconds, or an amount of the currency.
    pub increase_value: String,
    /// A date such as 2026-12-15.
    pub increase_last_day: String,
    /// Some words.
    pub increase_reason: String,
}

impl IncreaseText {
    /// The texts for the increase that a limit has at `at`; blank where it has none.
    pub fn of(limit: &Limit, at: DateTime<Utc>, zone: Tz) -> Self {
        let Some(increase) = limit.increase_at(at) else {
            return Self::default();
        };
        Self {
            increase_value: match limit.dimension {
                Dimension::BudgetCost => Nanos(i64::try_from(increase.value).unwrap_or(i64::MAX)).to_string(),
                _ => increase.value.to_string(),
            },
            increase_last_day: last_day(increase, zone).to_string(),
            increase_reason: String::new(),
        }
    }

    /// Reads the texts; what is wrong is noted under the fields' names.
    pub fn parse(&self, dimension: Dimension, fields: &mut Fields) -> IncreaseDraft {
        let value = match dimension {
            Dimension::BudgetCost => fields
                .amount(VALUE, &self.increase_value)
                .map(|cost| u64::try_from(cost.0).unwrap_or(0)),
            _ => fields.count(VALUE, &self.increase_value),
        };
        if self.increase_value.trim().is_empty() {
            fields.refuse(VALUE, text!("write what it shall be until then"));
        }
        let last_day = self.increase_last_day.trim().parse::<NaiveDate>().ok();
        fields.require(last_day.is_some(), LAST_DAY, text!("write a date such as 2026-12-15"));
        IncreaseDraft {
            value: value.unwrap_or(0),
            last_day: last_day.unwrap_or_default(),
            reason: self.increase_reason.trim().to_owned(),
        }
    }
}

/// The last day of an increase.
pub fn last_day(increase: Increase, zone: Tz) -> NaiveDate {
    (increase.until - chrono::Duration::nanoseconds(1))
        .with_timezone(&zone)
        .date_naive()
}

impl Control {
    /// Gives a limit a higher value until the end of a day, in place of the increase it has if there is one. Its own value
    /// stays what it is. Returns the node's new version.
    pub async fn increase_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        id: LimitId,
        draft: &IncreaseDraft,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        actor.require_operator()?;
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        let rows = limits::lock(&mut transaction, target).await?;
        require_version(&rows, version)?;
        let limit = rows
            .limits
            .iter()
            .find(|limit| limit.id == id)
            .ok_or(ControlError::NotFound { what: "limit" })?;
        let increased = Limit {
            increase: Some(checked(draft, limit, now, zone)?),
            ..limit.clone()
        };
        limits::update(&mut transaction, &increased).await?;
        let change = Change {
            after: Some(json!({ "limit": shown(&increased), "reason": draft.reason })),
            ..changed("limit.increase", target, Some(limit), None)
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(rows.version + 1)
    }

    /// Ends the increase that a limit has, now. Returns the node's new version.
    pub async fn end_increase(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        id: LimitId,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let rows = limits::lock(&mut transaction, target).await?;
        require_version(&rows, version)?;
        let limit = rows
            .limits
            .iter()
            .find(|limit| limit.id == id && limit.increase_at(now).is_some())
            .ok_or(ControlError::NotFound { what: "increase" })?;
        let ended = Limit {
            increase: None,
            ..limit.clone()
        };
        limits::update(&mut transaction, &ended).await?;
        let change = changed("limit.end_increase", target, Some(limit), Some(&ended));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(rows.version + 1)
    }
}

pub(super) fn checked(
    draft: &IncreaseDraft,
    limit: &Limit,
    now: DateTime<Utc>,
    zone: Tz,
) -> Result<Increase, ControlError> {
    let mut fields = Fields::default();
    check_value(&mut fields, VALUE, limit.dimension, draft.value);
    fields.require(
        draft.value > limit.value,
        VALUE,
        text!("write more than the ordinary value; to lower it, change that"),
    );
    let today = now.with_timezone(&zone).date_naive();
    let latest = today.checked_add_days(Days::new(INCREASE_DAYS_MAX)).unwrap_or(today);
    if draft.last_day < today {
        fields.refuse(LAST_DAY, text!("this day is over already"));
    } else if draft.last_day > latest {
        fields.refuse(
            LAST_DAY,
            text!(
                "at most {count} days ahead; for longer, change the limit itself",
                count = INCREASE_DAYS_MAX
            ),
        );
    }
    fields.require(
        !draft.reason.is_empty(),
        REASON,
        text!("say why; the audit log keeps it with your name"),
    );
    if draft.reason.chars().count() > INCREASE_REASON_CHARS_MAX {
        fields.refuse(
            REASON,
            text!("at most {count} characters", count = INCREASE_REASON_CHARS_MAX),
        );
    }
    fields.require(
        !draft.reason.contains('\0'),
        REASON,
        text!("this holds a character that cannot be kept"),
    );
    fields.check()?;
    Ok(Increase {
        value: draft.value,
        until: end_of_day(draft.last_day, zone),
    })
}
