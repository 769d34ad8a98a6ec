//! Exactly what runs in the browser: the console's islands. An island exists only for something that a form or link
//! cannot do, and gets plain props.

pub mod copy_button;
pub mod live_figures;

/// What the page's script calls once the module is loaded.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    leptos::mount::hydrate_islands();
}
