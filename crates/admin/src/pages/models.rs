//! Models with their routes, and their prices.

use control::fields::Fields;
use control::models::ModelDraft;
use control::prices::{PriceDraft, RatesText, TIERS_MAX};
use control::rows::{ModelRow, StoredPrice, UpstreamRow};
use control::{ControlError, FieldError};
use domain::ids::PriceId;
use domain::limits::{Scope, Target};
use domain::policy::{Encoding, Route};
use domain::prices::{Price, PriceTier};
use domain::text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::page::{self, Page};
use crate::pages::{audit, catalogue, estimates, limits};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Tone, badge, facts, figures, words};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::visit::{Visit, address};

/// Empty rows for routes that a form offers beside the filled ones.
const SPARE_ROUTES: usize = 2;
/// Empty rows for tiers of a price that its form offers beside the filled ones.
const SPARE_TIERS: usize = 2;
/// Where on a model's page the form for a new price is.
const PRICE_FORM: &str = "add-price";

/// Models with the prices in force.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.sees_everything() {
            return Err(PageError::Forbidden);
        }
        let models = visit.state.control.models(&visitor.actor, visit.now()).await?;
        let catalogue = || view! { <a class="button" href=catalogue::PATH>{t!("Catalogue")}</a> };
        let new = visitor
            .is_operator()
            .then(|| view! { <a class="button button-primary" href="/models/new">{t!("New model")}</a> });
        let actions = view! { {catalogue()} {new} };
        let listed = if models.is_empty() {
            table::empty(
                t!(
                    "No models yet. Callers ask for a model by the name that you give it here. The catalogue has well-known \
                     ones with their list prices."
                ),
                catalogue().into_any(),
            )
        } else {
            let listing = Listing::new(&visit, columns(), models, &[], |row| {
                let group = row.model.group.as_deref().unwrap_or_default();
                format!("{} {group}", row.model.name)
            })?;
            listing.view(
                t!(
                    "Prices are in {currency} per million tokens.",
                    currency = visit.format.currency()
                ),
                &Named {
                    counted: |n| tn!(n, "{n} model", "{n} models"),
                    find: t!("Find among the models"),
                },
                |model| row(model, &visit.format),
            )
        };
        let content = view! {
            {shell::page_head(
                t!("Models and prices"),
                t!("What callers may ask for, who serves it, and what it costs."),
                actions.into_any(),
            )}
            {listed}
        };
        Ok(Page::new(t!("Models and prices"), content.into_any()))
    })
}

fn columns() -> Vec<Column<ModelRow>> {
    let input = |row: &ModelRow| row.price.as_ref().map(|price| price.rates.input_nanos_per_mtok);
    let output = |row: &ModelRow| row.price.as_ref().map(|price| price.rates.output_nanos_per_mtok);
    vec![
        by_text(words(t!("Name")), "name", |row: &ModelRow| &row.model.name).natural(),
        by(words(t!("State")), "state", |one, other| {
            readiness(one).cmp(&readiness(other))
        }),
        by_text(words(t!("Group", in "of models")), "group", |row| {
            row.model.group.as_deref().unwrap_or_default()
        }),
        by(
            figures(t!("Context", in "size of a model")),
            "context",
            |one: &ModelRow, other| one.model.context_tokens.cmp(&other.model.context_tokens),
        ),
        by(figures(t!("Output cap")), "output_cap", |one: &ModelRow, other| {
            one.model.output_cap_tokens.cmp(&other.model.output_cap_tokens)
        }),
        by(figures(t!("Input price")), "input", move |one, other| {
            input(one).cmp(&input(other))
        }),
        by(figures(t!("Output price")), "output", move |one, other| {
            output(one).cmp(&output(other))
        }),
        by(figures(t!("Routes")), "routes", |one: &ModelRow, other| {
            one.model.routes.len().cmp(&other.model.routes.len())
        }),
    ]
}

/// The order of states: what needs somebody first.
fn readiness(row: &ModelRow) -> u8 {
    if row.model.disabled_at.is_some() {
        3
    } else if row.model.routes.is_empty() {
        0
    } else if row.price.is_none() {
        1
    } else {
        2
    }
}

