//! The quota tree: every limit in force with what is used of it now, from the installation down to the keys.

use control::ControlError;
use control::live::LiveError;
use control::oversubscription::Oversubscription;
use control::plans::LimitSources;
use control::quota_tree::{Node, Nodes, QuotaTree, TightLimit, TreeFilter, TreePart};
use domain::ids::TenantId;
use domain::limits::{Class, Limit, Scope, Target};
use leptos::prelude::*;

use crate::error::PageError;
use crate::form::{Field, Filled};
use crate::format::{self, Format};
use crate::language;
use crate::live;
use crate::page::{self, Page};
use crate::pages::explain;
use crate::pages::limits::{address_of, children, slot_name, value_in_force, value_text};
use crate::reading::{counted_by, gauge};
use crate::shell;
use crate::table::{self, figures, words};
use crate::terms;
use crate::visit::{Visit, Visitor, address};

/// The page.
pub const PATH: &str = "/quota-tree";
/// From here on a limit among the tightest is marked in the tree, too.
const MARKED_PERCENT_MIN: f64 = 50.0;

/// The installation, or a tenant with its users and keys.
pub fn view() -> AnyView {
    page::behind_the_door(|visit| async move {
        let visitor = visit.visitor()?;
        let filter = filter(&visit)?;
        let title = if visitor.is_member() {
            t!("My limits")
        } else {
            t!("Quota tree")
        };
        let content = match visit
            .state
            .control
            .quota_tree(&visitor.actor, &filter, visit.now())
            .await
        {
            Ok(tree) => page_of(&visit, visitor, &filter, &tree, title),
            Err(ControlError::Live(error)) => view! {
                {shell::page_head(title, "", refresh(&filter))}
                {live::region("tightest", ().into_any())}
                {live::region("nodes", no_figures(error))}
            }
            .into_any(),
            Err(error) => return Err(error.into()),
        };
        Ok(Page::new(title, content))
    })
}

/// What stands in place of figures that cannot be had.
pub fn no_figures(error: LiveError) -> AnyView {
    view! {
        <p class="notice notice-warning" role="status">
            {t!("There are no figures at the moment: {reason}.", reason = language::text(&error.text()))}
        </p>
    }
    .into_any()
}

fn filter(visit: &Visit) -> Result<TreeFilter, PageError> {
    let open = visit.query("open").map(|text| match text.parse() {
        Ok(Scope::Tenant(tenant)) => Ok(tenant),
        _ => Err(PageError::NotFound),
    });
    Ok(TreeFilter {
        open: open.transpose()?,
        containing: visit.query("find").unwrap_or_default(),
    })
}

fn address_with(open: Option<TenantId>, find: &str) -> String {
    let open = open.map(|tenant| Scope::Tenant(tenant).to_string()).unwrap_or_default();
    address(PATH, &[("open", &open), ("find", find)])
}

fn refresh(filter: &TreeFilter) -> AnyView {
    let href = address_with(filter.open, &filter.containing);
    view! { {live::figures()} <noscript><a class="button" href=href>{t!("Refresh")}</a></noscript> }.into_any()
}

/// What every list of the page needs to know.
struct Shown<'a> {
    tree: &'a QuotaTree,
    visitor: &'a Visitor,
    format: &'a Format,
}

fn page_of(visit: &Visit, visitor: &Visitor, filter: &TreeFilter, tree: &QuotaTree, title: &str) -> AnyView {
    let shown = Shown {
        tree,
        visitor,
        format: &visit.format,
    };
    let lead = match &tree.part {
        TreePart::Installation { .. } => {
            t!("What every limit says now. The tightest one on a request's way decides.")
        }
        TreePart::Tenant { .. } => t!("What the limits of this tenant, its users and its keys say now."),
        TreePart::Own { .. } => t!("What the limits on you and your keys say now."),
    };
    let as_of = t!("As of {time}.", time = visit.format.time(tree.at));
    let body = match &tree.part {
        TreePart::Installation {
            global,
            models,
            upstreams,
            tenants,
        } => view! {
            {shown.section(t!("Installation and models"), "", &shown.with_root(global, models), filter)}
            {shown.section(
                t!("Upstreams"),
                t!("No upstream has limits yet. The account limits that your provider states belong here."),
                upstreams,
                filter,
            )}
            {shown.section_with(
                t!("Tenants"),
                t!("No tenant yet. Make one and give it limits; its users and keys appear below it."),
                shown.new_tenant(),
                tenants,
                filter,
            )}
        }
        .into_any(),
        TreePart::Tenant {
            tenant,
            sources,
            users,
            keys,
        } => view! {
            <section class="card">
                <ul class="nodes">{shown.node(tenant, true)}</ul>
            </section>
            {shown.section(t!("Users"), t!("No user of this tenant has limits yet."), users, filter)}
            {shown.section(t!("Keys"), t!("No key of this tenant has limits yet."), keys, filter)}
            {shown.classes(&tenant.scope, sources)}
        }
        .into_any(),
        TreePart::Own { users, keys } => view! {
            {shown.section(t!("You"), t!("You have no limits of your own."), users, filter)}
            {shown.section(t!("Your keys"), t!("None of your keys has limits of its own."), keys, filter)}
        }
        .into_any(),
    };
    let heading = match &tree.part {
        TreePart::Tenant { tenant, .. } if visitor.sees_everything() => {
            let name = language::text(&tenant.name);
            view! { <p><a href=PATH>{t!("The whole tree")}</a> {format!(" › {name}")}</p> }.into_any()
        }
        _ => ().into_any(),
    };
    view! {
        {shell::page_head(title, lead, refresh(filter))}
        {heading}
        {live::region("tightest", view! { <p class="quiet">{as_of}</p> {counted_by(tree.store)} {shown.tightest()} }.into_any())}
        {search(filter, &tree.part)}
        {live::region("nodes", body)}
    }
    .into_any()
}

