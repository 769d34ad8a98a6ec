//! The Lua scripts, each beside this file with its keys, arguments and reply stated on top.

use std::sync::LazyLock;

use super::connection::Script;

macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $($file:literal),+) => {
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("scripts/counters.lua") $(, "\n", include_str!($file))+)));
    };
}

script!(
    /// Takes a request's part, or refuses it.
    ADMIT,
    "scripts/admit.lua"
);
script!(
    /// Ends a request's part.
    FINISH,
    "scripts/finish.lua"
);
script!(
    /// Ends what a killed gateway has left.
    SETTLE_LOST,
    "scripts/settle_lost.lua"
);
script!(
    /// Extends leases.
    RENEW,
    "scripts/renew.lua"
);
script!(
    /// Says that a gateway is there.
    BEAT,
    "scripts/beat.lua"
);
script!(
    /// Sets a part of budgets aside.
    SET_ASIDE,
    "scripts/set_aside.lua"
);
script!(
    /// Writes down what a provider says.
    CORRECT_UPSTREAM,
    "scripts/correct_upstream.lua"
);
script!(
    /// Reads counters.
    PEEK,
    "scripts/peek.lua"
);
script!(
    /// Lets a budget count.
    BEGIN_BUDGET,
    "scripts/begin_budget.lua"
);
script!(
    /// Sets a budget's base.
    SET_BUDGET,
    "scripts/set_budget.lua"
);
script!(
    /// Gives an idempotency key to a request.
    CLAIM,
    "scripts/claims.lua",
    "scripts/claim.lua"
);
script!(
    /// Reads what a claim has left.
    READ_ANSWER,
    "scripts/read_answer.lua"
);
script!(
    /// Extends the leases of claims.
    RENEW_CLAIMS,
    "scripts/claims.lua",
    "scripts/renew_claims.lua"
);
script!(
    /// Ends a claim.
    END_CLAIM,
    "scripts/claims.lua",
    "scripts/end_claim.lua"
);
