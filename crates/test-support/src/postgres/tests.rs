//! Real databases, made and dropped.

use super::{connect, database, server_url};
use sqlx::{Connection, PgConnection};

#[tokio::test]
async fn each_test_has_a_migrated_database_of_its_own() {
    let (first, second) = tokio::join!(database(), database());
    assert_ne!(first.name(), second.name());
    for database in [&first, &second] {
        let mut connection = database.connect().await;
        let migrations: i64 = sqlx::query_scalar("select count(*) from _sqlx_migrations")
            .fetch_one(&mut connection)
            .await
            .expect("migrations are applied");
        assert_eq!(migrations, store::MIGRATOR.iter().count() as i64);
        sqlx::query("create table mine (id integer)")
            .execute(&mut connection)
            .await
            .expect("nobody else made it");
    }
}

#[tokio::test]
async fn a_dropped_database_is_gone_even_with_a_connection_left_open() {
    let database = database().await;
    let name = database.name().to_owned();
    let _left_open: PgConnection = database.connect().await;
    drop(database);

    let mut server = connect(server_url().await).await;
    let exists: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(name)
        .fetch_one(&mut server)
        .await
        .expect("the list of databases");
    assert!(!exists);
    server.close().await.expect("the connection closes");
}
