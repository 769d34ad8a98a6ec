//! The control plane: every operation a person can do, with authorisation and audit.
