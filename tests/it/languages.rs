//! The console speaks the reader's language: the one that they have chosen, else the one that their browser asks for. In
//! Chinese nothing of its own is left in English; what programs wrote, names and codes are as they are.

use std::collections::{BTreeMap, BTreeSet};

use domain::management_tokens::Permission;
use domain::people::Role;
use serde_json::Value;
use test_support::console::{PASSWORD, Window};
use test_support::html::Page;
use test_support::http::Browser;
use test_support::program::Program;
use test_support::tollgate::{Options, Tollgate};

const CHINESE: (&str, &str) = ("accept-language", "zh-CN,zh;q=0.9,en;q=0.5");
/// The demo's people, and some of the pages that they get to.
const DEMO: [(&str, &[&str]); 2] = [
    (
        "operator@example.com",
        &[
            "/quota-tree",
            "/ledger",
            "/reports/estimates",
            "/models/catalogue",
            "/settings/webhook",
            "/status/quarantine",
        ],
    ),
    (
        "mira@example.com",
        &["/quota-tree", "/ledger", "/keys/new", "/connect", "/account"],
    ),
];
/// Their password.
const DEMO_PASSWORD: &str = "demo-password";
/// Words in Latin letters that Chinese texts have, too: names of products and formats, units, codes that people type.
const WORDS: &str = "
    AI API Anthropic Bearer Brotli CIDR Chromium Chrome Content CSV DNS Edge English Firefox HMAC HTTP HTTPS Host ID IP ISO
    JSON KiB MiB GiB TiB LLM Linux MB Node Node.js OpenAI OpenAPI PEM POST Postgres PostgreSQL Python RFC Redis Retry-After
    Safari SDK SQL SSE TLS Token Tollgate UTC URL USD EUR UUID WebAssembly Webhook Windows X-Tollgate-Signature
    CEST CET Cookie Language Messages NTP Prefer Responses TEMP VIP
    anthropic cancel chat completions critical curl default from high http https id low min ms name openai respond-async until zstd
";

/// What this test and the demo call a token, a gateway, tags and whoever made it all.
const OWN_NAMES: [&str; 7] = [
    "walk",
    "test-gateway",
    "demo-history",
    "project",
    "reporting",
    "search",
    "demo",
];

/// What stands in texts beside words: signs of either kind of writing.
fn is_between(character: char) -> bool {
    character.is_whitespace() || !(character.is_ascii_alphanumeric() || "-_./@:'=%+".contains(character))
}

/// The English words of a text. What has figures or signs of code in it is a name, a code or a measure.
fn english(text: &str) -> Vec<String> {
    text.split(is_between)
        .map(|word| word.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()))
        .filter(|word| {
            word.len() > 1
                && !word.starts_with("sk-tg-")
                && word
                    .chars()
                    .all(|letter| letter.is_ascii_alphabetic() || "-'".contains(letter))
        })
        .map(str::to_owned)
        .collect()
}

/// Fields of the API that hold what people have called something.
const NAME_FIELDS: [&str; 9] = [
    "name",
    "email",
    "tenant_name",
    "group",
    "created_by",
    "base_url",
    "owner_name",
    "author",
    "reason",
];

/// What such fields hold.
fn names_of(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| names_of(value, names)),
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(name) if NAME_FIELDS.contains(&field.as_str()) => names.push(name.clone()),
                    value => names_of(value, names),
                }
            }
        }
        _ => {}
    }
}

/// What is left in English on these pages beside these names: each text once, with the first page that has it.
fn left(pages: &[Page], names: &[String]) -> BTreeMap<String, String> {
    let allowed: BTreeSet<&str> = WORDS.split_whitespace().collect();
    let mut left = BTreeMap::new();
    for page in pages.iter().filter(|page| page.is_html()) {
        assert_eq!(
            (page.status.as_u16(), page.language()),
            (200, "zh-Hans"),
            "{}",
            page.address
        );
        for text in page.readable() {
            let without = names.iter().fold(text.clone(), |text, name| text.replace(name, ""));
            let is_english = english(&without).iter().any(|word| !allowed.contains(word.as_str()));
            // A gap that was not filled would be English, too; paths have gaps of their own.
            if is_english || text.replace("/{", "").contains('{') {
                left.entry(text).or_insert_with(|| page.address.clone());
            }
        }
    }
    left
}

