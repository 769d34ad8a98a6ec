//! The form in which the owner of a key sets limits of their own.

use control::fields::Fields;
use control::limits::{NodeLimits, NodeLimitsText};
use control::rows::KeyRow;
use domain::ids::KeyId;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::form::Filled;
use crate::pages::limits;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::visit::Visit;

/// The card with the form.
pub fn card(visit: &Visit, key: &KeyRow) -> AnyView {
    let form = Filled::new(visit.draft.clone(), SetOwnLimits::PATH, || OwnLimitsForm {
        id: key.id.to_string(),
        version: key.version.to_string(),
        limits: NodeLimitsText::from(&NodeLimits::from(&key.own_limits)),
    });
    let version = form.version(&form.values.version, &key.version.to_string()).to_owned();
    view! {
        <section class="card">
            <h2>{t!("Own limits")}</h2>
            <p class="quiet">
                {t!(
                    "Hold this key below what it may use anyway: a loop that runs away then stops early. They never raise a limit \
                     that operators have set, and nobody else lifts them."
                )}
            </p>
            {form.summary()}
            <form class="form" method="post" action=SetOwnLimits::PATH>
                <input type="hidden" name="id" value=key.id.to_string() />
                <input type="hidden" name="version" value=version />
                {limits::fields(&form, &form.values.limits, &visit.format, false)}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save own limits")}</button>
                </div>
            </form>
        </section>
    }
    .into_any()
}

/// What the form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnLimitsForm {
    id: String,
    version: String,
    #[serde(flatten)]
    limits: NodeLimitsText,
}

/// Sets the limits that a key's owner holds it to.
#[server(prefix = "/console", endpoint = "keys/own-limits")]
pub async fn set_own_limits(#[server(flatten)] form: OwnLimitsForm) -> Result<(), ServerFnError> {
    let back = format!("/keys/{}", form.id);
    submit(
        SetOwnLimits::PATH,
        &back,
        form,
        |visit: Visit, form: OwnLimitsForm| async move {
            let (id, version): (KeyId, i64) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
            let mut fields = Fields::default();
            let wanted = form.limits.parse(&mut fields);
            fields.check()?;
            let control = &visit.state.control;
            control
                .set_own_limits(visit.actor()?, id, version, &wanted, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(format!("/keys/{id}"), t!("Saved.")))
        },
    )
    .await
}
