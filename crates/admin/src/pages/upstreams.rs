//! Upstreams: provider endpoints. A credential goes in and is never shown.

use control::ControlError;
use control::fields::Fields;
use control::rows::UpstreamRow;
use control::upstreams::{CredentialChange, UpstreamDraft};
use domain::ids::UpstreamId;
use domain::limits::{Scope, Target};
use domain::policy::Dialect;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::breakers::{self, Seen};
use crate::error::PageError;
use crate::form::{Field, Filled, Secret};
use crate::format::Format;
use crate::page::{self, Page, id_of_path};
use crate::pages::audit;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::{self, Tone, badge, facts, words};
use crate::tables::{Column, Listing, Named, by, by_text};
use crate::visit::{Visit, address};

/// Every upstream.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let upstreams = visit.state.control.upstreams(&visitor.actor).await?;
        let instances = visit.state.control.instances(&visitor.actor).await?;
        let (seen, live) = breakers::seen(&instances, visit.now());
        let new = || {
            visitor
                .is_operator()
                .then(|| view! { <a class="button button-primary" href="/upstreams/new">{t!("New upstream")}</a> })
        };
        let head = (!upstreams.is_empty()).then(new);
        let listed = if upstreams.is_empty() {
            table::empty(
                t!(
                    "No upstreams yet. An upstream is a provider's endpoint with the credential for it: make one first, then \
                     load models from the catalogue or make your own, and route them to it."
                ),
                view! { {new()} <a class="button" href="/models/catalogue">{t!("Catalogue")}</a> }.into_any(),
            )
        } else {
            let listing = Listing::new(&visit, columns(), upstreams, &[], |upstream| {
                format!("{} {}", upstream.name, upstream.base_url)
            })?;
            listing.view(
                t!("Provider endpoints."),
                &Named {
                    counted: |n| tn!(n, "{n} upstream", "{n} upstreams"),
                    find: t!("Find among the upstreams"),
                },
                |upstream| row(upstream, &seen, live, &visit.format),
            )
        };
        let content = view! {
            {shell::page_head(
                t!("Upstreams"),
                t!("Where requests go: providers' endpoints and the credentials for them."),
                head.into_any(),
            )}
            {listed}
        };
        Ok(Page::new(t!("Upstreams"), content.into_any()))
    })
}

fn columns() -> Vec<Column<UpstreamRow>> {
    vec![
        by_text(words(t!("Name")), "name", |upstream: &UpstreamRow| &upstream.name).natural(),
        by(words(t!("State")), "state", |one: &UpstreamRow, other| {
            one.disabled_at.is_some().cmp(&other.disabled_at.is_some())
        }),
        by_text(words(t!("Dialect")), "dialect", |upstream| upstream.dialect.as_str()),
        by_text(words(t!("Address")), "address", |upstream| &upstream.base_url),
        by(words(t!("Credential")), "credential", |one: &UpstreamRow, other| {
            one.has_credential.cmp(&other.has_credential)
        }),
        by(
            words(t!("Since", in "upstream")),
            "since",
            |one: &UpstreamRow, other| one.created_at.cmp(&other.created_at),
        ),
    ]
}

fn row(upstream: &UpstreamRow, seen: &[Seen], live: usize, format: &Format) -> AnyView {
    let href = format!("/upstreams/{}", upstream.id);
    view! {
        <tr>
            <th scope="row">
                <a href=href>{upstream.name.clone()}</a>
            </th>
            <td>{state(upstream)} {breaker_words(upstream, seen, live)}</td>
            <td>{upstream.dialect.as_str()}</td>
            <td>
                <code>{upstream.base_url.clone()}</code>
            </td>
            <td>{credential(upstream)}</td>
            <td class="nowrap">{format.minute(upstream.created_at)}</td>
        </tr>
    }
    .into_any()
}

fn state(upstream: &UpstreamRow) -> AnyView {
    if upstream.disabled_at.is_some() {
        badge(t!("disabled", in "upstream or model"), Tone::Quiet)
    } else {
        badge(t!("in use", in "upstream"), Tone::Good)
    }
}

/// What its breaker does where it does not let everything through; the upstream's own page has the rest.
fn breaker_words(upstream: &UpstreamRow, seen: &[Seen], live: usize) -> AnyView {
    seen.iter()
        .filter(|seen| seen.upstream_id == upstream.id)
        .map(|seen| {
            let says = seen.gateways.len();
            let detail = match &seen.upstream_model {
                Some(model) if live > 1 => t!("for {model} ({says} of {live} gateways)", model, says, live),
                Some(model) => t!("for {model}", model),
                None if live > 1 => t!("({says} of {live} gateways)", says, live),
                None => String::new(),
            };
            view! { <div>{breakers::state(seen.state)} " " <small>{detail}</small></div> }
        })
        .collect_view()
        .into_any()
}

fn credential(upstream: &UpstreamRow) -> &'static str {
    if upstream.has_credential {
        t!("set", in "credential")
    } else {
        t!("none", in "credential")
    }
}

