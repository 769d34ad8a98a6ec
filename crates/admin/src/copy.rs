//! The button that copies a text.

use admin_islands::copy_button::CopyButton;
use leptos::prelude::*;

/// A button with this label that copies the text of the element whose id is `target`.
pub fn button(target: impl Into<String>, label: impl Into<String>) -> AnyView {
    view! {
        <CopyButton
            target=target.into()
            label=label.into()
            done=t!("Copied").to_owned()
            selected=t!("Selected: press Ctrl+C (or ⌘C) to copy").to_owned()
        />
    }
    .into_any()
}
