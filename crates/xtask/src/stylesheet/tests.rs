//! Small folders of sheets, joined.

use std::fs;

use super::join;

#[test]
fn sheets_stand_in_the_order_of_their_imports() {
    let folder = folder(&[
        (
            "main.css",
            "@import \"tokens.css\";\n@import url('./page.css');\nbody { margin: 0 }\n",
        ),
        ("page.css", "main { color: var(--ink) }\n"),
        ("tokens.css", ":root { --ink: black }\n"),
    ]);
    let joined = join(folder.path()).expect("all are there");
    assert_eq!(
        joined,
        ":root { --ink: black }\nmain { color: var(--ink) }\nbody { margin: 0 }\n"
    );
}

#[test]
fn a_sheet_that_nothing_imports_is_named() {
    let folder = folder(&[("main.css", ""), ("lost.css", "")]);
    let error = join(folder.path()).expect_err("lost.css would be missed");
    assert!(error.to_string().contains("style/lost.css"), "{error}");
}

#[test]
fn an_import_of_a_missing_sheet_is_named() {
    let folder = folder(&[("main.css", "@import \"gone.css\";")]);
    let error = join(folder.path()).expect_err("gone.css is missing");
    assert!(error.to_string().contains("gone.css"), "{error}");
}

fn folder(sheets: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in sheets {
        fs::write(folder.path().join(name), content).expect("write");
    }
    folder
}
