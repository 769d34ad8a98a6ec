//! The catalogue of well-known models: choose, and load what was chosen.

use control::ControlError;
use control::catalogue::{
    CATALOGUE_CURRENCY, CatalogueEntry, CatalogueLoad, CatalogueLoaded, CatalogueView, ExchangeRate, Presence,
};
use control::fields::Fields;
use control::rows::UpstreamRow;
use domain::ids::UpstreamId;
use domain::policy::Dialect;
use domain::prices::{Price, PriceTier, Rates};
use domain::text;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::language;
use crate::page::{self, Page};
use crate::shell;
use crate::submit::{Done, Refused, submit};
use crate::table::{self, Tone, badge, figures, words};
use crate::visit::{Visit, address};

/// Where the page is.
pub const PATH: &str = "/models/catalogue";
/// The word of the address that ticks every model that is not there yet.
const CHOOSE_NEW: &str = "new";
/// Fields whose errors stand beside them; others are said on top.
const FIELDS: [&str; 4] = ["models", "exchange", "openai_upstream", "anthropic_upstream"];

/// What the address asks for.
struct Asked {
    /// Models of this provider only.
    dialect: Option<Dialect>,
    /// The exchange rate as it was written.
    exchange: String,
    /// Whether the new models are ticked.
    chooses_new: bool,
}

impl Asked {
    fn of(visit: &Visit) -> Self {
        Self {
            dialect: visit.query("dialect").and_then(|text| text.parse().ok()),
            exchange: visit.query("exchange").unwrap_or_default(),
            chooses_new: visit.query("choose").as_deref() == Some(CHOOSE_NEW),
        }
    }

    fn address(&self, dialect: Option<Dialect>, choose: &str) -> String {
        let dialect = dialect.map_or("", Dialect::as_str);
        address_of(dialect, &self.exchange, choose)
    }
}

fn address_of(dialect: &str, exchange: &str, choose: &str) -> String {
    let fields = [("dialect", dialect), ("exchange", exchange), ("choose", choose)];
    address(PATH, &fields)
}

/// The catalogue beside the models that there are.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let asked = Asked::of(&visit);
        let mut fields = Fields::default();
        let exchange: Option<ExchangeRate> = fields.word("exchange", &asked.exchange);
        let problems = match fields.check() {
            Err(ControlError::Invalid(problems)) => problems,
            _ => Vec::new(),
        };
        let control = &visit.state.control;
        let catalogue = control.catalogue(&visitor.actor, exchange, visit.now()).await?;
        let upstreams = control.upstreams(&visitor.actor).await?;
        let lead = t!(
            "Well-known models with their providers' list prices as of {day}.",
            day = format::date(catalogue.as_of)
        );
        let rate = (catalogue.currency != CATALOGUE_CURRENCY).then(|| {
            let form = Filled::refused(asked.exchange.clone(), &problems);
            exchange_form(&form, &asked, &catalogue)
        });
        let content = view! {
            {shell::page_head(t!("Catalogue"), lead, ().into_any())}
            <p class="notice notice-warning">
                {t!(
                    "Check these prices before you bill by them: providers change their lists, give discounts and charge more \
                     in some regions. Nothing here follows them by itself."
                )}
            </p>
            {rate}
            {filters(&asked)}
            {models(&visit, &asked, &catalogue, &upstreams, visitor.is_operator())}
        };
        Ok(Page::new(t!("Catalogue"), content.into_any()))
    })
}

fn exchange_form(form: &Filled<String>, asked: &Asked, catalogue: &CatalogueView) -> AnyView {
    let currency = &catalogue.currency;
    let explained = if catalogue.exchange.is_some() {
        t!(
            "The prices below are in {currency} at this rate, each rounded up to the ninth place.",
            currency
        )
    } else {
        t!(
            "The lists are in US dollars and this installation bills in {currency}. The rate is applied once, when prices are \
             loaded; it is not kept and does not follow the market.",
            currency
        )
    };
    let dialect = asked.dialect.map(|dialect| {
        view! { <input type="hidden" name="dialect" value=dialect.as_str() /> }
    });
    view! {
        <form class="card" method="get" action=PATH>
            {dialect}
            <p class="quiet">{explained}</p>
            <div class="filters">
                {form.text(
                    Field::new("exchange", t!("{currency} for one US dollar", currency)).amount().placeholder("0.92"),
                    &form.values,
                )}
                <div class="actions">
                    <button class="button" type="submit">{t!("Show prices")}</button>
                </div>
            </div>
        </form>
    }
    .into_any()
}

