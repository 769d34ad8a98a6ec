//! Keys that do not wait: a card for the pages that show what was refused.

use control::early_retries::EarlyKey;
use domain::key_text::masked;
use leptos::prelude::*;

use crate::format;
use crate::table::{self, figures, words};
use crate::visit::{Visitor, address};

/// The keys, and what to do about them.
pub fn card(keys: &[EarlyKey], visitor: &Visitor) -> AnyView {
    let body = if keys.is_empty() {
        table::empty(
            t!("Every key that was refused lately has waited as long as it was told before it came back."),
            ().into_any(),
        )
    } else {
        let mut columns = vec![words(t!("Key"))];
        if visitor.sees_everything() {
            columns.push(words(t!("Tenant")));
        }
        columns.extend([
            figures(t!("Refused")),
            figures(t!("Too early")),
            figures(t!("Share")),
            figures(t!("Tried before, at most")),
        ]);
        let text = t!(
            "Requests of these keys came back before the wait was over that the answer to an equal request had told \
             them (Retry-After). They are refused again and only add to the load: let the program wait as it is \
             told, or give it a higher limit. Programs that share a key do not know what the others were told; each \
             wait that is over excuses one request."
        );
        view! {
            <p>{text}</p>
            {table::table(
                t!("The most first."),
                &columns,
                keys.iter().map(|key| row(key, visitor)).collect(),
            )}
        }
        .into_any()
    };
    view! {
        <section class="card">
            <h2>{t!("Keys that do not wait")}</h2>
            {body}
        </section>
    }
    .into_any()
}

fn row(key: &EarlyKey, visitor: &Visitor) -> AnyView {
    let id = key.key_id.to_string();
    let name = match (&key.key_name, &key.key_public_id) {
        (Some(name), _) => name.clone(),
        (None, Some(public_id)) => masked(public_id),
        (None, None) => id.clone(),
    };
    let entries = address("/ledger", &[("kind", "rejection"), ("key", &id)]);
    let tenant = visitor
        .sees_everything()
        .then(|| view! { <td>{key.tenant_name.clone()}</td> });
    let tried = key
        .caller_retries_max
        .map_or(t!("not said").to_owned(), |tries| format::signed_count(tries.into()));
    view! {
        <tr>
            <th scope="row"><a href=format!("/keys/{id}")>{name}</a></th>
            {tenant}
            <td class="number">{format::count(key.refusals)}</td>
            <td class="number"><a href=entries>{format::count(key.early)}</a></td>
            <td class="number">{format::share(key.early, key.refusals)}</td>
            <td class="number">{tried}</td>
        </tr>
    }
    .into_any()
}
