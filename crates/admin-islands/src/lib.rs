//! Exactly what runs in the browser: the console's islands.