fn row(row: &ModelRow, format: &Format) -> AnyView {
    let model = &row.model;
    let href = address("/models/edit", &[("name", &model.name)]);
    let price = |rate: fn(&Price) -> i64| {
        row.price
            .as_ref()
            .map_or_else(|| t!("none").to_owned(), |price| format.bare_rate(rate(price)))
    };
    view! {
        <tr>
            <th scope="row">
                <a href=href>{model.name.clone()}</a>
            </th>
            <td>{state(row)}</td>
            <td>{model.group.as_ref().map(|group| group.to_string())}</td>
            <td class="number">{format::count(model.context_tokens)}</td>
            <td class="number">{format::count(model.output_cap_tokens)}</td>
            <td class="number">{price(|price| price.rates.input_nanos_per_mtok)}</td>
            <td class="number">{price(|price| price.rates.output_nanos_per_mtok)}</td>
            <td class="number">{format::count(model.routes.len() as u64)}</td>
        </tr>
    }
    .into_any()
}

fn state(row: &ModelRow) -> AnyView {
    if row.model.disabled_at.is_some() {
        badge(t!("disabled", in "upstream or model"), Tone::Quiet)
    } else if row.model.routes.is_empty() {
        badge(t!("no route"), Tone::Bad)
    } else if row.price.is_none() {
        badge(t!("no price"), Tone::Warning)
    } else {
        badge(t!("ready", in "model"), Tone::Good)
    }
}

/// The form for a new model.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() {
            return Err(PageError::Forbidden);
        }
        let upstreams = visit.state.control.upstreams(&visitor.actor).await?;
        let form = Filled::new(visit.draft.clone(), CreateModel::PATH, || ModelForm {
            encoding: Encoding::O200kBase.as_str().to_owned(),
            ..ModelForm::default()
        });
        let content = view! {
            {shell::page_head(t!("New model"), t!("After this, give it a price."), ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=CreateModel::PATH>
                    {model_fields(&form, &upstreams, false)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Create model")}</button>
                        <a class="button" href="/models">{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("New model"), content.into_any()))
    })
}

/// One model with its prices.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let name = visit.query("name").ok_or(PageError::NotFound)?;
        let control = &visit.state.control;
        let row = control.model(&visitor.actor, &name, visit.now()).await?;
        let prices = control.prices(&visitor.actor, &name).await?;
        let upstreams = control.upstreams(&visitor.actor).await?;
        let is_operator = visitor.is_operator();
        let form = Filled::new(visit.draft.clone(), EditModel::PATH, || ModelForm::of(&row));
        let version = form.version(&form.values.version, &row.version.to_string()).to_owned();
        let model = if is_operator {
            view! {
                {form.summary()}
                <form class="form" method="post" action=EditModel::PATH>
                    <input type="hidden" name="version" value=version />
                    {model_fields(&form, &upstreams, true)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Save")}</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            model_facts(&row, &upstreams)
        };
        let estimates = estimates::of_model(&visit, visitor, &name).await?;
        let node = Target::Node(Scope::Model(name.as_str().into()));
        let limits = limits::address_of(&node);
        let group_limits = row.model.group.as_ref().map(|group| {
            let href = limits::address_of(&Target::Node(Scope::ModelGroup(group.clone())));
            view! { <a class="button" href=href>{t!("Limits of {group} together", group)}</a> }
        });
        let actions = view! {
            {state(&row)} {group_limits}
            <a class="button" href=limits>{t!("Limits")}</a>
            {audit::history_of_target(visitor, &node)}
        };
        let content = view! {
            {shell::page_head(name.clone(), "", actions.into_any())}
            <section class="card">
                <h2>{t!("Prices")}</h2>
                {price_list(&visit, &prices, is_operator)}
                {is_operator.then(|| price_form(&visit, &name, &prices))}
            </section>
            {estimates}
            <section class="card">{model}</section>
        };
        Ok(Page::new(name, content.into_any()))
    })
}

