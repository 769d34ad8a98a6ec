//! Tables: a caption, headings, rows, inside a frame that scrolls sideways when the window is narrow.

use leptos::prelude::*;

/// A column's heading and whether it holds figures.
#[derive(Clone, Debug)]
pub struct Column {
    title: Oco<'static, str>,
    is_number: bool,
    sort: Option<SortLink>,
}

/// Where a heading leads that orders the table by its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortLink {
    /// The address of the table in that order.
    pub href: String,
    /// How it is ordered by this column now, if it is.
    pub state: Option<Direction>,
}

/// Which way a table is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

impl Direction {
    /// The word in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }

    /// The direction with this word.
    pub fn read(word: &str) -> Option<Self> {
        [Self::Ascending, Self::Descending]
            .into_iter()
            .find(|direction| direction.as_str() == word)
    }

    fn aria(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
        }
    }
}

impl Column {
    /// What it is called.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The same with a heading that orders the table.
    pub fn sorted(self, sort: SortLink) -> Self {
        Self {
            sort: Some(sort),
            ..self
        }
    }
}

/// A column of words.
pub fn words(title: impl Into<Oco<'static, str>>) -> Column {
    Column {
        title: title.into(),
        is_number: false,
        sort: None,
    }
}

/// A column of figures, aligned to the right.
pub fn figures(title: impl Into<Oco<'static, str>>) -> Column {
    Column {
        title: title.into(),
        is_number: true,
        sort: None,
    }
}

/// A table with these columns; `rows` are `tr` elements.
pub fn table(caption: impl Into<String>, columns: &[Column], rows: Vec<AnyView>) -> AnyView {
    table_with_foot(caption, columns, rows, ().into_any())
}

/// The same with a row of sums (a `tr` element) below.
pub fn table_with_foot(caption: impl Into<String>, columns: &[Column], rows: Vec<AnyView>, foot: AnyView) -> AnyView {
    framed("table", caption.into(), columns, rows, foot)
}

/// A table of more than a narrow window has room for: there each row becomes a list. Each cell has its column's name in
/// `data-label`, and is empty where there is nothing to say.
pub fn stacked(caption: impl Into<String>, columns: &[Column], rows: Vec<AnyView>) -> AnyView {
    framed("table table-stacked", caption.into(), columns, rows, ().into_any())
}

fn framed(class: &'static str, caption: String, columns: &[Column], rows: Vec<AnyView>, foot: AnyView) -> AnyView {
    let label = caption.clone();
    let heads = columns
        .iter()
        .map(|column| {
            let class = column.is_number.then_some("number");
            let state = column.sort.as_ref().and_then(|sort| sort.state).map(Direction::aria);
            let title = column.title.clone();
            let heading = match &column.sort {
                Some(sort) => view! { <a class="sort" href=sort.href.clone()>{title}</a> }.into_any(),
                None => title.into_any(),
            };
            view! {
                <th scope="col" class=class aria-sort=state>
                    {heading}
                </th>
            }
        })
        .collect_view();
    // A frame that scrolls must be reachable with the keyboard.
    view! {
        <div class="table-frame" role="region" aria-label=label tabindex="0">
            <table class=class>
                <caption>{caption}</caption>
                <thead>
                    <tr>{heads}</tr>
                </thead>
                <tbody>{rows}</tbody>
                <tfoot>{foot}</tfoot>
            </table>
        </div>
    }
    .into_any()
}

/// What stands in place of a table without rows.
pub fn empty(text: impl Into<String>, action: AnyView) -> AnyView {
    let text = text.into();
    view! {
        <div class="empty">
            <p>{text}</p>
            {action}
        </div>
    }
    .into_any()
}

/// A word about a state.
pub fn badge(word: impl Into<String>, tone: Tone) -> AnyView {
    let word = word.into();
    view! { <span class=tone.class()>{word}</span> }.into_any()
}

/// How good a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// Not working.
    Bad,
    /// Neither.
    Quiet,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "badge badge-good",
            Self::Warning => "badge badge-warning",
            Self::Bad => "badge badge-bad",
            Self::Quiet => "badge",
        }
    }
}

/// Facts about one thing: names and values.
pub fn facts(facts: Vec<(&'static str, AnyView)>) -> AnyView {
    let facts = facts
        .into_iter()
        .map(|(name, value)| {
            view! {
                <div>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                </div>
            }
        })
        .collect_view();
    view! { <dl class="facts">{facts}</dl> }.into_any()
}

/// What will happen, a sentence each, before the button that does it.
pub fn consequences(sentences: Vec<AnyView>) -> AnyView {
    let items = sentences
        .into_iter()
        .map(|sentence| view! { <li>{sentence}</li> })
        .collect_view();
    view! { <ul class="consequences">{items}</ul> }.into_any()
}

/// How much of a budget is used, with the figure in words for those who do not see the bar.
pub fn meter(percent: i64, label: &str) -> AnyView {
    let class = match percent {
        ..80 => "meter",
        80..100 => "meter meter-warning",
        100.. => "meter meter-bad",
    };
    let label = t!("{label}: {percent} % used", label, percent);
    view! { <progress class=class max="100" value=percent.clamp(0, 100) aria-label=label></progress> }.into_any()
}
