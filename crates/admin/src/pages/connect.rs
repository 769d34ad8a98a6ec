//! How programs reach the gateway: address, models, snippets to copy.

use control::rows::ModelRow;
use domain::policy::Dialect;
use leptos::prelude::*;

use crate::copy;
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
        let asked_for = |dialect| {
            let found = models
                .iter()
                .find(|row| row.dialects.contains(&dialect) && row.can_chat());
            found.map(|row| row.model.name.clone())
        };
        let openai = asked_for(Dialect::Openai);
        let anthropic = asked_for(Dialect::Anthropic);
        let rows = models
            .iter()
            .map(|row| {
                let price = |rate: Option<i64>| match rate {
                    Some(rate) => visit.format.bare_rate(rate),
                    None => t!("none").to_owned(),
                };
                let rates = row.price.as_ref().map(|price| price.rates);
                view! {
                    <tr>
                        <th scope="row" class="nowrap"><code>{row.model.name.clone()}</code></th>
                        <td>{dialects(&row.dialects)}</td>
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
            table::empty(
                t!("No models are offered yet. An operator makes them, with an upstream and a price."),
                visitor
                    .is_operator()
                    .then(|| view! { <a class="button" href="/models">{t!("Models and prices")}</a> })
                    .into_any(),
            )
        } else {
            table::table(
                t!(
                    "Prices are in {currency} per million tokens.",
                    currency = visit.format.currency()
                ),
                &[
                    words(t!("Model")),
                    words(t!("Use with the SDK of")),
                    figures(t!("Context", in "size of a model")),
                    figures(t!("Output cap")),
                    figures(t!("Input price")),
                    figures(t!("Output price")),
                ],
                rows,
            )
        };
        let address = format!("{}/v1", visit.state.gateway_address);
        let lead =
            t!("Any program that speaks to OpenAI or to Anthropic works: give it the address and a key from here.");
        let content = view! {
            {shell::page_head(t!("How to connect"), lead, ().into_any())}
            <section class="card">
                <h2>{t!("Address")}</h2>
                <h3>{t!("For OpenAI's SDKs and whatever is compatible")}</h3>
                <code class="secret" id="address">{address}</code>
                {copy::button("address", t!("Copy the address"))}
                <h3>{t!("For Anthropic's SDKs")}</h3>
                <code class="secret" id="anthropic-address">{visit.state.gateway_address.to_string()}</code>
                {copy::button("anthropic-address", t!("Copy the address for Anthropic's SDKs"))}
                <p class="quiet">
                    {tv!(
                        "The key goes where the provider's key went. {link}; its secret is shown once.",
                        link = view! { <a href="/keys">{t!("Issue one under Keys")}</a> },
                    )}
                </p>
            </section>
            <section class="card">
                <h2>{t!("Examples")}</h2>
                {openai_snippets(&visit.state.gateway_address, KEY_PLACEHOLDER, openai.as_deref())}
                {anthropic.map(|model| anthropic_snippets(&visit.state.gateway_address, KEY_PLACEHOLDER, &model))}
            </section>
            <section class="card">
                <h2>{t!("Models")}</h2>
                {listed}
            </section>
            {calls()}
        };
        Ok(Page::new(t!("How to connect"), content.into_any()))
    })
}

/// Whose SDKs a model can be asked for with.
fn dialects(dialects: &[Dialect]) -> String {
    let names: Vec<&str> = dialects
        .iter()
        .map(|dialect| match dialect {
            Dialect::Openai => "OpenAI",
            Dialect::Anthropic => "Anthropic",
        })
        .collect();
    if names.is_empty() {
        t!("not available yet").to_owned()
    } else {
        names.join(", ")
    }
}

/// What is served, and what goes with every call.
fn calls() -> AnyView {
    let rows = |pairs: Vec<(&'static str, String)>| {
        pairs
            .into_iter()
            .map(|(name, meaning)| {
                view! {
                    <tr>
                        <th scope="row" class="nowrap"><code>{name}</code></th>
                        <td>{meaning}</td>
                    </tr>
                }
                .into_any()
            })
            .collect::<Vec<_>>()
    };
    view! {
        <section class="card">
            <h2>{t!("What is served")}</h2>
            {table::table(
                t!("Everything else is closed, because it could not be metered."),
                &[words(t!("Call")), words(t!("What it is"))],
                rows(served()),
            )}
        </section>
        <section class="card">
            <h2>{t!("Headers of ours")}</h2>
            {table::table(
                t!("All may be left out."),
                &[words(t!("Header")), words(t!("What it says"))],
                rows(headers()),
            )}
        </section>
    }
    .into_any()
}

