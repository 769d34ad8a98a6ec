//! A page as somebody without JavaScript has it: its texts, its tables, and forms that are filled in by the names of
//! their fields.

use http::{HeaderMap, Method, StatusCode};
use scraper::{ElementRef, Html, Selector};

use crate::http::Answer;

/// A page that was answered.
#[derive(Clone, Debug)]
pub struct Page {
    /// The address that answered, behind redirects: path and query.
    pub address: String,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its HTML.
    pub source: String,
    document: Html,
}

impl Page {
    /// The page that `address` answered with.
    pub fn new(address: impl Into<String>, answer: &Answer) -> Self {
        let source = answer.text();
        Self {
            address: address.into(),
            status: answer.status,
            headers: answer.headers.clone(),
            document: Html::parse_document(&source),
            source,
        }
    }

    /// The address without its query.
    pub fn path(&self) -> &str {
        self.address.split('?').next().unwrap_or_default()
    }

    /// Whether it is a page at all, and not a file to take away.
    pub fn is_html(&self) -> bool {
        let kind = self.headers.get(http::header::CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
    }

    /// The text of each element that the selector finds, its spaces made one.
    pub fn texts(&self, selector: &str) -> Vec<String> {
        self.elements(selector).into_iter().map(text_of).collect()
    }

    /// The text of the only element that the selector finds.
    ///
    /// # Panics
    /// When there is none or more than one.
    pub fn text(&self, selector: &str) -> String {
        let texts = self.texts(selector);
        match texts.as_slice() {
            [text] => text.clone(),
            _ => panic!("{} elements are `{selector}`: {}", texts.len(), self.told()),
        }
    }

    /// Every text and label that people read in the language of the page: without code, and without what is marked as being
    /// in another language or as not to be translated.
    ///
    /// # Panics
    /// When there is no document.
    pub fn readable(&self) -> Vec<String> {
        let mut found = Vec::new();
        let root = self.document.root_element();
        read(root, &mut found);
        found
    }

    /// The language that the document is in.
    pub fn language(&self) -> &str {
        self.document.root_element().attr("lang").unwrap_or_default()
    }

    /// The text of the page's main part.
    pub fn content(&self) -> String {
        self.text("main")
    }

    /// The page's heading.
    pub fn heading(&self) -> String {
        self.text("h1")
    }

    /// What the page says about the form or button before it: notices and what is wrong.
    pub fn notices(&self) -> Vec<String> {
        self.texts(".notice")
    }

    /// Where the links and buttons that are links lead.
    pub fn links(&self) -> Vec<String> {
        self.elements("a[href]")
            .into_iter()
            .filter_map(|link| link.attr("href"))
            .map(str::to_owned)
            .collect()
    }

    /// Where the link with this text leads.
    ///
    /// # Panics
    /// When there is none.
    pub fn link(&self, text: &str) -> String {
        let link = self.elements("a[href]").into_iter().find(|link| text_of(*link) == text);
        match link.and_then(|link| link.attr("href")) {
            Some(href) => href.to_owned(),
            None => panic!("no link says `{text}`: {}", self.told()),
        }
    }

    /// What stands beside this name in the lists of facts and figures.
    ///
    /// # Panics
    /// When there is no such name.
    pub fn fact(&self, name: &str) -> String {
        let value = self
            .elements("dt")
            .into_iter()
            .find(|term| text_of(*term) == name)
            .and_then(|term| term.next_siblings().find_map(ElementRef::wrap));
        match value {
            Some(value) => text_of(value),
            None => panic!("no fact is called `{name}`: {}", self.told()),
        }
    }

    /// The large figure beside this name, without what explains it.
    ///
    /// # Panics
    /// When there is no such figure.
    pub fn figure(&self, name: &str) -> String {
        let figure = self
            .elements("dt")
            .into_iter()
            .find(|term| text_of(*term) == name)
            .and_then(|term| term.next_siblings().find_map(ElementRef::wrap))
            .and_then(|value| value.select(&selector_of(".figure")).next());
        match figure {
            Some(figure) => text_of(figure),
            None => panic!("no figure is called `{name}`: {}", self.told()),
        }
    }

    /// The first table that has all these columns; `None` where a page shows none of that kind.
    pub fn find_table(&self, columns: &[&str]) -> Option<Table> {
        self.elements("table")
            .into_iter()
            .map(Table::new)
            .find(|table| columns.iter().all(|column| table.find_column(column).is_some()))
    }

    /// The first table that has all these columns.
    ///
    /// # Panics
    /// When there is none.
    pub fn table(&self, columns: &[&str]) -> Table {
        self.find_table(columns)
            .unwrap_or_else(|| panic!("no table has the columns {columns:?}: {}", self.told()))
    }

    /// Every form that is sent to this address.
    pub fn forms(&self, action: &str) -> Vec<Form> {
        self.elements("form")
            .into_iter()
            .filter(|form| form.attr("action") == Some(action))
            .map(Form::new)
            .collect()
    }

    /// The addresses that forms of the page write to.
    pub fn writes(&self) -> Vec<String> {
        self.elements("form")
            .into_iter()
            .filter(|form| method_of(*form) == Method::POST)
            .filter_map(|form| form.attr("action"))
            .map(str::to_owned)
            .collect()
    }

    /// The only form that is sent to this address.
    ///
    /// # Panics
    /// When there is none or more than one.
    pub fn form(&self, action: &str) -> Form {
        let mut forms = self.forms(action);
        match (forms.pop(), forms.len()) {
            (Some(form), 0) => form,
            (_, more) => panic!("{more} other forms are sent to `{action}`: {}", self.told()),
        }
    }

    fn elements(&self, selector: &str) -> Vec<ElementRef<'_>> {
        self.document.select(&selector_of(selector)).collect()
    }

