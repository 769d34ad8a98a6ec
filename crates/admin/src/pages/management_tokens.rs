//! Management tokens: the list, issuing one, the page that shows its text once, revoking it. For operators.

use chrono::{DateTime, Utc};
use control::fields::Fields;
use control::management_tokens::{LIFETIME_DAYS_DEFAULT, LIFETIME_DAYS_MAX, ManagementTokenDraft};
use control::rows::ManagementTokenRow;
use domain::ids::{ManagementTokenId, TenantId};
use domain::management_tokens::{Permission, masked};
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::Format;
use crate::page::{self, Page, id_of_path};
use crate::session;
use crate::shell;
use crate::submit::{Done, Refused, parsed_id, press, submit};
use crate::table::{self, Tone, badge, words};
use crate::tables::{Column, Listing, Named, by, by_text, plain};
use crate::visit::Visit;
use admin_islands::copy_button::CopyButton;

/// Where the list is.
pub const PATH: &str = "/settings/tokens";
const NEW_PATH: &str = "/settings/tokens/new";
const ISSUED_PATH: &str = "/settings/tokens/issued";

/// All tokens.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let now = visit.now();
        let tokens = visit.state.control.management_tokens(visit.actor()?, now).await?;
        let issue = view! { <a class="button button-primary" href=NEW_PATH>"Issue a token"</a> };
        let listed = if tokens.is_empty() {
            table::empty(
                "No tokens yet. A token lets a program read reports and the ledger, and book adjustments, at the JSON API; what it \
                 may do is chosen when it is issued.",
                view! { <a class="button" href=NEW_PATH>"Issue a token"</a> }.into_any(),
            )
        } else {
            let listing = Listing::new(&visit, columns(now), tokens, &[], |token| {
                let tenant = token.tenant_name.as_deref().unwrap_or_default();
                format!(
                    "{} {} {tenant} {}",
                    token.name,
                    masked(&token.public_id),
                    token.created_by
                )
            })?;
            listing.view(
                "Programs that may use the JSON API.",
                &Named {
                    counted: |n| tn!(n, "{n} token", "{n} tokens"),
                    find: t!("Find among the tokens"),
                },
                |token| row(token, &visit.format, now),
            )
        };
        let content = view! {
            {shell::page_head(
                "Management tokens",
                "Programs show one at the JSON API, to read and change what people do in the console. They are no keys: \
                 models cannot be asked with them.",
                issue.into_any(),
            )}
            <p class="quiet">
                "What the API can do is described at " <a href="/api/openapi.json">"/api/openapi.json"</a> "."
            </p>
            {listed}
        };
        Ok(Page::new("Management tokens", content.into_any()))
    })
}

fn columns(now: DateTime<Utc>) -> Vec<Column<ManagementTokenRow>> {
    // Those that work first.
    let standing = move |token: &ManagementTokenRow| {
        (
            token.revoked_at.is_some() || token.expires_at <= now,
            token.revoked_at.is_some(),
        )
    };
    vec![
        by_text(words("Name"), "name", |token| &token.name),
        plain(words("Token")),
        by(words("State"), "state", move |one, other| {
            standing(one).cmp(&standing(other))
        }),
        plain(words("May")),
        by_text(words("Tenant"), "tenant", |token| {
            token.tenant_name.as_deref().unwrap_or_default()
        }),
        by(words("Expires"), "expires", |one: &ManagementTokenRow, other| {
            one.expires_at.cmp(&other.expires_at)
        }),
        by(words("Last used"), "used", |one: &ManagementTokenRow, other| {
            one.last_used_at.cmp(&other.last_used_at)
        }),
        by(words("Issued"), "issued", |one: &ManagementTokenRow, other| {
            one.created_at.cmp(&other.created_at)
        }),
        plain(words("Actions")),
    ]
}

fn row(token: &ManagementTokenRow, format: &Format, now: DateTime<Utc>) -> AnyView {
    let tenant = token.tenant_name.clone().unwrap_or_else(|| "all".to_owned());
    let works = token.revoked_at.is_none() && token.expires_at > now;
    let revoke = works.then(|| {
        let href = format!("{PATH}/{}/revoke", token.id);
        view! { <a class="button" href=href>"Revoke"</a> }
    });
    let used = token
        .last_used_at
        .map_or_else(|| "never".to_owned(), |at| format.minute(at));
    view! {
        <tr>
            <th scope="row">{token.name.clone()}</th>
            <td class="nowrap">
                <code>{masked(&token.public_id)}</code>
            </td>
            <td>{state(token, now)}</td>
            <td>{permissions(token)}</td>
            <td>{tenant}</td>
            <td class="nowrap">{format.minute(token.expires_at)}</td>
            <td class="nowrap">{used}</td>
            <td>{format!("{} by {}", format.minute(token.created_at), token.created_by)}</td>
            <td>{revoke}</td>
        </tr>
    }
    .into_any()
}

fn state(token: &ManagementTokenRow, now: DateTime<Utc>) -> AnyView {
    if token.revoked_at.is_some() {
        badge("revoked", Tone::Bad)
    } else if token.expires_at <= now {
        badge("expired", Tone::Warning)
    } else {
        badge("active", Tone::Good)
    }
}

