//! Well-known models from the catalogue, and prices from their form, as an operator meets them.

use domain::people::Role;
use test_support::console::Window;
use test_support::tollgate::{Options, Tollgate};

const PATH: &str = "/models/catalogue";
const LOAD: &str = "/console/models/catalogue/load";
const ADD_PRICE: &str = "/console/models/prices/add";
const COLUMNS: [&str; 3] = ["Model", "Here", "Input"];

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

#[tokio::test]
async fn an_operator_begins_with_models_of_the_catalogue() {
    let tollgate = empty().await;
    tollgate.upstream("Provider", "http://127.0.0.1:9/v1").await;
    let mut operator = Window::operator(&tollgate).await;
    let link = operator.visit("/models").await.link("Catalogue");
    let page = operator.visit(&link).await;
    assert!(page.content().contains("list prices as of 18 Nov 2026"));
    assert_eq!(page.table(&COLUMNS).cell("gpt-4o", "Here"), "new");
    let form = page.form(LOAD);
    assert_eq!(
        form.choice("openai_upstream"),
        "Provider",
        "the only one that speaks it"
    );
    assert_eq!(form.choice("anthropic_upstream"), "None yet");

    let page = operator.send(&form.clone()).await;
    assert_eq!(page.path(), PATH);
    assert!(
        page.content().contains("Choose at least one model."),
        "{}",
        page.content()
    );

    let form = form
        .tick("models[]", "gpt-4o")
        .tick("models[]", "text-embedding-3-small")
        .tick("models[]", "claude-opus-5-5");
    let page = operator.send(&form).await;
    assert_eq!(page.address, "/models");
    assert_eq!(
        page.notices(),
        [
            "Added 3 models: gpt-4o, text-embedding-3-small, claude-opus-5-5. Those without a route are refused until they \
          have one."
        ]
    );
    let models = page.table(&["Name", "State", "Output price"]);
    assert_eq!(models.cell("gpt-4o", "State"), "ready");
    assert_eq!(models.cell("gpt-4o", "Input price"), "2.50");
    assert_eq!(models.cell("claude-opus-5-5", "State"), "no route");
    assert_eq!(models.cell("text-embedding-3-small", "Output price"), "free");

    let page = operator.visit(&format!("{PATH}?choose=new")).await;
    assert_eq!(page.table(&COLUMNS).cell("gpt-4o", "Here"), "same price");
    let form = page.form(LOAD);
    let chosen = form.data();
    let is_chosen = |name: &str| {
        chosen
            .iter()
            .any(|(field, value)| *field == "models[]" && *value == name)
    };
    assert!(is_chosen("gpt-4o-mini") && !is_chosen("gpt-4o"));

    let page = operator.visit(&format!("{PATH}?dialect=anthropic")).await;
    assert!(page.texts("h2").contains(&"Anthropic".to_owned()));
    assert!(!page.content().contains("gpt-4o"));
    let form = page.form(LOAD).tick("models[]", "claude-opus-5-5");
    let page = operator.send(&form).await;
    assert_eq!(page.notices(), ["Had that price already: claude-opus-5-5."]);

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let page = auditor.visit(PATH).await;
    assert_eq!(page.status, 200);
    assert!(page.forms(LOAD).is_empty());
}

#[tokio::test]
async fn another_currency_asks_for_an_exchange_rate_first() {
    let options = Options {
        is_empty: true,
        currency: Some("EUR".to_owned()),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit(PATH).await;
    assert!(page.forms(LOAD).is_empty(), "nothing can be loaded at an unknown rate");
    assert!(page.content().contains("this installation bills in EUR"));
    let form = page.form(PATH);
    let page = operator.send(&form.clone().fill("exchange", "0,9")).await;
    assert!(page.content().contains("such as 0.92"), "{}", page.content());
    let page = operator.send(&form.fill("exchange", "0.333333333")).await;
    assert_eq!(page.table(&COLUMNS).cell("gpt-4o", "Input"), "0.833333333");
    let form = page.form(LOAD).tick("models[]", "gpt-4o");
    let page = operator.send(&form).await;
    let models = page.table(&["Name", "Input price"]);
    assert_eq!(models.cell("gpt-4o", "Input price"), "0.833333333");
}

#[tokio::test]
async fn a_price_has_every_class_several_tiers_and_may_be_free() {
    let tollgate = empty().await;
    let upstream = tollgate.upstream("Provider", "http://127.0.0.1:9/v1").await;
    tollgate.model("local", upstream, None).await;
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/models/edit?name=local").await;
    let form = page
        .form(ADD_PRICE)
        .fill("input", "0")
        .fill("output", "0")
        .fill("cache_write_1h", "3")
        .fill("valid_from", "2099-01-01T00:00");
    let form = form
        .fill_nth("tier_above[]", 0, "200,000")
        .fill_nth("tier_input[]", 0, "6")
        .fill_nth("tier_output[]", 0, "22.50")
        .fill_nth("tier_above[]", 1, "500,000")
        .fill_nth("tier_input[]", 1, "12");
    let page = operator.send(&form).await;
    assert!(
        page.content()
            .contains("Write the price per million tokens; 0 if it costs nothing.")
    );
    let form = page.form(ADD_PRICE).fill_nth("tier_output[]", 1, "45");
    let page = operator.send(&form).await;
    assert_eq!(page.notices()[0], "The price was added.");
    let prices = page.table(&["In force", "Cache read"]);
    let row = &prices.rows[0];
    assert_eq!(row[0], "later");
    assert!(row[1].starts_with("1 Jan 2099"), "{row:?}");
    assert_eq!(row[3..8], ["free", "free", "free", "3.00", "free"]);
    assert_eq!(
        prices.rows[1][2..8],
        ["above 200,000 input tokens", "6.00", "6.00", "6.00", "6.00", "22.50"]
    );
    assert_eq!(
        prices.rows[2][2..8],
        [
            "above 500,000 input tokens",
            "12.00",
            "12.00",
            "12.00",
            "12.00",
            "45.00"
        ]
    );

    let copy = prices.links[0].clone();
    let form = operator.visit(&copy).await.form(ADD_PRICE);
    assert_eq!(form.value("cache_write_1h"), "3.00");
    assert_eq!(form.value("tier_above[]"), "200000");
    assert_eq!(form.value("valid_from"), "");
    let page = operator.send(&form.fill("input", "1.5")).await;
    let row = &page.table(&["In force", "Cache read"]).rows[3];
    assert_eq!(row[0], "now");
    assert_eq!(row[3..8], ["1.50", "free", "free", "3.00", "free"]);
    let models = operator.visit("/models").await.table(&["Name", "Output price"]);
    assert_eq!(models.cell("local", "Output price"), "free");
}
