use super::*;

#[test]
fn texts_are_told_in_the_language_of_the_work() {
    assert_eq!(t!("Sign out"), "Sign out");
    sync_scope(Language::Chinese, || {
        assert_eq!(t!("Sign out"), "退出登录");
        assert_eq!(t!("not translated"), "not translated");
    });
    assert_eq!(t!("Sign out"), "Sign out");
}

#[test]
fn gaps_are_filled_and_numbers_counted() {
    let name = "Ada";
    assert_eq!(t!("by {name} at {time}", name, time = 7), "by Ada at 7");
    assert_eq!(
        tn!(1, "{n} thing of {name}", "{n} things of {name}", name),
        "1 thing of Ada"
    );
    assert_eq!(tn!(1_200, "{n} thing", "{n} things"), "1,200 things");
    sync_scope(Language::Chinese, || {
        assert_eq!(tn!(1, "{n} thing", "{n} things"), "1 things")
    });
}

#[test]
fn parts_are_joined_as_the_language_does_it() {
    let parts = ["One.".to_owned(), "Two.".to_owned()];
    assert_eq!(sentences(&parts), "One. Two.");
    let told = || filled("密钥 {name} 的限额", &[("name", &"数据 平台")], telling().closes);
    assert_eq!(told(), "密钥 数据 平台 的限额");
    sync_scope(Language::Chinese, || {
        assert_eq!(sentences(&parts), "One.Two.");
        assert_eq!(told(), "密钥数据 平台的限额", "a value stays as it is");
    });
}

#[test]
fn views_stand_where_the_language_puts_them() {
    let html = Owner::new().with(|| {
        let link = view! { <a href="/keys">"keys"</a> };
        tv!("Look at {link}, {name}.", link, name = "Ada").to_html()
    });
    let text = html.replace("<!>", "");
    assert_eq!(text, r#"Look at <a href="/keys">keys</a>, Ada."#);
}

#[test]
fn translations_are_read_without_what_waits() {
    let source = "msgid \"\"\nmsgstr \"Language: zh-Hans\\n\"\n\nmsgid \"Open\"\nmsgstr \"打开\"\n\nmsgctxt \"state\"\nmsgid \"Open\"\nmsgstr \"未处理\"\n\nmsgid \"Later\"\nmsgstr \"\"\n";
    let read = translations(source);
    assert_eq!(read.get("Open").map(String::as_str), Some("打开"));
    assert_eq!(read.get("state\u{4}Open").map(String::as_str), Some("未处理"));
    assert_eq!(read.get("Later"), None);
    assert!(translations("no translations").is_empty());
}

#[test]
fn every_pattern_of_a_time_can_be_written() {
    let patterns = TRANSLATIONS.iter().filter(|(english, _)| english.starts_with('%'));
    let at = chrono::DateTime::from_timestamp(1_796_000_000, 0).unwrap_or_default();
    let written: Vec<String> = patterns.map(|(_, pattern)| at.format(pattern).to_string()).collect();
    assert!(
        written.len() >= 7 && written.iter().all(|text| text.contains(char::is_numeric)),
        "{written:?}"
    );
}
