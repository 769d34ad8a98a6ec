//! Users are named as the system names them.

use control::Actor;

use super::{actor, plain, user_name};

const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000:Ada,,,:/home/ada:/bin/sh\nbroken\n";

#[test]
fn a_user_is_called_by_name_or_else_by_number() {
    assert_eq!(user_name(USERS, 1_000), "ada");
    assert_eq!(user_name(USERS, 0), "root");
    assert_eq!(user_name(USERS, 7), "uid 7");
    assert_eq!(user_name("", 7), "uid 7");
}

#[test]
fn names_break_no_line() {
    assert_eq!(plain("gateway-1\n"), "gateway-1");
    assert_eq!(plain(&"x".repeat(100)).len(), 64);
}

#[test]
fn somebody_runs_this() {
    let Actor::CommandLine { from } = actor() else {
        panic!("not from the command line");
    };
    let (user, host) = from.split_once('@').expect("who and where");
    assert!(!user.is_empty() && !host.is_empty(), "{from}");
}
