//! One's own account at the console, and where somebody is signed in.

use control::limits::NodeLimits;
use control::sessions::{PEER_FIELD, PUBLIC_ID_FIELD, SEEN_FIELD, USER_AGENT_FIELD};
use domain::people::Role;
use serde_json::json;
use test_support::console::{OPERATOR, PASSWORD, Window};
use test_support::html::{Page, Table};
use test_support::tollgate::{Options, Tollgate};
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::Id;

const ANOTHER: &str = "another long enough sentence";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const SESSIONS: [&str; 4] = ["Program", "Address", "Signed in", "Last seen"];
/// Failed sign-ins of one account after which it has to wait.
const FAILURES_MAX: usize = 5;

async fn empty() -> Tollgate {
    let options = Options {
        is_empty: true,
        ..Options::default()
    };
    Tollgate::start_with(options).await
}

/// A second window of somebody who has one, in a browser that gives itself this name.
async fn another(tollgate: &Tollgate, email: &str, user_agent: &str) -> Window {
    let mut window = Window::open(tollgate, "/sign-in").await;
    window.browser.always("user-agent", user_agent);
    window.sign_in(email, PASSWORD).await;
    assert_eq!(window.page.path(), "/", "{}", window.page.content());
    window
}

async fn change_password<'a>(window: &'a mut Window, current: &str, password: &str) -> &'a Page {
    let form = window.visit("/account").await.form("/console/account/password");
    let form = form.fill("current_password", current).fill("password", password);
    window.send(&form).await
}

fn sessions(page: &Page) -> Table {
    page.table(&SESSIONS)
}

/// What was noted of people, the latest first.
async fn noted(tollgate: &Tollgate) -> Vec<(String, String)> {
    sqlx::query_as("select action, actor from audit_log where subject like 'person:%' order by at desc, id desc")
        .fetch_all(&mut tollgate.sql().await)
        .await
        .expect("entries")
}

#[tokio::test]
async fn a_changed_password_asks_for_the_present_one_and_ends_every_other_session() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    let mut elsewhere = another(&tollgate, OPERATOR, FIREFOX).await;
    let cookie = window.browser.cookie("tollgate_session").to_owned();

    let page = change_password(&mut window, "not the present one", ANOTHER).await;
    assert_eq!(page.path(), "/account");
    assert_eq!(
        page.text("#current_password-error"),
        "This is not your present password."
    );
    assert_eq!(page.form("/console/account/password").value("password"), "");
    let page = change_password(&mut window, PASSWORD, "too short").await;
    assert_eq!(page.text("#password-error"), "At least 12 characters.");
    let page = change_password(&mut window, PASSWORD, PASSWORD).await;
    assert!(!page.text("#password-error").is_empty());
    assert_eq!(
        elsewhere.visit("/account").await.path(),
        "/account",
        "nothing has ended"
    );

    let page = change_password(&mut window, PASSWORD, ANOTHER).await;
    assert_eq!(
        page.notices(),
        ["Your password is changed. 1 other session has ended."],
        "{}",
        page.content()
    );
    assert_eq!(sessions(window.visit("/account").await).rows.len(), 1);
    assert_ne!(
        window.browser.cookie("tollgate_session"),
        cookie,
        "a copy of it goes on"
    );
    assert_eq!(elsewhere.visit("/account").await.path(), "/sign-in");
    elsewhere.sign_in(OPERATOR, PASSWORD).await;
    assert_eq!(elsewhere.page.path(), "/sign-in");
    elsewhere.sign_in(OPERATOR, ANOTHER).await;
    assert_eq!(elsewhere.page.path(), "/account");
    let entry = ("person.change_password".to_owned(), OPERATOR.to_owned());
    assert!(noted(&tollgate).await.contains(&entry));
}