/// Each call and what it is.
fn served() -> Vec<(&'static str, String)> {
    vec![
        (
            "POST /v1/chat/completions",
            t!("OpenAI's chat, whole or as a stream").to_owned(),
        ),
        (
            "POST /v1/responses",
            t!(
                "OpenAI's responses, whole or as a stream; what the provider keeps cannot be referred to, so the conversation \
                 goes along"
            )
            .to_owned(),
        ),
        ("POST /v1/completions", t!("OpenAI's older completions").to_owned()),
        ("POST /v1/embeddings", t!("OpenAI's embeddings").to_owned()),
        (
            "POST /v1/messages",
            t!("Anthropic's messages, whole or as a stream").to_owned(),
        ),
        (
            "POST /v1/messages/count_tokens",
            t!("how many tokens a message has; costs nothing").to_owned(),
        ),
        (
            "GET /v1/models",
            t!(
                "what your key may use, in the shape of whoever asks; {address} is one of them",
                address = "/v1/models/{name}"
            ),
        ),
        (
            "GET /v1/key",
            t!("what your key may do, until when, and what is left of its limits; costs nothing").to_owned(),
        ),
        (
            "GET /v1/jobs",
            t!(
                "answers that come later; {address} is one of them, and a POST to {cancel} calls it off",
                address = "/v1/jobs/{id}",
                cancel = "/v1/jobs/{id}/cancel"
            ),
        ),
    ]
}

/// Each header and what it says.
fn headers() -> Vec<(&'static str, String)> {
    vec![
        (
            "X-Tollgate-Tags",
            t!(
                "{example}: up to 16 tags, by which reports can be grouped",
                example = "project=search,cost_centre=42"
            ),
        ),
        (
            "Idempotency-Key",
            t!(
                "a name of your own for a request: sent again within ten minutes, it does not run again, and an answer of up to \
                 1 MiB is given again"
            )
            .to_owned(),
        ),
        (
            "X-Tollgate-User",
            t!("whom the request is for, if the key is a service account's and may name users").to_owned(),
        ),
        (
            "X-Tollgate-Priority",
            t!("low, default, high or critical, if lower than the key's").to_owned(),
        ),
    ]
}

/// The same request to Anthropic's call, and the variables that Anthropic's SDKs read.
fn anthropic_snippets(gateway_address: &str, key: &str, model: &str) -> AnyView {
    let model = serde_json::Value::from(model).to_string();
    let body = format!(
        "{{\"model\": {model}, \"max_tokens\": 200, \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}"
    );
    let curl = format!(
        "curl {gateway_address}/v1/messages \\\n  -H \"x-api-key: {key}\" \\\n  \
         -H \"anthropic-version: 2023-06-01\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{}'",
        body.replace('\'', "'\\''")
    );
    let python = format!(
        "from anthropic import Anthropic\n\nclient = Anthropic(\n    base_url=\"{gateway_address}\",\n    api_key=\"{key}\",\n)\n\
         answer = client.messages.create(\n    model={model},\n    max_tokens=200,\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.content[0].text)",
    );
    let node = format!(
        "import Anthropic from \"@anthropic-ai/sdk\";\n\nconst client = new Anthropic({{\n  baseURL: \"{gateway_address}\",\n  \
         apiKey: \"{key}\",\n}});\nconst answer = await client.messages.create({{\n  model: {model},\n  max_tokens: 200,\n  \
         messages: [{{ role: \"user\", content: \"Hello\" }}],\n}});\nconsole.log(answer.content[0].text);",
    );
    let environment = format!("export ANTHROPIC_BASE_URL=\"{gateway_address}\"\nexport ANTHROPIC_API_KEY=\"{key}\"");
    view! {
        {snippet("environment-anthropic", t!("environment variables, for Anthropic's SDKs"), environment)}
        {snippet("curl-anthropic", t!("curl, as to Anthropic"), curl)}
        {snippet("python-anthropic", t!("Python, as to Anthropic"), python)}
        {snippet("node-anthropic", t!("Node, as to Anthropic"), node)}
    }
    .into_any()
}

/// How a program connects with this key: by the variables that SDKs read, with curl, in Python and for Node, in the dialect of
/// the model.
pub fn snippets(gateway_address: &str, key: &str, model: Option<&ModelRow>) -> AnyView {
    match model {
        Some(row) if !row.dialects.contains(&Dialect::Openai) => {
            anthropic_snippets(gateway_address, key, &row.model.name)
        }
        model => openai_snippets(gateway_address, key, model.map(|row| row.model.name.as_str())),
    }
}

fn openai_snippets(gateway_address: &str, key: &str, model: Option<&str>) -> AnyView {
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
    let node = format!(
        "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{\n  baseURL: \"{gateway_address}/v1\",\n  \
         apiKey: \"{key}\",\n}});\nconst answer = await client.chat.completions.create({{\n  model: {model},\n  \
         messages: [{{ role: \"user\", content: \"Hello\" }}],\n}});\nconsole.log(answer.choices[0].message.content);",
    );
    let environment = format!("export OPENAI_BASE_URL=\"{gateway_address}/v1\"\nexport OPENAI_API_KEY=\"{key}\"");
    view! {
        {snippet("environment", t!("environment variables"), environment)}
        {snippet("curl", "curl", curl)}
        {snippet("python", "Python", python)}
        {snippet("node", "Node", node)}
    }
    .into_any()
}

fn snippet(id: &'static str, title: &'static str, text: String) -> AnyView {
    view! {
        <div class="snippet">
            <h3>{title}</h3>
            <pre tabindex="0"><code id=id>{text}</code></pre>
            {copy::button(id, t!("Copy the {title} example", title))}
        </div>
    }
    .into_any()
}