fn permissions(token: &ManagementTokenRow) -> String {
    let words: Vec<&str> = token.permissions.iter().map(|permission| permission.as_str()).collect();
    words.join(", ")
}

/// The form that issues a token.
pub fn new() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        if !visitor.is_operator() {
            return Err(PageError::Forbidden);
        }
        let tenants = visit.state.control.tenants(&visitor.actor, visit.now()).await?;
        let tenants = std::iter::once((String::new(), "All tenants".to_owned()))
            .chain(
                tenants
                    .iter()
                    .map(|tenant| (tenant.row.tenant.id.to_string(), tenant.row.tenant.name.clone())),
            )
            .collect();
        let form = Filled::new(visit.draft.clone(), IssueManagementToken::PATH, || TokenForm {
            lifetime_days: LIFETIME_DAYS_DEFAULT.to_string(),
            ..TokenForm::default()
        });
        let values = &form.values;
        let content = view! {
            {shell::page_head("Issue a management token", "", ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=IssueManagementToken::PATH>
                    {form.text(
                        Field::new("name", "Name").required().hint("The program that will show it. It stands beside what it books."),
                        &values.name,
                    )}
                    {form.grouped_checks(Field::new("permissions", "What it may do"), &values.permissions, groups())}
                    {form.select(
                        Field::new("tenant_id", "Tenant").hint("A token of one tenant sees that tenant only, as its manager does."),
                        &values.tenant_id,
                        tenants,
                    )}
                    {form.text(
                        Field::new("lifetime_days", "Days until it expires")
                            .whole()
                            .required()
                            .hint(format!("1 to {LIFETIME_DAYS_MAX}.")),
                        &values.lifetime_days,
                    )}
                    <div class="actions">
                        <button class="button button-primary" type="submit">"Issue token"</button>
                        <a class="button" href=PATH>"Cancel"</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new("Issue a management token", content.into_any()))
    })
}

/// The permissions as the form offers them, under what they are about.
fn groups() -> Vec<(&'static str, Vec<(String, String)>)> {
    let mut groups: Vec<(&'static str, Vec<(String, String)>)> = Vec::new();
    for permission in Permission::ALL {
        let (heading, text) = told(permission);
        let only = if permission.is_for_operators() {
            "; of all tenants only"
        } else {
            ""
        };
        let option = (permission.to_string(), format!("{permission}: {text}{only}"));
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, options)) => options.push(option),
            None => groups.push((heading, vec![option])),
        }
    }
    groups
}

/// What a permission is about, and what it is for.
fn told(permission: Permission) -> (&'static str, &'static str) {
    const MONEY: &str = "Reports and ledger";
    const WHO: &str = "Tenants, plans and people";
    const HOW_MUCH: &str = "Keys and limits";
    const WHAT: &str = "Models, prices and upstreams";
    const MORE: &str = "Jobs, explanations and audit log";
    match permission {
        Permission::ReportsRead => (MONEY, "read reports"),
        Permission::LedgerRead => (MONEY, "read the ledger: settlements, rejections, adjustments"),
        Permission::AdjustmentsWrite => (MONEY, "book adjustments"),
        Permission::TenantsRead => (WHO, "read tenants"),
        Permission::TenantsWrite => (WHO, "make, change and suspend tenants"),
        Permission::PlansRead => (WHO, "read plans"),
        Permission::PlansWrite => (WHO, "make, change and remove plans"),
        Permission::PeopleRead => (WHO, "read who signs in"),
        Permission::PeopleWrite => (
            WHO,
            "invite people, let them choose passwords and shut them out, but for operators; and so whatever those may do",
        ),
        Permission::KeysRead => (HOW_MUCH, "read keys, without their secrets"),
        Permission::KeysWrite => (HOW_MUCH, "issue, change and revoke keys"),
        Permission::LimitsRead => (HOW_MUCH, "read limits and budgets"),
        Permission::LimitsWrite => (HOW_MUCH, "set limits and budgets"),
        Permission::ModelsRead => (WHAT, "read models"),
        Permission::ModelsWrite => (WHAT, "add and change models"),
        Permission::PricesRead => (WHAT, "read prices, past and to come"),
        Permission::PricesWrite => (WHAT, "add and remove prices"),
        Permission::UpstreamsRead => (WHAT, "read upstreams, without their credentials"),
        Permission::UpstreamsWrite => (WHAT, "add and change upstreams"),
        Permission::JobsRead => (MORE, "read jobs, without what they carry"),
        Permission::JobsWrite => (MORE, "call jobs off"),
        Permission::ExplainRead => (MORE, "ask what would become of a request"),
        Permission::AuditRead => (MORE, "read the audit log"),
    }
}

