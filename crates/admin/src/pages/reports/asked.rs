//! What a report's address asks for, and addresses of other reports.

use control::reports::{MonthlyQuery, ReportFilter};
use domain::periods::Month;
use domain::priority::{Priority, UnknownPriority};
use domain::reports::Grouping;

use super::{CSV_PATH, PATH};
use crate::language;
use crate::visit::{Visit, Visitor, address};

/// What a report can be divided by: the address's words.
pub(super) const DIVISIONS: [&str; 5] = ["tenant", "user", "key", "model", "priority"];

/// The heading of a division.
pub(super) fn division(word: &str) -> &'static str {
    match word {
        "tenant" => t!("Tenant"),
        "user" => t!("User"),
        "key" => t!("Key"),
        "model" => t!("Model"),
        _ => t!("Priority"),
    }
}

/// Which figures the table has. The file has all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Figures {
    /// The main ones.
    #[default]
    Summary,
    /// Token by token class.
    Tokens,
    /// Money beside budget, expectation and the month before.
    Money,
    /// Refused requests by reason.
    Refusals,
    /// Failures, waits and latencies.
    Service,
}

impl Figures {
    pub(super) const ALL: [Self; 5] = [Self::Summary, Self::Money, Self::Tokens, Self::Refusals, Self::Service];

    /// The word in addresses.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Tokens => "tokens",
            Self::Money => "money",
            Self::Refusals => "refusals",
            Self::Service => "service",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Summary => t!("Summary"),
            Self::Tokens => t!("Tokens"),
            Self::Money => t!("Money and budgets"),
            Self::Refusals => t!("Refused, by reason"),
            Self::Service => t!("Latency and failures"),
        }
    }
}

/// A report as its address asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) query: MonthlyQuery,
    pub(super) figures: Figures,
}

impl Asked {
    /// What the address asks for, and what is wrong with it.
    pub(super) fn read(visit: &Visit, visitor: &Visitor) -> (Self, Option<String>) {
        let mut problem = None;
        let mut wrong = |text: String| problem = Some(text);
        let this_month = Month::containing(visit.now(), visit.format.zone());
        let month = match visit.query("month").map(|text| text.parse::<Month>()) {
            None => this_month,
            Some(Ok(month)) => month,
            Some(Err(error)) => {
                wrong(language::text(&error.text()));
                this_month
            }
        };
        let by = visit.queries("by");
        let has = |word: &str| by.iter().any(|chosen| chosen == word);
        let is_default = by.is_empty();
        let grouping = Grouping {
            tenant: has("tenant") || (is_default && visitor.sees_everything()),
            user: has("user"),
            key: has("key") || (is_default && !visitor.sees_everything()),
            model: has("model"),
            priority: has("priority"),
        };
        let mut filter = ReportFilter {
            user: visit.query("user"),
            model: visit.query("model"),
            ..ReportFilter::default()
        };
        match visit.query("tenant").map(|text| text.parse()) {
            None => {}
            Some(Ok(tenant)) => filter.tenant = Some(tenant),
            Some(Err(_)) => wrong(t!("choose a tenant from the list").to_owned()),
        }
        match visit.query("key").map(|text| text.parse()) {
            None => {}
            Some(Ok(key)) => filter.key = Some(key),
            Some(Err(_)) => wrong(t!("this is not the id of a key; follow a key's link in a report by key").to_owned()),
        }
        match visit.query("priority").map(|text| text.parse::<Priority>()) {
            None => {}
            Some(Ok(priority)) => filter.priority = Some(priority),
            Some(Err(error)) => wrong(language::text(&UnknownPriority::text(&error))),
        }
        let figures = visit.query("show").unwrap_or_default();
        let figures = Figures::ALL.into_iter().find(|known| known.as_str() == figures);
        let asked = Self {
            query: MonthlyQuery {
                month,
                filter,
                grouping,
            },
            figures: figures.unwrap_or_default(),
        };
        (asked, problem)
    }

    /// Whether it is about less than a tenant's requests.
    pub(super) fn is_narrowed(&self) -> bool {
        let filter = &self.query.filter;
        filter.user.is_some() || filter.key.is_some() || filter.model.is_some() || filter.priority.is_some()
    }

    /// The page's address.
    pub(super) fn address(&self) -> String {
        self.under(PATH, true)
    }

    /// The file's address.
    pub(super) fn csv_address(&self) -> String {
        self.under(CSV_PATH, false)
    }

    fn under(&self, path: &str, with_figures: bool) -> String {
        let MonthlyQuery {
            month,
            filter,
            grouping,
        } = &self.query;
        let text = |value: Option<String>| value.unwrap_or_default();
        let figures = match with_figures && self.figures != Figures::default() {
            true => self.figures.as_str(),
            false => "",
        };
        let mut fields = vec![
            ("month", month.to_string()),
            ("tenant", text(filter.tenant.map(|tenant| tenant.to_string()))),
            ("user", text(filter.user.clone())),
            ("key", text(filter.key.map(|key| key.to_string()))),
            ("model", text(filter.model.clone())),
            ("priority", text(filter.priority.map(|priority| priority.to_string()))),
            ("show", figures.to_owned()),
        ];
        for word in DIVISIONS {
            if is_divided_by(*grouping, word) {
                fields.push(("by", word.to_owned()));
            }
        }
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        address(path, &fields)
    }

    /// The same of another month.
    pub(super) fn of(&self, month: Month) -> Self {
        let mut other = self.clone();
        other.query.month = month;
        other
    }

    /// The same with other figures.
    pub(super) fn with(&self, figures: Figures) -> Self {
        Self {
            figures,
            ..self.clone()
        }
    }

    /// One row's requests, divided by something that tells more.
    pub(super) fn within(&self, narrow: impl FnOnce(&mut ReportFilter), grouping: Grouping) -> Self {
        let mut other = self.clone();
        narrow(&mut other.query.filter);
        other.query.grouping = grouping;
        other
    }
}

pub(super) fn is_divided_by(grouping: Grouping, word: &str) -> bool {
    match word {
        "tenant" => grouping.tenant,
        "user" => grouping.user,
        "key" => grouping.key,
        "model" => grouping.model,
        _ => grouping.priority,
    }
}
