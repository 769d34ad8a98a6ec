//! Limits, budgets among them: read, set, changed, raised for a while, cleared. A limit sits on a node of the quota tree, or
//! on every node of a class below a tenant or plan.

use axum::extract::State;
use axum::{Extension, Json};
use domain::budget_events::Thresholds;
use domain::ids::LimitId;
use domain::limits::{Class, DEFAULT_WINDOW_SECONDS, Dimension, Gates, Limit, Mode, Scope, Target};
use domain::management_tokens::Permission::{LimitsRead, LimitsWrite};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::limits::LimitFilter;

use super::Api;
use super::body::present;
use super::call::Call;
use super::pages;
use super::problem::Problem;
use super::route::{Answered, Asked, Route};
use crate::fields::Fields;
use crate::limits::{IncreaseDraft, LimitDraft};
use crate::usage_json::money;

/// What there is of limits.
pub(super) fn routes() -> Vec<Route> {
    const PATH: &str = "/api/v1/limits";
    const ONE: &str = "/api/v1/limits/{id}";
    const INCREASE: &str = "/api/v1/limits/{id}/increase";
    vec![
        Route::get(PATH, LimitsRead, Answered::Page("Limit"), list)
            .with(&["tenant", "scope", "class", "dimension", "limit", "cursor"])
            .says(
                "Limits and budgets",
                "In the order in which they were set. `tenant` means those on the tenant and on what is in it.",
            ),
        Route::get(ONE, LimitsRead, Answered::One("Limit"), show).says("One limit", ""),
        Route::post(
            PATH,
            LimitsWrite,
            Asked::Shape("NewLimit"),
            Answered::Created("Limit"),
            create,
        )
        .says(
            "Set a limit or budget",
            "In a slot of its node that is free: one for each dimension, window or period, model and priority. A call that is \
             repeated is answered with 409 and the limit that is there.",
        ),
        Route::patch(
            ONE,
            LimitsWrite,
            Asked::Shape("LimitChange"),
            Answered::One("Limit"),
            change,
        )
        .says("Change a limit", "Fields that are absent stay as they are; its slot stays."),
        Route::delete(ONE, LimitsWrite, clear)
            .with(&["version"])
            .says("Clear a limit", "What its class or plan says applies then, or nothing."),
        Route::post(
            INCREASE,
            LimitsWrite,
            Asked::Shape("NewIncrease"),
            Answered::One("Limit"),
            increase,
        )
        .says(
            "Raise a limit for a while",
            "Until the end of a day of the billing time zone; then it is over by itself.",
        ),
        Route::delete(INCREASE, LimitsWrite, end_increase)
            .with(&["version"])
            .says("End an increase", ""),
    ]
}

