//! Adjustments: signed corrections of the ledger, of one request or of a tenant's account. Operators book them; whoever
//! may see what they correct sees them.

mod draft;

use chrono::{DateTime, Duration, Utc};
use chrono_tz::Tz;
use domain::adjustments::{Corrected, CorrectionError, Figures, correct};
use domain::ids::{AdjustmentId, RequestId, TenantId};
use domain::ledger::{Adjustment, Settlement};
use domain::management_tokens::Permission;
use domain::periods::Month;
use domain::prices::Price;
use domain::priority::Priority;
use domain::reports::MonthState;
use domain::text;
use serde_json::{Value, json};
use store::adjustments::{
    ADJUSTMENTS_OF_REQUEST_MAX, AdjustmentCursor, AdjustmentFilter, AdjustmentPage, insert_adjustment, of_request,
};
use store::entries::Named;
use store::{Transaction, adjustments, models};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};

pub use draft::{AdjustmentDraft, AdjustmentText, CorrectionDraft, CorrectionText, TokensDraft, When};

/// The longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 500;
/// The longest reference, in characters.
pub const REFERENCE_CHARS_MAX: usize = 200;
/// A form is filled in to the minute, so an instant this far ahead still means now, in minutes.
const AHEAD_MINUTES_MAX: i64 = 1;

/// A request that can be corrected, and what a correction needs to know.
#[derive(Clone, Debug)]
pub struct Correctable {
    /// The request as it was settled.
    pub request: Named<Settlement>,
    /// Its adjustments, in the order in which they were made. Their number is the version that a correction names.
    pub adjustments: Vec<Adjustment>,
    /// The price that it was charged at, if it was a price.
    pub charged: Option<Price>,
    /// Prices of its model that it can be charged at instead, the latest first.
    pub others: Vec<Price>,
}

impl Correctable {
    /// What it amounts to now.
    pub fn now(&self) -> Figures {
        Figures::of_settlement(&self.request.entry) + adjusted(&self.adjustments)
    }

    /// How many adjustments it has: what a correction of it was made for.
    pub fn version(&self) -> i64 {
        self.adjustments.len() as i64
    }

    /// What the draft comes to. What is wrong with it is said beside its fields.
    fn correct(&self, draft: &CorrectionDraft) -> Result<Corrected, ControlError> {
        let settlement = &self.request.entry;
        let adjusted = adjusted(&self.adjustments);
        let correction = draft.correction(settlement, adjusted, self.charged.as_ref(), &self.others)?;
        correct(settlement, adjusted, &correction).map_err(|error| ControlError::field("", error.text()))
    }
}

/// An adjustment that is about to be made, as people read it before they say so.
#[derive(Clone, Debug)]
pub struct AdjustmentPreview {
    /// Whose account.
    pub tenant_name: String,
    /// Whose within the tenant: a person's id or an end user's name, and the person's name.
    pub user: Option<(String, Option<String>)>,
    /// The name of the key.
    pub key_name: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The instant whose period and month it counts in.
    pub admitted_at: DateTime<Utc>,
    /// What is adjusted.
    pub figures: Figures,
    /// The month whose report changes.
    pub month: TouchedMonth,
}

/// A month whose report an adjustment changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchedMonth {
    /// Which one.
    pub month: Month,
    /// Its state now.
    pub state: MonthState,
}

/// Why an adjustment is made, as its form says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// Made with the form, so that a form that is sent twice is booked once.
    pub id: AdjustmentId,
    /// Field `reason`; must be filled in.
    pub reason: String,
    /// Field `reference`: a ticket, credit note or invoice.
    pub reference: String,
}

impl Control {
    /// Adjustments, the latest made first: everybody's for those who see everything, a manager's own tenant's, those of a
    /// member's own keys and name. A month means those that count in it.
    pub async fn adjustments(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        month: Option<Month>,
        after: Option<AdjustmentCursor>,
        adjustments_max: u32,
    ) -> Result<AdjustmentPage, ControlError> {
        let filter = self.adjustments_within_reach(actor, tenant, month).await?;
        let mut page = self.store.adjustments(&filter, after, adjustments_max).await?;
        if actor.reach()? != Reach::Everything {
            page.adjustments
                .iter_mut()
                .for_each(|named| hide_upstream(&mut named.entry));
        }
        Ok(page)
    }

