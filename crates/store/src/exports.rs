//! The ledger's entries one after the other, the oldest first: each kind from one snapshot, in constant memory.

use domain::ids::TenantId;
use domain::ledger::{Adjustment, Rejection, Settlement};
use domain::periods::Span;
use futures_util::stream::{BoxStream, StreamExt};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::entries::{EntryRow, Named};
use crate::reports::{RowsQuery, stream_rows};
use crate::{Store, StoreError};

/// Which entries are read: those that count in the span, of everybody or of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportQuery {
    /// By `admitted_at` and `refused_at`.
    pub span: Span,
    /// Of this tenant.
    pub tenant: Option<TenantId>,
}

/// Entries of one kind. Holds a connection until it ends or is dropped.
pub type EntryStream<T> = BoxStream<'static, Result<Named<T>, StoreError>>;

impl Store {
    /// Settlements by the time of admission.
    pub async fn stream_settlements(&self, query: ExportQuery) -> Result<EntryStream<Settlement>, StoreError> {
        let (snapshot, place) = self.begin_stream().await?;
        Ok(stream_rows(snapshot, Settlements(query), place))
    }

    /// Rejections by the time of refusal.
    pub async fn stream_rejections(&self, query: ExportQuery) -> Result<EntryStream<Rejection>, StoreError> {
        let (snapshot, place) = self.begin_stream().await?;
        Ok(stream_rows(snapshot, Rejections(query), place))
    }

    /// Adjustments by the time at which they count.
    pub async fn stream_adjustments(&self, query: ExportQuery) -> Result<EntryStream<Adjustment>, StoreError> {
        let (snapshot, place) = self.begin_stream().await?;
        Ok(stream_rows(snapshot, Adjustments(query), place))
    }
}

struct Settlements(ExportQuery);

impl RowsQuery for Settlements {
    type Row = Named<Settlement>;

    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<Self::Row, StoreError>> {
        sqlx::query_as!(
            EntryRow,
            r#"
            select
                to_jsonb(settlements) as "entry!",
                tenants.name as "tenant_name?",
                keys.name as "key_name?",
                keys.public_id as "key_public_id?",
                people.name as "user_name?"
            from settlements
            left join tenants on tenants.id = settlements.tenant_id
            left join keys on keys.id = settlements.key_id
            left join people on people.id::text = settlements.user_id
            where settlements.admitted_at >= $1
                and settlements.admitted_at < $2
                and ($3::uuid is null or settlements.tenant_id = $3)
            order by settlements.admitted_at, settlements.id
            limit $4
            "#,
            self.0.span.start,
            self.0.span.end,
            self.0.tenant.map(Uuid::from),
            rows_max,
        )
        .fetch(connection)
        .map(|row| row?.into_named("settlements"))
        .boxed()
    }
}

struct Rejections(ExportQuery);

impl RowsQuery for Rejections {
    type Row = Named<Rejection>;

    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<Self::Row, StoreError>> {
        sqlx::query_as!(
            EntryRow,
            r#"
            select
                to_jsonb(rejections) as "entry!",
                tenants.name as "tenant_name?",
                keys.name as "key_name?",
                keys.public_id as "key_public_id?",
                people.name as "user_name?"
            from rejections
            left join tenants on tenants.id = rejections.tenant_id
            left join keys on keys.id = rejections.key_id
            left join people on people.id::text = rejections.user_id
            where rejections.refused_at >= $1
                and rejections.refused_at < $2
                and ($3::uuid is null or rejections.tenant_id = $3)
            order by rejections.refused_at, rejections.id
            limit $4
            "#,
            self.0.span.start,
            self.0.span.end,
            self.0.tenant.map(Uuid::from),
            rows_max,
        )
        .fetch(connection)
        .map(|row| row?.into_named("rejections"))
        .boxed()
    }
}

struct Adjustments(ExportQuery);

impl RowsQuery for Adjustments {
    type Row = Named<Adjustment>;

    fn rows<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        rows_max: i64,
    ) -> BoxStream<'c, Result<Self::Row, StoreError>> {
        sqlx::query_as!(
            EntryRow,
            r#"
            select
                to_jsonb(adjustments) as "entry!",
                tenants.name as "tenant_name?",
                keys.name as "key_name?",
                keys.public_id as "key_public_id?",
                people.name as "user_name?"
            from adjustments
            left join tenants on tenants.id = adjustments.tenant_id
            left join keys on keys.id = adjustments.key_id
            left join people on people.id::text = adjustments.user_id
            where adjustments.admitted_at >= $1
                and adjustments.admitted_at < $2
                and ($3::uuid is null or adjustments.tenant_id = $3)
            order by adjustments.admitted_at, adjustments.id
            limit $4
            "#,
            self.0.span.start,
            self.0.span.end,
            self.0.tenant.map(Uuid::from),
            rows_max,
        )
        .fetch(connection)
        .map(|row| row?.into_named("adjustments"))
        .boxed()
    }
}
