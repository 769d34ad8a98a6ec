//! What the ledger says of a tenant, summed up for comparing with what callers were told.

use domain::ids::TenantId;
use sqlx::PgConnection;

/// A tenant's entries, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Booked {
    /// Settlements.
    pub ran: i64,
    /// Their input and output.
    pub tokens: i64,
    /// Their cost in nano-units.
    pub cost_nanos: i64,
    /// Their cost above what was held, in nano-units.
    pub overrun_nanos: i64,
    /// Refused requests.
    pub refused: i64,
    /// The rows that count them.
    pub refusal_rows: i64,
}

impl Booked {
    /// Of this tenant.
    ///
    /// # Panics
    /// When the database cannot be read.
    pub async fn of(tenant: TenantId, sql: &mut PgConnection) -> Self {
        sqlx::query_as(
            "select ran, tokens, cost_nanos, overrun_nanos, refused, refusal_rows
             from (select count(*) as ran,
                          coalesce(sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens
                                       + cache_write_1h_tokens + output_tokens), 0)::bigint as tokens,
                          coalesce(sum(cost_nanos), 0)::bigint as cost_nanos,
                          coalesce(sum(overrun_nanos), 0)::bigint as overrun_nanos
                   from settlements where tenant_id = $1) as settled,
                  (select coalesce(sum(refusal_count), 0)::bigint as refused, count(*) as refusal_rows
                   from rejections where tenant_id = $1) as rejected",
        )
        .bind(tenant.0)
        .fetch_one(sql)
        .await
        .expect("the ledger's sums")
    }
}
