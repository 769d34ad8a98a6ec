//! Settings of the installation: rehearsal, models without a price, alerts, and what stays as it was at the first start.

use control::alerts::WebhookView;
use control::fields::Fields;
use control::prices::RatesText;
use control::retention::RetentionRow;
use control::settings::SettingsView;
use domain::checklist::{Item, State};
use domain::money::Nanos;
use domain::policy::Settings;
use domain::prices::{Rates, Unpriced};
use domain::text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::Format;
use crate::language;
use crate::page::{self, Page};
use crate::pages::{management_tokens, webhook};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::{self, Tone, badge, facts, words};
use crate::visit::{Visit, Visitor};

const ADDRESS: &str = "/settings";
/// What a policy for models without a price is called in the form.
const REFUSE: &str = "refuse";
const CHARGE: &str = "charge";

/// The settings, for operators to change and auditors to read.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let settings = visit.state.control.settings_for(&visitor.actor).await?;
        let webhook = visit.state.control.webhook(&visitor.actor).await?;
        let kept = visit.state.control.retention(&visitor.actor).await?;
        let content = view! {
            {shell::page_head(t!("Settings"), t!("What holds for the whole installation."), ().into_any())}
            {production(&visit, visitor).await?}
            {rehearsal(&visit, visitor, &settings)}
            {unpriced(&visit, visitor, &settings)}
            {alerts(webhook.as_ref())}
            {visitor.is_operator().then(tokens)}
            {retention(&visit, visitor, &kept)}
            {fixed(&visit, &settings)}
        };
        Ok(Page::new(t!("Settings"), content.into_any()))
    })
}

fn rehearsal(visit: &Visit, visitor: &Visitor, settings: &SettingsView) -> AnyView {
    let percent = settings.settings.rehearsal_percent;
    let state = match percent {
        Some(percent) => t!("All limits are rehearsed at {percent} % of their value.", percent),
        None => t!("Off: limits are only enforced.").to_owned(),
    };
    let body = if visitor.is_operator() {
        let form = Filled::new(visit.draft.clone(), SetRehearsal::PATH, || RehearsalForm {
            version: settings.version.to_string(),
            percent: percent.map(|percent| percent.to_string()).unwrap_or_default(),
        });
        let version = form
            .version(&form.values.version, &settings.version.to_string())
            .to_owned();
        view! {
            {form.summary()}
            <form class="form" method="post" action=SetRehearsal::PATH>
                <input type="hidden" name="version" value=version />
                {form.text(
                    Field::new("percent", t!("Share of every limit (%)"))
                        .whole()
                        .hint(t!("1 to 100. Empty turns it off.")),
                    &form.values.percent,
                )}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save")}</button>
                </div>
            </form>
        }
        .into_any()
    } else {
        ().into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("Rehearsal")}</h2>
            <p>
                {t!(
                    "Rehearses all limits at this share of their value, and refuses nothing that the limits themselves \
                     would not. Each request's ledger entry says which limits would have refused it: at 20 % you see \
                     today what five times the traffic would meet. What is enforced stays enforced."
                )}
            </p>
            <p>
                <strong>{state}</strong>
                " "
                <a href="/rehearsal">{t!("What rehearsals have found")}</a>
            </p>
            {body}
        </section>
    }
    .into_any()
}

