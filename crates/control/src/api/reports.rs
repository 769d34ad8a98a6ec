//! The monthly report, as JSON or as the console's CSV; both are streamed from one snapshot of the database.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::management_tokens::Permission::ReportsRead;
use domain::periods::Month;
use domain::reports::Grouping;
use http::header;

use super::Api;
use super::call::Call;
use super::problem::Problem;
use super::route::{Answered, Route};
use crate::fields::Fields;
use crate::reports::{MonthlyQuery, ReportFilter};
use crate::tags::MonthlyTagQuery;
use crate::usage_csv::UsageCsv;

/// What there is of reports.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/reports/monthly",
            ReportsRead,
            Answered::Report("Report"),
            monthly,
        )
        .with(&PARAMETERS)
        .says(
            "A month's report",
            "Rows in the order of the console's page, the dearest first. With `format=csv` it is the console's file. Streamed: \
             `row_count` and `totals` come last.",
        ),
    ]
}

/// What a report can be asked for.
const PARAMETERS: [&str; 9] = [
    "month", "by", "tenant", "user", "key", "model", "priority", "tag", "format",
];
/// What a report by tag is not combined with.
const NOT_WITH_TAGS: [&str; 5] = ["by", "user", "key", "model", "priority"];

/// How a report is written.
enum Format {
    Json,
    Csv,
}

/// One calendar month; the present one unless told otherwise.
async fn monthly(State(api): State<Api>, Extension(call): Extension<Call>) -> Result<Response, Problem> {
    let zone = api.control.settings().await?.settings.time_zone;
    let query = &call.query;
    let mut fields = Fields::default();
    let month = query.word::<Month>(&mut fields, "month");
    let tag = query.text(&mut fields, "tag");
    let format = match query.text(&mut fields, "format").as_deref() {
        None | Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some(_) => {
            fields.refuse_call("format", "a format is one of json, csv");
            Format::Json
        }
    };
    let filter = ReportFilter {
        tenant: query.id(&mut fields, "tenant"),
        user: query.text(&mut fields, "user"),
        key: query.id(&mut fields, "key"),
        model: query.text(&mut fields, "model"),
        priority: query.word(&mut fields, "priority"),
        ..ReportFilter::default()
    };
    let grouping = grouping(&call, &mut fields);
    if tag.is_some() {
        for name in NOT_WITH_TAGS
            .into_iter()
            .filter(|name| query.all(name).next().is_some())
        {
            fields.refuse_call(
                name,
                "a report by tag is divided by nothing else, and narrowed to a tenant only",
            );
        }
    }
    fields.check()?;
    let month = month.unwrap_or(Month::containing(call.now, zone));
    let (control, actor) = (&api.control, &call.actor);
    if let Some(name) = tag {
        let query = MonthlyTagQuery {
            month,
            tenant: filter.tenant,
            name,
        };
        return Ok(match format {
            Format::Json => json(control.monthly_tag_json(actor, &query, call.now).await?),
            Format::Csv => csv(control.monthly_tag_csv(actor, &query, call.now).await?),
        });
    }
    let query = MonthlyQuery {
        month,
        filter,
        grouping,
    };
    Ok(match format {
        Format::Json => json(control.monthly_json(actor, &query, call.now).await?),
        Format::Csv => csv(control.monthly_csv(actor, &query, call.now).await?),
    })
}

fn grouping(call: &Call, fields: &mut Fields) -> Grouping {
    let mut grouping = Grouping::NONE;
    for word in call.query.all("by") {
        match word {
            "tenant" => grouping.tenant = true,
            "user" => grouping.user = true,
            "key" => grouping.key = true,
            "model" => grouping.model = true,
            "priority" => grouping.priority = true,
            _ => fields.refuse_call("by", "a report is divided by tenant, user, key, model, priority"),
        }
    }
    grouping
}

fn json(pieces: crate::pieces::Pieces) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, Body::from_stream(pieces)).into_response()
}

fn csv(file: UsageCsv) -> Response {
    let headers = [
        (header::CONTENT_TYPE, UsageCsv::MEDIA_TYPE.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{}\"", file.file_name),
        ),
    ];
    (headers, Body::from_stream(file.bytes)).into_response()
}