fn search(filter: &TreeFilter, part: &TreePart) -> AnyView {
    let form = Filled::<()>::blank(());
    let label = match part {
        TreePart::Installation { .. } => t!("Models, upstreams and tenants by name"),
        TreePart::Tenant { .. } => t!("Users and keys by name"),
        TreePart::Own { .. } => t!("Keys by name"),
    };
    let open = filter.open.map(|tenant| {
        let scope = Scope::Tenant(tenant).to_string();
        view! { <input type="hidden" name="open" value=scope /> }
    });
    let all = (!filter.containing.is_empty()).then(|| {
        let href = address_with(filter.open, "");
        view! { <a class="button" href=href>{t!("Show all")}</a> }
    });
    view! {
        <form class="filters" method="get" action=PATH>
            {open} {form.text(Field::new("find", label), &filter.containing)}
            <div class="actions">
                <button class="button" type="submit">
                    {t!("Find")}
                </button>
                {all}
            </div>
        </form>
    }
    .into_any()
}

impl Shown<'_> {
    fn with_root(&self, global: &Node, models: &Nodes) -> Nodes {
        let root = std::iter::once(global.clone());
        Nodes {
            shown: root.chain(models.shown.iter().cloned()).collect(),
            left_out: models.left_out,
        }
    }

    fn tightest(&self) -> AnyView {
        let tree = self.tree;
        let unread = (tree.unread > 0).then(|| {
            let text = tn!(
                tree.unread as u64,
                "{n} node more were not read. Find them by name.",
                "{n} nodes more were not read. Find them by name."
            );
            view! { <p class="quiet">{text}</p> }
        });
        let body = if tree.tightest.is_empty() {
            table::empty(t!("Nothing is in use at the moment."), ().into_any())
        } else {
            let gauges = tree
                .tightest
                .iter()
                .map(|tight| {
                    gauge(
                        &tight.limit,
                        Some(self.tight_subject(tight)),
                        false,
                        tree.at,
                        self.format,
                    )
                })
                .collect_view();
            view! { <ol class="gauges">{gauges}</ol> }.into_any()
        };
        view! {
            <section class="card">
                <h2>{t!("Tightest now")}</h2>
                {body}
                {unread}
            </section>
        }
        .into_any()
    }

    fn tight_subject(&self, tight: &TightLimit) -> AnyView {
        let href = match &tight.scope {
            Scope::Tenant(tenant) => address_with(Some(*tenant), ""),
            scope => address_of(&Target::Node(scope.clone())),
        };
        view! { <a href=href>{language::text(&tight.name)}</a> }.into_any()
    }

    /// The next step where there is no tenant.
    fn new_tenant(&self) -> AnyView {
        self.visitor
            .is_operator()
            .then(|| view! { <a class="button button-primary" href="/tenants/new">{t!("New tenant")}</a> })
            .into_any()
    }

    fn section(&self, heading: &'static str, empty: &'static str, nodes: &Nodes, filter: &TreeFilter) -> AnyView {
        self.section_with(heading, empty, ().into_any(), nodes, filter)
    }

    fn section_with(
        &self,
        heading: &'static str,
        empty: &'static str,
        next_step: AnyView,
        nodes: &Nodes,
        filter: &TreeFilter,
    ) -> AnyView {
        let body = if nodes.shown.is_empty() {
            let text = match filter.containing.is_empty() {
                true => empty.to_owned(),
                false => t!("None has “{text}” in its name.", text = filter.containing),
            };
            table::empty(text, next_step)
        } else {
            let items = nodes.shown.iter().map(|node| self.node(node, false)).collect_view();
            view! { <ul class="nodes">{items}</ul> }.into_any()
        };
        let more = (nodes.left_out > 0).then(|| {
            let text = t!("{n} more. Find them by name.", n = format::count(nodes.left_out as u64));
            view! { <p class="quiet">{text}</p> }
        });
        view! {
            <section class="card">
                <h2>{heading}</h2>
                {body}
                {more}
            </section>
        }
        .into_any()
    }

    fn node(&self, node: &Node, is_open: bool) -> AnyView {
        let limits = if node.limits.is_empty() {
            view! { <p class="quiet">{self.without_limits(&node.scope)}</p> }.into_any()
        } else {
            let is_tightest = |limit: &Limit| {
                let same = |tight: &TightLimit| tight.scope == node.scope && tight.limit.limit.id == limit.id;
                self.tree.tightest.iter().filter(is_tight).any(same)
            };
            let gauges = node
                .limits
                .iter()
                .map(|live| gauge(live, None, is_tightest(&live.limit), self.tree.at, self.format))
                .collect_view();
            view! { <ul class="gauges">{gauges}</ul> }.into_any()
        };
        let opened = match &node.scope {
            Scope::Tenant(tenant) if !is_open => Some(address_with(Some(*tenant), "")),
            _ => None,
        };
        let name = language::text(&node.name);
        let heading = match &opened {
            Some(href) => view! { <a href=href.clone()>{name.clone()}</a> }.into_any(),
            None => name.clone().into_any(),
        };
        let remark = node.remark.as_ref().map(language::text).unwrap_or_default();
        let users_and_keys = opened.map(|href| view! { <a href=href>{t!("Users and keys")}</a> });
        // Accessible names begin with what one reads.
        let of_limits = t!("Limits of {name}", name);
        let of_explain = t!("Explain requests of {name}", name);
        let explain = explain::address_for(&node.scope, &name, self.visitor);
        let warnings = node
            .oversubscribed
            .iter()
            .map(|found| oversubscribed(found, self.format))
            .collect_view();
        view! {
            <li class="node">
                <div class="node-head">
                    <h3>{heading} " " <small>{remark}</small></h3>
                    <p class="node-links">
                        {users_and_keys}
                        <a href=address_of(&Target::Node(node.scope.clone())) aria-label=of_limits>{t!("Limits")}</a>
                        <a href=explain aria-label=of_explain>{t!("Explain")}</a>
                    </p>
                </div>
                {warnings}
                {limits}
            </li>
        }
        .into_any()
    }

    fn without_limits(&self, scope: &Scope) -> &'static str {
        match scope {
            Scope::Global => t!("No limit holds for everybody together."),
            Scope::Tenant(_) => t!("No limits, neither of its own nor of a plan."),
            _ => t!("No limits."),
        }
    }

    /// What holds for each user and key below a tenant.
    fn classes(&self, tenant: &Scope, sources: &[LimitSources]) -> AnyView {
        let Scope::Tenant(id) = tenant else {
            return ().into_any();
        };
        let rows: Vec<AnyView> = sources
            .iter()
            .filter(|of| of.class != Class::Tenant)
            .flat_map(|of| {
                let own = of.own.iter().map(|limit| (of.class, limit, t!("tenant")));
                own.chain(of.from_plan().map(|limit| (of.class, limit, t!("plan"))))
            })
            .map(|(class, limit, from)| self.class_row(*id, class, limit, from))
            .collect();
        let links = [Class::User, Class::EndUser, Class::Key].map(|class| {
            let href = address_of(&Target::OfTenant(*id, class));
            view! { <a class="button" href=href>{t!("Limits of each {class}", class = terms::class(class))}</a> }
        });
        let body = if rows.is_empty() {
            table::empty(t!("There are no limits for each user or key."), ().into_any())
        } else {
            table::table(
                t!("One that has a limit of its own keeps that instead."),
                &[
                    words(t!("For each")),
                    words(t!("Limit")),
                    figures(t!("Value")),
                    words(t!("Set by")),
                ],
                rows,
            )
        };
        view! {
            <section class="card">
                <h2>{t!("For each user and key")}</h2>
                {body}
                <p class="actions">{links.collect_view()}</p>
            </section>
        }
        .into_any()
    }

    fn class_row(&self, tenant: TenantId, class: Class, limit: &Limit, from: &'static str) -> AnyView {
        let href = address_of(&Target::OfTenant(tenant, class));
        view! {
            <tr>
                <th scope="row"><a href=href>{terms::class(class)}</a></th>
                <td>{slot_name(&limit.slot())}</td>
                <td class="number">{value_in_force(limit, self.tree.at, self.format)}</td>
                <td>{from}</td>
            </tr>
        }
        .into_any()
    }
}

/// Whether it is worth drawing the eye to: the fullest of limits that are all empty is not.
fn is_tight(tight: &&TightLimit) -> bool {
    tight.limit.reading.utilisation_percent >= MARKED_PERCENT_MIN
}

fn oversubscribed(found: &Oversubscription, format: &Format) -> AnyView {
    let children = children(found.each, found.children_count);
    let dimension = found.slot.dimension;
    let text = t!(
        "{limit}: {children} may use {sum} together, more than the {value} here.",
        limit = slot_name(&found.slot),
        children,
        sum = value_text(dimension, found.children_sum, format),
        value = value_text(dimension, found.parent_value, format),
    );
    view! { <p class="notice notice-warning">{text}</p> }.into_any()
}
