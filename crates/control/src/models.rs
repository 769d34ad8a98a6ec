//! Models and their routes. Operators change them; everyone who signs in sees names, sizes and prices.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use domain::ids::UpstreamId;
use domain::policy::{Encoding, Model, Route};
use domain::text;
use serde_json::{Value, json};
use store::models::MODELS_MAX;
use store::models::ModelRow;
use store::{Transaction, models, upstreams};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::{COUNT_MAX, Fields};
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// The longest name of a model or group, in characters.
pub const MODEL_NAME_CHARS_MAX: usize = 128;
/// Routes of one model at most.
pub const ROUTES_MAX: usize = 32;
/// The largest weight and position of a route.
pub const ROUTE_NUMBER_MAX: i32 = 1_000;

/// What can be said about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDraft {
    /// Fields `name`, `group`, `context_tokens`, `output_cap_tokens`, `output_default_tokens`, `encoding`, `routes`,
    /// `routes.<n>.upstream_model` and so on. The name cannot be changed later.
    pub name: String,
    /// The group whose limits it shares.
    pub group: Option<String>,
    /// Input and output together, in tokens.
    pub context_tokens: u64,
    /// The most output it can give.
    pub output_cap_tokens: u64,
    /// The output held for a request that states no cap.
    pub output_default_tokens: u64,
    /// How its tokens are counted.
    pub encoding: Encoding,
    /// Hidden and refused.
    pub is_disabled: bool,
    /// Its routes.
    pub routes: Vec<Route>,
}

impl Control {
    /// Models by name with the price in force. Routes are shown to those who see everything.
    pub async fn models(&self, actor: &Actor, now: DateTime<Utc>) -> Result<Vec<ModelRow>, ControlError> {
        actor.require_permission(Permission::ModelsRead)?;
        let reach = actor.reach()?;
        let mut rows = self.store.models(now).await?;
        if reach != Reach::Everything {
            rows.retain(|row| row.model.disabled_at.is_none());
            for row in &mut rows {
                row.model.routes.clear();
            }
        }
        Ok(rows)
    }

    /// One model with its routes and the price in force, as [`Self::models`] shows it.
    pub async fn model(&self, actor: &Actor, name: &str, now: DateTime<Utc>) -> Result<ModelRow, ControlError> {
        actor.require_permission(Permission::ModelsRead)?;
        self.model_within_reach(actor, name, now).await
    }

