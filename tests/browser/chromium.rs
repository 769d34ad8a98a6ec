//! A Chromium that belongs to one test: fresh profile, own driver on a free port, its console read after every page.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use url::{ParseError, Url};

/// Names by which Chromium is known.
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const DRIVER: &str = "chromedriver";
/// Rooms of the browser's directory.
const PROFILE: &str = "profile";
const DOWNLOADS: &str = "downloads";
const TEMPORARY: &str = "tmp";
/// What a test waits for something that must happen, at most; a busy machine starts a browser slowly.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a driver may take to say its port, and how many are started.
const DRIVER_PATIENCE: Duration = Duration::from_secs(20);
const DRIVERS_MAX: usize = 4;
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// English, wherever the machine is; no updates, no background traffic, no sandbox (which root has not).
const FLAGS: [&str; 10] = [
    "--headless",
    "--lang=en-US",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// Runs the driver `$1` until its standard input closes, which the end of this process does, however it ends; then ends
/// the driver and the browser, which are all in its process group, and removes their directory `$2`.
const WATCH: &str = r#"
"$1" --port=0 &
read -r _
trap '' TERM
kill -TERM 0
wait
tries=100
while [ "$tries" -gt 0 ] && ! rm -rf "$2" 2>/dev/null; do
    sleep 0.1
    tries=$((tries - 1))
done
kill -KILL 0
"#;
/// What pages are asked for in, and how days are typed.
const LANGUAGES: &str = "en-US,en";
/// The content setting that blocks.
const BLOCKED: u8 = 2;

/// Whether pages may run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scripts {
    /// They may.
    On,
    /// The browser does without JavaScript.
    Off,
}

/// A browser with one window.
#[derive(Debug)]
pub(crate) struct Chromium {
    client: Client,
    watch: Child,
    base: String,
    downloads: PathBuf,
}

