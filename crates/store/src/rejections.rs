//! Requests that were refused.

use domain::ids::RequestId;
use domain::ledger::Rejection;
use uuid::Uuid;

use crate::entries::{EntryCursor, EntryFilter, EntryPage, EntryRow, Named, page, page_places, start, tag_object};
use crate::{Store, StoreError};

impl Store {
    /// Rejections that match, the newest first, from `after` on; at most `entries_max`, itself at most
    /// [`crate::entries::PAGE_ENTRIES_MAX`].
    pub async fn rejections(
        &self,
        filter: &EntryFilter,
        after: Option<EntryCursor>,
        entries_max: u32,
    ) -> Result<EntryPage<Rejection>, StoreError> {
        let places = page_places(entries_max);
        let (after_at, after_id) = start(after);
        let mut snapshot = self.begin_search().await?;
        let rows = sqlx::query_as!(
            EntryRow,
            r#"
            with page as (
                select *
                from rejections
                where ($1::timestamptz is null or refused_at >= $1)
                    and ($2::timestamptz is null or refused_at < $2)
                    and ($3::timestamptz is null or (refused_at, id) < ($3, $4::uuid))
                    and ($5::uuid is null or case when $10::uuid is null then tenant_id = $5 else tenant_id::text = $5::text end)
                    and ($6::uuid is null or key_id = $6)
                    and ($7::text is null or user_id = $7)
                    and ($8::text is null or model = $8)
                    and ($9::uuid is null or id = $9)
                    and ($10::uuid is null or user_id = $10::text
                        or key_id = any(array(select keys.id from keys where owner_id = $10)))
                    and ($11::text is null or code = $11)
                    and ($13::jsonb is null or tags @> $13)
                order by refused_at desc, id desc
                limit $12
            )
            select
                to_jsonb(page) as "entry!",
                tenants.name as "tenant_name?",
                keys.name as "key_name?",
                keys.public_id as "key_public_id?",
                people.name as "user_name?"
            from page
            left join tenants on tenants.id = page.tenant_id
            left join keys on keys.id = page.key_id
            left join people on people.id::text = page.user_id
            order by page.refused_at desc, page.id desc
            "#,
            filter.from,
            filter.until,
            after_at,
            after_id,
            filter.tenant.map(Uuid::from),
            filter.key.map(Uuid::from),
            filter.user,
            filter.model,
            filter.request.map(Uuid::from),
            filter.owner.map(Uuid::from),
            filter.code.map(|code| code.as_str()),
            places as i64 + 1,
            tag_object(filter.tag.as_ref()),
        )
        .fetch_all(&mut *snapshot)
        .await?;
        snapshot.commit().await?;
        let entries: Result<Vec<Named<Rejection>>, _> =
            rows.into_iter().map(|row| row.into_named("rejections")).collect();
        Ok(page(entries?, places, |entry: &Rejection| EntryCursor {
            at: entry.refused_at,
            id: entry.identity.id,
        }))
    }

    /// The rejection of a request, if it has one.
    pub async fn find_rejection(&self, id: RequestId) -> Result<Option<Named<Rejection>>, StoreError> {
        let filter = EntryFilter {
            request: Some(id),
            ..EntryFilter::default()
        };
        let page = self.rejections(&filter, None, 1).await?;
        Ok(page.entries.into_iter().next())
    }
}