/// Taking a model out of use, with what that means.
fn disabling(form: &Filled<ModelForm>) -> AnyView {
    let is_disabled = form.values.is_disabled == "on";
    let is_open = is_disabled || form.is_overtaken("is_disabled", &form.values.is_disabled);
    let told = vec![
        t!(
            "Saved with the box ticked, the model is hidden from callers from the next second on, and requests for it are \
             refused as for one that is not there, whichever key they come with."
        )
        .into_any(),
        t!("Requests under way end as they would.").into_any(),
        t!("Prices, routes and limits stay, and unticking it brings everything back.").into_any(),
    ];
    view! {
        <details class="steps" open=is_open>
            <summary>{t!("Take this model out of use")}</summary>
            {table::consequences(told)}
            {form.check(Field::new("is_disabled", t!("Disabled")), is_disabled)}
        </details>
    }
    .into_any()
}

fn model_facts(row: &ModelRow, upstreams: &[UpstreamRow]) -> AnyView {
    let model = &row.model;
    let routes = routes_in_words(&ModelForm::of(row).route_rows(), upstreams);
    let tokens = |tokens: u64| t!("{count} tokens", count = format::count(tokens));
    facts(vec![
        (
            t!("Context", in "size of a model"),
            tokens(model.context_tokens).into_any(),
        ),
        (t!("Output cap"), tokens(model.output_cap_tokens).into_any()),
        (
            t!("Output held without a cap"),
            tokens(model.output_default_tokens).into_any(),
        ),
        (t!("Counted with"), model.encoding.as_str().into_any()),
        (
            t!("Group", in "of models"),
            model
                .group
                .as_ref()
                .map_or_else(|| t!("none").to_owned(), |group| group.to_string())
                .into_any(),
        ),
        (t!("Routes"), routes),
    ])
}

/// Routes, each on a line of its own.
fn routes_in_words(routes: &[RouteText], upstreams: &[UpstreamRow]) -> AnyView {
    if routes.is_empty() {
        return t!("none: requests are refused until it has one").into_any();
    }
    let line = |route: &RouteText| {
        let upstream = upstreams
            .iter()
            .find(|upstream| upstream.id.to_string() == route.upstream);
        let name = upstream.map_or_else(|| t!("unknown upstream"), |upstream| upstream.name.as_str());
        let text = t!(
            "{model} at {upstream} (position {position}, weight {weight})",
            model = route.model,
            upstream = name,
            position = route.position,
            weight = route.weight
        );
        view! { <div>{text}</div> }
    };
    routes.iter().map(line).collect_view().into_any()
}

/// After a conflict: the routes that are stored now, where they are others than those below.
fn routes_now(form: &Filled<ModelForm>, entered: &[RouteText], upstreams: &[UpstreamRow]) -> AnyView {
    let stored = form.stored().map(|stored| stored.route_rows());
    let Some(stored) = stored.filter(|stored| stored != entered) else {
        return ().into_any();
    };
    view! { <div class="now" id="routes-now">{t!("Now:")} {routes_in_words(&stored, upstreams)}</div> }.into_any()
}

fn model_fields(form: &Filled<ModelForm>, upstreams: &[UpstreamRow], exists: bool) -> AnyView {
    let values = &form.values;
    let encodings = Encoding::ALL
        .map(|encoding| {
            let text = match encoding {
                Encoding::Ratio => t!("By size, with a learned ratio").to_owned(),
                exact => t!("Exactly, with {encoding}", encoding = exact.as_str()),
            };
            (encoding.as_str().to_owned(), text)
        })
        .to_vec();
    let name = Field::new("name", t!("Name")).required();
    let name = if exists {
        name.fixed()
            .hint(t!("A model's name never changes: the ledger names it."))
    } else {
        name.hint(t!("What callers write in their requests."))
            .placeholder("gpt-4o")
    };
    view! {
        <fieldset>
            <legend>{t!("Model")}</legend>
            <div class="field-row">
                {form.text(name, &values.name)}
                {form.text(
                    Field::new("group", t!("Group", in "of models"))
                        .hint(t!("Models of one group share its limits. May stay empty.")),
                    &values.group,
                )}
            </div>
            <div class="field-row">
                {form.text(
                    Field::new("context_tokens", t!("Context, tokens"))
                        .whole()
                        .required()
                        .hint(t!("Input and output together.")),
                    &values.context_tokens,
                )}
                {form.text(
                    Field::new("output_cap_tokens", t!("Output cap, tokens"))
                        .whole()
                        .required()
                        .hint(t!("The most it can answer.")),
                    &values.output_cap_tokens,
                )}
                {form.text(
                    Field::new("output_default_tokens", t!("Output held, tokens"))
                        .whole()
                        .required()
                        .hint(t!("Held for requests that state no cap.")),
                    &values.output_default_tokens,
                )}
            </div>
            {form.select(Field::new("encoding", t!("Input is counted")), &values.encoding, encodings)}
            {exists.then(|| disabling(form))}
        </fieldset>
        {route_fields(form, upstreams)}
    }
    .into_any()
}