/// The form for a new upstream.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        if !visit.visitor()?.is_operator() {
            return Err(PageError::Forbidden);
        }
        let form = Filled::new(visit.draft.clone(), CreateUpstream::PATH, UpstreamForm::default);
        let content = view! {
            {shell::page_head(t!("New upstream"), t!("A provider's endpoint."), ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=CreateUpstream::PATH>
                    {fields(&form, false, None)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Create upstream")}</button>
                        <a class="button" href="/upstreams">{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("New upstream"), content.into_any()))
    })
}

/// One upstream.
pub fn edit() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let id: UpstreamId = id_of_path(&visit, "/upstreams/")?;
        let upstream = visit.state.control.upstream(&visitor.actor, id).await?;
        let form = Filled::new(visit.draft.clone(), EditUpstream::PATH, || UpstreamForm::of(&upstream));
        let version = form
            .version(&form.values.version, &upstream.version.to_string())
            .to_owned();
        let body = if visitor.is_operator() {
            view! {
                {form.summary()}
                <form class="form" method="post" action=EditUpstream::PATH>
                    <input type="hidden" name="id" value=id.to_string() />
                    <input type="hidden" name="version" value=version />
                    {fields(&form, upstream.has_credential, Some(Routed::to(&visit, id).await?))}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Save")}</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            facts(vec![
                (t!("Dialect"), upstream.dialect.as_str().into_any()),
                (
                    t!("Address"),
                    view! { <code>{upstream.base_url.clone()}</code> }.into_any(),
                ),
                (t!("Credential"), credential(&upstream).into_any()),
            ])
        };
        let instances = visit.state.control.instances(&visitor.actor).await?;
        let (seen, live) = breakers::seen(&instances, visit.now());
        let seen: Vec<Seen> = seen.into_iter().filter(|seen| seen.upstream_id == id).collect();
        let breaker = if seen.is_empty() {
            table::empty(
                t!(
                    "Closed: requests go through. It opens when requests fail again and again, or when the credential is \
                     refused, and cools down for as long as the provider asks; requests then go to the other routes of their \
                     models."
                ),
                ().into_any(),
            )
        } else {
            breakers::table(&seen, live, None, &visit.format)
        };
        let limits = address("/limits", &[("of", &Scope::Upstream(id).to_string())]);
        let actions = view! {
            {state(&upstream)}
            <a class="button" href=limits>{t!("Limits")}</a>
            {audit::history_of_target(visitor, &Target::Node(Scope::Upstream(id)))}
        };
        let content = view! {
            {shell::page_head(upstream.name.clone(), "", actions.into_any())}
            <section class="card">
                <h2>{t!("Breaker")}</h2>
                {breaker}
            </section>
            <section class="card">{body}</section>
        };
        Ok(Page::new(upstream.name.clone(), content.into_any()))
    })
}

/// Which models are served by an upstream.
struct Routed {
    /// How many.
    models: usize,
    /// Those that have no other upstream in use.
    only_here: Vec<String>,
}

impl Routed {
    async fn to(visit: &Visit, id: UpstreamId) -> Result<Self, PageError> {
        let control = &visit.state.control;
        let models = control.models(visit.actor()?, visit.now()).await?;
        let in_use: Vec<UpstreamId> = control
            .upstreams(visit.actor()?)
            .await?
            .into_iter()
            .filter(|upstream| upstream.disabled_at.is_none())
            .map(|upstream| upstream.id)
            .collect();
        let here = models
            .iter()
            .filter(|row| row.model.routes.iter().any(|route| route.upstream_id == id));
        let only_here = here.clone().filter(|row| {
            let mut others = row.model.routes.iter().filter(|route| route.upstream_id != id);
            !others.any(|route| in_use.contains(&route.upstream_id))
        });
        Ok(Self {
            models: here.count(),
            only_here: only_here.map(|row| row.model.name.clone()).collect(),
        })
    }
}

/// Models that a sentence names at most.
const MODELS_NAMED_MAX: usize = 5;

/// Taking an upstream out of use, with what that means for the models that it serves.
fn disabling(form: &Filled<UpstreamForm>, routed: &Routed) -> AnyView {
    let is_disabled = form.values.is_disabled == "on";
    let served = match routed.models {
        0 => t!("No model is routed to it.").to_owned(),
        models => tn!(
            models as u64,
            "{n} model is routed to it.",
            "{n} models are routed to it."
        ),
    };
    let more = routed.only_here.len().saturating_sub(MODELS_NAMED_MAX);
    let named = routed.only_here[..routed.only_here.len() - more].join(", ");
    let then = match (routed.only_here.len(), more) {
        _ if routed.models == 0 => None,
        (0, _) => Some(t!("Each of them has another upstream in use, which takes its requests.").to_owned()),
        (_, 0) => Some(t!(
            "Requests for these are refused, as they have no other upstream in use: {named}.",
            named
        )),
        (_, more) => Some(t!(
            "Requests for these are refused, as they have no other upstream in use: {named} and {more} more.",
            named,
            more
        )),
    };
    let told = [
        Some(
            t!(
                "Saved with the box ticked, no request goes there from the next second on; requests under way end as they \
                 would."
            )
                .to_owned(),
        ),
        Some(served),
        then,
        Some(t!("Unticking it brings it back.").to_owned()),
    ];
    let told = told.into_iter().flatten().map(IntoAny::into_any).collect();
    let is_open = is_disabled || form.is_overtaken("is_disabled", &form.values.is_disabled);
    view! {
        <details class="steps" open=is_open>
            <summary>{t!("Take this upstream out of use")}</summary>
            {table::consequences(told)}
            {form.check(Field::new("is_disabled", t!("Disabled")), is_disabled)}
        </details>
    }
    .into_any()
}

