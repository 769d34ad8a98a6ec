//! Upstreams: provider endpoints. A credential goes in and is never shown.

use control::ControlError;
use control::fields::Fields;
use control::rows::UpstreamRow;
use control::upstreams::{CredentialChange, UpstreamDraft};
use domain::ids::UpstreamId;
use domain::limits::Scope;
use domain::policy::Dialect;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::breakers::{self, Seen};
use crate::error::PageError;
use crate::form::{Field, Filled, Secret};
use crate::format::Format;
use crate::page::{self, Page, id_of_path};
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, submit};
use crate::table::{self, Tone, badge, facts, words};
use crate::visit::{Visit, address};

/// Every upstream.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let upstreams = visit.state.control.upstreams(&visitor.actor).await?;
        let instances = visit.state.control.instances(&visitor.actor).await?;
        let (seen, live) = breakers::seen(&instances, visit.now());
        let new = visitor
            .is_operator()
            .then(|| view! { <a class="button button-primary" href="/upstreams/new">"New upstream"</a> });
        let listed = if upstreams.is_empty() {
            table::empty(
                "No upstreams yet. An upstream is a provider's endpoint that models are served by.",
                ().into_any(),
            )
        } else {
            table::table(
                "Provider endpoints.",
                &[
                    words("Name"),
                    words("State"),
                    words("Dialect"),
                    words("Address"),
                    words("Credential"),
                    words("Since"),
                ],
                upstreams
                    .iter()
                    .map(|upstream| row(upstream, &seen, live, &visit.format))
                    .collect(),
            )
        };
        let content = view! {
            {shell::page_head("Upstreams", "Where requests go: providers' endpoints and the credentials for them.", new.into_any())}
            {listed}
        };
        Ok(Page::new("Upstreams", content.into_any()))
    })
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
        badge("disabled", Tone::Quiet)
    } else {
        badge("in use", Tone::Good)
    }
}

/// What its breaker does where it does not let everything through; the upstream's own page has the rest.
fn breaker_words(upstream: &UpstreamRow, seen: &[Seen], live: usize) -> AnyView {
    seen.iter()
        .filter(|seen| seen.upstream_id == upstream.id)
        .map(|seen| {
            let model = seen.upstream_model.clone().map(|model| format!("for {model} "));
            let gateways = (live > 1).then(|| format!("({} of {live} gateways)", seen.gateways.len()));
            view! { <div>{breakers::state(seen.state)} " " <small>{model} {gateways}</small></div> }
        })
        .collect_view()
        .into_any()
}

fn credential(upstream: &UpstreamRow) -> &'static str {
    if upstream.has_credential { "set" } else { "none" }
}

/// The form for a new upstream.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        if !visit.visitor()?.is_operator() {
            return Err(PageError::Forbidden);
        }
        let form = Filled::new(visit.draft.clone(), CreateUpstream::PATH, UpstreamForm::default);
        let content = view! {
            {shell::page_head("New upstream", "A provider's endpoint.", ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=CreateUpstream::PATH>
                    {fields(&form, false)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">"Create upstream"</button>
                        <a class="button" href="/upstreams">"Cancel"</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new("New upstream", content.into_any()))
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
                    {fields(&form, upstream.has_credential)}
                    <div class="actions">
                        <button class="button button-primary" type="submit">"Save"</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            facts(vec![
                ("Dialect", upstream.dialect.as_str().into_any()),
                ("Address", view! { <code>{upstream.base_url.clone()}</code> }.into_any()),
                ("Credential", credential(&upstream).into_any()),
            ])
        };
        let instances = visit.state.control.instances(&visitor.actor).await?;
        let (seen, live) = breakers::seen(&instances, visit.now());
        let seen: Vec<Seen> = seen.into_iter().filter(|seen| seen.upstream_id == id).collect();
        let breaker = if seen.is_empty() {
            table::empty(
                "Closed: requests go through. It opens when requests fail again and again, or when the credential is refused, and \
                 cools down for as long as the provider asks; requests then go to the other routes of their models.",
                ().into_any(),
            )
        } else {
            breakers::table(&seen, live, None, &visit.format)
        };
        let limits = address("/limits", &[("of", &Scope::Upstream(id).to_string())]);
        let actions = view! { {state(&upstream)} <a class="button" href=limits>"Limits"</a> };
        let content = view! {
            {shell::page_head(upstream.name.clone(), "", actions.into_any())}
            <section class="card">
                <h2>"Breaker"</h2>
                {breaker}
            </section>
            <section class="card">{body}</section>
        };
        Ok(Page::new(upstream.name.clone(), content.into_any()))
    })
}

fn fields(form: &Filled<UpstreamForm>, has_credential: bool) -> AnyView {
    let values = &form.values;
    let dialects = vec![
        (
            Dialect::Openai.as_str().to_owned(),
            "OpenAI, and what imitates it".to_owned(),
        ),
        (Dialect::Anthropic.as_str().to_owned(), "Anthropic messages".to_owned()),
    ];
    let hint = if has_credential {
        "One is set and never shown. Leave this empty to keep it."
    } else {
        "The provider's API key. It is sealed at once and never shown again."
    };
    let clear = has_credential.then(|| {
        form.check(
            Field::new("clears_credential", "Take the credential away").hint("For an upstream that wants none."),
            values.clears_credential == "on",
        )
    });
    view! {
        {form.text(Field::new("name", "Name").required().placeholder("OpenAI, account A"), &values.name)}
        {form.select(Field::new("dialect", "Dialect"), &values.dialect, dialects)}
        {form.text(
            Field::new("base_url", "Address").required().hint("Up to and including the version.").placeholder("https://api.openai.com/v1"),
            &values.base_url,
        )}
        {form.text(Field::new("credential", "Credential").password("off").hint(hint), "")}
        {clear}
        {form.check(Field::new("is_disabled", "Disabled").hint("Not used for requests."), values.is_disabled == "on")}
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
            let notice = format!(
                "{} was created. Models reach it through their routes.",
                draft.name.trim()
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
            Ok::<_, Refused>(Done::say(format!("/upstreams/{id}"), "Saved."))
        },
    )
    .await
}