fn route_fields(form: &Filled<ModelForm>, upstreams: &[UpstreamRow]) -> AnyView {
    if upstreams.is_empty() {
        return view! {
            <fieldset>
                <legend>{t!("Routes")}</legend>
                <p class="notice notice-warning">
                    {tv!(
                        "A route leads to an upstream, and there is none yet. {link} first, or add routes later.",
                        link = view! { <a href="/upstreams/new">{t!("Add an upstream")}</a> }
                    )}
                </p>
            </fieldset>
        }
        .into_any();
    }
    let filled = form.values.route_rows();
    let rows = filled
        .iter()
        .cloned()
        .chain(std::iter::repeat_n(RouteText::default(), SPARE_ROUTES))
        .enumerate()
        .map(|(index, route)| route_row(form, upstreams, index, &route))
        .collect();
    view! {
        <fieldset>
            <legend>{t!("Routes")}</legend>
            <p class="quiet">
                {t!(
                    "Lower positions are tried first; routes of one position share the traffic by weight. Choose no upstream \
                     to take a route away."
                )}
            </p>
            {form.error_of("routes")}
            {routes_now(form, &filled, upstreams)}
            {table::table(
                t!("Who serves this model."),
                &[words(t!("Upstream")), words(t!("Model's name there")), words(t!("Position")), words(t!("Weight"))],
                rows,
            )}
        </fieldset>
    }
    .into_any()
}

fn route_row(form: &Filled<ModelForm>, upstreams: &[UpstreamRow], index: usize, route: &RouteText) -> AnyView {
    let number = index + 1;
    let choices = std::iter::once((String::new(), t!("None").to_owned()))
        .chain(
            upstreams
                .iter()
                .map(|upstream| (upstream.id.to_string(), upstream.name.clone())),
        )
        .map(|(value, text)| {
            let is_chosen = value == route.upstream;
            view! { <option value=value selected=is_chosen>{text}</option> }
        })
        .collect_view();
    let cell = |name: &'static str, field: &str, label: String, value: &str| {
        let value = value.to_owned();
        view! {
            <td>
                <input class="input" name=name aria-label=label value=value autocomplete="off" />
                {form.error_of(&format!("routes.{index}.{field}"))}
            </td>
        }
        .into_any()
    };
    view! {
        <tr>
            <td>
                <select class="input" name="route_upstream[]" aria-label=t!("Upstream of route {number}", number)>
                    {choices}
                </select>
            </td>
            {cell("route_model[]", "upstream_model", t!("Model's name of route {number}", number), &route.model)}
            {cell("route_position[]", "position", t!("Position of route {number}", number), &route.position)}
            {cell("route_weight[]", "weight", t!("Weight of route {number}", number), &route.weight)}
        </tr>
    }
    .into_any()
}

fn price_list(visit: &Visit, prices: &[StoredPrice], is_operator: bool) -> AnyView {
    if prices.is_empty() {
        return view! {
            <p class="notice notice-warning">
                {t!(
                    "This model has no price, so its requests are refused unless the policy for unpriced models says otherwise."
                )}
            </p>
        }
        .into_any();
    }
    let now = visit.now();
    let rows = prices
        .iter()
        .flat_map(|stored| {
            let tiers = stored.price.tiers.iter();
            let tiers = tiers.map(|tier| catalogue::tier_row(tier, 3, 1, &visit.format));
            std::iter::once(price_row(stored, visit, now, is_operator)).chain(tiers)
        })
        .collect();
    table::table(
        t!(
            "In {currency} per million tokens, the latest first, in {zone} time. What was charged stays charged.",
            currency = visit.format.currency(),
            zone = visit.format.zone()
        ),
        &[
            words(t!("In force", in "price")),
            words(t!("From", in "price")),
            words(t!("Until", in "price")),
            figures(t!("Input")),
            figures(t!("Cache read")),
            figures(t!("Cache write 5 min")),
            figures(t!("Cache write 1 h")),
            figures(t!("Output")),
            words(t!("Actions")),
        ],
        rows,
    )
}

