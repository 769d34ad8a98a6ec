//! The fields of a node's plain limits: one per dimension, empty for none.

use control::limits::{NodeLimitsText, field_of};
use domain::limits::Dimension;
use leptos::prelude::*;

use crate::form::{Field, Filled};
use crate::format::Format;

/// The fields, in three groups. `is_fixed` shows them to somebody who may only look.
pub fn fields<F>(form: &Filled<F>, values: &NodeLimitsText, format: &Format, is_fixed: bool) -> AnyView {
    let whole = |dimension, label: &str, value: &str| {
        let field = Field::new(field_of(dimension), label).whole();
        form.text(if is_fixed { field.fixed() } else { field }, value)
    };
    let cost = Field::new(
        field_of(Dimension::BudgetCost),
        format!("Budget per month ({})", format.currency()),
    )
    .amount()
    .hint(format!(
        "Starts again on the first of each month, {} time.",
        format.zone()
    ));
    view! {
        <fieldset>
            <legend>"Budgets"</legend>
            <p class="quiet">"An empty field is no limit. 0 admits nothing."</p>
            <div class="field-row">
                {form.text(if is_fixed { cost.fixed() } else { cost }, &values.monthly_cost)}
                {whole(Dimension::BudgetTokens, "Tokens per month", &values.monthly_tokens)}
            </div>
        </fieldset>
        <fieldset>
            <legend>"Limits per minute, and at once"</legend>
            <div class="field-row">
                {whole(Dimension::Requests, "Requests / min", &values.requests_per_minute)}
                {whole(Dimension::Concurrency, "Requests at once", &values.concurrency)}
                {whole(Dimension::InputTokens, "Input tokens / min", &values.input_tokens_per_minute)}
                {whole(Dimension::OutputTokens, "Output tokens / min", &values.output_tokens_per_minute)}
                {whole(Dimension::TotalTokens, "All tokens / min", &values.total_tokens_per_minute)}
            </div>
        </fieldset>
        <fieldset>
            <legend>"Limits of a single request"</legend>
            <div class="field-row">
                {whole(Dimension::RequestInputTokens, "Input tokens", &values.request_input_tokens)}
                {whole(Dimension::RequestOutputTokens, "Output tokens", &values.request_output_tokens)}
                {whole(Dimension::RequestSeconds, "Seconds", &values.request_seconds)}
            </div>
        </fieldset>
    }
    .into_any()
}
