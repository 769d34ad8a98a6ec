//! A higher value of a limit for a while: set, changed and ended early below the limit's own form.

use control::fields::Fields;
use control::limits::{INCREASE_DAYS_MAX, IncreaseDraft, IncreaseText, NodeLimitsView};
use domain::ids::LimitId;
use domain::limits::{Dimension, Limit, Target};
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use super::confirm::{self, Confirm, Step};
use super::words::{increase_note, slot_name, value_text};
use super::{address_of, parsed_target, place_of, spent_of};
use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::page::Page;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::visit::{Visit, address};

/// The card below the form of a limit that exists.
pub(super) fn card(visit: &Visit, target: &Target, version: i64, limit: &Limit) -> AnyView {
    let (now, format) = (visit.now(), &visit.format);
    let (of, each) = place_of(target);
    let form = Filled::new(visit.draft.clone(), IncreaseLimit::PATH, || IncreaseForm {
        of: of.clone(),
        each: each.to_owned(),
        version: version.to_string(),
        limit: limit.id.to_string(),
        step: String::new(),
        text: IncreaseText::of(limit, now, format.zone()),
    });
    let stated = form.version(&form.values.version, &version.to_string()).to_owned();
    let running = increase_note(limit, now, format).map(|note| {
        let value = value_text(limit.dimension, limit.value_at(now), format);
        view! {
            <p class="notice" role="status">{t!("It is {value} {note}.", value, note)}</p>
            <form method="post" action=EndIncrease::PATH>
                <input type="hidden" name="of" value=of.clone() />
                <input type="hidden" name="each" value=each />
                <input type="hidden" name="version" value=version.to_string() />
                <input type="hidden" name="limit" value=limit.id.to_string() />
                <button class="button" type="submit">{t!("End the increase now")}</button>
            </form>
        }
    });
    let label = match limit.dimension {
        Dimension::BudgetCost => t!("Until then ({currency})", currency = format.currency()),
        _ => t!("Until then").to_owned(),
    };
    let ordinary = value_text(limit.dimension, limit.value, format);
    let value = Field::new("increase_value", label)
        .required()
        .hint(t!("More than its own {ordinary}.", ordinary));
    let value = if limit.dimension == Dimension::BudgetCost {
        value.amount()
    } else {
        value.whole()
    };
    let last_day = Field::new("increase_last_day", t!("Last day"))
        .day()
        .required()
        .hint(t!(
            "It ends by itself at the end of this day, {zone} time. At most {count} days ahead.",
            zone = format.zone(),
            count = INCREASE_DAYS_MAX
        ));
    let reason = Field::new("increase_reason", t!("Why"))
        .required()
        .hint(t!("Kept in the audit log, with your name."));
    let text = &form.values.text;
    view! {
        <section class="card" id="increase">
            <h2>{t!("Increase it for a while")}</h2>
            {form.summary()}
            {running}
            <form class="form" method="post" action=IncreaseLimit::PATH>
                <input type="hidden" name="of" value=of.clone() />
                <input type="hidden" name="each" value=each />
                <input type="hidden" name="version" value=stated />
                <input type="hidden" name="limit" value=limit.id.to_string() />
                <div class="field-row">
                    {form.text(value, &text.increase_value)} {form.text(last_day, &text.increase_last_day)}
                </div>
                {form.text(reason, &text.increase_reason)}
                <div class="actions">
                    <button class="button" type="submit">{t!("Show what the increase changes")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// What the form would change, once it was sent.
pub(super) async fn preview(
    visit: &Visit,
    target: &Target,
    view: &NodeLimitsView,
    name: &str,
    limit: &Limit,
) -> Result<Option<Page>, PageError> {
    let form = Filled::new(visit.draft.clone(), IncreaseLimit::PATH, IncreaseForm::default);
    if !form.is_preview() {
        return Ok(None);
    }
    // Nothing was wrong with it when it was sent.
    let draft = form.values.draft(limit).map_err(|_| PageError::Malformed)?;
    let control = &visit.state.control;
    let preview = control
        .preview_increase(visit.actor()?, target, view.version, limit.id, &draft, visit.now())
        .await?;
    let confirm = Confirm {
        target,
        name,
        preview: &preview,
        others: vec![(t!("Why"), String::new(), draft.reason)],
        spent: spent_of(visit, target).await?,
        at: visit.now(),
    };
    let title = slot_name(&limit.slot());
    let content = view! {
        {shell::page_head(title.clone(), t!("A limit of {name}.", name), ().into_any())}
        {confirm::card(&form, IncreaseLimit::PATH, &confirm, &visit.format)}
    };
    Ok(Some(Page::new(title, content.into_any())))
}

/// What the form of an increase sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IncreaseForm {
    of: String,
    each: String,
    version: String,
    limit: String,
    step: String,
    #[serde(flatten)]
    text: IncreaseText,
}

impl IncreaseForm {
    fn draft(&self, limit: &Limit) -> Result<IncreaseDraft, Refused> {
        let mut fields = Fields::default();
        let draft = self.text.parse(limit.dimension, &mut fields);
        fields.check()?;
        Ok(draft)
    }
}

/// The page of the limit's form.
fn page_of_limit(of: &str, each: &str, limit: &str) -> String {
    address("/limits/edit", &[("of", of), ("each", each), ("limit", limit)])
}

/// Increases a limit for a while, or changes the increase that it has.
#[server(prefix = "/console", endpoint = "limits/increase")]
pub async fn increase_limit(#[server(flatten)] form: IncreaseForm) -> Result<(), ServerFnError> {
    let back = page_of_limit(&form.of, &form.each, &form.limit);
    submit(
        IncreaseLimit::PATH,
        &back,
        form,
        |visit: Visit, form: IncreaseForm| async move {
            let target = parsed_target(&form.of, &form.each).ok_or(PageError::Malformed)?;
            let (version, id) = (parsed_id(&form.version)?, parsed_id::<LimitId>(&form.limit)?);
            let control = &visit.state.control;
            let actor = visit.actor()?;
            // Before what they sent is looked at.
            if !actor.is_operator() {
                return Err(Refused::Page(PageError::Forbidden));
            }
            let step = Step::read(&form.step)?;
            let stored = control.limits_of(actor, &target).await?;
            let mut limits = stored.limits.into_iter();
            let limit = limits.find(|limit| limit.id == id).ok_or(PageError::NotFound)?;
            let draft = form.draft(&limit)?;
            if step == Step::Ask {
                let preview = control.preview_increase(actor, &target, version, id, &draft, visit.now());
                if !preview.await?.changes.is_empty() {
                    return Err(Refused::Unconfirmed);
                }
            }
            control
                .increase_limit(actor, &target, version, id, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(
                address_of(&target),
                t!(
                    "Increased: {limit}. Every gateway knows within a second.",
                    limit = slot_name(&limit.slot())
                ),
            ))
        },
    )
    .await
}

/// Which limit's increase, as last read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IncreaseChoice {
    of: String,
    each: String,
    version: String,
    limit: String,
}

/// Ends an increase now.
#[server(prefix = "/console", endpoint = "limits/end-increase")]
pub async fn end_increase(#[server(flatten)] form: IncreaseChoice) -> Result<(), ServerFnError> {
    let back = page_of_limit(&form.of, &form.each, &form.limit);
    press(&back, |visit: Visit| async move {
        let target = parsed_target(&form.of, &form.each).ok_or(PageError::Malformed)?;
        let (version, id) = (parsed_id(&form.version)?, parsed_id(&form.limit)?);
        visit
            .state
            .control
            .end_increase(visit.actor()?, &target, version, id, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(
            address_of(&target),
            t!("The increase is over; every gateway knows within a second."),
        ))
    })
    .await
}
