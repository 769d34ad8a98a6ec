//! An error with everything beneath it, in one line, for the log.

use std::error::Error;
use std::fmt::Write as _;

/// `what failed: what lies beneath: ...`. A cause that repeats the text above it is left out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut above = text.clone();
    let mut beneath = error.source();
    while let Some(cause) = beneath {
        let said = cause.to_string();
        if !above.ends_with(&said) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {said}");
        }
        above = said;
        beneath = cause.source();
    }
    text
}
