//! What the keys of a tenant's people may be: shown to who sees the tenant, and changed by who runs it.

use control::ControlError;
use control::fields::Fields;
use control::keys::{KEYS_PER_PERSON_MAX, LIFETIME_MONTHS_MAX};
use control::rows::TenantRow;
use control::tenants::TenantView;
use domain::ids::TenantId;
use domain::key_rules::KeyRules;
use domain::priority::Priority;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::facts;
use crate::terms;
use crate::visit::{Visit, Visitor};
use terms::priority;

/// What the choice of models says for those that are named.
const MODELS_CHOSEN: &str = "chosen";

/// The rules, with the form for those who may change them.
pub async fn card(visit: &Visit, visitor: &Visitor, tenant: &TenantView) -> Result<AnyView, PageError> {
    let row = &tenant.row;
    let body = if visitor.issues_keys() {
        editor(visit, visitor, row).await?
    } else {
        facts(shown(&row.tenant.key_rules))
    };
    Ok(view! {
        <section class="card">
            <h2>{t!("Keys of people")}</h2>
            <p class="quiet">
                {t!("What the keys may be that people of this tenant own. Service accounts' keys, which managers issue, are \
                     not under these rules.")}
            </p>
            {body}
        </section>
    }
    .into_any())
}

/// The rules in words.
fn shown(rules: &KeyRules) -> Vec<(&'static str, AnyView)> {
    let or = |text: Option<String>, otherwise: &str| text.unwrap_or_else(|| otherwise.to_owned()).into_any();
    vec![
        (
            t!("Keys of one person"),
            or(
                rules.keys_per_person.map(|most| most.to_string()),
                &KEYS_PER_PERSON_MAX.to_string(),
            ),
        ),
        (
            t!("Longest life"),
            or(
                rules
                    .months_max
                    .map(|months| tn!(u64::from(months), "{n} month", "{n} months")),
                t!("not ruled"),
            ),
        ),
        (
            t!("Highest priority"),
            or(
                rules.priority_ceiling.map(|most| priority(most).to_owned()),
                t!("the tenant's"),
            ),
        ),
        (
            t!("Models"),
            or(rules.models.as_ref().map(|models| models.join(", ")), t!("all")),
        ),
    ]
}

async fn editor(visit: &Visit, visitor: &Visitor, row: &TenantRow) -> Result<AnyView, PageError> {
    let form = Filled::new(visit.draft.clone(), SetKeyRules::PATH, || KeyRulesForm::of(row));
    let version = form.version(&form.values.version, &row.version.to_string()).to_owned();
    let values = &form.values;
    let ceilings = std::iter::once((String::new(), t!("The tenant's").to_owned()))
        .chain(Priority::ALL.map(|ceiling| (ceiling.as_str().to_owned(), priority(ceiling).to_owned())))
        .collect();
    let models = visit.state.control.models(&visitor.actor, visit.now()).await?;
    let mut names: Vec<String> = models.into_iter().map(|row| row.model.name).collect();
    let unlisted: Vec<String> = values
        .models
        .iter()
        .filter(|name| !names.contains(name))
        .cloned()
        .collect();
    names.extend(unlisted);
    let chosen = (!names.is_empty()).then(|| {
        let choices = names.into_iter().map(|name| (name.clone(), name)).collect();
        form.checks(Field::new("models", t!("Chosen models")), &values.models, choices)
    });
    let access = vec![
        (String::new(), t!("All models, those of the future included").to_owned()),
        (MODELS_CHOSEN.to_owned(), t!("Only those chosen below").to_owned()),
    ];
    Ok(view! {
        {form.summary()}
        <form class="form" method="post" action=SetKeyRules::PATH>
            <input type="hidden" name="id" value=row.tenant.id.to_string() />
            <input type="hidden" name="version" value=version />
            <div class="field-row">
                {form.text(
                    Field::new("keys_per_person", t!("Keys of one person"))
                        .whole()
                        .hint(t!(
                            "That can be used at the same time. Empty for {most}; 0 for none.",
                            most = KEYS_PER_PERSON_MAX,
                        )),
                    &values.keys_per_person,
                )}
                {form.text(
                    Field::new("months_max", t!("Longest life, in months"))
                        .whole()
                        .hint(t!(
                            "From issue or rotation on, at most {most}. Empty for keys that need not end.",
                            most = LIFETIME_MONTHS_MAX,
                        )),
                    &values.months_max,
                )}
                {form.select(
                    Field::new("people_priority", t!("Highest priority")),
                    &values.people_priority,
                    ceilings,
                )}
            </div>
            {form.select(Field::new("model_access", t!("Models")), &values.model_access, access)}
            {chosen}
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Save rules")}</button>
            </div>
            <p class="quiet">
                {t!("Priority and models hold for all requests within a second, those with older keys included. Number and \
                     life hold when a key is next issued, changed or rotated.")}
            </p>
        </form>
    }
    .into_any())
}

/// What the form sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRulesForm {
    id: String,
    version: String,
    keys_per_person: String,
    months_max: String,
    people_priority: String,
    /// Empty for all models, or `chosen`.
    model_access: String,
    models: Vec<String>,
}

impl KeyRulesForm {
    fn of(row: &TenantRow) -> Self {
        let rules = &row.tenant.key_rules;
        let count = |count: Option<u32>| count.map(|count| count.to_string()).unwrap_or_default();
        Self {
            id: row.tenant.id.to_string(),
            version: row.version.to_string(),
            keys_per_person: count(rules.keys_per_person),
            months_max: count(rules.months_max),
            people_priority: rules
                .priority_ceiling
                .map(|most| most.as_str().to_owned())
                .unwrap_or_default(),
            model_access: if rules.models.is_some() { MODELS_CHOSEN } else { "" }.to_owned(),
            models: rules.models.clone().unwrap_or_default(),
        }
    }

    fn rules(&self) -> Result<KeyRules, ControlError> {
        let mut fields = Fields::default();
        // What is beyond every number here is refused by the operation.
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let keys_per_person = fields.count("keys_per_person", &self.keys_per_person).map(number);
        let months_max = fields.count("months_max", &self.months_max).map(number);
        let priority_ceiling = fields.word("people_priority", &self.people_priority);
        fields.check()?;
        Ok(KeyRules {
            keys_per_person,
            months_max,
            priority_ceiling,
            models: (self.model_access == MODELS_CHOSEN).then(|| self.models.clone()),
        })
    }
}

/// Sets what the keys of a tenant's people may be.
#[server(prefix = "/console", endpoint = "tenants/key-rules")]
pub async fn set_key_rules(#[server(flatten)] form: KeyRulesForm) -> Result<(), ServerFnError> {
    let back = format!("/tenants/{}", form.id);
    submit(
        SetKeyRules::PATH,
        &back,
        form,
        |visit: Visit, form: KeyRulesForm| async move {
            let (id, version): (TenantId, i64) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
            let rules = form.rules()?;
            let control = &visit.state.control;
            control
                .set_key_rules(visit.actor()?, id, version, &rules, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(format!("/tenants/{id}"), t!("Saved.")))
        },
    )
    .await
}