fn filters(asked: &Asked) -> AnyView {
    let links = [None, Some(Dialect::Openai), Some(Dialect::Anthropic)]
        .into_iter()
        .map(|dialect| {
            let href = asked.address(dialect, "");
            let current = (dialect == asked.dialect).then_some("true");
            let text = dialect.map_or_else(|| t!("All"), provider);
            view! { <a class="button" href=href aria-current=current>{text}</a> }
        })
        .collect_view();
    view! { <nav class="actions" aria-label=t!("Provider")>{links}</nav> }.into_any()
}

fn models(
    visit: &Visit,
    asked: &Asked,
    catalogue: &CatalogueView,
    upstreams: &[UpstreamRow],
    is_operator: bool,
) -> AnyView {
    let dialects = [Dialect::Openai, Dialect::Anthropic]
        .into_iter()
        .filter(|dialect| asked.dialect.is_none_or(|wanted| wanted == *dialect));
    if !is_operator || catalogue.exchange.is_none() {
        let sections = dialects
            .map(|dialect| section(dialect, catalogue, None, ().into_any(), &visit.format))
            .collect_view();
        return view! { <div class="stack">{sections}</div> }.into_any();
    }
    let form = Filled::new(visit.draft.clone(), LoadCatalogue::PATH, || {
        CatalogueForm::fresh(asked, catalogue, upstreams)
    });
    let sections = dialects
        .map(|dialect| {
            let upstream = upstream_field(&form, dialect, upstreams);
            section(dialect, catalogue, Some(&form.values.models), upstream, &visit.format)
        })
        .collect_view();
    let (all, none) = (
        asked.address(asked.dialect, CHOOSE_NEW),
        asked.address(asked.dialect, ""),
    );
    view! {
        {form.summary()}
        <form class="stack" method="post" action=LoadCatalogue::PATH>
            <input type="hidden" name="dialect" value=asked.dialect.map_or("", Dialect::as_str) />
            <input type="hidden" name="exchange" value=asked.exchange.clone() />
            <div class="actions">
                <a class="button" href=all>{t!("Choose all new ones")}</a>
                <a class="button" href=none>{t!("Choose none")}</a>
            </div>
            {form.error_of("models")}
            {sections}
            <div class="actions">
                <button class="button button-primary" type="submit">{t!("Load chosen models")}</button>
                <a class="button" href="/models">{t!("Cancel")}</a>
            </div>
            <p class="quiet">
                {t!(
                    "New models are added with the route chosen above. Models that are there keep their routes and sizes and \
                     have the catalogue's price from now on; what was charged stays charged. Everything can be changed \
                     afterwards."
                )}
            </p>
        </form>
    }
    .into_any()
}

fn upstream_field(form: &Filled<CatalogueForm>, dialect: Dialect, upstreams: &[UpstreamRow]) -> AnyView {
    let (name, value) = match dialect {
        Dialect::Openai => ("openai_upstream", &form.values.openai_upstream),
        Dialect::Anthropic => ("anthropic_upstream", &form.values.anthropic_upstream),
    };
    let options = std::iter::once((String::new(), t!("None yet", in "upstream").to_owned()))
        .chain(
            upstreams
                .iter()
                .filter(|upstream| upstream.dialect == dialect)
                .map(|upstream| (upstream.id.to_string(), upstream.name.clone())),
        )
        .collect();
    let hint =
        t!("Who serves new models: upstreams that speak this provider's dialect. Without one they have no route yet.");
    let field = form.select(Field::new(name, t!("Upstream")).hint(hint), value, options);
    view! { <div class="form">{field}</div> }.into_any()
}

/// The models of one provider; `chosen` where they can be chosen.
fn section(
    dialect: Dialect,
    catalogue: &CatalogueView,
    chosen: Option<&Vec<String>>,
    upstream: AnyView,
    format: &Format,
) -> AnyView {
    let rows = catalogue
        .entries
        .iter()
        .filter(|entry| entry.model.dialect == dialect)
        .flat_map(|entry| rows(entry, chosen, format))
        .collect();
    let currency = match catalogue.exchange {
        Some(_) => catalogue.currency.as_str(),
        None => CATALOGUE_CURRENCY,
    };
    view! {
        <section class="card">
            <h2>{provider(dialect)}</h2>
            {upstream}
            {table::table(
                t!(
                    "{provider}: list prices in {currency} per million tokens.",
                    provider = provider(dialect),
                    currency
                ),
                &[
                    words(t!("Model")),
                    words(t!("Here", in "catalogue of models")),
                    figures(t!("Input")),
                    figures(t!("Cache read")),
                    figures(t!("Cache write 5 min")),
                    figures(t!("Cache write 1 h")),
                    figures(t!("Output")),
                    figures(t!("Context", in "size of a model")),
                    figures(t!("Output cap")),
                    words(t!("Ends on", in "model")),
                ],
                rows,
            )}
        </section>
    }
    .into_any()
}