/// Shows the text of a token that was just issued, once.
pub fn issued() -> AnyView {
    page::behind_the_door(|visit| async move {
        let Some(secret) = visit.take_secret::<IssuedText>().await? else {
            let content = view! {
                {shell::page_head("This token was shown already", "", ().into_any())}
                <section class="card">
                    <p>"A token is shown once. If it is lost, revoke it and issue another one."</p>
                    <p class="actions"><a class="button" href=PATH>"Go to the tokens"</a></p>
                </section>
            };
            return Ok(Page::new("Token", content.into_any()));
        };
        let token = visit.state.control.management_token(visit.actor()?, secret.id).await?;
        // What a token may only write has nothing to show.
        let mut readable = token
            .permissions
            .iter()
            .filter(|permission| permission.as_str().ends_with(":read"));
        let path = match readable.next() {
            Some(Permission::ReportsRead) => "/api/v1/reports/monthly?by=model",
            Some(Permission::LedgerRead) => "/api/v1/adjustments",
            Some(Permission::ExplainRead) | None => "/api/openapi.json",
            Some(permission) => &format!("/api/v1/{}", permission.noun()),
        };
        let example = format!(
            "curl -H \"Authorization: Bearer $TOLLGATE_TOKEN\" '{}{path}'",
            visit.state.public_address
        );
        let content = view! {
            {shell::page_head(format!("Token issued: {}", token.name), "Copy it now: it is not shown again.", ().into_any())}
            <section class="card">
                <h2>"Token"</h2>
                <code class="secret" id="secret">{secret.text.clone()}</code>
                <div class="copy-row">
                    <CopyButton target="secret".to_owned() label="Copy the token".to_owned() />
                    <a class="button" href=PATH>"Done"</a>
                </div>
                <p class="quiet">"Keep it like a password."</p>
            </section>
            <section class="card">
                <h2>"Try it"</h2>
                <p>"With the token in the environment as " <code>"TOLLGATE_TOKEN"</code> ":"</p>
                <pre><code>{example}</code></pre>
            </section>
        };
        Ok(Page::new("Token issued", content.into_any()))
    })
}

/// Asks before a token is revoked: it cannot be undone.
pub fn revoke() -> AnyView {
    page::behind_the_door(|visit| async move {
        let id = id_of_path(&visit, "/settings/tokens/")?;
        let token = visit.state.control.management_token(visit.actor()?, id).await?;
        let content = view! {
            {shell::page_head(format!("Revoke {}?", token.name), "", ().into_any())}
            <section class="card">
                <p>
                    "Calls with " <code>{masked(&token.public_id)}</code>
                    " are refused at once, for good. What it has booked stays."
                </p>
                <form method="post" action=RevokeManagementToken::PATH>
                    <input type="hidden" name="id" value=id.to_string() />
                    <div class="actions">
                        <button class="button button-danger" type="submit">"Revoke token"</button>
                        <a class="button" href=PATH>"Keep it"</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new("Revoke management token", content.into_any()))
    })
}

/// A token's text on its way to the one page that shows it.
#[derive(Serialize, Deserialize)]
struct IssuedText {
    id: ManagementTokenId,
    text: String,
}

/// What the form of a token sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenForm {
    name: String,
    permissions: Vec<String>,
    /// Empty for all of them.
    tenant_id: String,
    lifetime_days: String,
}

impl TokenForm {
    fn draft(&self) -> Result<ManagementTokenDraft, Refused> {
        let mut fields = Fields::default();
        let permissions = self
            .permissions
            .iter()
            .filter_map(|permission| fields.word("permissions", permission))
            .collect();
        let tenant_id: Option<TenantId> = match self.tenant_id.as_str() {
            "" => None,
            id => Some(parsed_id(id)?),
        };
        let days = fields.count("lifetime_days", &self.lifetime_days);
        fields.check()?;
        Ok(ManagementTokenDraft {
            name: self.name.clone(),
            tenant_id,
            permissions,
            // Nothing written, and what is too large, is refused with the words for 0.
            lifetime_days: days.and_then(|days| u32::try_from(days).ok()).unwrap_or(0),
        })
    }
}

/// Issues a token and leads to the page that shows its text.
#[server(prefix = "/console", endpoint = "settings/tokens/issue")]
pub async fn issue_management_token(#[server(flatten)] form: TokenForm) -> Result<(), ServerFnError> {
    submit(
        IssueManagementToken::PATH,
        NEW_PATH,
        form,
        |visit: Visit, form: TokenForm| async move {
            let draft = form.draft()?;
            let now = visit.now();
            let issued = visit
                .state
                .control
                .issue_management_token(visit.actor()?, &draft, now)
                .await?;
            let secret = IssuedText {
                id: issued.row.id,
                text: issued.text.reveal().to_owned(),
            };
            session::keep_secret(&visit.session, secret, now).await?;
            Ok::<_, Refused>(Done::go(ISSUED_PATH))
        },
    )
    .await
}

/// Revokes a token for good.
#[server(prefix = "/console", endpoint = "settings/tokens/revoke")]
pub async fn revoke_management_token(#[server(default)] id: String) -> Result<(), ServerFnError> {
    press(PATH, |visit: Visit| async move {
        let id: ManagementTokenId = parsed_id(&id)?;
        visit
            .state
            .control
            .revoke_management_token(visit.actor()?, id, visit.now())
            .await?;
        Ok::<_, Refused>(Done::say(PATH, "Revoked."))
    })
    .await
}
