//! Token counting and estimating: exact encodings, learned ratios, per-part estimates.
//!
//! Pure: no input or output. The gateway holds one [`Counter`], one [`RatioBook`] and one [`OutputBook`], all shared by
//! reference between its requests.

mod books;
mod cache;
mod counter;
mod media;

pub use books::{KEYS_LEARNED_MAX, LEARNED_AFTER, MODELS_LEARNED_MAX, OutputBook, Ratio, RatioBook};
pub use counter::{Around, BUFFER_PERCENT, Counter, InputEstimate, OFFLOAD_BYTES_MIN, guess_output, guess_text};
pub use media::{MediaEstimate, media_tokens};
