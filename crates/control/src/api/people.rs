//! People: read, invited, shut out and let in again. Nothing here shows a password or another link than the one just made.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::{PersonId, TenantId};
use domain::management_tokens::Permission::{PeopleRead, PeopleWrite};
use domain::people::Role;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::people::Person;

use super::Api;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::people::{Invitation, Kept, PersonDraft};

/// What there is of people.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/people";
    const ONE: &str = "/api/v1/people/{id}";
    vec![
        Route::get(PATH, PeopleRead, Answered::Page("Person"), list)
            .with(&["tenant", "limit", "cursor"])
            .says("Who signs in", "In the order in which they were added."),
        Route::get(ONE, PeopleRead, Answered::One("Person"), show).says("One person", ""),
        Route::post(
            PATH,
            PeopleWrite,
            Asked::Shape("NewPerson"),
            Answered::Created("Invitation"),
            invite,
        )
        .says(
            "Invite somebody",
            "The answer holds the one-time link to hand to them, once. Operators are invited in person, in the console. \
             Addresses are unique: a call that is repeated is answered with 409 and the person that exists; another link for \
             them is made with `link`.",
        ),
        Route::patch(
            ONE,
            PeopleWrite,
            Asked::Shape("PersonChange"),
            Answered::One("Person"),
            change,
        )
        .says(
            "Shut somebody out, or let them in again",
            "With `is_disabled` true their sessions and links end, and their keys are revoked for good; so are the service \
             accounts' keys that they issued in tenants which the token may run, and all management tokens that they issued.",
        ),
        Route::post(
            "/api/v1/people/{id}/link",
            PeopleWrite,
            Asked::Nothing,
            Answered::Created("Invitation"),
            link,
        )
        .says(
            "Make another link to choose a password",
            "For somebody who lost their invitation or their password. Earlier links end.",
        ),
    ]
}

#[derive(Deserialize)]
struct NewPerson {
    name: String,
    email: String,
    role: Role,
    tenant_id: Option<TenantId>,
}

#[derive(Deserialize)]
struct PersonChange {
    version: i64,
    is_disabled: bool,
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let mut fields = Fields::default();
    let tenant = call.query.id(&mut fields, "tenant");
    let asked = pages::Asked::<PersonId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api
        .control
        .people_after(&call.actor, tenant, asked.after, asked.rows_max())
        .await?;
    Ok(asked.page(rows, |row| row.id.to_string(), person))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("person")?;
    Ok(Json(person(&api.control.person(&call.actor, id).await?)))
}

async fn invite(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewPerson = call.body()?;
    let draft = PersonDraft {
        name: new.name,
        email: new.email,
        role: new.role,
        tenant_id: new.tenant_id,
    };
    let invited = api.control.invite_person(&call.actor, &draft, call.now).await;
    let known = async || api.control.person_with_email(&call.actor, &draft.email).await;
    let invited = or_taken(invited, "person", known).await?;
    Ok((StatusCode::CREATED, Json(invitation(&invited))))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id: PersonId = call.id("person")?;
    let change: PersonChange = call.body()?;
    let (control, actor) = (&api.control, &call.actor);
    if change.is_disabled {
        let kept = Kept::default();
        control
            .disable_person(actor, id, change.version, kept, call.now)
            .await?;
    } else {
        control.enable_person(actor, id, change.version, call.now).await?;
    }
    Ok(Json(person(&control.person_within_reach(actor, id).await?)))
}

async fn link(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<(StatusCode, Json<Value>), Problem> {
    let id = call.id("person")?;
    let made = api.control.create_password_link(&call.actor, id, call.now).await?;
    Ok((StatusCode::CREATED, Json(invitation(&made))))
}

fn invitation(invitation: &Invitation) -> Value {
    json!({
        "person": person(&invitation.person),
        "link_path": format!("/invitation?token={}", invitation.token.reveal()),
        "link_expires_at": invitation.expires_at,
    })
}

fn person(row: &Person) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "email": row.email,
        "role": row.role,
        "tenant_id": row.tenant_id,
        "tenant_name": row.tenant_name,
        "has_password": row.has_password,
        "disabled_at": row.disabled_at,
        "created_at": row.created_at,
        "signed_in_at": row.signed_in_at,
        "version": row.version,
    })
}
