//! Somebody at the console: a browser without JavaScript, the page it shows, and what people do there every day.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chrono::Utc;
use control::people::PersonDraft;
use domain::ids::TenantId;
use domain::people::Role;
use http::Method;

use crate::html::{Form, Page};
use crate::http::{Answer, Browser};
use crate::tollgate::Tollgate;

/// The first operator's address.
pub const OPERATOR: &str = "olga@example.com";
/// Everybody's password.
pub const PASSWORD: &str = "a long enough sentence";
/// Pages under one path that a walk looks at: each month has a report and each report a month before it.
const LOOKS_PER_PATH: usize = 6;
/// Pages after which a walk is lost.
const PAGES_MAX: usize = 400;
/// Redirects that a browser follows before it gives up.
const REDIRECTS_MAX: usize = 5;

/// A window of a browser.
#[derive(Debug)]
pub struct Window {
    /// The browser.
    pub browser: Browser,
    /// The page it shows.
    pub page: Page,
}

impl Window {
    /// A window of this browser, in which this address was opened.
    pub async fn of(mut browser: Browser, address: &str) -> Self {
        let page = load(&mut browser, address).await;
        Self { browser, page }
    }

    /// A fresh browser in which this address was opened.
    pub async fn open(tollgate: &Tollgate, address: &str) -> Self {
        let mut browser = tollgate.browser();
        let page = load(&mut browser, address).await;
        Self { browser, page }
    }

    /// The first operator, just set up.
    ///
    /// # Panics
    /// When that fails.
    pub async fn operator(tollgate: &Tollgate) -> Self {
        let token = tollgate.control().create_setup_link(Utc::now()).await;
        let token = token.expect("a link").expect("nobody is set up yet");
        let mut window = Self::open(tollgate, &format!("/setup?token={}", token.reveal())).await;
        let form = window.page.form("/console/setup");
        let form = form
            .fill("name", "Olga Operator")
            .fill("email", OPERATOR)
            .fill("password", PASSWORD);
        window.send(&form).await;
        assert_eq!(window.page.address, "/", "{}", window.page.content());
        window
    }

    /// Somebody with this role who has accepted an invitation. Their address is the role's name at example.com.
    ///
    /// # Panics
    /// When that fails.
    pub async fn person(tollgate: &Tollgate, role: Role, tenant_id: Option<TenantId>) -> Self {
        let draft = PersonDraft {
            name: format!("The {role}"),
            email: format!("{role}@example.com"),
            role,
            tenant_id,
        };
        let invitation = tollgate
            .control()
            .invite_person(&tollgate.actor(), &draft, Utc::now())
            .await
            .expect("an invitation");
        let link = format!("/invitation?token={}", invitation.token.reveal());
        let mut window = Self::open(tollgate, &link).await;
        let form = window.page.form("/console/invitation").fill("password", PASSWORD);
        window.send(&form).await;
        assert_eq!(window.page.address, "/", "{}", window.page.content());
        window
    }

    /// Opens an address, or follows a link.
    pub async fn visit(&mut self, address: &str) -> &Page {
        self.page = load(&mut self.browser, address).await;
        &self.page
    }

    /// Sends a form, and shows the page behind it.
    pub async fn send(&mut self, form: &Form) -> &Page {
        let data = form.data();
        if form.method == Method::GET {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(data)
                .finish();
            return self.visit(&format!("{}?{query}", form.action)).await;
        }
        let answer = self.browser.post_form(&form.action, &data).await;
        self.page = follow(&mut self.browser, form.action.clone(), answer).await;
        &self.page
    }

    /// Sends a form that shows what it would change, and confirms that. What changes nothing, or is refused, asks nothing.
    pub async fn save(&mut self, form: &Form) -> &Page {
        self.send(form).await;
        if self.page.texts("#confirm").is_empty() {
            return &self.page;
        }
        let confirm = self.page.forms(&form.action).swap_remove(0);
        self.send(&confirm).await
    }

    /// Signs in.
    ///
    /// # Panics
    /// When there is no such form.
    pub async fn sign_in(&mut self, email: &str, password: &str) -> &Page {
        if self.page.path() != "/sign-in" {
            self.visit("/sign-in").await;
        }
        let form = self.page.form("/console/sign-in");
        self.send(&form.fill("email", email).fill("password", password)).await
    }

    /// Signs out with the button that every page has.
    pub async fn sign_out(&mut self) -> &Page {
        let form = self.page.form("/console/sign-out");
        self.send(&form).await
    }

    /// Every page that links lead to from the overview on; of one path, the first few.
    ///
    /// # Panics
    /// When there is no end.
    pub async fn walk(&mut self) -> Vec<Page> {
        let path = |address: &str| address.split('?').next().unwrap_or_default().to_owned();
        self.walk_kinds(path, LOOKS_PER_PATH).await
    }

    /// The same with so many pages of each kind.
    ///
    /// # Panics
    /// When there is no end.
    pub async fn walk_kinds(&mut self, kind: impl Fn(&str) -> String, looks_per_kind: usize) -> Vec<Page> {
        let mut waiting = VecDeque::from(["/".to_owned()]);
        let mut known = BTreeSet::from(["/".to_owned()]);
        let mut looks: BTreeMap<String, usize> = BTreeMap::new();
        let mut pages = Vec::new();
        while let Some(address) = waiting.pop_front() {
            let page = self.visit(&address).await.clone();
            assert!(pages.len() < PAGES_MAX, "the console has no end");
            for link in page.links().into_iter().filter(|link| link.starts_with('/')) {
                if known.insert(link.clone()) {
                    let looks = looks.entry(kind(&link)).or_default();
                    *looks += 1;
                    if *looks <= looks_per_kind {
                        waiting.push_back(link);
                    }
                }
            }
            pages.push(page);
        }
        pages
    }

    /// Issues a key for the tenant itself, or as a member for oneself, and reads its secret off the page.
    ///
    /// # Panics
    /// When there is none.
    pub async fn issue_key(&mut self, tenant: &str, name: &str) -> String {
        self.visit(&format!("/keys/new?tenant={tenant}")).await;
        let form = self.page.form("/console/keys/issue").fill("name", name);
        self.send(&form).await;
        assert_eq!(self.page.path(), "/keys/issued", "{}", self.page.content());
        self.page.text("#secret")
    }
}

async fn load(browser: &mut Browser, address: &str) -> Page {
    let answer = browser.get(address).await;
    follow(browser, address.to_owned(), answer).await
}

async fn follow(browser: &mut Browser, mut address: String, mut answer: Answer) -> Page {
    for _ in 0..REDIRECTS_MAX {
        if !answer.status.is_redirection() {
            break;
        }
        address = answer.header("location").to_owned();
        answer = browser.get(&address).await;
    }
    Page::new(address, &answer)
}