#[tokio::test]
async fn the_present_password_cannot_be_guessed_in_a_window_that_was_left_open() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    for _ in 0..FAILURES_MAX {
        let page = change_password(&mut window, "a wrong sentence", ANOTHER).await;
        assert!(!page.text("#current_password-error").is_empty());
    }
    let page = change_password(&mut window, PASSWORD, ANOTHER).await;
    assert!(
        page.notices()[0].contains("Try again in 15 minutes"),
        "even the right one has to wait: {:?}",
        page.notices()
    );
    // They are failed sign-ins like any other.
    let mut door = Window::open(&tollgate, "/sign-in").await;
    door.sign_in(OPERATOR, PASSWORD).await;
    assert!(
        door.page.notices()[0].contains("Try again in"),
        "{:?}",
        door.page.notices()
    );
}

#[tokio::test]
async fn everybody_sees_where_they_are_signed_in_and_ends_it() {
    let tollgate = empty().await;
    let tenant = tollgate.tenant("Acme", NodeLimits::default()).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    let mut firefox = another(&tollgate, "member@example.com", FIREFOX).await;
    let mut third = another(&tollgate, "member@example.com", "curl/8.15.0").await;

    let listed = sessions(firefox.visit("/account").await);
    assert_eq!(listed.rows.len(), 3);
    assert_eq!(listed.cell("Firefox on Linux this one", "Address"), "127.0.0.1");
    assert_eq!(listed.cell("curl/8.15.0", "Address"), "127.0.0.1");
    for instant in listed.column("Signed in").iter().chain(&listed.column("Last seen")) {
        assert!(instant.contains(':'), "{instant} is no time");
    }
    // Another's is ended from here.
    let others = listed.column("Program");
    let place = others.iter().position(|program| program == "curl/8.15.0");
    let form = firefox.page.forms("/console/account/end-session")[place.expect("curl")].clone();
    firefox.send(&form).await;
    assert_eq!(firefox.page.notices(), ["The session has ended."]);
    assert_eq!(sessions(&firefox.page).rows.len(), 2);
    assert_eq!(third.visit("/account").await.path(), "/sign-in");
    // Twice does nothing more.
    assert_eq!(firefox.send(&form).await.status, 404);

    // Ending this one is a sign-out.
    let listed = sessions(firefox.visit("/account").await);
    let this = listed.column("Program");
    let place = this.iter().position(|program| program.contains("this one"));
    let form = firefox.page.forms("/console/account/end-session")[place.expect("this one")].clone();
    assert_eq!(firefox.send(&form).await.path(), "/sign-in");
    assert_eq!(firefox.visit("/account").await.path(), "/sign-in");

    let mut again = another(&tollgate, "member@example.com", FIREFOX).await;
    let form = again.visit("/account").await.form("/console/account/end-sessions");
    assert_eq!(again.send(&form).await.path(), "/sign-in");
    assert_eq!(member.visit("/account").await.path(), "/sign-in");
    let actions: Vec<String> = noted(&tollgate).await.into_iter().map(|(action, _)| action).collect();
    let count = |wanted: &str| actions.iter().filter(|action| *action == wanted).count();
    assert_eq!((count("person.end_session"), count("person.end_sessions")), (2, 1));
}

#[tokio::test]
async fn one_persons_sessions_are_ended_by_themselves_operators_and_their_manager() {
    let tollgate = empty().await;
    let mut operator = Window::operator(&tollgate).await;
    let acme = tollgate.tenant("Acme", NodeLimits::default()).await;
    let other = tollgate.tenant("Other", NodeLimits::default()).await;
    let mut manager = Window::person(&tollgate, Role::Manager, Some(acme)).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let mut member = Window::person(&tollgate, Role::Member, Some(acme)).await;
    let mut elsewhere = another(&tollgate, "member@example.com", FIREFOX).await;
    let people = operator.visit("/people").await.table(&["Name", "Role"]);
    let address_of = |role: &str| {
        let roles = people.column("Role");
        people.links[roles.iter().position(|other| other == role).expect("somebody")].clone()
    };
    let address = address_of("member");

    // An auditor looks on.
    let page = auditor.visit(&address).await;
    assert_eq!(sessions(page).rows.len(), 2);
    assert!(page.forms("/console/people/end-session").is_empty());
    assert_eq!(member.visit(&address).await.status, 403, "not even one's own");

    // Their manager ends one, the operator the rest.
    let form = manager.visit(&address).await.forms("/console/people/end-session")[0].clone();
    assert_eq!(auditor.send(&form).await.status, 403);
    assert_eq!(manager.send(&form).await.notices(), ["The session has ended."]);
    assert_eq!(
        elsewhere.visit("/").await.path(),
        "/sign-in",
        "the one used last is the first"
    );
    assert_eq!(member.visit("/account").await.path(), "/account");
    let form = operator.visit(&address).await.form("/console/people/end-sessions");
    assert_eq!(operator.send(&form).await.notices(), ["1 session has ended."]);
    assert_eq!(member.visit("/").await.path(), "/sign-in");
    assert_eq!(sessions_or_none(&operator.page), None);

    // Nobody's manager.
    let form = operator
        .visit(&address_of("manager"))
        .await
        .forms("/console/people/end-sessions")
        .pop();
    let mut stranger = foreign_manager(&tollgate, other).await;
    assert_eq!(stranger.visit(&address).await.status, 404);
    assert_eq!(stranger.send(&form.expect("a form")).await.status, 404);
    assert_eq!(manager.visit("/").await.path(), "/");
}

