//! Tables of bounded lists, which are ordered, searched and cut into pages here: how, is in the address, so that it can be
//! kept and sent to others. Lists that grow without end go by keyset instead, and keep the order of time or another one that an
//! index leads through.

use std::cmp::Ordering;

use leptos::prelude::*;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format;
use crate::table::{self, Direction, SortLink};
use crate::visit::{Visit, address};

/// Rows on one page.
pub const ROWS_PER_PAGE: usize = 100;
/// Lists shorter than this are not searched: one sees it all.
const FIND_FROM: usize = 8;
/// The longest text that is looked for, in characters.
const FIND_CHARS_MAX: usize = 200;

type Compare<T> = Box<dyn Fn(&T, &T) -> Ordering + Send>;

/// A column: its heading, and how rows are ordered by it.
pub struct Column<T> {
    heading: table::Column,
    order: Option<(&'static str, Compare<T>)>,
    is_natural: bool,
}

impl<T> Column<T> {
    /// The same, where rows come in its order.
    pub fn natural(self) -> Self {
        Self {
            is_natural: true,
            ..self
        }
    }
}

/// A column that rows can be ordered by; `word` stands for it in the address.
pub fn by<T>(
    heading: table::Column,
    word: &'static str,
    compare: impl Fn(&T, &T) -> Ordering + Send + 'static,
) -> Column<T> {
    Column {
        heading,
        order: Some((word, Box::new(compare))),
        is_natural: false,
    }
}

/// A column that rows can be ordered by, as people read texts: without regard to case.
pub fn by_text<T: 'static>(heading: table::Column, word: &'static str, text: fn(&T) -> &str) -> Column<T> {
    by(heading, word, move |one, other| {
        text(one).to_lowercase().cmp(&text(other).to_lowercase())
    })
}

/// A column that rows are not ordered by.
pub fn plain<T>(heading: table::Column) -> Column<T> {
    Column {
        heading,
        order: None,
        is_natural: false,
    }
}

/// How the rows of a list are spoken of.
pub struct Named {
    /// So many of them: `12 tenants`.
    pub counted: fn(u64) -> String,
    /// The label of the field that searches them.
    pub find: &'static str,
}

/// A list as its address asks for it.
pub struct Listing<T> {
    columns: Vec<Column<T>>,
    wanted: Wanted,
    /// The rows of this page.
    rows: Vec<T>,
    /// How many match, on all pages.
    found: usize,
    /// How many there are.
    all: usize,
}