/// The list for production, what is to be done first.
async fn production(visit: &Visit, visitor: &Visitor) -> Result<AnyView, PageError> {
    let items = visit.state.control.checklist(&visitor.actor, visit.now()).await?;
    let (good, open): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.state == State::Good);
    let state = |state: State| {
        let tone = match state {
            State::Good => Tone::Good,
            State::ToDo => Tone::Warning,
            State::Unknown => Tone::Quiet,
        };
        badge(language::text(&state.word()), tone)
    };
    let open_ones = open
        .iter()
        .map(|item| {
            let meaning = language::text(&item.subject.meaning());
            view! {
                <tr>
                    <th scope="row">{language::text(&item.subject.title())}</th>
                    <td class="nowrap">{state(item.state)}</td>
                    <td class="sentence">{language::text(&item.found)} <div><small>{meaning}</small></div></td>
                    <td class="sentence">{language::text(&item.subject.advice())}</td>
                </tr>
            }
            .into_any()
        })
        .collect();
    let good_ones = good
        .iter()
        .map(|item| {
            let title = language::text(&item.subject.title());
            let told = tv!(
                "{title}: {found}",
                title = view! { <strong>{title}</strong> },
                found = language::text(&item.found)
            );
            view! { <li>{state(item.state)} " " {told}</li> }
        })
        .collect_view();
    let open_ones = if open.is_empty() {
        view! { <p>{state(State::Good)} " " {t!("Nothing is to be done.")}</p> }.into_any()
    } else {
        table::table(
            tn!(
                open.len() as u64,
                "{n} thing is left to look at.",
                "{n} things are left to look at."
            ),
            &[
                words(t!("What")),
                words(t!("State")),
                words(t!("What was found, and what it means")),
                words(t!("What to do")),
            ],
            open_ones,
        )
    };
    let lead = tv!(
        "Whether this installation is fit for real traffic, by what its gateways say now. {command} prints the same.",
        command = view! { <code>"tollgate doctor"</code> }
    );
    Ok(view! {
        <section class="card" id="production">
            <h2>{t!("Production checklist")}</h2>
            <p>{lead}</p>
            {open_ones}
            {(!good.is_empty()).then(|| view! {
                <details>
                    <summary>{tn!(good.len() as u64, "{n} thing is good", "{n} things are good")}</summary>
                    <ul class="plain-list">{good_ones}</ul>
                </details>
            })}
        </section>
    }
    .into_any())
}

fn unpriced(visit: &Visit, visitor: &Visitor, settings: &SettingsView) -> AnyView {
    let policy = settings.settings.unpriced;
    let body = if visitor.is_operator() {
        unpriced_form(visit, settings)
    } else {
        view! { <p>{unpriced_text(&policy, &visit.format)}</p> }.into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("Models without a price")}</h2>
            <p>
                {t!(
                    "A model without a price is never free: its requests are refused, or charged at a price that is meant \
                     to be too high rather than too low. Entries charged like that are marked as unpriced in the ledger. A \
                     price of 0 is a price."
                )}
            </p>
            {body}
        </section>
    }
    .into_any()
}

/// What happens to requests for models without a price, in a sentence.
pub fn unpriced_text(policy: &Unpriced, format: &Format) -> String {
    match policy {
        Unpriced::Refuse => t!("Requests for models without a price are refused.").to_owned(),
        Unpriced::Charge(rates) => t!(
            "Requests for models without a price are charged {input} in and {output} out per million tokens, and marked.",
            input = format.rate(rates.input_nanos_per_mtok),
            output = format.rate(rates.output_nanos_per_mtok)
        ),
    }
}

fn unpriced_form(visit: &Visit, settings: &SettingsView) -> AnyView {
    let form = Filled::new(visit.draft.clone(), SetUnpriced::PATH, || UnpricedForm::of(settings));
    let version = form
        .version(&form.values.version, &settings.version.to_string())
        .to_owned();
    let values = &form.values;
    let amount = |name, label: &str| Field::new(name, label).amount();
    let policies = vec![
        (REFUSE.to_owned(), t!("Refuse their requests").to_owned()),
        (CHARGE.to_owned(), t!("Charge the prices below").to_owned()),
    ];
    view! {
        {form.summary()}
        <form class="form" method="post" action=SetUnpriced::PATH>
            <input type="hidden" name="version" value=version />
            {form.select(Field::new("policy", t!("Policy", in "models without a price")), &values.policy, policies)}
            <p class="quiet">
                {t!(
                    "In {currency} per million tokens; needed when they are charged. An empty cache price is the input's.",
                    currency = visit.format.currency()
                )}
            </p>
            <div class="field-row">
                {form.text(amount("input", t!("Input")), &values.rates.input)}
                {form.text(amount("output", t!("Output")), &values.rates.output)}
            </div>
            <div class="field-row">
                {form.text(amount("cache_read", t!("Cache read")), &values.rates.cache_read)}
                {form.text(amount("cache_write_5m", t!("Cache write, 5 minutes")), &values.rates.cache_write_5m)}
                {form.text(amount("cache_write_1h", t!("Cache write, 1 hour")), &values.rates.cache_write_1h)}
            </div>
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Save")}</button>
            </div>
        </form>
    }
    .into_any()
}