    /// What was asked for, cut down to what the actor may see.
    pub(crate) async fn adjustments_within_reach(
        &self,
        actor: &Actor,
        tenant: Option<TenantId>,
        month: Option<Month>,
    ) -> Result<AdjustmentFilter, ControlError> {
        actor.require_permission(Permission::LedgerRead)?;
        let mut filter = AdjustmentFilter {
            tenant,
            ..AdjustmentFilter::default()
        };
        actor.narrow(&mut filter.tenant, &mut filter.owner)?;
        if let Some(month) = month {
            let zone = self.settings().await?.settings.time_zone;
            filter.span = Some(month.span(zone));
        }
        Ok(filter)
    }

    /// The adjustments of a request that the actor may see, in the order in which they were made.
    pub async fn adjustments_of(&self, actor: &Actor, id: RequestId) -> Result<Vec<Adjustment>, ControlError> {
        self.ledger_entry(actor, id).await?;
        let mut adjustments = self.store.adjustments_of_request(id).await?;
        if actor.reach()? != Reach::Everything {
            adjustments.iter_mut().for_each(hide_upstream);
        }
        Ok(adjustments)
    }

    /// An id for an adjustment whose form is being made.
    pub fn new_adjustment_id(&self, now: DateTime<Utc>) -> AdjustmentId {
        self.new_id(AdjustmentId::new, now)
    }

    /// A request that ran, for the form that corrects it.
    pub async fn correctable(&self, actor: &Actor, id: RequestId) -> Result<Correctable, ControlError> {
        actor.require_operator()?;
        let adjustments = self.store.adjustments_of_request(id).await?;
        self.correctable_with(id, adjustments).await
    }

    async fn correctable_with(&self, id: RequestId, adjustments: Vec<Adjustment>) -> Result<Correctable, ControlError> {
        let request = self.store.find_settlement(id).await?;
        let request = request.ok_or(ControlError::NotFound { what: "request" })?;
        let charged = match request.entry.price_id {
            Some(id) => self.store.find_price(id).await?,
            None => None,
        };
        let prices = match &request.entry.identity.model {
            Some(model) => self.store.prices_of(model).await?,
            None => Vec::new(),
        };
        let is_other = |price: &Price| charged.as_ref().is_none_or(|charged| charged.id != price.id);
        let others = prices.into_iter().map(|stored| stored.price).filter(is_other).collect();
        Ok(Correctable {
            request,
            adjustments,
            charged,
            others,
        })
    }

    /// What a correction comes to, and the month that it changes. Nothing is written.
    pub async fn preview_correction(
        &self,
        actor: &Actor,
        correctable: &Correctable,
        draft: &CorrectionDraft,
        now: DateTime<Utc>,
    ) -> Result<(Corrected, TouchedMonth), ControlError> {
        actor.require_operator()?;
        let corrected = correctable.correct(draft)?;
        let month = self.touched_month(correctable.request.entry.admitted_at, now).await?;
        Ok((corrected, month))
    }

    /// Corrects a request that had `version` adjustments when its operator looked. Sent twice, it is booked once; what is
    /// returned is what was booked.
    pub async fn correct_request(
        &self,
        actor: &Actor,
        id: RequestId,
        version: i64,
        draft: &CorrectionDraft,
        booking: &Booking,
        now: DateTime<Utc>,
    ) -> Result<Adjustment, ControlError> {
        actor.require_permission(Permission::AdjustmentsWrite)?;
        actor.require_operator()?;
        let (reason, reference) = check_booking(booking)?;
        // What was settled stays, so it may be read before the lock.
        let mut correctable = self.correctable_with(id, Vec::new()).await?;
        let mut transaction = self.store.begin().await?;
        adjustments::lock(&mut transaction).await?;
        let made = of_request(&mut transaction, id).await?;
        if let Some(booked) = adjustments::find(&mut transaction, booking.id).await? {
            // It is the same if it would have come to this where it was booked.
            let is_before = |adjustment: &Adjustment| adjustment.id != booked.id;
            correctable.adjustments = made.into_iter().take_while(is_before).collect();
            let is_same = booked.request_id == Some(id)
                && correctable.version() == version
                && (&booked.reason, &booked.reference) == (&reason, &reference)
                && correctable
                    .correct(draft)
                    .is_ok_and(|corrected| corrected.difference == Figures::of_adjustment(&booked));
            return if is_same { Ok(booked) } else { Err(booked_already()) };
        }
        let current = made.len() as i64;
        if current != version {
            return Err(ControlError::Conflict {
                what: "request",
                read: version,
                current,
            });
        }
        if current >= ADJUSTMENTS_OF_REQUEST_MAX {
            let message = text!(
                "a request has at most {count} adjustments",
                count = ADJUSTMENTS_OF_REQUEST_MAX
            );
            return Err(ControlError::field("", message));
        }
        correctable.adjustments = made;
        let corrected = correctable.correct(draft)?;
        let settlement = &correctable.request.entry;
        let adjustment = Adjustment {
            id: booking.id,
            admitted_at: settlement.admitted_at,
            created_at: now,
            request_id: Some(id),
            tenant_id: settlement.identity.tenant_id,
            user_id: settlement.identity.user_id.clone(),
            key_id: Some(settlement.identity.key_id),
            model: settlement.identity.model.clone(),
            upstream_id: settlement.upstream_id,
            priority: settlement.identity.priority,
            input_tokens: corrected.difference.input_tokens,
            output_tokens: corrected.difference.output_tokens,
            cost_nanos: corrected.difference.cost_nanos,
            reason,
            author: actor.label().to_owned(),
            reference,
        };
        self.append(transaction, actor, adjustment, Some(corrected.before), now)
            .await
    }

