use super::*;

#[test]
fn texts_are_told_in_the_language_of_the_work() {
    assert_eq!(t!("Sign out"), "Sign out");
    sync_scope(Language::Chinese, || {
        assert_eq!(t!("Sign out"), "退出登录");
        assert_eq!(t!("not in any catalogue"), "not in any catalogue");
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
    let told = "密钥 的 key 限额 （5 个）";
    assert_eq!(joined(told.to_owned()), told, "English keeps its blanks");
    sync_scope(Language::Chinese, || {
        assert_eq!(sentences(&parts), "One.Two.");
        assert_eq!(joined(told.to_owned()), "密钥的 key 限额（5 个）");
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
fn a_catalogue_is_read_without_what_waits() {
    let source = "msgid \"\"\nmsgstr \"Language: zh-Hans\\n\"\n\nmsgid \"Open\"\nmsgstr \"打开\"\n\nmsgctxt \"state\"\nmsgid \"Open\"\nmsgstr \"未处理\"\n\nmsgid \"Later\"\nmsgstr \"\"\n";
    let read = catalogue(source);
    assert_eq!(read.get("Open").map(String::as_str), Some("打开"));
    assert_eq!(read.get("state\u{4}Open").map(String::as_str), Some("未处理"));
    assert_eq!(read.get("Later"), None);
    assert!(catalogue("no catalogue").is_empty());
}