    /// The page in short, for the message of a test that fails.
    fn told(&self) -> String {
        let text: String = self.texts("body").concat();
        format!("{} at {} says: {text}", self.status, self.address)
    }
}

/// A table's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The columns' headings.
    pub columns: Vec<String>,
    /// The rows' cells; one that spans several columns stands in each of them.
    pub rows: Vec<Vec<String>>,
    /// The row of sums, empty where there is none.
    pub foot: Vec<String>,
    /// Where the first link of each row leads, empty where there is none.
    pub links: Vec<String>,
}

impl Table {
    fn new(table: ElementRef<'_>) -> Self {
        let rows = |selector| table.select(&selector_of(selector)).collect::<Vec<_>>();
        let body = rows("tbody > tr");
        Self {
            columns: rows("thead th").into_iter().map(text_of).collect(),
            links: body
                .iter()
                .map(|row| {
                    let link = row.select(&selector_of("a[href]")).next();
                    link.and_then(|link| link.attr("href")).unwrap_or_default().to_owned()
                })
                .collect(),
            rows: body.into_iter().map(cells_of).collect(),
            foot: rows("tfoot > tr").into_iter().next().map(cells_of).unwrap_or_default(),
        }
    }

    /// The cells below this heading.
    pub fn column(&self, heading: &str) -> Vec<String> {
        let index = self.index(heading);
        self.rows
            .iter()
            .map(|row| row.get(index).cloned().unwrap_or_default())
            .collect()
    }

    /// The sum below this heading.
    pub fn sum(&self, heading: &str) -> String {
        self.foot.get(self.index(heading)).cloned().unwrap_or_default()
    }

    /// The cell below this heading in the row whose first cell says `first`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn cell(&self, first: &str, heading: &str) -> String {
        let index = self.index(heading);
        let row = self
            .rows
            .iter()
            .find(|row| row.first().is_some_and(|cell| cell == first));
        match row.and_then(|row| row.get(index)) {
            Some(cell) => cell.clone(),
            None => panic!("no row begins with `{first}`: {:?}", self.rows),
        }
    }

    fn find_column(&self, heading: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == heading)
    }

    fn index(&self, heading: &str) -> usize {
        self.find_column(heading)
            .unwrap_or_else(|| panic!("no column is called `{heading}`: {:?}", self.columns))
    }
}