fn price_row(stored: &StoredPrice, visit: &Visit, now: chrono::DateTime<chrono::Utc>, is_operator: bool) -> AnyView {
    let format = &visit.format;
    let price = &stored.price;
    let state = if price.is_valid_at(now) {
        badge(t!("now", in "price"), Tone::Good)
    } else if price.valid_from > now {
        badge(t!("later", in "price"), Tone::Warning)
    } else {
        badge(t!("past", in "price"), Tone::Quiet)
    };
    let id = price.id.to_string();
    let model = price.model.clone();
    let remove = (is_operator && price.valid_until.is_none_or(|end| end > now)).then(|| {
        let label = t!("Remove the price from {time}", time = format.minute(price.valid_from));
        view! {
            <form method="post" action=RemovePrice::PATH>
                <input type="hidden" name="id" value=id />
                <input type="hidden" name="model" value=model />
                <button class="button" type="submit" aria-label=label>{t!("Remove")}</button>
            </form>
        }
    });
    let copy = is_operator.then(|| {
        let fields = [("name", price.model.as_str()), ("price", &price.id.to_string())];
        let href = format!("{}#{PRICE_FORM}", address("/models/edit", &fields));
        let label = t!(
            "Copy into a new price: the one from {time}",
            time = format.minute(price.valid_from)
        );
        view! { <a class="button" href=href aria-label=label>{t!("Copy", in "price")}</a> }
    });
    let until = match price.valid_until {
        Some(until) => format.bare_minute(until),
        None => t!("open", in "end of a price").to_owned(),
    };
    view! {
        <tr>
            <td>{state}</td>
            <td class="nowrap">{format.bare_minute(price.valid_from)}</td>
            <td class="nowrap">{until}</td>
            {catalogue::rate_cells(&price.rates, format)}
            <td class="row-actions">
                <div class="actions">{copy} {remove}</div>
            </td>
        </tr>
    }
    .into_any()
}

/// The form for a new price: empty, or begun with the price that the address names.
fn price_form(visit: &Visit, model: &str, prices: &[StoredPrice]) -> AnyView {
    let copied = visit.query("price").and_then(|id| id.parse::<PriceId>().ok());
    let copied = copied.and_then(|id| prices.iter().find(|stored| stored.price.id == id));
    let form = Filled::new(visit.draft.clone(), AddPrice::PATH, || {
        copied.map(|stored| PriceForm::of(&stored.price)).unwrap_or_default()
    });
    let values = &form.values;
    let currency = visit.format.currency();
    let amount = |name, label: &'static str| Field::new(name, label).amount();
    let has_tiers = !values.tier_rows().is_empty();
    view! {
        <h3 id=PRICE_FORM>{t!("Add a price")}</h3>
        {form.summary()}
        <form class="form form-wide" method="post" action=AddPrice::PATH>
            <input type="hidden" name="model" value=model.to_owned() />
            <p class="quiet">
                {t!(
                    "In {currency} per million tokens. 0 is a price: free. An empty cache price is the input's.",
                    currency
                )}
            </p>
            <div class="field-row">
                {form.text(amount("input", t!("Input")).required(), &values.rates.input)}
                {form.text(
                    amount("output", t!("Output")).required().hint(t!("Reasoning included.")),
                    &values.rates.output,
                )}
                {form.text(
                    Field::new("valid_from", t!("From", in "price"))
                        .instant()
                        .hint(t!("Empty: now. In {zone} time.", zone = visit.format.zone())),
                    &values.valid_from,
                )}
            </div>
            <div class="field-row">
                {form.text(amount("cache_read", t!("Cache read")), &values.rates.cache_read)}
                {form.text(amount("cache_write_5m", t!("Cache write, 5 minutes")), &values.rates.cache_write_5m)}
                {form.text(amount("cache_write_1h", t!("Cache write, 1 hour")), &values.rates.cache_write_1h)}
            </div>
            <details open=has_tiers>
                <summary>{t!("Other prices for long input")}</summary>
                {tier_fields(&form)}
            </details>
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Add price")}</button>
            </div>
        </form>
    }
    .into_any()
}

