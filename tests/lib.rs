//! Nothing: the tests are in `it`, `browser` and `sdk`.