/// A form, filled in as a browser without JavaScript lets people fill it in.
#[derive(Clone, Debug)]
pub struct Form {
    /// Where it is sent.
    pub action: String,
    /// How.
    pub method: Method,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    value: String,
    kind: Kind,
    is_required: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Sent as it is.
    Fixed,
    /// Written by the person.
    Written,
    /// One of these values and texts.
    Choice(Vec<(String, String)>),
    /// Sent only while it is ticked.
    Tick { is_ticked: bool },
}

impl Form {
    fn new(form: ElementRef<'_>) -> Self {
        let fields = form
            .select(&selector_of("input[name], select[name], textarea[name]"))
            .filter(|field| field.attr("disabled").is_none())
            .map(Field::new)
            .collect();
        Self {
            action: form.attr("action").unwrap_or_default().to_owned(),
            method: method_of(form),
            fields,
        }
    }

    /// Writes into the only field of this name.
    ///
    /// # Panics
    /// When nobody could.
    pub fn fill(self, name: &str, value: &str) -> Self {
        assert_eq!(self.count(name), 1, "fields called `{name}` in {self:?}");
        self.fill_nth(name, 0, value)
    }

    /// Writes into one of several fields of this name, counted from 0.
    ///
    /// # Panics
    /// When nobody could.
    pub fn fill_nth(mut self, name: &str, index: usize, value: &str) -> Self {
        let field = self.field(name, index);
        assert_eq!(field.kind, Kind::Written, "nobody writes into `{name}`");
        field.value = value.to_owned();
        self
    }

    /// Chooses the option with this text.
    ///
    /// # Panics
    /// When there is none.
    pub fn choose(self, name: &str, text: &str) -> Self {
        self.choose_nth(name, 0, text)
    }

    /// Chooses the option with this text in one of several fields of this name, counted from 0.
    ///
    /// # Panics
    /// When there is none.
    pub fn choose_nth(mut self, name: &str, index: usize, text: &str) -> Self {
        let field = self.field(name, index);
        let Kind::Choice(options) = &field.kind else {
            panic!("`{name}` is no choice: {field:?}");
        };
        match options.iter().find(|(_, option)| option == text) {
            Some((value, _)) => field.value = value.clone(),
            None => panic!("`{name}` offers no `{text}`: {options:?}"),
        }
        self
    }

    /// Ticks the box of this name and value.
    ///
    /// # Panics
    /// When there is none.
    pub fn tick(mut self, name: &str, value: &str) -> Self {
        let box_of_value = self
            .fields
            .iter_mut()
            .find(|field| field.name == name && field.value == value && matches!(field.kind, Kind::Tick { .. }));
        match box_of_value {
            Some(field) => field.kind = Kind::Tick { is_ticked: true },
            None => panic!("no box `{name}` is for `{value}`: {:?}", self.fields),
        }
        self
    }

    /// Writes something into each field without which a browser would not send it.
    pub fn fill_required(mut self) -> Self {
        let missing = |field: &&mut Field| field.is_required && field.value.is_empty();
        for field in self.fields.iter_mut().filter(missing) {
            field.value = "1".to_owned();
        }
        self
    }

    /// What the first field of this name says.
    ///
    /// # Panics
    /// When there is none.
    pub fn value(&self, name: &str) -> &str {
        match self.fields.iter().find(|field| field.name == name) {
            Some(field) => &field.value,
            None => panic!("no field is called `{name}`: {:?}", self.fields),
        }
    }