fn tier_fields(form: &Filled<PriceForm>) -> AnyView {
    let filled = form.values.tier_rows();
    let spare = SPARE_TIERS.min(TIERS_MAX.saturating_sub(filled.len()));
    let rows = filled
        .into_iter()
        .chain(std::iter::repeat_n(TierText::default(), spare))
        .enumerate()
        .map(|(index, tier)| tier_row(form, index, &tier))
        .collect();
    view! {
        {form.error_of("tiers")}
        {table::table(
            t!(
                "When all input of a request together is longer than this, these prices apply to the whole of it. Leave a row \
                 empty to have fewer."
            ),
            &[
                words(t!("Above so many input tokens")),
                words(t!("Input")),
                words(t!("Cache read")),
                words(t!("Cache write 5 min")),
                words(t!("Cache write 1 h")),
                words(t!("Output")),
            ],
            rows,
        )}
    }
    .into_any()
}

fn tier_row(form: &Filled<PriceForm>, index: usize, tier: &TierText) -> AnyView {
    let number = index + 1;
    let cell = |name: &'static str, field: &str, label: String, value: &str, inputmode: &'static str| {
        let value = value.to_owned();
        view! {
            <td>
                <input class="input" name=name aria-label=label value=value inputmode=inputmode autocomplete="off" />
                {form.error_of(&format!("tiers.{index}.{field}"))}
            </td>
        }
        .into_any()
    };
    let rates = &tier.rates;
    view! {
        <tr>
            {cell("tier_above[]", "above", t!("Input tokens of tier {number}", number), &tier.above, "numeric")}
            {cell("tier_input[]", "input", t!("Input of tier {number}", number), &rates.input, "decimal")}
            {cell(
                "tier_cache_read[]",
                "cache_read",
                t!("Cache read of tier {number}", number),
                &rates.cache_read,
                "decimal",
            )}
            {cell(
                "tier_cache_write_5m[]",
                "cache_write_5m",
                t!("Cache write, 5 minutes, of tier {number}", number),
                &rates.cache_write_5m,
                "decimal",
            )}
            {cell(
                "tier_cache_write_1h[]",
                "cache_write_1h",
                t!("Cache write, 1 hour, of tier {number}", number),
                &rates.cache_write_1h,
                "decimal",
            )}
            {cell("tier_output[]", "output", t!("Output of tier {number}", number), &rates.output, "decimal")}
        </tr>
    }
    .into_any()
}

/// What the forms of a model send. Routes are parallel lists; a row without an upstream is no route.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelForm {
    version: String,
    name: String,
    group: String,
    context_tokens: String,
    output_cap_tokens: String,
    output_default_tokens: String,
    encoding: String,
    is_disabled: String,
    route_upstream: Vec<String>,
    route_model: Vec<String>,
    route_position: Vec<String>,
    route_weight: Vec<String>,
}

#[derive(Clone, Default, PartialEq)]
struct RouteText {
    upstream: String,
    model: String,
    position: String,
    weight: String,
}

impl ModelForm {
    fn of(row: &ModelRow) -> Self {
        let model = &row.model;
        Self {
            version: row.version.to_string(),
            name: model.name.clone(),
            group: model.group.as_ref().map(|group| group.to_string()).unwrap_or_default(),
            context_tokens: model.context_tokens.to_string(),
            output_cap_tokens: model.output_cap_tokens.to_string(),
            output_default_tokens: model.output_default_tokens.to_string(),
            encoding: model.encoding.as_str().to_owned(),
            is_disabled: if model.disabled_at.is_some() { "on" } else { "" }.to_owned(),
            route_upstream: model.routes.iter().map(|route| route.upstream_id.to_string()).collect(),
            route_model: model.routes.iter().map(|route| route.upstream_model.clone()).collect(),
            route_position: model.routes.iter().map(|route| route.position.to_string()).collect(),
            route_weight: model.routes.iter().map(|route| route.weight.to_string()).collect(),
        }
    }

