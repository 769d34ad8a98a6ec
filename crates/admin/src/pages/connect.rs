//! How programs reach the gateway: address, models, snippets to copy.

use admin_islands::copy_button::CopyButton;
use leptos::prelude::*;

use crate::format;
use crate::page::{self, Page};
use crate::shell;
use crate::table::{self, figures, words};

/// What stands in a snippet where the key goes.
const KEY_PLACEHOLDER: &str = "sk-tg-...";
/// What stands where the model goes when there is none yet.
const MODEL_PLACEHOLDER: &str = "MODEL";

/// Address, snippets and the models on offer.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let models: Vec<_> = visit
            .state
            .control
            .models(&visitor.actor, visit.now())
            .await?
            .into_iter()
            .filter(|row| row.model.disabled_at.is_none())
            .collect();
        let first = models.first().map(|row| row.model.name.clone());
        let rows = models
            .iter()
            .map(|row| {
                let price = |rate: Option<i64>| rate.map_or("none".to_owned(), |rate| visit.format.bare_rate(rate));
                let rates = row.price.as_ref().map(|price| price.rates);
                view! {
                    <tr>
                        <th scope="row"><code>{row.model.name.clone()}</code></th>
                        <td class="number">{format::count(row.model.context_tokens)}</td>
                        <td class="number">{format::count(row.model.output_cap_tokens)}</td>
                        <td class="number">{price(rates.map(|rates| rates.input_nanos_per_mtok))}</td>
                        <td class="number">{price(rates.map(|rates| rates.output_nanos_per_mtok))}</td>
                    </tr>
                }
                .into_any()
            })
            .collect::<Vec<_>>();
        let listed = if rows.is_empty() {
            table::empty("No models are offered yet.", ().into_any())
        } else {
            table::table(
                format!("Prices are in {} per million tokens.", visit.format.currency()),
                &[
                    words("Model"),
                    figures("Context"),
                    figures("Output cap"),
                    figures("Input price"),
                    figures("Output price"),
                ],
                rows,
            )
        };
        let address = format!("{}/v1", visit.state.gateway_address);
        let content = view! {
            {shell::page_head("How to connect", "Any program that speaks the OpenAI API works: give it this address and a key.", ().into_any())}
            <section class="card">
                <h2>"Address"</h2>
                <code class="secret" id="address">{address}</code>
                <CopyButton target="address".to_owned() label="Copy the address".to_owned() />
                <p class="quiet">
                    "The key goes where the OpenAI key went. " <a href="/keys">"Issue one under Keys"</a> "; its secret is shown once."
                </p>
            </section>
            <section class="card">
                <h2>"Examples"</h2>
                {snippets(&visit.state.gateway_address, KEY_PLACEHOLDER, first.as_deref())}
            </section>
            <section class="card">
                <h2>"Models"</h2>
                {listed}
            </section>
        };
        Ok(Page::new("How to connect", content.into_any()))
    })
}

/// The same request with curl and in Python.
pub fn snippets(gateway_address: &str, key: &str, model: Option<&str>) -> AnyView {
    let model = serde_json::Value::from(model.unwrap_or(MODEL_PLACEHOLDER)).to_string();
    let body = format!("{{\"model\": {model}, \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}");
    let curl = format!(
        "curl {gateway_address}/v1/chat/completions \\\n  -H \"Authorization: Bearer {key}\" \\\n  \
         -H \"Content-Type: application/json\" \\\n  -d '{}'",
        body.replace('\'', "'\\''")
    );
    let python = format!(
        "from openai import OpenAI\n\nclient = OpenAI(\n    base_url=\"{gateway_address}/v1\",\n    api_key=\"{key}\",\n)\n\
         answer = client.chat.completions.create(\n    model={model},\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.choices[0].message.content)",
    );
    view! { {snippet("curl", "curl", curl)} {snippet("python", "Python", python)} }.into_any()
}

fn snippet(id: &'static str, title: &'static str, text: String) -> AnyView {
    view! {
        <div class="snippet">
            <h3>{title}</h3>
            <pre tabindex="0"><code id=id>{text}</code></pre>
            <CopyButton target=id.to_owned() label=format!("Copy the {title} example") />
        </div>
    }
    .into_any()
}