/// A model's row, and one for each of its prices for long input.
fn rows(entry: &CatalogueEntry, chosen: Option<&Vec<String>>, format: &Format) -> Vec<AnyView> {
    let model = &entry.model;
    let name = model.name.clone();
    let head = match chosen {
        Some(chosen) => {
            let is_chosen = chosen.contains(&name);
            view! {
                <label class="check">
                    <input type="checkbox" name="models[]" value=name.clone() checked=is_chosen />
                    <span>{name}</span>
                </label>
            }
            .into_any()
        }
        None => name.into_any(),
    };
    let (rates, tiers) = match &entry.price {
        Some(price) => (price.rates, &price.tiers),
        None => (model.rates, &model.tiers),
    };
    let first = view! {
        <tr>
            <th scope="row" class="nowrap">{head}</th>
            <td>{presence(&entry.presence, format)}</td>
            {rate_cells(&rates, format)}
            <td class="number">{format::count(model.context_tokens)}</td>
            <td class="number">{format::count(model.output_cap_tokens)}</td>
            <td class="nowrap">{model.retires_on.map(format::date)}</td>
        </tr>
    };
    std::iter::once(first.into_any())
        .chain(tiers.iter().map(|tier| tier_row(tier, 2, 3, format)))
        .collect()
}

/// A row below a price's for one of its prices for long input, with so many columns before and after the five classes.
pub fn tier_row(tier: &PriceTier, before: usize, after: usize, format: &Format) -> AnyView {
    let above = tn!(
        tier.above_input_tokens,
        "above {n} input token",
        "above {n} input tokens"
    );
    view! {
        <tr class="continued">
            <td colspan=before.to_string() class="quiet nowrap">{above}</td>
            {rate_cells(&tier.rates, format)}
            <td colspan=after.to_string()></td>
        </tr>
    }
    .into_any()
}

/// A price's five classes as cells of a row.
pub fn rate_cells(rates: &Rates, format: &Format) -> AnyView {
    [
        rates.input_nanos_per_mtok,
        rates.cache_read_nanos_per_mtok,
        rates.cache_write_5m_nanos_per_mtok,
        rates.cache_write_1h_nanos_per_mtok,
        rates.output_nanos_per_mtok,
    ]
    .map(|rate| view! { <td class="number">{format.bare_rate(rate)}</td> })
    .collect_view()
    .into_any()
}

fn presence(presence: &Presence, format: &Format) -> AnyView {
    match presence {
        Presence::Absent => badge(t!("new", in "model of the catalogue"), Tone::Good),
        Presence::Unpriced => badge(t!("no price"), Tone::Warning),
        Presence::SamePrice => badge(t!("same price"), Tone::Quiet),
        Presence::OtherPrice(price) => with_price(badge(t!("other price"), Tone::Warning), price, format),
        Presence::Priced(price) => {
            let there = badge(t!("there", in "model of the catalogue"), Tone::Quiet);
            with_price(there, price, format)
        }
    }
}

fn with_price(badge: AnyView, price: &Price, format: &Format) -> AnyView {
    view! { {badge} <br /> <small>{price_text(price, format)}</small> }.into_any()
}

fn price_text(price: &Price, format: &Format) -> String {
    t!(
        "{input} in, {output} out",
        input = format.rate(price.rates.input_nanos_per_mtok),
        output = format.rate(price.rates.output_nanos_per_mtok)
    )
}

fn provider(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Openai => "OpenAI",
        Dialect::Anthropic => "Anthropic",
    }
}

/// What the form sends; `dialect` and `exchange` say which page it was on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogueForm {
    dialect: String,
    exchange: String,
    models: Vec<String>,
    openai_upstream: String,
    anthropic_upstream: String,
}