    /// The text of the chosen option.
    ///
    /// # Panics
    /// When it is no choice.
    pub fn choice(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|field| field.name == name);
        let Some(Field {
            value,
            kind: Kind::Choice(options),
            ..
        }) = field
        else {
            panic!("no choice is called `{name}`: {:?}", self.fields);
        };
        options
            .iter()
            .find(|(option, _)| option == value)
            .map_or("", |(_, text)| text)
    }

    /// The texts that the choice of this name offers.
    ///
    /// # Panics
    /// When it is no choice.
    pub fn options(&self, name: &str) -> Vec<&str> {
        match self
            .fields
            .iter()
            .find(|field| field.name == name)
            .map(|field| &field.kind)
        {
            Some(Kind::Choice(options)) => options.iter().map(|(_, text)| text.as_str()).collect(),
            _ => panic!("no choice is called `{name}`: {:?}", self.fields),
        }
    }

    /// What is sent.
    ///
    /// # Panics
    /// When a field is empty without which a browser would not send it.
    pub fn data(&self) -> Vec<(&str, &str)> {
        self.fields
            .iter()
            .filter(|field| field.kind != Kind::Tick { is_ticked: false })
            .map(|field| {
                assert!(
                    !field.is_required || !field.value.is_empty(),
                    "`{}` has to be filled in",
                    field.name
                );
                (field.name.as_str(), field.value.as_str())
            })
            .collect()
    }

    fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|field| field.name == name).count()
    }

    fn field(&mut self, name: &str, index: usize) -> &mut Field {
        let names: Vec<String> = self.fields.iter().map(|field| field.name.clone()).collect();
        self.fields
            .iter_mut()
            .filter(|field| field.name == name)
            .nth(index)
            .unwrap_or_else(|| panic!("no field {index} is called `{name}`: {names:?}"))
    }
}

impl Field {
    fn new(field: ElementRef<'_>) -> Self {
        let attribute = |name| field.attr(name).unwrap_or_default().to_owned();
        let (value, kind) = match (field.value().name(), attribute("type").as_str()) {
            ("select", _) => {
                let options: Vec<_> = field.select(&selector_of("option")).collect();
                let chosen = options.iter().find(|option| option.attr("selected").is_some());
                let chosen = chosen.or(options.first()).map(|option| value_of(*option));
                let choices = options.iter().map(|option| (value_of(*option), text_of(*option)));
                (chosen.unwrap_or_default(), Kind::Choice(choices.collect()))
            }
            ("input", "checkbox" | "radio") => {
                let is_ticked = field.attr("checked").is_some();
                let value = field.attr("value").unwrap_or("on").to_owned();
                (value, Kind::Tick { is_ticked })
            }
            ("input", "hidden") => (attribute("value"), Kind::Fixed),
            ("textarea", _) => (field.text().collect(), Kind::Written),
            _ if field.attr("readonly").is_some() => (attribute("value"), Kind::Fixed),
            _ => (attribute("value"), Kind::Written),
        };
        Self {
            name: attribute("name"),
            value,
            kind,
            is_required: field.attr("required").is_some(),
        }
    }
}

fn method_of(form: ElementRef<'_>) -> Method {
    match form.attr("method") {
        Some(method) if method.eq_ignore_ascii_case("post") => Method::POST,
        _ => Method::GET,
    }
}

fn value_of(option: ElementRef<'_>) -> String {
    option.attr("value").map_or_else(|| text_of(option), str::to_owned)
}

fn cells_of(row: ElementRef<'_>) -> Vec<String> {
    row.child_elements()
        .flat_map(|cell| {
            let columns = cell.attr("colspan").and_then(|count| count.parse().ok()).unwrap_or(1);
            std::iter::repeat_n(text_of(cell), columns)
        })
        .collect()
}

/// Elements whose content is no text for people, or none in the language of the page.
const UNREAD: [&str; 6] = ["script", "noscript", "style", "code", "pre", "textarea"];
/// Attributes that are read out or shown.
const LABELS: [&str; 4] = ["aria-label", "title", "placeholder", "alt"];

fn read(element: ElementRef<'_>, found: &mut Vec<String>) {
    let attributes = element.value();
    let is_root = attributes.name() == "html";
    let is_other = attributes.attr("translate") == Some("no") || (attributes.attr("lang").is_some() && !is_root);
    if UNREAD.contains(&attributes.name()) || is_other {
        return;
    }
    found.extend(
        LABELS
            .iter()
            .filter_map(|label| attributes.attr(label))
            .map(str::to_owned),
    );
    for child in element.children() {
        match ElementRef::wrap(child) {
            Some(child) => read(child, found),
            None => found.extend(child.value().as_text().map(|text| text.trim().to_owned())),
        }
    }
    found.retain(|text| !text.is_empty());
}

fn text_of(element: ElementRef<'_>) -> String {
    let text: String = element.text().collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn selector_of(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|error| panic!("`{text}` is no selector: {error}"))
}
