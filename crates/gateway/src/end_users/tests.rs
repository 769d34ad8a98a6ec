//! So many are counted and no more, until some are idle and nothing is counted for them.

use std::sync::Arc;

use domain::ids::TenantId;
use domain::limits::Scope;
use uuid::Uuid;

use super::{END_USERS_MAX, EndUsers, KEPT_MS, LOOK_INTERVAL_MS, TooMany};

#[test]
fn a_tenant_has_so_many_end_users_until_idle_ones_are_forgotten() {
    let users = EndUsers::default();
    let (tenant, other) = (TenantId(Uuid::from_u128(1)), TenantId(Uuid::from_u128(2)));
    let note = |tenant, name: usize, now_ms, counted: &dyn Fn(&Scope) -> bool| {
        let name = Arc::from(name.to_string());
        let would_take = users.would_take(tenant, &name, now_ms, counted);
        let noted = users.note(tenant, &name, now_ms, counted);
        assert_eq!(would_take, noted.is_ok(), "asking beforehand says the same");
        noted
    };
    let everybody = |_: &Scope| true;
    for name in 0..END_USERS_MAX {
        assert_eq!(note(tenant, name, 0, &everybody), Ok(()));
    }
    let one_more = END_USERS_MAX;
    assert_eq!(note(tenant, one_more, 0, &everybody), Err(TooMany));
    assert_eq!(note(tenant, 7, KEPT_MS, &everybody), Ok(()), "who is known stays");
    assert_eq!(
        note(other, one_more, 0, &everybody),
        Ok(()),
        "another tenant has its own"
    );
    assert_eq!(
        note(tenant, one_more, KEPT_MS, &everybody),
        Err(TooMany),
        "idle, but still counted for"
    );
    let only_seven = |scope: &Scope| matches!(scope, Scope::User(_, name) if &**name == "7");
    assert_eq!(
        note(tenant, one_more, KEPT_MS + 1, &only_seven),
        Err(TooMany),
        "they are not looked through all the time"
    );
    assert_eq!(note(tenant, one_more, KEPT_MS + LOOK_INTERVAL_MS, &only_seven), Ok(()));
    assert_eq!(users.0.lock()[&tenant].last_used_ms.len(), 2, "7 and the new one");
}