    /// One model for an operation on it, which asks for a permission of its own.
    pub(crate) async fn model_within_reach(
        &self,
        actor: &Actor,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<ModelRow, ControlError> {
        let sees_everything = actor.reach()? == Reach::Everything;
        let mut row = self.store.find_model(name, now).await?.ok_or(NOT_FOUND)?;
        if !sees_everything {
            if row.model.disabled_at.is_some() {
                return Err(NOT_FOUND);
            }
            row.model.routes.clear();
        }
        Ok(row)
    }

    /// Adds a model. It is refused to callers until it has a price, unless the policy for unpriced models says
    /// otherwise.
    pub async fn create_model(
        &self,
        actor: &Actor,
        draft: &ModelDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::ModelsWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        self.insert_model(&mut transaction, actor, draft, now).await?;
        commit(transaction).await
    }

    /// Adds a model in the transaction of an operation that may.
    pub(crate) async fn insert_model(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        draft: &ModelDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        let model = checked(draft, None, now)?;
        require_upstreams(transaction, &model).await?;
        if models::count_models(transaction).await? >= MODELS_MAX {
            return Err(ControlError::field(
                "name",
                text!("there are {count} models already", count = MODELS_MAX),
            ));
        }
        models::insert(transaction, &model, now).await?;
        let change = changed("model.create", &model.name, None, Some(shown(&model)));
        self.note(transaction, actor, now, change).await
    }

    /// Changes a model and replaces its routes.
    pub async fn edit_model(
        &self,
        actor: &Actor,
        version: i64,
        draft: &ModelDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::ModelsWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = models::lock(&mut transaction, draft.name.trim(), now)
            .await?
            .ok_or(NOT_FOUND)?;
        if row.version != version {
            return Err(ControlError::Conflict {
                what: "model",
                read: version,
                current: row.version,
            });
        }
        let model = checked(draft, row.model.disabled_at, now)?;
        require_upstreams(&mut transaction, &model).await?;
        models::update(&mut transaction, &model).await?;
        let change = changed("model.edit", &model.name, Some(shown(&row.model)), Some(shown(&model)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "model" };

/// The model that a draft describes; whether its upstreams exist is not looked at.
pub(crate) fn checked(
    draft: &ModelDraft,
    disabled_before: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Model, ControlError> {
    let mut fields = Fields::default();
    let name = check_model_name(&mut fields, "name", &draft.name);
    let group = draft.group.as_deref().map(str::trim).filter(|group| !group.is_empty());
    let group = group.map(|group| check_model_name(&mut fields, "group", group));
    let tokens = [
        ("context_tokens", draft.context_tokens),
        ("output_cap_tokens", draft.output_cap_tokens),
        ("output_default_tokens", draft.output_default_tokens),
    ];
    for (field, value) in tokens {
        fields.require((1..=COUNT_MAX).contains(&value), field, text!("at least 1 token"));
    }
    fields.require(
        draft.output_cap_tokens <= draft.context_tokens,
        "output_cap_tokens",
        text!("not more than the context"),
    );
    fields.require(
        draft.output_default_tokens <= draft.output_cap_tokens,
        "output_default_tokens",
        text!("not more than the output cap"),
    );
    let routes = check_routes(&mut fields, &draft.routes);
    fields.check()?;
    Ok(Model {
        name,
        group: group.map(Into::into),
        context_tokens: draft.context_tokens,
        output_cap_tokens: draft.output_cap_tokens,
        output_default_tokens: draft.output_default_tokens,
        encoding: draft.encoding,
        disabled_at: draft.is_disabled.then(|| disabled_before.unwrap_or(now)),
        routes,
    })
}

/// A name that callers write in JSON and operators read in scopes: no blanks, no control characters.
fn check_model_name(fields: &mut Fields, field: &'static str, text: &str) -> String {
    let name = text.trim();
    if name.is_empty() {
        fields.refuse(field, text!("give it a name"));
    } else if name.chars().count() > MODEL_NAME_CHARS_MAX {
        fields.refuse(field, text!("at most {count} characters", count = MODEL_NAME_CHARS_MAX));
    } else if !name.chars().all(|character| character.is_ascii_graphic()) {
        fields.refuse(
            field,
            text!("letters, digits and signs such as - . / : _ only, no blanks"),
        );
    }
    name.to_owned()
}

fn check_routes(fields: &mut Fields, routes: &[Route]) -> Vec<Route> {
    if routes.len() > ROUTES_MAX {
        fields.refuse("routes", text!("at most {count} routes", count = ROUTES_MAX));
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let mut checked = Vec::with_capacity(routes.len());
    for (index, route) in routes.iter().enumerate() {
        let route = Route {
            upstream_model: route.upstream_model.trim().to_owned(),
            ..route.clone()
        };
        let name_chars = route.upstream_model.chars().count();
        fields.require(
            (1..=MODEL_NAME_CHARS_MAX).contains(&name_chars),
            format!("routes.{index}.upstream_model"),
            text!("write the model's name at the provider"),
        );
        fields.require(
            !route.upstream_model.chars().any(char::is_control),
            format!("routes.{index}.upstream_model"),
            text!("a name has no line breaks or control characters"),
        );
        fields.require(
            (0..=ROUTE_NUMBER_MAX).contains(&route.position),
            format!("routes.{index}.position"),
            text!("between 0 and 1000"),
        );
        fields.require(
            (1..=ROUTE_NUMBER_MAX).contains(&route.weight),
            format!("routes.{index}.weight"),
            text!("between 1 and 1000"),
        );
        fields.require(
            seen.insert((route.upstream_id, route.upstream_model.clone())),
            format!("routes.{index}.upstream_model"),
            text!("this route is there twice"),
        );
        checked.push(route);
    }
    checked.sort_by_key(|route| route.position);
    checked
}

async fn require_upstreams(transaction: &mut Transaction, model: &Model) -> Result<(), ControlError> {
    let ids: Vec<UpstreamId> = model.routes.iter().map(|route| route.upstream_id).collect();
    if upstreams::missing(transaction, &ids).await?.is_empty() {
        Ok(())
    } else {
        Err(ControlError::field(
            "routes",
            text!("a route names an upstream that does not exist"),
        ))
    }
}

fn shown(model: &Model) -> Value {
    json!({
        "group": model.group,
        "context_tokens": model.context_tokens,
        "output_cap_tokens": model.output_cap_tokens,
        "output_default_tokens": model.output_default_tokens,
        "encoding": model.encoding,
        "is_disabled": model.disabled_at.is_some(),
        "routes": model.routes,
    })
}

fn changed(action: &'static str, name: &str, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("model:{name}"),
        tenant_id: None,
        before,
        after,
    }
}