impl CatalogueForm {
    fn fresh(asked: &Asked, catalogue: &CatalogueView, upstreams: &[UpstreamRow]) -> Self {
        let is_new = |entry: &&CatalogueEntry| matches!(entry.presence, Presence::Absent | Presence::Unpriced);
        let new = catalogue.entries.iter().filter(is_new);
        let models = new.map(|entry| entry.model.name.clone()).collect();
        Self {
            models: if asked.chooses_new { models } else { Vec::new() },
            openai_upstream: only_one(upstreams, Dialect::Openai),
            anthropic_upstream: only_one(upstreams, Dialect::Anthropic),
            ..Self::default()
        }
    }

    fn load(&self) -> Result<CatalogueLoad, ControlError> {
        let mut fields = Fields::default();
        let mut upstream = |field: &'static str, text: &str| match text.trim() {
            "" => None,
            text => text
                .parse::<UpstreamId>()
                .map_err(|_| fields.refuse(field, text!("choose an upstream from the list")))
                .ok(),
        };
        let openai_upstream = upstream("openai_upstream", &self.openai_upstream);
        let anthropic_upstream = upstream("anthropic_upstream", &self.anthropic_upstream);
        let exchange = fields.word("exchange", &self.exchange);
        fields.check()?;
        Ok(CatalogueLoad {
            models: self.models.clone(),
            exchange,
            openai_upstream,
            anthropic_upstream,
        })
    }

    /// Whether new models of some provider among the names have nowhere to go.
    fn leaves_without_route(&self, catalogue: &CatalogueView, names: &[String]) -> bool {
        catalogue
            .entries
            .iter()
            .filter(|entry| names.contains(&entry.model.name))
            .any(|entry| match entry.model.dialect {
                Dialect::Openai => self.openai_upstream.is_empty(),
                Dialect::Anthropic => self.anthropic_upstream.is_empty(),
            })
    }
}

/// The upstream that speaks this, where there is no choice.
fn only_one(upstreams: &[UpstreamRow], dialect: Dialect) -> String {
    let mut speaking = upstreams
        .iter()
        .filter(|upstream| upstream.dialect == dialect && upstream.disabled_at.is_none());
    match (speaking.next(), speaking.next()) {
        (Some(only), None) => only.id.to_string(),
        _ => String::new(),
    }
}

/// Adds chosen models and prices.
#[server(prefix = "/console", endpoint = "models/catalogue/load")]
pub async fn load_catalogue(#[server(flatten)] form: CatalogueForm) -> Result<(), ServerFnError> {
    let back = address_of(&form.dialect, &form.exchange, "");
    submit(
        LoadCatalogue::PATH,
        &back,
        form,
        |visit: Visit, form: CatalogueForm| async move {
            let control = &visit.state.control;
            let actor = visit.actor()?;
            let load = form.load()?;
            let loaded = control
                .load_catalogue(actor, &load, visit.now())
                .await
                .map_err(on_top)?;
            let catalogue = control.catalogue(actor, load.exchange, visit.now()).await?;
            let lacks_route = form.leaves_without_route(&catalogue, &loaded.created);
            Ok::<_, Refused>(Done::say("/models", done(&loaded, lacks_route)))
        },
    )
    .await
}

/// Errors of fields that this form does not have are said as a whole: it makes many models at once.
fn on_top(error: ControlError) -> Refused {
    match error {
        ControlError::Invalid(errors) if errors.iter().all(|error| !FIELDS.contains(&error.field.as_ref())) => {
            let told: Vec<String> = errors.iter().map(|error| language::text(&error.message)).collect();
            Refused::Form(t!(
                "Nothing was loaded: {reasons}.",
                reasons = told.join(t!("; ", in "list"))
            ))
        }
        error => error.into(),
    }
}

/// What was done, in sentences.
fn done(loaded: &CatalogueLoaded, lacks_route: bool) -> String {
    let mut told = Vec::new();
    if !loaded.created.is_empty() {
        told.push(tn!(
            loaded.created.len() as u64,
            "Added {n} model: {names}.",
            "Added {n} models: {names}.",
            names = loaded.created.join(", ")
        ));
    }
    if lacks_route {
        told.push(t!("Those without a route are refused until they have one.").to_owned());
    }
    if !loaded.priced.is_empty() {
        told.push(tn!(
            loaded.priced.len() as u64,
            "Gave the catalogue's price to {n} model: {names}.",
            "Gave the catalogue's price to {n} models: {names}.",
            names = loaded.priced.join(", ")
        ));
    }
    if !loaded.unchanged.is_empty() {
        told.push(t!(
            "Had that price already: {names}.",
            names = loaded.unchanged.join(", ")
        ));
    }
    language::sentences(&told)
}

#[cfg(test)]
mod tests;