    /// What an adjustment of a tenant's account is, as it would be booked now. Nothing is written.
    pub async fn preview_adjustment(
        &self,
        actor: &Actor,
        draft: &AdjustmentDraft,
        now: DateTime<Utc>,
    ) -> Result<AdjustmentPreview, ControlError> {
        actor.require_permission(Permission::AdjustmentsWrite)?;
        actor.require_operator()?;
        let zone = self.settings().await?.settings.time_zone;
        let mut fields = Fields::default();
        let admitted_at = draft.when.instant(zone, now);
        if admitted_at > now + Duration::minutes(AHEAD_MINUTES_MAX) {
            let field = match draft.when {
                When::Month(_) => "month",
                When::At(_) => "at",
            };
            fields.refuse(field, text!("an adjustment cannot count in the future"));
        }
        if draft.figures.is_zero() {
            fields.refuse(
                "cost",
                text!("write an amount of money, or tokens: below zero to give back"),
            );
        } else if draft.figures.is_too_large() {
            fields.refuse("cost", CorrectionError::TooLarge.text());
        }
        let tenant = self.store.find_tenant(draft.tenant_id).await?;
        if tenant.is_none() {
            fields.refuse("tenant", text!("choose a tenant from the list"));
        }
        if let Some(model) = &draft.model
            && !models::missing(&mut self.store.begin_snapshot().await?, std::slice::from_ref(model))
                .await?
                .is_empty()
        {
            fields.refuse("model", text!("there is no such model"));
        }
        let mut user = self.user_of(draft).await?;
        let mut key_name = None;
        if let Some(id) = draft.key_id {
            let key = self.store.find_key(id).await?;
            match key.filter(|key| key.tenant_id == draft.tenant_id) {
                None => fields.refuse("key", text!("the tenant has no such key")),
                Some(key) => {
                    // A person's key is used in that person's name.
                    let owner = key.owner_id.map(|owner| (owner.to_string(), key.owner_name.clone()));
                    match (&user, owner) {
                        (None, Some(owner)) => user = Some(owner),
                        (Some((named, _)), Some((owner, _))) if *named != owner => {
                            fields.refuse("user", text!("this key is somebody else's; leave the user empty"));
                        }
                        _ => {}
                    }
                    key_name = Some(key.name);
                }
            }
        }
        fields.check()?;
        Ok(AdjustmentPreview {
            tenant_name: tenant.map(|row| row.tenant.name).unwrap_or_default(),
            user,
            key_name,
            model: draft.model.clone(),
            admitted_at,
            figures: draft.figures,
            month: self.touched_month(admitted_at, now).await?,
        })
    }

    /// Adjusts a tenant's account. Sent twice, it is booked once; what is returned is what was booked.
    pub async fn book_adjustment(
        &self,
        actor: &Actor,
        draft: &AdjustmentDraft,
        booking: &Booking,
        now: DateTime<Utc>,
    ) -> Result<Adjustment, ControlError> {
        actor.require_permission(Permission::AdjustmentsWrite)?;
        let preview = self.preview_adjustment(actor, draft, now).await?;
        let (reason, reference) = check_booking(booking)?;
        let adjustment = Adjustment {
            id: booking.id,
            admitted_at: preview.admitted_at,
            created_at: now,
            request_id: None,
            tenant_id: draft.tenant_id,
            user_id: preview.user.map(|(id, _)| id),
            key_id: draft.key_id,
            model: preview.model.map(Into::into),
            upstream_id: None,
            priority: Priority::Default,
            input_tokens: preview.figures.input_tokens,
            output_tokens: preview.figures.output_tokens,
            cost_nanos: preview.figures.cost_nanos,
            reason,
            author: actor.label().to_owned(),
            reference,
        };
        let zone = self.zone().await?;
        let mut transaction = self.store.begin().await?;
        adjustments::lock(&mut transaction).await?;
        if let Some(booked) = adjustments::find(&mut transaction, booking.id).await? {
            return if is_same(&booked, &adjustment, draft.when, zone) {
                Ok(booked)
            } else {
                Err(booked_already())
            };
        }
        self.append(transaction, actor, adjustment, None, now).await
    }

