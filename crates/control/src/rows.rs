//! What operations take and give that the store defines: surfaces know `control`, not the store.

pub use store::adjustments::{AdjustmentCursor, AdjustmentPage};
pub use store::audit::{AUDIT_PAGE_MAX, AuditEntry, AuditFilter};
pub use store::budgets::Spent;
pub use store::entries::{EntryCursor, EntryFilter, EntryPage, LedgerEntry, Named, PAGE_ENTRIES_MAX};
pub use store::instances::Instance;
pub use store::jobs::{JOBS_PAGE_MAX, JobFilter, JobRow, NamedJob};
pub use store::key_uses::KeyMonth;
pub use store::keys::{KEYS_PAGE_MAX, KeyFilter, KeyMark, KeyOrder, KeyPlace, KeyRow};
pub use store::management_tokens::ManagementTokenRow;
pub use store::models::{ModelRow, StoredPrice};
pub use store::one_time_links::LinkPurpose;
pub use store::people::Person;
pub use store::plans::PlanRow;
pub use store::tenants::{PRIORITY_CEILING_DEFAULT, TenantRow};
pub use store::upstreams::UpstreamRow;
