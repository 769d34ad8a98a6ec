use std::path::PathBuf;

use crate::redis::connection::{Connection, RedisSettings, RedisSettingsError};

#[test]
fn urls_are_read_as_documented() {
    for (url, shown, login) in [
        ("redis://localhost", "redis://localhost:6379", None),
        (" redis://10.0.0.7:7000/ ", "redis://10.0.0.7:7000", None),
        ("redis://localhost/3", "redis://localhost:6379/3", None),
        (
            "rediss://:secret@cache.example:6380",
            "rediss://cache.example:6380",
            Some((None, "secret")),
        ),
        (
            "redis://limits:se%63ret%40@[::1]:6379",
            "redis://[::1]:6379",
            Some((Some("limits"), "secret@")),
        ),
        (
            "redis://:p/a?s#s@w:rd@localhost",
            "redis://localhost:6379",
            Some((None, "p/a?s#s@w:rd")),
        ),
        ("redis://@[::1]", "redis://[::1]:6379", None),
        (
            "redis-cluster://one:7000,two",
            "redis-cluster://one:7000,two:6379",
            None,
        ),
        (
            "rediss-cluster://u:p@one:7000,[::1]:7001/",
            "rediss-cluster://one:7000,[::1]:7001",
            Some((Some("u"), "p")),
        ),
    ] {
        let endpoint = RedisSettings::new(url)
            .endpoint()
            .unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(endpoint.to_string(), shown, "{url}");
        let read = endpoint
            .login
            .as_ref()
            .map(|login| (login.user.as_deref(), login.password.as_str()));
        assert_eq!(read, login, "{url}");
    }
}

#[test]
fn urls_that_mean_nothing_are_refused_with_what_to_write() {
    for (url, part) in [
        ("", "begins with none of"),
        ("localhost:6379", "begins with none of"),
        ("http://localhost", "begins with none of"),
        ("unix:///run/redis.sock", "begins with none of"),
        ("redis://", "names no host"),
        ("redis:///2", "names no host"),
        ("redis://:6379", "address 1"),
        ("redis://localhost:", "address 1"),
        ("redis://localhost:port", "address 1"),
        ("redis://localhost:70000", "address 1"),
        ("redis://::1", "address 1"),
        ("redis://[::1", "address 1"),
        ("redis-cluster://one,,two", "address 2"),
        ("redis://host name", "address 1"),
        ("redis://localhost/first", "no number of a database"),
        ("redis-cluster://one/2", "no databases"),
        ("redis://one,two", "names several servers"),
        ("redis://localhost?protocol=3", "takes no options"),
        ("redis://user@localhost", "a user and no password"),
        ("redis://user:@localhost", "a user and no password"),
    ] {
        let error = RedisSettings::new(url)
            .endpoint()
            .err()
            .unwrap_or_else(|| panic!("{url} is taken"));
        assert!(error.to_string().contains(part), "{url}: {error}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for url in [
        "redis://:hunter2@localhost",
        "rediss-cluster://u:hunter2@one,two",
        "redis://u:hunter2",
        "redis://localhost/hunter2",
        "redis:/u:hunter2@localhost",
        "redis://u:hunter2@localhost?x=hunter2",
    ] {
        let settings = RedisSettings::new(url);
        let mut shown = format!("{settings:?}");
        match Connection::open(&settings) {
            Ok(connection) => shown += &format!("{connection:?}"),
            Err(error) => shown += &format!("{error} {error:?}"),
        }
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn certificates_and_times_are_checked_before_anything_is_reached() {
    let open = |change: fn(&mut RedisSettings)| {
        let mut settings = RedisSettings::new("rediss://localhost");
        settings.ca_certificate = Some(PathBuf::from("/nowhere/ca.pem"));
        change(&mut settings);
        Connection::open(&settings).expect_err("it is taken")
    };
    assert!(matches!(open(|_| {}), RedisSettingsError::CertificateFile { .. }));
    assert!(matches!(
        open(|settings| settings.ca_certificate =
            Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")))),
        RedisSettingsError::NoCertificate { .. }
    ));
    assert!(matches!(
        open(|settings| settings.url = "redis://localhost".to_owned()),
        RedisSettingsError::CertificateWithoutTls
    ));
    assert!(matches!(
        open(|settings| settings.connect_timeout_ms = 0),
        RedisSettingsError::NoTime
    ));
    assert!(matches!(
        open(|settings| settings.command_timeout_ms = 0),
        RedisSettingsError::NoTime
    ));
}