    /// The user that a draft names: a person by their address, anybody else by the name that requests give.
    async fn user_of(&self, draft: &AdjustmentDraft) -> Result<Option<(String, Option<String>)>, ControlError> {
        let Some(named) = &draft.user else {
            return Ok(None);
        };
        let people = self.store.people(Some(draft.tenant_id)).await?;
        let person = people
            .into_iter()
            .find(|person| person.email.eq_ignore_ascii_case(named) || person.id.to_string() == *named);
        Ok(Some(match person {
            Some(person) => (person.id.to_string(), Some(person.name)),
            None => (named.clone(), None),
        }))
    }

    async fn append(
        &self,
        mut transaction: Transaction,
        actor: &Actor,
        adjustment: Adjustment,
        before: Option<Figures>,
        now: DateTime<Utc>,
    ) -> Result<Adjustment, ControlError> {
        insert_adjustment(&mut transaction, &adjustment).await?;
        let change = Change {
            action: "adjustment.book",
            subject: match adjustment.request_id {
                Some(request) => format!("request:{request}"),
                None => format!("tenant:{}", adjustment.tenant_id),
            },
            tenant_id: Some(adjustment.tenant_id),
            before: before.map(shown),
            after: Some(shown(&adjustment)),
        };
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(adjustment)
    }

    async fn touched_month(&self, at: DateTime<Utc>, now: DateTime<Utc>) -> Result<TouchedMonth, ControlError> {
        let zone = self.settings().await?.settings.time_zone;
        let month = Month::containing(at, zone);
        let completeness = self.store.completeness(month.span(zone), now).await?;
        Ok(TouchedMonth {
            month,
            state: completeness.state,
        })
    }
}

/// What adjustments come to.
pub fn adjusted(adjustments: &[Adjustment]) -> Figures {
    adjustments.iter().map(Figures::of_adjustment).sum()
}

fn check_booking(booking: &Booking) -> Result<(String, Option<String>), ControlError> {
    let mut fields = Fields::default();
    let reason = fields.text("reason", &booking.reason, REASON_CHARS_MAX);
    if reason.is_empty() {
        fields.refuse("reason", text!("say why, for whoever reads the ledger later"));
    }
    let reference = fields.text("reference", &booking.reference, REFERENCE_CHARS_MAX);
    fields.check()?;
    Ok((reason, Some(reference).filter(|reference| !reference.is_empty())))
}

/// Whether an adjustment of an account that is there is the one that is sent once more. One that was meant for a month
/// counts at the instant at which it was booked first.
fn is_same(booked: &Adjustment, again: &Adjustment, when: When, zone: Tz) -> bool {
    let counts_then = match when {
        When::Month(month) => Month::containing(booked.admitted_at, zone) == month,
        // Postgres keeps microseconds.
        When::At(at) => (booked.admitted_at - at).num_milliseconds() == 0,
    };
    let parts = |adjustment: &Adjustment| {
        let Adjustment {
            request_id,
            tenant_id,
            user_id,
            key_id,
            model,
            reason,
            reference,
            ..
        } = adjustment.clone();
        (request_id, tenant_id, user_id, key_id, model, reason, reference)
    };
    counts_then && parts(booked) == parts(again) && Figures::of_adjustment(booked) == Figures::of_adjustment(again)
}

fn booked_already() -> ControlError {
    let message = text!(
        "this form has been booked already, and says something else now; look at the adjustments, and begin a new one \
         if another is needed"
    );
    ControlError::field("", message)
}

/// Who serves a model is the operators' business.
fn hide_upstream(adjustment: &mut Adjustment) {
    adjustment.upstream_id = None;
}

fn shown<T: serde::Serialize>(value: T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({ "unreadable": error.to_string() }))
}