fn alerts(webhook: Option<&WebhookView>) -> AnyView {
    view! {
        <section class="card">
            <h2>{t!("Alerts")}</h2>
            <p>
                {t!(
                    "What needs somebody is raised in the console: an upstream that is not used, Redis or Postgres that \
                     does not answer, a journal that lags, a model without a price. A webhook hears of it, too."
                )}
            </p>
            <p>
                <strong>{webhook::state(webhook)}</strong>
            </p>
            <p class="actions">
                <a class="button" href="/settings/webhook">{t!("Webhook")}</a>
                <a class="button" href="/alerts">{t!("Alerts")}</a>
            </p>
        </section>
    }
    .into_any()
}

fn retention(visit: &Visit, visitor: &Visitor, kept: &RetentionRow) -> AnyView {
    let state = match kept.months {
        Some(months) => tn!(
            months.into(),
            "Entries are kept for {n} full month beside the current one.",
            "Entries are kept for {n} full months beside the current one."
        ),
        None => t!("All entries are kept.").to_owned(),
    };
    let dropped = kept.entries_from.map(|from| {
        let time = visit.format.minute(from);
        view! { " " {t!("Those before {time} were dropped.", time)} }
    });
    let body = if visitor.is_operator() {
        let form = Filled::new(visit.draft.clone(), SetRetention::PATH, || RetentionForm {
            version: kept.version.to_string(),
            months: kept.months.map(|months| months.to_string()).unwrap_or_default(),
            confirmed: String::new(),
        });
        let unconfirmed = form.error("confirmed").map(|message| {
            view! {
                <p class="notice notice-warning" role="alert">{message}</p>
                <label class="check">
                    <input type="checkbox" name="confirmed" value="yes" />
                    <span>{t!("Drop what is older")}</span>
                </label>
            }
        });
        let version = form.version(&form.values.version, &kept.version.to_string()).to_owned();
        view! {
            {form.summary()}
            <form class="form" method="post" action=SetRetention::PATH>
                <input type="hidden" name="version" value=version />
                {form.text(
                    Field::new("months", t!("Full months kept beside the current one"))
                        .whole()
                        .hint(t!("1 to 1200. Empty keeps everything. What was dropped does not come back.")),
                    &form.values.months,
                )}
                {unconfirmed}
                <div class="actions">
                    <button class="button button-primary" type="submit">{t!("Save")}</button>
                </div>
            </form>
        }
        .into_any()
    } else {
        ().into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("How long entries are kept")}</h2>
            <p>
                {t!(
                    "Months of entries that are over for so long are dropped: single requests cannot be looked up there \
                     any more. Reports, budgets and adjustments keep all their figures."
                )}
            </p>
            <p>
                <strong>{state}</strong>
                {dropped}
            </p>
            {body}
        </section>
    }
    .into_any()
}

fn tokens() -> AnyView {
    view! {
        <section class="card">
            <h2>{t!("JSON API")}</h2>
            <p>{t!("Programs read reports and the ledger, and book adjustments, with a token.")}</p>
            <p class="actions">
                <a class="button" href=management_tokens::PATH>{t!("Management tokens")}</a>
            </p>
        </section>
    }
    .into_any()
}

fn fixed(visit: &Visit, settings: &SettingsView) -> AnyView {
    let settings = &settings.settings;
    view! {
        <section class="card">
            <h2>{t!("Fixed at the first start")}</h2>
            {facts(vec![
                (t!("Billing currency"), settings.currency.clone().into_any()),
                (
                    t!("Billing time zone"),
                    zone_text(settings, visit).into_any(),
                ),
            ])}
            <p class="quiet">
                {t!("They stay as they are: every budget, report and ledger entry so far depends on them.")}
            </p>
        </section>
    }
    .into_any()
}

/// The billing time zone, and what time it is there.
pub fn zone_text(settings: &Settings, visit: &Visit) -> String {
    t!(
        "{zone} (now {time})",
        zone = settings.time_zone,
        time = visit.format.time(visit.now())
    )
}

/// What the form of the rehearsal sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RehearsalForm {
    version: String,
    percent: String,
}