fn sessions_or_none(page: &Page) -> Option<Table> {
    page.find_table(&SESSIONS)
}

async fn foreign_manager(tollgate: &Tollgate, tenant: domain::ids::TenantId) -> Window {
    let draft = control::people::PersonDraft {
        name: "Fred".into(),
        email: "fred@example.com".into(),
        role: Role::Manager,
        tenant_id: Some(tenant),
    };
    let control = tollgate.control();
    control
        .create_person(&tollgate.actor(), &draft, PASSWORD, chrono::Utc::now())
        .await
        .expect("a person");
    another(tollgate, "fred@example.com", FIREFOX).await
}

#[tokio::test]
async fn use_is_noted_once_a_minute_and_a_page_costs_no_write() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    window.visit("/account").await;
    let written = async || -> (String, Option<chrono::DateTime<chrono::Utc>>) {
        sqlx::query_as("select xmin::text, seen_at from sessions where person_id is not null")
            .fetch_one(&mut tollgate.sql().await)
            .await
            .expect("the session")
    };
    let before = written().await;
    window.visit("/account").await;
    window.visit("/").await;
    assert_eq!(written().await, before);

    // As it was more than a minute ago.
    let sessions = tollgate.control().sessions();
    let cookie: Id = window.browser.cookie("tollgate_session").parse().expect("an id");
    let mut record = sessions.load(&cookie).await.expect("an answer").expect("the session");
    let long_ago = chrono::Utc::now() - chrono::Duration::seconds(61);
    record.data.insert(SEEN_FIELD.to_owned(), json!(long_ago));
    sessions.save(&record).await.expect("saved");
    assert!(written().await.1 < before.1);
    window.visit("/").await;
    assert!(written().await.1 > before.1, "it is noted again");
}

#[tokio::test]
async fn a_session_from_before_the_lists_gets_a_name_when_it_is_used() {
    let tollgate = empty().await;
    let mut window = Window::operator(&tollgate).await;
    let mut old = another(&tollgate, OPERATOR, FIREFOX).await;
    // As an older console writes its sessions.
    let sessions = tollgate.control().sessions();
    for window in [&window, &old] {
        let cookie: Id = window.browser.cookie("tollgate_session").parse().expect("an id");
        let mut record = sessions.load(&cookie).await.expect("an answer").expect("a session");
        for field in [PUBLIC_ID_FIELD, PEER_FIELD, USER_AGENT_FIELD] {
            record.data.remove(field);
        }
        sessions.save(&record).await.expect("saved");
    }
    let page = window.visit("/account").await;
    assert_eq!(
        page.table(&SESSIONS).column("Program"),
        ["unknown this one"],
        "the other has no name yet"
    );
    let form = window.visit("/account").await.form("/console/account/password");
    let form = form.fill("current_password", PASSWORD).fill("password", ANOTHER);
    window.send(&form).await;
    assert!(
        window.page.notices()[0].contains("1 other session has ended"),
        "{:?}",
        window.page.notices()
    );
    assert_eq!(old.visit("/").await.path(), "/sign-in");
    assert_eq!(window.visit("/account").await.path(), "/account");
}
