//! People: read, invited, changed, shut out and let in again. Nothing here shows a password or another link than the one just made.

use axum::extract::State;
use axum::{Extension, Json};
use domain::ids::{PersonId, TenantId};
use domain::management_tokens::Permission::{PeopleRead, PeopleWrite};
use domain::people::Role;
use domain::text::Text;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::people::Person;

use super::Api;
use super::body::present;
use super::call::Call;
use super::pages;
use super::problem::{Problem, or_taken};
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::people::{Invitation, Kept, PersonDraft, PersonEdit};
use crate::{ControlError, FieldError};

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
            "Change somebody, shut them out, or let them in again",
            "Fields that are absent stay as they are; `is_disabled` is changed by a call of its own. Another role or tenant ends \
             their sessions. With their tenant they lose their keys, for good, and so does whoever is shut out. What they have \
             issued and could not issue any more, such as keys of service accounts, is revoked too, unless it is kept; all \
             management tokens of whoever is shut out are. Operators are changed in the console.",
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
    is_disabled: Option<bool>,
    name: Option<String>,
    email: Option<String>,
    role: Option<Role>,
    #[serde(default, deserialize_with = "present")]
    tenant_id: Option<Option<TenantId>>,
    revokes_keys: Option<usize>,
    #[serde(default)]
    keeps_service_keys: bool,
    #[serde(default)]
    keeps_management_tokens: bool,
}

impl PersonChange {
    fn kept(&self) -> Kept {
        Kept {
            service_keys: self.keeps_service_keys,
            management_tokens: self.keeps_management_tokens,
        }
    }

    /// Refuses what would change nothing, or be left undone.
    fn check(&self) -> Result<(), ControlError> {
        let mut fields = Fields::default();
        let edits = [
            ("name", self.name.is_some()),
            ("email", self.email.is_some()),
            ("role", self.role.is_some()),
            ("tenant_id", self.tenant_id.is_some()),
        ];
        let is_edit = edits.iter().any(|(_, is_there)| *is_there);
        let mut none_of = |names: &[(&'static str, bool)], message: &str| {
            for (name, _) in names.iter().filter(|(_, is_there)| *is_there) {
                fields.refuse_call(*name, message);
            }
        };
        if self.is_disabled.is_some() {
            none_of(&edits, "change this by a call of its own, without `is_disabled`");
            let revokes = [("revokes_keys", self.revokes_keys.is_some())];
            none_of(&revokes, "leave this out: whoever is shut out loses their keys anyway");
        }
        if self.is_disabled == Some(false) {
            let keeps = [
                ("keeps_service_keys", self.keeps_service_keys),
                ("keeps_management_tokens", self.keeps_management_tokens),
            ];
            none_of(
                &keeps,
                "leave this out: nothing is revoked when somebody is let in again",
            );
        }
        if self.is_disabled.is_none() && !is_edit {
            fields.refuse_call("version", "write at least one field that shall be another one");
        }
        fields.check()
    }
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
    change.check()?;
    let (control, actor) = (&api.control, &call.actor);
    match change.is_disabled {
        None => return Ok(Json(person(&edit(&api, &call, id, change).await?))),
        Some(true) => {
            control
                .disable_person(actor, id, change.version, change.kept(), call.now)
                .await?;
        }
        Some(false) => control.enable_person(actor, id, change.version, call.now).await?,
    }
    Ok(Json(person(&control.person_within_reach(actor, id).await?)))
}

async fn edit(api: &Api, call: &Call, id: PersonId, change: PersonChange) -> Result<Person, Problem> {
    let (control, actor) = (&api.control, &call.actor);
    let row = control.person_within_reach(actor, id).await?;
    let edit = PersonEdit {
        kept: change.kept(),
        revokes_keys: change.revokes_keys,
        person: PersonDraft {
            name: change.name.unwrap_or(row.name),
            email: change.email.unwrap_or(row.email),
            role: change.role.unwrap_or(row.role),
            tenant_id: change.tenant_id.unwrap_or(row.tenant_id),
        },
    };
    match control.edit_person(actor, id, change.version, &edit, call.now).await {
        Err(ControlError::Invalid(errors)) if errors.iter().any(|error| error.field == "revokes_keys") => {
            // Pages have a box to tick.
            let owned = control.count_owned_keys(id).await?;
            let message =
                format!("with their tenant they lose their keys, for good; write how many these are: {owned}");
            Err(ControlError::Invalid(vec![FieldError::new("revokes_keys", Text::word(message))]).into())
        }
        edited => Ok(edited?),
    }
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