/// Sets the share at which all limits are rehearsed.
#[server(prefix = "/console", endpoint = "settings/rehearsal")]
pub async fn set_rehearsal(#[server(flatten)] form: RehearsalForm) -> Result<(), ServerFnError> {
    submit(
        SetRehearsal::PATH,
        ADDRESS,
        form,
        |visit: Visit, form: RehearsalForm| async move {
            let version = parsed_id(&form.version)?;
            let mut fields = Fields::default();
            let percent = fields.count("percent", &form.percent);
            fields.check()?;
            // What is above a byte is above 100 too, and refused with the same words.
            let percent = percent.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX));
            visit
                .state
                .control
                .set_rehearsal(visit.actor()?, version, percent, visit.now())
                .await?;
            let done = match percent {
                Some(percent) => t!("All limits are rehearsed at {percent} % within a second.", percent),
                None => t!("The rehearsal is off within a second.").to_owned(),
            };
            Ok::<_, Refused>(Done::say(ADDRESS, done))
        },
    )
    .await
}

/// What the form of the retention sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetentionForm {
    version: String,
    months: String,
    confirmed: String,
}

/// Sets how long entries are kept.
#[server(prefix = "/console", endpoint = "settings/retention")]
pub async fn set_retention(#[server(flatten)] form: RetentionForm) -> Result<(), ServerFnError> {
    submit(
        SetRetention::PATH,
        ADDRESS,
        form,
        |visit: Visit, form: RetentionForm| async move {
            let version = parsed_id(&form.version)?;
            let mut fields = Fields::default();
            let months = fields.count("months", &form.months);
            fields.check()?;
            // What is above 16 bits is above the bound too, and refused with the same words.
            let months = months.map(|months| u16::try_from(months).unwrap_or(u16::MAX));
            visit
                .state
                .control
                .set_retention(visit.actor()?, version, months, form.confirmed == "yes", visit.now())
                .await?;
            let done = match months {
                Some(_) => t!("Saved. Older months are dropped within the next quarter of an hour."),
                None => t!("Saved. All entries are kept from now on."),
            };
            Ok::<_, Refused>(Done::say(ADDRESS, done))
        },
    )
    .await
}

/// What the form of the policy for models without a price sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnpricedForm {
    version: String,
    policy: String,
    #[serde(flatten)]
    rates: RatesText,
}

impl UnpricedForm {
    fn of(settings: &SettingsView) -> Self {
        let (policy, rates) = match settings.settings.unpriced {
            Unpriced::Refuse => (REFUSE, RatesText::default()),
            Unpriced::Charge(rates) => (CHARGE, texts(rates)),
        };
        Self {
            version: settings.version.to_string(),
            policy: policy.to_owned(),
            rates,
        }
    }
}

fn texts(rates: Rates) -> RatesText {
    let text = |nanos: i64| Nanos(nanos).to_string();
    RatesText {
        input: text(rates.input_nanos_per_mtok),
        cache_read: text(rates.cache_read_nanos_per_mtok),
        cache_write_5m: text(rates.cache_write_5m_nanos_per_mtok),
        cache_write_1h: text(rates.cache_write_1h_nanos_per_mtok),
        output: text(rates.output_nanos_per_mtok),
    }
}

/// Decides what happens to requests for models without a price.
#[server(prefix = "/console", endpoint = "settings/unpriced")]
pub async fn set_unpriced(#[server(flatten)] form: UnpricedForm) -> Result<(), ServerFnError> {
    submit(
        SetUnpriced::PATH,
        ADDRESS,
        form,
        |visit: Visit, form: UnpricedForm| async move {
            let version = parsed_id(&form.version)?;
            let policy = match form.policy.as_str() {
                REFUSE => Unpriced::Refuse,
                CHARGE => {
                    let mut fields = Fields::default();
                    let rates = form.rates.parse(&mut fields);
                    fields.check()?;
                    Unpriced::Charge(rates)
                }
                _ => {
                    return Err(Refused::field(
                        "policy",
                        text!("Choose what happens to their requests."),
                    ));
                }
            };
            visit
                .state
                .control
                .set_unpriced(visit.actor()?, version, policy, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(ADDRESS, t!("Saved.")))
        },
    )
    .await
}
