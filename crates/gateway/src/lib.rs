//! The data plane: routes, pipeline, policy snapshot, budgets.