    fn route_rows(&self) -> Vec<RouteText> {
        let at = |list: &[String], index: usize| list.get(index).cloned().unwrap_or_default();
        (0..self.route_upstream.len())
            .map(|index| RouteText {
                upstream: at(&self.route_upstream, index),
                model: at(&self.route_model, index),
                position: at(&self.route_position, index),
                weight: at(&self.route_weight, index),
            })
            .filter(|route| !route.upstream.is_empty())
            .collect()
    }

    fn draft(&self) -> Result<ModelDraft, ControlError> {
        let mut fields = Fields::default();
        let mut tokens = |field: &'static str, text: &str| match fields.count(field, text) {
            Some(count) => count,
            None => {
                if text.trim().is_empty() {
                    fields.refuse(field, text!("write a number of tokens"));
                }
                1
            }
        };
        let context_tokens = tokens("context_tokens", &self.context_tokens);
        let output_cap_tokens = tokens("output_cap_tokens", &self.output_cap_tokens);
        let output_default_tokens = tokens("output_default_tokens", &self.output_default_tokens);
        let encoding = fields.word("encoding", &self.encoding).unwrap_or_default();
        let routes = self.routes(&mut fields);
        fields.check()?;
        Ok(ModelDraft {
            name: self.name.clone(),
            group: Some(self.group.clone()).filter(|group| !group.trim().is_empty()),
            context_tokens,
            output_cap_tokens,
            output_default_tokens,
            encoding,
            is_disabled: self.is_disabled == "on",
            routes,
        })
    }

    fn routes(&self, fields: &mut Fields) -> Vec<Route> {
        let mut routes = Vec::new();
        for (index, route) in self.route_rows().into_iter().enumerate() {
            let mut number = |field: &str, text: &str, blank: i32| {
                if text.trim().is_empty() {
                    return blank;
                }
                text.trim().parse().unwrap_or_else(|_| {
                    fields.refuse(format!("routes.{index}.{field}"), text!("write a whole number"));
                    blank
                })
            };
            let position = number("position", &route.position, 0);
            let weight = number("weight", &route.weight, 1);
            match route.upstream.parse() {
                Ok(upstream_id) => routes.push(Route {
                    upstream_id,
                    upstream_model: if route.model.trim().is_empty() {
                        self.name.clone()
                    } else {
                        route.model
                    },
                    position,
                    weight,
                }),
                Err(_) => fields.refuse("routes", text!("choose an upstream from the list")),
            }
        }
        routes
    }
}

/// Adds a model.
#[server(prefix = "/console", endpoint = "models/create")]
pub async fn create_model(#[server(flatten)] form: ModelForm) -> Result<(), ServerFnError> {
    submit(
        CreateModel::PATH,
        "/models/new",
        form,
        |visit: Visit, form: ModelForm| async move {
            let draft = form.draft()?;
            visit
                .state
                .control
                .create_model(visit.actor()?, &draft, visit.now())
                .await?;
            let name = draft.name.trim();
            let to = address("/models/edit", &[("name", name)]);
            Ok::<_, Refused>(Done::say(to, t!("{name} was created. Now give it a price.", name)))
        },
    )
    .await
}

/// Changes a model and its routes.
#[server(prefix = "/console", endpoint = "models/edit")]
pub async fn edit_model(#[server(flatten)] form: ModelForm) -> Result<(), ServerFnError> {
    let back = address("/models/edit", &[("name", &form.name)]);
    let to = back.clone();
    submit(
        EditModel::PATH,
        &back,
        form,
        |visit: Visit, form: ModelForm| async move {
            let version = parsed_id(&form.version)?;
            let draft = form.draft()?;
            visit
                .state
                .control
                .edit_model(visit.actor()?, version, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(to, t!("Saved.")))
        },
    )
    .await
}

/// What the form of a price sends. Tiers are parallel lists; an empty row is no tier.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PriceForm {
    model: String,
    valid_from: String,
    #[serde(flatten)]
    rates: RatesText,
    tier_above: Vec<String>,
    tier_input: Vec<String>,
    tier_cache_read: Vec<String>,
    tier_cache_write_5m: Vec<String>,
    tier_cache_write_1h: Vec<String>,
    tier_output: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct TierText {
    above: String,
    rates: RatesText,
}