#[derive(Deserialize)]
struct NewLimit {
    scope: String,
    class: Option<Class>,
    dimension: Dimension,
    #[serde(flatten)]
    value: Figures,
    window_seconds: Option<u32>,
    burst: Option<u64>,
    period: Option<Period>,
    model: Option<String>,
    priority: Option<Priority>,
    #[serde(default)]
    mode: Mode,
    gates: Option<Gates>,
    thresholds: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct LimitChange {
    version: i64,
    #[serde(flatten)]
    value: Figures,
    #[serde(default, deserialize_with = "present")]
    burst: Option<Option<u64>>,
    mode: Option<Mode>,
    #[serde(default, deserialize_with = "present")]
    gates: Option<Option<Gates>>,
    thresholds: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct NewIncrease {
    version: i64,
    #[serde(flatten)]
    value: Figures,
    last_day: chrono::NaiveDate,
    reason: String,
}

/// A limit's value: an amount of money, or a number of something.
#[derive(Deserialize)]
pub(super) struct Figures {
    value: Option<u64>,
    cost: Option<String>,
}

impl Figures {
    /// The value in the unit of the dimension; `otherwise` where none is written.
    pub(super) fn read(&self, dimension: Dimension, otherwise: Option<u64>, fields: &mut Fields) -> u64 {
        let meant = figure_of(dimension);
        let other = match dimension {
            Dimension::BudgetCost => self.value.is_some().then_some("value"),
            _ => self.cost.is_some().then_some("cost"),
        };
        if let Some(other) = other {
            fields.refuse_call(other, format!("leave this out: {dimension} has `{meant}`"));
        }
        let written = match (dimension, &self.cost) {
            (Dimension::BudgetCost, Some(cost)) => {
                fields.amount("cost", cost).and_then(|cost| u64::try_from(cost.0).ok())
            }
            (Dimension::BudgetCost, None) => None,
            _ => self.value,
        };
        if written.or(otherwise).is_none() {
            fields.refuse_call(meant, "write this field; it is needed");
        }
        written.or(otherwise).unwrap_or(0)
    }
}

async fn list(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let query = &call.query;
    let mut fields = Fields::default();
    let class = query.text(&mut fields, "class");
    let class = class.and_then(|word| class_of(&word, &mut fields));
    let scope = query.text(&mut fields, "scope");
    if class.is_some() && scope.is_none() {
        fields.refuse_call("scope", "write whose class: tenant:<id> or plan:<id>");
    }
    let filter = LimitFilter {
        tenant: query.id(&mut fields, "tenant"),
        target: scope.and_then(|scope| target_of(&scope, class, &mut fields)),
        dimension: query.word(&mut fields, "dimension"),
    };
    let asked = pages::Asked::<LimitId>::read(&call, &mut fields);
    fields.check()?;
    let rows = api
        .control
        .limits_after(&call.actor, filter, asked.after, asked.rows_max())
        .await?;
    Ok(asked.page(rows, |(limit, _)| limit.id.to_string(), limit))
}

async fn show(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("limit")?;
    Ok(Json(limit(&api.control.limit_with_version(&call.actor, id).await?)))
}

async fn create(
    State(api): State<Api>,
    Extension(call): Extension<Call>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: NewLimit = call.body()?;
    let mut fields = Fields::default();
    let target = target_of(&new.scope, new.class, &mut fields);
    let dimension = new.dimension;
    let value = new.value.read(dimension, None, &mut fields);
    if new.window_seconds.is_some() && !dimension.is_rate() {
        fields.refuse_call("window_seconds", format!("leave this out: {dimension} has no window"));
    }
    if new.period.is_some() && !dimension.is_budget() {
        fields.refuse_call("period", format!("leave this out: {dimension} has no period"));
    }
    let thresholds = thresholds(dimension, new.thresholds, None, &mut fields);
    fields.check()?;
    let Some(target) = target else {
        return Err(Problem::unreadable("write what the limit sits on"));
    };
    let draft = LimitDraft {
        dimension,
        value,
        window_seconds: new.window_seconds.unwrap_or(DEFAULT_WINDOW_SECONDS),
        burst: new.burst,
        period: new.period.unwrap_or(Period::Month),
        model: new.model.map(Into::into),
        priority: new.priority,
        mode: new.mode,
        gates: new.gates,
        thresholds,
    };
    let (id, _) = api
        .control
        .insert_limit(&call.actor, &target, None, &draft, call.now)
        .await?;
    Ok((StatusCode::CREATED, Json(written(&api, &call, id).await?)))
}

async fn change(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("limit")?;
    let change: LimitChange = call.body()?;
    let old = api.control.target_of_limit(&call.actor, id).await?;
    let mut fields = Fields::default();
    let value = change.value.read(old.dimension, Some(old.value), &mut fields);
    let thresholds = thresholds(old.dimension, change.thresholds, Some(old.thresholds), &mut fields);
    fields.check()?;
    let draft = LimitDraft {
        dimension: old.dimension,
        value,
        window_seconds: old.window_seconds,
        burst: change.burst.unwrap_or(old.burst),
        period: old.period,
        model: old.model.clone(),
        priority: old.priority,
        mode: change.mode.unwrap_or(old.mode),
        gates: change.gates.unwrap_or(old.gates),
        thresholds,
    };
    api.control
        .set_limit(&call.actor, &old.target, change.version, &draft, call.now)
        .await?;
    Ok(Json(written(&api, &call, id).await?))
}

async fn clear(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<StatusCode, Problem> {
    let id = call.id("limit")?;
    let version = call.query.version()?;
    let old = api.control.target_of_limit(&call.actor, id).await?;
    api.control
        .clear_limit(&call.actor, &old.target, version, id, call.now)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn increase(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Json<Value>, Problem> {
    let id = call.id("limit")?;
    let new: NewIncrease = call.body()?;
    let old = api.control.target_of_limit(&call.actor, id).await?;
    let mut fields = Fields::default();
    let draft = IncreaseDraft {
        value: new.value.read(old.dimension, None, &mut fields),
        last_day: new.last_day,
        reason: new.reason.trim().to_owned(),
    };
    fields.check()?;
    api.control
        .increase_limit(&call.actor, &old.target, new.version, id, &draft, call.now)
        .await?;
    Ok(Json(written(&api, &call, id).await?))
}

async fn end_increase(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<StatusCode, Problem> {
    let id = call.id("limit")?;
    let version = call.query.version()?;
    let old = api.control.target_of_limit(&call.actor, id).await?;
    api.control
        .end_increase(&call.actor, &old.target, version, id, call.now)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A limit that was just written, for whoever may write it.
async fn written(api: &Api, call: &Call, id: LimitId) -> Result<Value, Problem> {
    Ok(limit(&api.control.written_limit(&call.actor, id).await?))
}

fn class_of(word: &str, fields: &mut Fields) -> Option<Class> {
    let class = word.parse().ok();
    if class.is_none() {
        let words = Class::ALL.map(Class::as_str).join(", ");
        fields.refuse_call("class", format!("a class is one of {words}"));
    }
    class
}

/// What a limit sits on: a node, or a class below a tenant or plan.
fn target_of(scope: &str, class: Option<Class>, fields: &mut Fields) -> Option<Target> {
    if let Some(plan) = scope.strip_prefix("plan:") {
        return match (plan.parse().ok(), class) {
            (Some(plan), Some(class)) => Some(Target::OfPlan(plan, class)),
            (Some(_), None) => {
                fields.refuse_call(
                    "class",
                    "write which class the plan's limit is for: tenant, user, end_user, key",
                );
                None
            }
            (None, _) => {
                fields.refuse_call("scope", "a plan is written plan:<id>");
                None
            }
        };
    }
    match (scope.parse::<Scope>(), class) {
        (Ok(scope), None) => Some(Target::Node(scope)),
        (Ok(Scope::Tenant(tenant)), Some(class)) => Some(Target::OfTenant(tenant, class)),
        (Ok(_), Some(_)) => {
            fields.refuse_call("class", "only tenants and plans have classes");
            None
        }
        (Err(error), _) => {
            fields.refuse_call("scope", format!("{error}; or plan:<id>"));
            None
        }
    }
}

/// What a budget tells of; other limits tell of nothing.
fn thresholds(
    dimension: Dimension,
    written: Option<Vec<u8>>,
    before: Option<Thresholds>,
    fields: &mut Fields,
) -> Thresholds {
    let Some(written) = written else {
        return before.unwrap_or_default();
    };
    if !dimension.is_budget() {
        fields.refuse_call("thresholds", format!("leave this out: {dimension} is no budget"));
    }
    Thresholds::new(&written).unwrap_or_else(|error| {
        fields.refuse_call("thresholds", format!("write {error}"));
        Thresholds::NONE
    })
}

fn limit((limit, version): &(Limit, i64)) -> Value {
    let dimension = limit.dimension;
    let (scope, class) = match &limit.target {
        Target::Node(scope) => (scope.to_string(), None),
        Target::OfTenant(tenant, class) => (format!("tenant:{tenant}"), Some(class)),
        Target::OfPlan(plan, class) => (format!("plan:{plan}"), Some(class)),
    };
    json!({
        "id": limit.id,
        "scope": scope,
        "class": class,
        "dimension": dimension,
        "value": count(dimension, limit.value),
        "cost": cost(dimension, limit.value),
        "window_seconds": dimension.is_rate().then_some(limit.window_seconds),
        "burst": limit.burst,
        "period": dimension.is_budget().then_some(limit.period),
        "model": limit.model,
        "priority": limit.priority,
        "mode": limit.mode,
        "gates": limit.gates,
        "thresholds": dimension.is_budget().then_some(limit.thresholds),
        "increase": limit.increase.map(|increase| json!({
            "value": count(dimension, increase.value),
            "cost": cost(dimension, increase.value),
            "until": increase.until,
        })),
        "version": version,
    })
}

/// The field that has a dimension's value.
pub(super) fn figure_of(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::BudgetCost => "cost",
        _ => "value",
    }
}

/// The value of every dimension but money.
pub(super) fn count(dimension: Dimension, value: u64) -> Option<u64> {
    (dimension != Dimension::BudgetCost).then_some(value)
}

/// The value of money.
pub(super) fn cost(dimension: Dimension, value: u64) -> Option<String> {
    (dimension == Dimension::BudgetCost).then(|| money(Nanos(i64::try_from(value).unwrap_or(i64::MAX))))
}
