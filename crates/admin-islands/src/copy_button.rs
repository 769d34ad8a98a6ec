//! Copies a text of the page to the clipboard.
#![expect(missing_docs, reason = "the island macro makes a struct without documentation")]

use leptos::ev::MouseEvent;
use leptos::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// What the last press of the button did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    NotYet,
    Done,
    /// The browser did not allow it; the text is selected instead.
    Selected,
}

/// A button that copies the text of the element whose id is `target`. Where scripts do not run its place stays empty; the page
/// does not move when they do.
#[island]
pub fn CopyButton(
    /// Id of the element whose text is copied.
    target: String,
    /// What the button says.
    label: String,
    /// What is said when the text is copied.
    done: String,
    /// What is said when the text is only selected.
    selected: String,
) -> impl IntoView {
    let is_live = RwSignal::new(false);
    let copied = RwSignal::new(Copied::NotYet);
    Effect::new(move |_| is_live.set(true));
    let copy = move |_: MouseEvent| {
        let target = target.clone();
        leptos::task::spawn_local(async move { copied.set(copy_or_select(&target).await) });
    };
    let message = move || match copied.get() {
        Copied::NotYet => String::new(),
        Copied::Done => done.clone(),
        Copied::Selected => selected.clone(),
    };
    view! {
        <span class="copy">
            <button type="button" class="button" class:copy-waiting=move || !is_live.get() on:click=copy>
                {label}
            </button>
            <span role="status">{message}</span>
        </span>
    }
}

async fn copy_or_select(target: &str) -> Copied {
    let Some(element) = document().get_element_by_id(target) else {
        return Copied::NotYet;
    };
    // Outside a secure context (plain http on another machine) browsers offer no clipboard.
    if window().is_secure_context() {
        let text = element.text_content().unwrap_or_default();
        let written = JsFuture::from(window().navigator().clipboard().write_text(&text)).await;
        if written.is_ok() {
            return Copied::Done;
        }
    }
    if let Ok(Some(selection)) = window().get_selection() {
        let _ = selection.select_all_children(&element);
    }
    Copied::Selected
}