impl PriceForm {
    /// The form filled with this price; it begins when it is sent.
    fn of(price: &Price) -> Self {
        let each = |rate: fn(&RatesText) -> String| {
            price
                .tiers
                .iter()
                .map(|tier| rate(&RatesText::of(&tier.rates)))
                .collect()
        };
        Self {
            model: price.model.clone(),
            valid_from: String::new(),
            rates: RatesText::of(&price.rates),
            tier_above: price
                .tiers
                .iter()
                .map(|tier| tier.above_input_tokens.to_string())
                .collect(),
            tier_input: each(|rates| rates.input.clone()),
            tier_cache_read: each(|rates| rates.cache_read.clone()),
            tier_cache_write_5m: each(|rates| rates.cache_write_5m.clone()),
            tier_cache_write_1h: each(|rates| rates.cache_write_1h.clone()),
            tier_output: each(|rates| rates.output.clone()),
        }
    }

    fn tier_rows(&self) -> Vec<TierText> {
        let at = |list: &[String], index: usize| list.get(index).cloned().unwrap_or_default();
        (0..self.tier_above.len())
            .map(|index| TierText {
                above: at(&self.tier_above, index),
                rates: RatesText {
                    input: at(&self.tier_input, index),
                    cache_read: at(&self.tier_cache_read, index),
                    cache_write_5m: at(&self.tier_cache_write_5m, index),
                    cache_write_1h: at(&self.tier_cache_write_1h, index),
                    output: at(&self.tier_output, index),
                },
            })
            .filter(|tier| *tier != TierText::default())
            .collect()
    }

    fn draft(&self, format: &Format) -> Result<PriceDraft, ControlError> {
        let mut fields = Fields::default();
        let valid_from = fields.local_time("valid_from", &self.valid_from, format.zone());
        let rates = self.rates.parse(&mut fields);
        let tiers = self
            .tier_rows()
            .into_iter()
            .enumerate()
            .map(|(index, tier)| tier.parse(index, &mut fields))
            .collect();
        fields.check()?;
        Ok(PriceDraft {
            valid_from,
            rates,
            tiers,
        })
    }
}

impl TierText {
    /// Reads the row with this number; what is wrong is noted beside its fields.
    fn parse(&self, index: usize, fields: &mut Fields) -> PriceTier {
        let mut own = Fields::default();
        let above = own.count("above", &self.above);
        if self.above.trim().is_empty() {
            own.refuse("above", text!("write above how many input tokens these prices apply"));
        }
        let rates = self.rates.parse(&mut own);
        if let Err(ControlError::Invalid(errors)) = own.check() {
            for FieldError { field, message } in errors {
                fields.refuse(format!("tiers.{index}.{field}"), message);
            }
        }
        PriceTier {
            above_input_tokens: above.unwrap_or_default(),
            rates,
        }
    }
}

/// Adds a price to a model.
#[server(prefix = "/console", endpoint = "models/prices/add")]
pub async fn add_price(#[server(flatten)] form: PriceForm) -> Result<(), ServerFnError> {
    let back = address("/models/edit", &[("name", &form.model)]);
    let to = back.clone();
    submit(
        AddPrice::PATH,
        &back,
        form,
        |visit: Visit, form: PriceForm| async move {
            let draft = form.draft(&visit.format)?;
            visit
                .state
                .control
                .add_price(visit.actor()?, &form.model, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(to, t!("The price was added.")))
        },
    )
    .await
}

/// Removes a price; its time goes to the price before it.
#[server(prefix = "/console", endpoint = "models/prices/remove")]
pub async fn remove_price(
    #[server(default)] id: String,
    #[server(default)] model: String,
) -> Result<(), ServerFnError> {
    let back = address("/models/edit", &[("name", &model)]);
    let to = back.clone();
    press(&back, |visit: Visit| async move {
        let id: PriceId = parsed_id(&id)?;
        visit
            .state
            .control
            .remove_price(visit.actor()?, id, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(to, t!("The price was removed.")))
    })
    .await
}

#[cfg(test)]
mod tests;
