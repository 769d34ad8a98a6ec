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

use crate::copy;
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

/// Where the list is.
pub const PATH: &str = "/settings/tokens";
const NEW_PATH: &str = "/settings/tokens/new";
const ISSUED_PATH: &str = "/settings/tokens/issued";

/// All tokens.
pub fn list() -> AnyView {
    page::behind_the_door(|visit| async move {
        let now = visit.now();
        let tokens = visit.state.control.management_tokens(visit.actor()?, now).await?;
        let issue = view! { <a class="button button-primary" href=NEW_PATH>{t!("Issue a token")}</a> };
        let listed = if tokens.is_empty() {
            table::empty(
                t!(
                    "No tokens yet. A token lets a program read reports and the ledger, and book adjustments, at the JSON \
                     API; what it may do is chosen when it is issued."
                ),
                view! { <a class="button" href=NEW_PATH>{t!("Issue a token")}</a> }.into_any(),
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
                t!("Programs that may use the JSON API."),
                &Named {
                    counted: |n| tn!(n, in "management tokens", "{n} token", "{n} tokens"),
                    find: t!("Find among the tokens"),
                },
                |token| row(token, &visit.format, now),
            )
        };
        let content = view! {
            {shell::page_head(
                t!("Management tokens"),
                t!(
                    "Programs show one at the JSON API, to read and change what people do in the console. They are no keys: \
                     models cannot be asked with them."
                ),
                issue.into_any(),
            )}
            <p class="quiet">
                {tv!(
                    "What the API can do is described at {address}.",
                    address = view! { <a href="/api/openapi.json">"/api/openapi.json"</a> },
                )}
            </p>
            {listed}
        };
        Ok(Page::new(t!("Management tokens"), content.into_any()))
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
        by_text(words(t!("Name")), "name", |token| &token.name),
        plain(words(t!("Token", in "management token"))),
        by(words(t!("State")), "state", move |one, other| {
            standing(one).cmp(&standing(other))
        }),
        plain(words(t!("May", in "management token"))),
        by_text(words(t!("Tenant")), "tenant", |token| {
            token.tenant_name.as_deref().unwrap_or_default()
        }),
        by(words(t!("Expires")), "expires", |one: &ManagementTokenRow, other| {
            one.expires_at.cmp(&other.expires_at)
        }),
        by(words(t!("Last used")), "used", |one: &ManagementTokenRow, other| {
            one.last_used_at.cmp(&other.last_used_at)
        }),
        by(words(t!("Issued")), "issued", |one: &ManagementTokenRow, other| {
            one.created_at.cmp(&other.created_at)
        }),
        plain(words(t!("Actions"))),
    ]
}

fn row(token: &ManagementTokenRow, format: &Format, now: DateTime<Utc>) -> AnyView {
    let tenant = token
        .tenant_name
        .clone()
        .unwrap_or_else(|| t!("all", in "tenants").to_owned());
    let works = token.revoked_at.is_none() && token.expires_at > now;
    let revoke = works.then(|| {
        let href = format!("{PATH}/{}/revoke", token.id);
        view! { <a class="button" href=href>{t!("Revoke")}</a> }
    });
    let used = token
        .last_used_at
        .map_or_else(|| t!("never", in "so far").to_owned(), |at| format.minute(at));
    let (issued, issuer) = (format.minute(token.created_at), &token.created_by);
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
            <td>{t!("{time} by {person}", time = issued, person = issuer)}</td>
            <td>{revoke}</td>
        </tr>
    }
    .into_any()
}

fn state(token: &ManagementTokenRow, now: DateTime<Utc>) -> AnyView {
    if token.revoked_at.is_some() {
        badge(t!("revoked"), Tone::Bad)
    } else if token.expires_at <= now {
        badge(t!("expired"), Tone::Warning)
    } else {
        badge(t!("active"), Tone::Good)
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
        let tenants = std::iter::once((String::new(), t!("All tenants").to_owned()))
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
            {shell::page_head(t!("Issue a management token"), "", ().into_any())}
            <section class="card">
                {form.summary()}
                <form class="form" method="post" action=IssueManagementToken::PATH>
                    {form.text(
                        Field::new("name", t!("Name"))
                            .required()
                            .hint(t!("The program that will show it. It stands beside what it books.")),
                        &values.name,
                    )}
                    {form.grouped_checks(Field::new("permissions", t!("What it may do")), &values.permissions, groups())}
                    {form.select(
                        Field::new("tenant_id", t!("Tenant"))
                            .hint(t!("A token of one tenant sees that tenant only, as its manager does.")),
                        &values.tenant_id,
                        tenants,
                    )}
                    {form.text(
                        Field::new("lifetime_days", t!("Days until it expires"))
                            .whole()
                            .required()
                            .hint(t!("1 to {max}.", max = LIFETIME_DAYS_MAX)),
                        &values.lifetime_days,
                    )}
                    <div class="actions">
                        <button class="button button-primary" type="submit">{t!("Issue token")}</button>
                        <a class="button" href=PATH>{t!("Cancel")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Issue a management token"), content.into_any()))
    })
}

