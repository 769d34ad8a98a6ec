//! Live figures: an open page's figures come as events, to whoever may see the page, and for as long as they may.

use std::time::Duration;

use domain::people::Role;
use test_support::console::Window;
use test_support::http::Stream;
use test_support::tollgate::Tollgate;
use tokio::time::timeout;

/// An event comes every two seconds; a busy machine gets more time.
const WITHIN: Duration = Duration::from_secs(30);

/// The next event's name and data.
async fn event(stream: &mut Stream, kept: &mut String) -> Option<(String, String)> {
    loop {
        if let Some((block, rest)) = kept.split_once("\n\n") {
            let field = |name: &str| -> Vec<String> {
                let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                lines.map(|value| value.trim_start().to_owned()).collect()
            };
            let (names, data) = (field("event:"), field("data:"));
            let next = (names.first().cloned().unwrap_or_default(), data.join("\n"));
            *kept = rest.to_owned();
            // A comment keeps the connection.
            if !data.is_empty() {
                return Some(next);
            }
            continue;
        }
        let piece = timeout(WITHIN, stream.next()).await.expect("an event in time")?;
        kept.push_str(&String::from_utf8_lossy(&piece));
    }
}

/// Every event of a stream that ends.
async fn all(mut stream: Stream) -> Vec<(String, String)> {
    let (mut kept, mut events) = (String::new(), Vec::new());
    while let Some(event) = event(&mut stream, &mut kept).await {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn an_open_page_gets_its_figures_again_until_its_reader_signs_out() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let (_, key) = tollgate.named_tenant_with_key("Research", Default::default()).await;
    operator.visit("/quota-tree").await;
    let mut stream = operator.browser.follow("/console/live?page=%2Fquota-tree").await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.headers["cache-control"], "no-store");
    let mut kept = String::new();
    let (name, first) = event(&mut stream, &mut kept).await.expect("the page at once");
    assert_eq!(name, "");
    assert!(
        first.contains("data-live=\"nodes\"") && first.contains("Research"),
        "{first}"
    );
    assert!(!first.contains("Sign out"), "the frame has no figures");

    // What happens is told.
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let (tenant, _) = tollgate.named_tenant_with_key("Sales", Default::default()).await;
    let told = async {
        loop {
            let (name, content) = event(&mut stream, &mut kept).await.expect("more events");
            if name.is_empty() && content.contains(&tenant.to_string()) {
                break;
            }
        }
    };
    timeout(WITHIN, told).await.expect("what happens is told");

    // The last event says why there are no more.
    operator.sign_out().await;
    let last = timeout(WITHIN, all(stream)).await.expect("an end").pop();
    assert_eq!(last, Some(("ended".to_owned(), "401".to_owned())));
}

#[tokio::test]
async fn only_readers_of_a_page_can_follow_it() {
    let tollgate = Tollgate::start().await;
    let (tenant, _) = tollgate.named_tenant_with_key("Research", Default::default()).await;
    let stranger = tollgate.browser();
    assert_eq!(
        all(stranger.follow("/console/live?page=%2Fstatus").await).await,
        [("ended".to_owned(), "401".to_owned())]
    );
    let member = Window::person(&tollgate, Role::Member, Some(tenant)).await;
    assert_eq!(
        all(member.browser.follow("/console/live?page=%2Fstatus").await).await,
        [("ended".to_owned(), "403".to_owned())]
    );
    let mut own = member.browser.follow("/console/live?page=%2F").await;
    let (name, content) = event(&mut own, &mut String::new()).await.expect("the page");
    assert!(
        name.is_empty() && content.contains("data-live=\"month\""),
        "{name} {content}"
    );
    for other in [
        "",
        "?page=%2Fkeys",
        "?page=%2F%2Fexample.com%2Fstatus",
        "?page=%2Fconsole%2Flive",
    ] {
        let address = format!("/console/live{other}");
        assert_eq!(member.browser.follow(&address).await.status, 404, "{address}");
    }
}

#[tokio::test]
async fn a_page_that_is_followed_takes_no_message_from_the_one_that_is_opened_next() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    operator.visit("/tenants/new").await;
    let form = operator.page.form("/console/tenants/create").fill("name", "Research");
    let answer = operator.browser.post_form(&form.action, &form.data()).await;
    let created = answer.header("location").to_owned();
    let mut stream = operator.browser.follow("/console/live?page=%2Fstatus").await;
    let mut kept = String::new();
    let (_, content) = event(&mut stream, &mut kept).await.expect("the page");
    assert!(!content.contains("notice-good"), "{content}");
    operator.visit(&created).await;
    assert_eq!(operator.page.texts(".notice-good").len(), 1, "the notice is lost");
}

#[tokio::test]
async fn one_person_follows_so_many_pages_and_a_stop_waits_for_none() {
    let tollgate = Tollgate::start().await;
    let operator = Window::operator(&tollgate).await;
    let mut streams = Vec::new();
    loop {
        let stream = operator.browser.follow("/console/live?page=%2Fstatus").await;
        if stream.status != 200 {
            assert_eq!(stream.status, 503);
            assert_eq!(stream.headers["retry-after"], "5");
            break;
        }
        streams.push(stream);
        assert!(streams.len() <= 100, "no bound");
    }
    let before = tokio::time::Instant::now();
    let tollgate = tollgate.restart().await;
    assert!(before.elapsed() < WITHIN, "streams kept the program from stopping");
    for stream in streams {
        let (_, is_whole) = stream.to_end().await;
        assert!(is_whole, "a stream was cut");
    }
    drop(tollgate);
}
