//! What waiting heals and what it does not.

use std::io;

use sqlx::migrate::MigrateError;

use super::StoreError;

fn broken() -> sqlx::Error {
    sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionReset))
}

#[test]
fn a_connection_that_breaks_inside_a_migration_is_worth_another_try() {
    assert!(StoreError::from(MigrateError::Execute(broken())).is_transient());
    assert!(StoreError::from(MigrateError::ExecuteMigration(broken(), 20_261_101_000_100)).is_transient());
}

#[test]
fn a_migration_that_is_wrong_stays_wrong() {
    let missing = StoreError::from(MigrateError::VersionMissing(7));
    assert!(!missing.is_transient());
    let refused = StoreError::from(MigrateError::ExecuteMigration(sqlx::Error::RowNotFound, 7));
    assert!(matches!(refused, StoreError::Migration(_)), "{refused}");
}