impl Chromium {
    /// Starts one for the site at `base`.
    pub(crate) async fn start(base: &str, scripts: Scripts) -> Self {
        let mut started = None;
        for _ in 0..DRIVERS_MAX {
            let room = room();
            started = start_driver(&room).await.map(|driver| (room, driver));
            if started.is_some() {
                break;
            }
        }
        let (room, (watch, address)) = started.expect("chromedriver says its port");
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(&room.join(PROFILE), scripts))
            .connect(&address)
            .await
            .expect("Chromium starts");
        let chromium = Self {
            client,
            watch,
            base: base.to_owned(),
            downloads: room.join(DOWNLOADS),
        };
        chromium
            .devtools(
                "Browser.grantPermissions",
                json!({ "origin": base, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] }),
            )
            .await;
        chromium
            .devtools(
                "Browser.setDownloadBehavior",
                json!({ "behavior": "allow", "downloadPath": chromium.downloads }),
            )
            .await;
        assert_eq!(chromium.runs_scripts().await, scripts == Scripts::On);
        chromium
    }

    /// Opens an address of the site.
    pub(crate) async fn open(&self, address: &str) {
        let url = format!("{}{address}", self.base);
        self.client.goto(&url).await.expect("the page loads");
        self.assert_quiet().await;
    }

    /// Opens an address that may answer with an error's page.
    pub(crate) async fn visit(&self, address: &str) {
        let url = format!("{}{address}", self.base);
        self.client.goto(&url).await.expect("the page loads");
    }

    /// Makes the window so wide, in CSS pixels, for somebody who prefers this colour scheme.
    pub(crate) async fn look(&self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Makes the browser one that has never been here, signed in as it is.
    pub(crate) async fn forget_cached(&self) {
        self.devtools("Network.clearBrowserCache", json!({})).await;
    }

    /// Runs a script in the page; its answer.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.expect("an answer")
    }

    /// Runs a script that calls its last argument with the answer.
    pub(crate) async fn answer(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute_async(script, arguments).await.expect("an answer")
    }

    /// The element that the selector finds, as soon as there is one.
    pub(crate) async fn find(&self, selector: &str) -> Element {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector));
        match found.await {
            Ok(element) => element,
            Err(error) => panic!("no `{selector}` ({error}) in: {}", self.text().await),
        }
    }

    /// The element that the XPath finds, as soon as there is one.
    pub(crate) async fn find_path(&self, path: &str) -> Element {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::XPath(path));
        match found.await {
            Ok(element) => element,
            Err(error) => panic!("no `{path}` ({error}) in: {}", self.text().await),
        }
    }

    /// How many elements the selector finds now.
    pub(crate) async fn count(&self, selector: &str) -> usize {
        let found = self.client.find_all(Locator::Css(selector)).await;
        found.expect("an answer").len()
    }

    /// Clicks what the first selector finds, and waits for a page on which the second one finds something that was not
    /// there before.
    pub(crate) async fn click(&self, selector: &str, then: &str) -> Element {
        let target = self.find(selector).await;
        assert_eq!(self.count(then).await, 0, "`{then}` is there already");
        target.click().await.expect("a click");
        let element = self.find(then).await;
        self.assert_quiet().await;
        element
    }

    /// Goes to one of the places of the navigation.
    pub(crate) async fn go(&self, place: &str) {
        let link = format!("nav a[href='{place}']");
        self.click(&link, &format!("{link}[aria-current='page']")).await;
    }

    /// Writes into a field of the form that is sent to `action`.
    pub(crate) async fn fill(&self, action: &str, name: &str, value: &str) {
        let field = self.find(&format!("form[action='{action}'] [name='{name}']")).await;
        field.clear().await.expect("an empty field");
        field.send_keys(value).await.expect("a filled field");
    }

    /// Chooses an option of the form that is sent to `action`.
    pub(crate) async fn choose(&self, action: &str, name: &str, text: &str) {
        let field = self
            .find(&format!("form[action='{action}'] select[name='{name}']"))
            .await;
        field.select_by_label(text).await.expect("the option");
    }

    /// Goes in by the door.
    pub(crate) async fn sign_in(&self, email: &str, password: &str) {
        self.open("/").await;
        self.fill("/console/sign-in", "email", email).await;
        self.fill("/console/sign-in", "password", password).await;
        self.send("/console/sign-in", "nav a[href='/'][aria-current='page']")
            .await;
    }

    /// Sends the form with its button, and waits for what the next page has.
    pub(crate) async fn send(&self, action: &str, then: &str) -> Element {
        self.click(&format!("form[action='{action}'] button[type='submit']"), then)
            .await
    }

    /// What stands beside this name in the lists of facts.
    pub(crate) async fn fact(&self, name: &str) -> String {
        let path = format!("//dt[normalize-space()='{name}']/following-sibling::dd[1]");
        let value = self.client.find(Locator::XPath(&path)).await;
        let value = value.unwrap_or_else(|error| panic!("no fact is called `{name}`: {error}"));
        value.text().await.expect("a text")
    }

    /// Waits until the element says this.
    pub(crate) async fn wait_for_text(&self, selector: &str, text: &str) {
        let started = Instant::now();
        loop {
            let says = self.find(selector).await.text().await.unwrap_or_default();
            if says == text {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "`{selector}` says `{says}`, not `{text}`");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the element can be seen.
    pub(crate) async fn wait_until_shown(&self, selector: &str) -> Element {
        let element = self.find(selector).await;
        let started = Instant::now();
        while !element.is_displayed().await.unwrap_or(false) {
            assert!(started.elapsed() < PATIENCE, "`{selector}` stays hidden");
            sleep(LOOK_EVERY).await;
        }
        element
    }

    /// What the clipboard holds.
    pub(crate) async fn clipboard(&self) -> String {
        let script =
            "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(String(error)))";
        let text = self.client.execute_async(script, Vec::new()).await.expect("an answer");
        text.as_str().unwrap_or_default().to_owned()
    }

    /// The file that a click has downloaded, as soon as it is whole.
    pub(crate) async fn downloaded(&self) -> (String, Vec<u8>) {
        let started = Instant::now();
        loop {
            let entries = std::fs::read_dir(&self.downloads).expect("the directory");
            let files = entries.map(|entry| entry.expect("an entry").path());
            // What is under way has another name.
            let is_whole = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "csv");
            if let Some(path) = files.into_iter().find(is_whole) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                return (name, std::fs::read(path).expect("the file"));
            }
            assert!(started.elapsed() < PATIENCE, "nothing was downloaded");
            sleep(LOOK_EVERY).await;
        }
    }

    /// The page's HTML as it was sent and changed since.
    pub(crate) async fn source(&self) -> String {
        self.client.source().await.expect("the source")
    }

    /// Ends the browser in good order, if it has nothing to complain about.
    pub(crate) async fn end(mut self) {
        self.assert_quiet().await;
        self.client.close().await.expect("the window closes");
        drop(self.watch.stdin.take());
        let ended = timeout(PATIENCE, self.watch.wait()).await;
        ended.expect("the browser ends").expect("an ending");
    }

    async fn text(&self) -> String {
        match self.client.find(Locator::Css("body")).await {
            Ok(body) => body.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    }

    async fn runs_scripts(&self) -> bool {
        let page = "data:text/html,<title>off</title><script>document.title='on'</script>";
        self.client.goto(page).await.expect("the page loads");
        self.client.title().await.expect("a title") == "on"
    }

    /// Whatever the page made the browser complain about: blocked by the policy, not found, thrown.
    async fn assert_quiet(&self) {
        let entries = self.issue(Order::log()).await;
        let entries = entries.as_array().expect("a list");
        let complaints: Vec<&Value> = entries.iter().filter(|entry| entry["level"] != "INFO").collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    /// Takes note of what a test has brought about on purpose.
    pub(crate) async fn forget_complaints(&self) {
        self.issue(Order::log()).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.issue(Order::devtools(command, parameters)).await
    }

    async fn issue(&self, order: Order) -> Value {
        let told = format!("{order:?}");
        let answer = self.client.issue_cmd(order).await;
        answer.unwrap_or_else(|error| panic!("{told}: {error}"))
    }
}

/// A command that the driver has beside the standard.
#[derive(Debug)]
struct Order {
    path: &'static str,
    body: Value,
}

impl Order {
    /// What the browser's console says since the last time.
    fn log() -> Self {
        Self {
            path: "se/log",
            body: json!({ "type": "browser" }),
        }
    }

    fn devtools(command: &str, parameters: Value) -> Self {
        Self {
            path: "goog/cdp/execute",
            body: json!({ "cmd": command, "params": parameters }),
        }
    }
}

impl WebDriverCompatibleCommand for Order {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

fn capabilities(profile: &Path, scripts: Scripts) -> Map<String, Value> {
    let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
    flags.push(format!("--user-data-dir={}", profile.display()));
    let preferences = match scripts {
        Scripts::On => json!({ "intl.accept_languages": LANGUAGES }),
        Scripts::Off => json!({
            "intl.accept_languages": LANGUAGES,
            "profile.managed_default_content_settings.javascript": BLOCKED,
        }),
    };
    let binary = CHROMIUM
        .into_iter()
        .find_map(find_on_path)
        .expect("no Chromium is installed; run `cargo xtask test`, which installs it");
    let capabilities = json!({
        "goog:chromeOptions": { "binary": binary, "args": flags, "prefs": preferences },
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    match capabilities {
        Value::Object(capabilities) => capabilities,
        _ => unreachable!("it was written as an object"),
    }
}

/// A directory for all that driver and browser write; the watch removes it.
fn room() -> PathBuf {
    let room = tempfile::Builder::new().prefix("tollgate-chromium-").tempdir();
    let room = room.expect("a directory").keep();
    for folder in [PROFILE, DOWNLOADS, TEMPORARY] {
        std::fs::create_dir(room.join(folder)).expect("a directory");
    }
    room
}

/// Starts the driver on a port that it chooses; gives its watch and its address. The port may be taken by then for one of the
/// two kinds of addresses: the driver ends, and another one has to be started.
async fn start_driver(room: &Path) -> Option<(Child, String)> {
    let program =
        find_on_path(DRIVER).expect("no chromedriver is installed; run `cargo xtask test`, which installs it");
    let mut watch = Command::new("sh")
        .args(["-c", WATCH, "watch"])
        .args([program.as_path(), room])
        .env("TMPDIR", room.join(TEMPORARY))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("chromedriver starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output was asked for")).lines();
    let port = timeout(DRIVER_PATIENCE, async {
        while let Some(line) = lines.next_line().await.expect("its output") {
            let port = line.split_once("successfully on port ").map(|(_, port)| port);
            if let Some(port) = port.and_then(|port| port.trim_end_matches('.').parse::<u16>().ok()) {
                return port;
            }
        }
        panic!("chromedriver ended without saying its port");
    });
    let port = port.await.ok()?;
    // It goes on talking, and must not wait for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Some((watch, format!("http://127.0.0.1:{port}")))
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