/// What the address asks for.
struct Wanted {
    path: String,
    sort: Option<&'static str>,
    direction: Direction,
    find: String,
    /// Counted from 1.
    page: usize,
    pages: usize,
    /// Other fields of the address, which links keep.
    kept: Vec<(&'static str, String)>,
}

impl Wanted {
    fn address(&self, sort: Option<&str>, direction: Direction, page: usize) -> String {
        let page = if page > 1 { page.to_string() } else { String::new() };
        let dir = match direction {
            Direction::Ascending => "",
            Direction::Descending => direction.as_str(),
        };
        let mut fields: Vec<(&str, &str)> = self.kept.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fields.extend([
            ("find", self.find.as_str()),
            ("sort", sort.unwrap_or_default()),
            ("dir", dir),
            ("page", &page),
        ]);
        address(&self.path, &fields)
    }
}

impl<T> Listing<T> {
    /// The rows that the address asks for. `text` is what is searched in a row; `kept` names the other fields of the page's
    /// address. Without a wish the rows keep their order, which is that of the natural column, if there is one.
    pub fn new(
        visit: &Visit,
        columns: Vec<Column<T>>,
        rows: Vec<T>,
        kept: &[&'static str],
        text: impl Fn(&T) -> String,
    ) -> Result<Self, PageError> {
        let sort = match visit.query("sort") {
            None => None,
            Some(word) => {
                let mut words = columns.iter().filter_map(|column| column.order.as_ref());
                let found = words.find(|(known, _)| *known == word);
                Some(found.map(|(known, _)| *known).ok_or(PageError::NotFound)?)
            }
        };
        let direction = match visit.query("dir").as_deref() {
            None => Direction::Ascending,
            Some(word) => Direction::read(word).ok_or(PageError::NotFound)?,
        };
        let page: usize = match visit.query("page") {
            None => 1,
            Some(number) => number.parse().map_err(|_| PageError::NotFound)?,
        };
        let find: String = visit.query("find").unwrap_or_default();
        let find: String = find.trim().chars().take(FIND_CHARS_MAX).collect();
        let all = rows.len();
        let mut rows = matching(rows, &find, text);
        let natural = columns.iter().find(|column| column.is_natural);
        let natural = natural.and_then(|column| Some(column.order.as_ref()?.0));
        let order = sort.or(natural.filter(|_| direction == Direction::Descending));
        let compare = columns
            .iter()
            .filter_map(|column| column.order.as_ref())
            .find(|(word, _)| Some(*word) == order);
        if let Some((_, compare)) = compare {
            // Equal rows keep their order in both directions.
            rows.sort_by(|one, other| match direction {
                Direction::Ascending => compare(one, other),
                Direction::Descending => compare(other, one),
            });
        }
        let found = rows.len();
        let pages = found.div_ceil(ROWS_PER_PAGE).max(1);
        let page = page.clamp(1, pages);
        let rows = rows.into_iter().skip((page - 1) * ROWS_PER_PAGE).take(ROWS_PER_PAGE);
        Ok(Self {
            rows: rows.collect(),
            wanted: Wanted {
                path: visit.path().to_owned(),
                sort: sort.or(natural),
                direction,
                find,
                page,
                pages,
                kept: kept
                    .iter()
                    .map(|name| (*name, visit.query(name).unwrap_or_default()))
                    .collect(),
            },
            columns,
            found,
            all,
        })
    }

    /// The rows of this page.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// The search, the table and the way to other pages. `named` is how they are spoken of.
    pub fn view(&self, caption: impl Into<String>, named: &Named, row: impl Fn(&T) -> AnyView) -> AnyView {
        let caption = caption.into();
        let headings: Vec<table::Column> = self.columns.iter().map(|column| self.heading(column)).collect();
        let listed = if self.rows.is_empty() {
            table::empty(
                t!("None of the {all} matches.", all = (named.counted)(self.all as u64)),
                view! { <a class="button" href=self.wanted.path.clone()>{t!("Show all")}</a> }.into_any(),
            )
        } else {
            table::table(caption, &headings, self.rows.iter().map(row).collect())
        };
        view! { {self.search(named)} {listed} {self.pager()} }.into_any()
    }

    fn heading(&self, column: &Column<T>) -> table::Column {
        let Some((word, _)) = &column.order else {
            return column.heading.clone();
        };
        let state = (self.wanted.sort == Some(*word)).then_some(self.wanted.direction);
        let next = match state {
            Some(Direction::Ascending) => Direction::Descending,
            Some(Direction::Descending) | None => Direction::Ascending,
        };
        let href = self.wanted.address(Some(word), next, 1);
        column.heading.clone().sorted(SortLink { href, state })
    }

    /// The field that searches, where there is enough to search in.
    pub fn search(&self, named: &Named) -> AnyView {
        if self.all < FIND_FROM && self.wanted.find.is_empty() {
            return ().into_any();
        }
        let form = Filled::<()>::blank(());
        let hidden = self
            .wanted
            .kept
            .iter()
            .map(|(name, value)| (*name, value.clone()))
            .chain([
                ("sort", self.wanted.sort.unwrap_or_default().to_owned()),
                ("dir", self.wanted.direction.as_str().to_owned()),
            ])
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
            .collect_view();
        let found = (!self.wanted.find.is_empty()).then(|| {
            let all = (named.counted)(self.all as u64);
            let kept: Vec<(&str, &str)> = self
                .wanted
                .kept
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let clear = address(&self.wanted.path, &kept);
            view! {
                <a class="button" href=clear>{t!("Clear")}</a>
                <span class="quiet" role="status">{t!("{found} of {all}", found = format::count(self.found as u64), all)}</span>
            }
        });
        view! {
            <form class="filters" method="get" action=self.wanted.path.clone() role="search">
                {hidden}
                {form.text(Field::new("find", named.find), &self.wanted.find)}
                <div class="actions">
                    <button class="button" type="submit">{t!("Find")}</button>
                    {found}
                </div>
            </form>
        }
        .into_any()
    }

    /// Links that order a list which is no table, where there is something to order.
    pub fn orders(&self) -> AnyView {
        if self.found < 2 {
            return ().into_any();
        }
        let links = self
            .columns
            .iter()
            .filter_map(|column| {
                let word = column.order.as_ref()?.0;
                let is_current = self.wanted.sort == Some(word);
                let next = match (is_current, self.wanted.direction) {
                    (true, Direction::Ascending) => Direction::Descending,
                    _ => Direction::Ascending,
                };
                let mark = match (is_current, self.wanted.direction) {
                    (false, _) => "",
                    (true, Direction::Ascending) => t!(", ascending"),
                    (true, Direction::Descending) => t!(", descending"),
                };
                let href = self.wanted.address(Some(word), next, 1);
                let text = format!("{}{mark}", column.heading.title());
                Some(view! { <a class="button" href=href aria-current=is_current.then_some("true")>{text}</a> })
            })
            .collect_view();
        view! { <nav class="actions" aria-label=t!("Order", in "of rows")><span class="quiet">{t!("Order by")}</span> {links}</nav> }.into_any()
    }

    /// The way to other pages, where there are any.
    pub fn pager(&self) -> AnyView {
        let wanted = &self.wanted;
        if wanted.pages == 1 {
            return ().into_any();
        }
        let to = |page: usize| wanted.address(wanted.sort, wanted.direction, page);
        let earlier = (wanted.page > 1)
            .then(|| view! { <a class="button" href=to(wanted.page - 1) rel="prev">{t!("Previous page")}</a> });
        let later = (wanted.page < wanted.pages)
            .then(|| view! { <a class="button" href=to(wanted.page + 1) rel="next">{t!("Next page")}</a> });
        view! {
            <nav class="pager" aria-label=t!("Pages")>
                {earlier}
                <span class="quiet">{t!("Page {page} of {pages}", page = wanted.page, pages = wanted.pages)}</span>
                {later}
            </nav>
        }
        .into_any()
    }
}

/// The rows that have every word of `find` somewhere, in any case.
fn matching<T>(rows: Vec<T>, find: &str, text: impl Fn(&T) -> String) -> Vec<T> {
    let find = find.to_lowercase();
    let words: Vec<&str> = find.split_whitespace().collect();
    if words.is_empty() {
        return rows;
    }
    rows.into_iter()
        .filter(|row| {
            let text = text(row).to_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .collect()
}
