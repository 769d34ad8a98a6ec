//! What the runtime sees of a real Postgres; the cluster itself is tested in `embedded-postgres`.

use std::path::Path;

use super::EmbeddedPostgres;

#[tokio::test]
async fn it_starts_over_the_same_directory_again_after_a_stop() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    let postgres = EmbeddedPostgres::start(data_dir.path()).await.expect("the first start");
    let process = postgres.process_id();
    assert!(postgres.url().ends_with("/tollgate"), "{}", postgres.url());
    postgres.stop().await;

    let postgres = EmbeddedPostgres::start(data_dir.path())
        .await
        .expect("the second start");
    assert_ne!(postgres.process_id(), process);
    postgres.stop().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let error = EmbeddedPostgres::start(Path::new("/dev/null/data"))
        .await
        .expect_err("no directory");
    assert!(error.to_string().contains("/dev/null/data"), "{error}");
}