/// What people have named in an installation, as its API tells, the longest first; and what this test and the demo name.
async fn names_in(window: &mut Window) -> Vec<String> {
    let form = window
        .visit("/settings/tokens/new")
        .await
        .form("/console/settings/tokens/issue")
        .fill("name", "walk");
    let reads = Permission::ALL.into_iter().map(Permission::as_str);
    let form = reads
        .filter(|permission| permission.ends_with(":read"))
        .fold(form, |form, permission| form.tick("permissions[]", permission));
    let token = window.send(&form).await.text("#secret");
    let authorization = format!("Bearer {token}");
    let mut names: Vec<String> = OWN_NAMES.map(str::to_owned).to_vec();
    for noun in [
        "tenants",
        "people",
        "keys",
        "models",
        "upstreams",
        "plans",
        "adjustments",
    ] {
        let path = format!("/api/v1/{noun}?limit=100");
        let headers = [("authorization", authorization.as_str())];
        let answer = window
            .browser
            .send(http::Method::GET, &path, &headers, bytes::Bytes::new())
            .await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        names_of(&answer.json(), &mut names);
    }
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

/// Pages of one kind differ in ids and in values of queries only.
fn kind(address: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let is_id = |part: &str| part.len() == 36 && part.matches('-').count() == 4;
    let parts: Vec<&str> = path
        .split('/')
        .map(|part| if is_id(part) { "id" } else { part })
        .collect();
    let fields: BTreeSet<&str> = query.split('&').filter_map(|field| field.split('=').next()).collect();
    // Which node the limits are of, and which figures are shown, decides what a page has.
    let of = query
        .split('&')
        .filter(|field| field.starts_with("of=") || field.starts_with("show="));
    let of: Vec<&str> = of.filter_map(|field| field.split("%3A").next()).collect();
    format!("{} {fields:?} {of:?}", parts.join("/"))
}

#[tokio::test]
async fn no_english_is_left_on_any_page_of_the_demo_in_chinese() {
    let data_dir = tempfile::tempdir().expect("a directory");
    let mut program = Program::start("demo", data_dir.path(), &[]);
    let address = program.says("Tollgate serves on ").await;

    let mut names = Vec::new();
    let mut left_over = BTreeMap::new();
    for (email, known) in DEMO {
        let mut browser = Browser::new(&address);
        browser.always(CHINESE.0, CHINESE.1);
        let mut window = Window::of(browser, "/sign-in").await;
        let page = window.sign_in(email, DEMO_PASSWORD).await;
        assert_eq!((page.path(), page.language()), ("/", "zh-Hans"), "{}", page.content());
        if names.is_empty() {
            names = names_in(&mut window).await;
        }
        let pages = window.walk_kinds(kind, 1).await;
        let paths: BTreeSet<&str> = pages.iter().map(Page::path).collect();
        for path in known {
            assert!(paths.contains(path), "{email} does not get to {path}");
        }
        left_over.extend(left(&pages, &names));
    }
    program.signal("TERM").await;
    program.ends().await;
    assert!(left_over.is_empty(), "{} texts: {left_over:#?}", left_over.len());
}

#[tokio::test]
async fn no_english_is_left_on_pages_that_have_nothing_yet() {
    let tollgate = Tollgate::start_with(Options {
        is_empty: true,
        ..Options::default()
    })
    .await;
    let mut operator = Window::operator(&tollgate).await;
    operator.browser.always(CHINESE.0, CHINESE.1);
    let names = ["Olga Operator", "test-gateway", "first start"].map(str::to_owned);
    let left = left(&operator.walk_kinds(kind, 1).await, &names);
    assert!(left.is_empty(), "{} texts: {left:#?}", left.len());
}

#[tokio::test]
async fn what_is_wrong_with_a_form_is_said_in_the_readers_language() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    operator.browser.always(CHINESE.0, CHINESE.1);
    let form = operator.visit("/tenants/new").await.form("/console/tenants/create");
    let page = operator
        .send(&form.fill("name", " ").fill("monthly_cost", "much"))
        .await;
    let errors = page.texts(".error");
    assert_eq!(
        errors,
        ["请填写金额，例如 250 或 12.50，只能包含数字和至多一个小数点。"]
    );
    let form = page.form("/console/tenants/create");
    let page = operator.send(&form.fill("monthly_cost", "10")).await;
    assert_eq!(page.texts(".error"), ["请填写名称。"]);
    let page = operator.visit("/nowhere").await;
    assert_eq!((page.status.as_u16(), page.heading().as_str()), (404, "这里什么都没有"));
}

#[tokio::test]
async fn a_person_chooses_a_language_for_themselves_alone() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let form = operator.visit("/account").await.form("/console/account/language");
    assert_eq!(
        form.options("language"),
        ["As your browser asks", "English", "简体中文"]
    );
    let page = operator.send(&form.clone().choose("language", "简体中文")).await;
    assert_eq!(
        (page.language(), page.notices()),
        ("zh-Hans", vec!["语言已设置。".to_owned()])
    );

    // Whatever a browser asks for, in every session of theirs; and nobody else's.
    let mut other = Window::open(&tollgate, "/sign-in").await;
    other.browser.always("accept-language", "en");
    assert_eq!(other.visit("/sign-in").await.language(), "en");
    let page = other.sign_in(test_support::console::OPERATOR, PASSWORD).await;
    assert_eq!((page.language(), page.heading().as_str()), ("zh-Hans", "概览"));
    assert_eq!(auditor.visit("/").await.heading(), "Overview");

    // Live figures, too.
    let mut stream = other.browser.follow("/console/live?page=%2F").await;
    let event = stream.next().await.expect("an event");
    let event = String::from_utf8_lossy(&event).into_owned();
    assert!(event.contains("已花费") && !event.contains("Spent"), "{event}");

    // Noted, refused and taken back.
    let entries = auditor.visit("/audit").await.content();
    assert!(entries.contains("person.choose_language"), "{entries}");
    let answer = operator.browser.post_form(&form.action, &[("language", "tlh")]).await;
    assert_eq!(answer.status, 303);
    assert_eq!(
        operator.visit("/account").await.texts(".error"),
        ["请从列表中选择语言。"]
    );
    let page = operator.send(&form.choose("language", "As your browser asks")).await;
    assert_eq!(
        (page.language(), page.notices()),
        ("en", vec!["Your language is set.".to_owned()])
    );
}

#[tokio::test]
async fn what_is_refused_at_the_door_is_said_in_the_language_that_a_browser_asks_for() {
    let tollgate = Tollgate::start().await;
    let mut browser = tollgate.browser();
    browser.always(CHINESE.0, CHINESE.1);
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("origin", "https://elsewhere.example"),
    ];
    let body = bytes::Bytes::from_static(b"email=a&password=b");
    let answer = browser
        .send(http::Method::POST, "/console/sign-in", &headers, body)
        .await;
    let page = Page::new("/console/sign-in", &answer);
    assert_eq!((page.status.as_u16(), page.language()), (403, "zh-Hans"));
    assert_eq!(page.heading(), "该表单并非从控制台提交");
}