/// The permissions as the form offers them, under what they are about.
fn groups() -> Vec<(&'static str, Vec<(String, String)>)> {
    let mut groups: Vec<(&'static str, Vec<(String, String)>)> = Vec::new();
    for permission in Permission::ALL {
        let (heading, text) = told(permission);
        let label = if permission.is_for_operators() {
            t!("{permission}: {text}; of all tenants only", permission, text)
        } else {
            t!("{permission}: {text}", permission, text)
        };
        let option = (permission.to_string(), label);
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, options)) => options.push(option),
            None => groups.push((heading, vec![option])),
        }
    }
    groups
}

/// What a permission is about, and what it is for.
fn told(permission: Permission) -> (&'static str, &'static str) {
    let money = t!("Reports and ledger");
    let who = t!("Tenants, plans and people");
    let how_much = t!("Keys and limits");
    let what = t!("Models, prices and upstreams");
    let more = t!("Jobs, explanations and audit log");
    match permission {
        Permission::ReportsRead => (money, t!("read reports")),
        Permission::LedgerRead => (money, t!("read the ledger: settlements, rejections, adjustments")),
        Permission::AdjustmentsWrite => (money, t!("book adjustments")),
        Permission::TenantsRead => (who, t!("read tenants")),
        Permission::TenantsWrite => (who, t!("make, change and suspend tenants")),
        Permission::PlansRead => (who, t!("read plans")),
        Permission::PlansWrite => (who, t!("make, change and remove plans")),
        Permission::PeopleRead => (who, t!("read who signs in")),
        Permission::PeopleWrite => (
            who,
            t!(
                "invite people, change them, let them choose passwords and shut them out, but for operators; and so \
                 whatever those may do"
            ),
        ),
        Permission::KeysRead => (how_much, t!("read keys, without their secrets")),
        Permission::KeysWrite => (how_much, t!("issue, change and revoke keys")),
        Permission::LimitsRead => (how_much, t!("read limits and budgets")),
        Permission::LimitsWrite => (how_much, t!("set limits and budgets")),
        Permission::ModelsRead => (what, t!("read models")),
        Permission::ModelsWrite => (what, t!("add and change models")),
        Permission::PricesRead => (what, t!("read prices, past and to come")),
        Permission::PricesWrite => (what, t!("add and remove prices")),
        Permission::UpstreamsRead => (what, t!("read upstreams, without their credentials")),
        Permission::UpstreamsWrite => (what, t!("add and change upstreams")),
        Permission::JobsRead => (more, t!("read jobs, without what they carry")),
        Permission::JobsWrite => (more, t!("call jobs off")),
        Permission::ExplainRead => (more, t!("ask what would become of a request")),
        Permission::AuditRead => (more, t!("read the audit log")),
    }
}

/// Shows the text of a token that was just issued, once.
pub fn issued() -> AnyView {
    page::behind_the_door(|visit| async move {
        let Some(secret) = visit.secret::<IssuedText>().await? else {
            let content = view! {
                {shell::page_head(t!("This token was shown already"), "", ().into_any())}
                <section class="card">
                    <p>{t!("A token is shown once. If it is lost, revoke it and issue another one.")}</p>
                    <p class="actions"><a class="button" href=PATH>{t!("Go to the tokens")}</a></p>
                </section>
            };
            return Ok(Page::new(t!("Token", in "management token"), content.into_any()));
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
            {shell::page_head(
                t!("Token issued: {name}", name = token.name),
                t!("Copy it now: it is not shown again."),
                ().into_any(),
            )}
            <section class="card">
                <h2>{t!("Token", in "management token")}</h2>
                <code class="secret" id="secret">{secret.text.clone()}</code>
                <div class="copy-row">
                    {copy::button("secret", t!("Copy the token"))}
                    <a class="button" href=PATH>{t!("Done")}</a>
                </div>
                <p class="quiet">{t!("Keep it like a password.")}</p>
            </section>
            <section class="card">
                <h2>{t!("Try it")}</h2>
                <p>
                    {tv!(
                        "With the token in the environment as {variable}:",
                        variable = view! { <code>"TOLLGATE_TOKEN"</code> },
                    )}
                </p>
                <pre><code>{example}</code></pre>
            </section>
        };
        Ok(Page::new(t!("Token issued"), content.into_any()))
    })
}

/// Asks before a token is revoked: it cannot be undone.
pub fn revoke() -> AnyView {
    page::behind_the_door(|visit| async move {
        let id = id_of_path(&visit, "/settings/tokens/")?;
        let token = visit.state.control.management_token(visit.actor()?, id).await?;
        let content = view! {
            {shell::page_head(t!("Revoke {name}?", name = token.name), "", ().into_any())}
            <section class="card">
                <p>
                    {tv!(
                        "Calls with {token} are refused at once, for good. What it has booked stays.",
                        token = view! { <code>{masked(&token.public_id)}</code> },
                    )}
                </p>
                <form method="post" action=RevokeManagementToken::PATH>
                    <input type="hidden" name="id" value=id.to_string() />
                    <div class="actions">
                        <button class="button button-danger" type="submit">{t!("Revoke token")}</button>
                        <a class="button" href=PATH>{t!("Keep it")}</a>
                    </div>
                </form>
            </section>
        };
        Ok(Page::new(t!("Revoke management token"), content.into_any()))
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
        Ok::<_, Refused>(Done::say(PATH, t!("Revoked.")))
    })
    .await
}
