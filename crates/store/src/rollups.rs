//! Roll-ups against the entries they were made from.
