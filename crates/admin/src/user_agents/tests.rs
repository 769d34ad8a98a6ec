//! Well-known browsers are called by their names, others as they call themselves.

use super::told;

#[test]
fn browsers_are_told_apart_though_they_name_each_other() {
    for (user_agent, name) in [
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Firefox on Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
             Safari/537.36",
            "Chrome on macOS",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
             Safari/537.36 Edg/140.0.0.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
             Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        ("curl/8.15.0", "curl/8.15.0"),
        ("", ""),
    ] {
        assert_eq!(told(user_agent), name, "{user_agent}");
    }
}

#[test]
fn a_long_name_of_its_own_is_cut() {
    let told = told(&"é".repeat(200));
    assert_eq!(told.chars().count(), 61);
    assert!(told.ends_with('…'));
}