/// `routed` of an upstream that exists.
fn fields(form: &Filled<UpstreamForm>, has_credential: bool, routed: Option<Routed>) -> AnyView {
    let values = &form.values;
    let dialects = vec![
        (
            Dialect::Openai.as_str().to_owned(),
            t!("OpenAI, and what imitates it").to_owned(),
        ),
        (
            Dialect::Anthropic.as_str().to_owned(),
            t!("Anthropic messages").to_owned(),
        ),
    ];
    let hint = if has_credential {
        t!("One is set and never shown. Leave this empty to keep it.")
    } else {
        t!("The provider's API key. It is sealed at once and never shown again.")
    };
    let clear = has_credential.then(|| {
        form.check(
            Field::new("clears_credential", t!("Take the credential away"))
                .hint(t!("For an upstream that wants none.")),
            values.clears_credential == "on",
        )
    });
    view! {
        {form.text(Field::new("name", t!("Name")).required().placeholder(t!("OpenAI, account A")), &values.name)}
        {form.select(Field::new("dialect", t!("Dialect")), &values.dialect, dialects)}
        {form.text(
            Field::new("base_url", t!("Address"))
                .required()
                .hint(t!("Up to and including the version."))
                .placeholder("https://api.openai.com/v1"),
            &values.base_url,
        )}
        {form.text(Field::new("credential", t!("Credential")).password("off").hint(hint), "")}
        {clear}
        {routed.map(|routed| disabling(form, &routed))}
    }
    .into_any()
}

/// What the forms of an upstream send.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamForm {
    id: String,
    version: String,
    name: String,
    dialect: String,
    base_url: String,
    credential: Secret,
    clears_credential: String,
    is_disabled: String,
}

impl UpstreamForm {
    fn of(upstream: &UpstreamRow) -> Self {
        Self {
            id: upstream.id.to_string(),
            version: upstream.version.to_string(),
            name: upstream.name.clone(),
            dialect: upstream.dialect.as_str().to_owned(),
            base_url: upstream.base_url.clone(),
            credential: Secret::default(),
            clears_credential: String::new(),
            is_disabled: if upstream.disabled_at.is_some() { "on" } else { "" }.to_owned(),
        }
    }

    fn draft(&self) -> Result<UpstreamDraft, ControlError> {
        let mut fields = Fields::default();
        let dialect = fields.word("dialect", &self.dialect).unwrap_or(Dialect::Openai);
        fields.check()?;
        let credential = match CredentialChange::from_text(self.credential.reveal()) {
            CredentialChange::Keep if self.clears_credential == "on" => CredentialChange::Clear,
            change => change,
        };
        Ok(UpstreamDraft {
            name: self.name.clone(),
            dialect,
            base_url: self.base_url.clone(),
            credential,
            is_disabled: self.is_disabled == "on",
        })
    }
}

/// Adds an upstream.
#[server(prefix = "/console", endpoint = "upstreams/create")]
pub async fn create_upstream(#[server(flatten)] form: UpstreamForm) -> Result<(), ServerFnError> {
    submit(
        CreateUpstream::PATH,
        "/upstreams/new",
        form,
        |visit: Visit, form: UpstreamForm| async move {
            let draft = form.draft()?;
            visit
                .state
                .control
                .create_upstream(visit.actor()?, &draft, visit.now())
                .await?;
            let notice = t!(
                "{name} was created. Models reach it through their routes.",
                name = draft.name.trim()
            );
            Ok::<_, Refused>(Done::say("/upstreams", notice))
        },
    )
    .await
}

/// Changes an upstream.
#[server(prefix = "/console", endpoint = "upstreams/edit")]
pub async fn edit_upstream(#[server(flatten)] form: UpstreamForm) -> Result<(), ServerFnError> {
    let back = format!("/upstreams/{}", form.id);
    submit(
        EditUpstream::PATH,
        &back,
        form,
        |visit: Visit, form: UpstreamForm| async move {
            let (id, version) = (parsed_id(&form.id)?, parsed_id(&form.version)?);
            let draft = form.draft()?;
            visit
                .state
                .control
                .edit_upstream(visit.actor()?, id, version, &draft, visit.now())
                .await?;
            Ok::<_, Refused>(Done::say(format!("/upstreams/{id}"), t!("Saved.")))
        },
    )
    .await
}
