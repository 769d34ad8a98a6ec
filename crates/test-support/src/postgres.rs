//! A database of its own for each test, copied from a template that has all migrations applied.

use std::env;
use std::str::FromStr;
use std::time::Duration;

use embedded_postgres::Throwaway;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use store::MIGRATOR;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// A superuser's URL of the server to use; `cargo xtask test` sets it. Without it each test process starts its own.
pub const URL_VARIABLE: &str = "TOLLGATE_TEST_DATABASE_URL";

/// Test processes that run side by side make the template one after the other, under this advisory lock.
const TEMPLATE_LOCK: i64 = 0x746f_6c6c_6761_7465;
const DROP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A migrated, otherwise empty database that nobody else uses. Dropping this drops the database as well as possible.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    server_url: Url,
}

/// Makes a database for one test.
///
/// # Panics
/// If no Postgres can be started or reached, or a migration fails: the test cannot run.
pub async fn database() -> TestDatabase {
    let server_url = server_url().await;
    let mut server = connect(server_url).await;
    let template = template(&mut server, server_url).await;
    let name = format!("test_{}", Uuid::now_v7().simple());
    execute(&mut server, format!("create database {name} template {template}")).await;
    server.close().await.expect("the connection closes");
    TestDatabase {
        url: with_database(server_url, &name).into(),
        name,
        server_url: server_url.clone(),
    }
}

impl TestDatabase {
    /// The connection URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of its own, for what a test wants to look at or put in place.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn connect(&self) -> PgConnection {
        connect(&Url::parse(&self.url).expect("made from a URL")).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (name, server_url) = (self.name.clone(), self.server_url.clone());
        // The test's runtime may be ending, so this has one of its own. A database left behind only takes room.
        let dropping = std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let _ = timeout(DROP_WAIT_MAX, drop_database(&server_url, &name)).await;
            });
        });
        let _ = dropping.join();
    }
}

async fn drop_database(server_url: &Url, name: &str) -> sqlx::Result<()> {
    let mut server = PgConnectOptions::from_str(server_url.as_str())?.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database if exists {name} with (force)")))
        .execute(&mut server)
        .await?;
    server.close().await
}

/// The template's name, which tells the migrations in it, so that a changed set makes a new one.
async fn template(server: &mut PgConnection, server_url: &Url) -> &'static str {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(async || make_template(server, server_url).await)
        .await
}

async fn make_template(server: &mut PgConnection, server_url: &Url) -> String {
    let name = template_name(&MIGRATOR);
    sqlx::query("select pg_advisory_lock($1)")
        .bind(TEMPLATE_LOCK)
        .execute(&mut *server)
        .await
        .expect("a lock");
    let exists: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(&name)
        .fetch_one(&mut *server)
        .await
        .expect("the list of databases");
    if !exists {
        // It gets its name when it is complete, so a process that is killed meanwhile leaves no half of one.
        let partial = format!("{name}_partial");
        execute(server, format!("drop database if exists {partial} with (force)")).await;
        execute(server, format!("create database {partial}")).await;
        let mut inside = connect(&with_database(server_url, &partial)).await;
        MIGRATOR
            .run(&mut inside)
            .await
            .expect("every migration applies to an empty database");
        inside.close().await.expect("the connection closes");
        execute(server, format!("alter database {partial} rename to {name}")).await;
    }
    sqlx::query("select pg_advisory_unlock($1)")
        .bind(TEMPLATE_LOCK)
        .execute(&mut *server)
        .await
        .expect("unlock");
    name
}

fn template_name(migrator: &Migrator) -> String {
    // FNV-1a: stable between processes, and nobody attacks it.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in migrator.iter().flat_map(|migration| migration.checksum.iter()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("template_{hash:016x}")
}

async fn server_url() -> &'static Url {
    static SERVER_URL: OnceCell<Url> = OnceCell::const_new();
    SERVER_URL
        .get_or_init(async || match env::var(URL_VARIABLE) {
            Ok(url) => Url::parse(&url).unwrap_or_else(|error| panic!("{URL_VARIABLE} is no URL: {error}")),
            Err(_) => own_server().await,
        })
        .await
}

/// Starts a Postgres that lives as long as this process, however that ends.
async fn own_server() -> Url {
    let server = spawn_blocking(Throwaway::start)
        .await
        .expect("starting it does not panic")
        .expect("Postgres starts");
    let url = Url::parse(&server.cluster().url()).expect("a URL");
    std::mem::forget(server);
    url
}

async fn connect(url: &Url) -> PgConnection {
    let options = PgConnectOptions::from_str(url.as_str()).expect("a Postgres URL");
    options
        .connect()
        .await
        .unwrap_or_else(|error| panic!("the test server cannot be reached: {error}"))
}

async fn execute(server: &mut PgConnection, sql: String) {
    let shown = sql.clone();
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(server)
        .await
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
}

fn with_database(server_url: &Url, name: &str) -> Url {
    let mut url = server_url.clone();
    url.set_path(name);
    url
}
