//! What the ledger says of all attempts: every one is a settlement, or counted in a rejection.

use sqlx::PgConnection;

/// All attempts of a run.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// Those that ran.
    pub(crate) ran: Vec<Ran>,
    /// Those that the gateway refused.
    pub(crate) refused: Vec<Refused>,
}

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Ran {
    pub(crate) outcome: String,
    pub(crate) status: Option<i16>,
    pub(crate) queue_ms: i64,
    pub(crate) total_ms: i64,
    /// How often the provider was tried for it.
    pub(crate) tries: i32,
}

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) scope: Option<String>,
    pub(crate) queue_ms: i64,
    pub(crate) refusal_count: i64,
}

/// Reads them.
pub(crate) async fn attempts(sql: &mut PgConnection) -> anyhow::Result<Attempts> {
    let ran = sqlx::query_as(
        "select outcome, status, queue_ms, total_ms, jsonb_array_length(attempts) as tries from settlements",
    )
    .fetch_all(&mut *sql)
    .await?;
    let refused =
        sqlx::query_as("select code, split_part(scope, ':', 1) as scope, queue_ms, refusal_count from rejections")
            .fetch_all(sql)
            .await?;
    Ok(Attempts { ran, refused })
}
