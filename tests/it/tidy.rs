//! The house rules that a compiler cannot hold: arrows, doors, names, first lines, colours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The table of ARCHITECTURE.md: a crate and the crates of ours it may use. Arrows point down only.
const ARROWS: [(&str, &[&str]); 20] = [
    ("domain", &[]),
    ("protocol", &["domain"]),
    ("protocol-fuzz", &["protocol"]),
    ("tokens", &["domain"]),
    ("store", &["domain"]),
    ("limits", &["domain"]),
    ("ledger", &["store", "domain"]),
    ("upstream", &["protocol", "domain"]),
    (
        "gateway",
        &["upstream", "limits", "ledger", "store", "tokens", "protocol", "domain"],
    ),
    ("control", &["store", "domain"]),
    ("admin-islands", &[]),
    ("admin", &["control", "admin-islands", "domain"]),
    ("tollgate-client", &["protocol", "domain"]),
    ("simulator", &["protocol", "domain"]),
    ("embedded-postgres", &[]),
    ("test-redis", &[]),
    (
        "server",
        &[
            "domain",
            "protocol",
            "tokens",
            "store",
            "limits",
            "ledger",
            "upstream",
            "gateway",
            "control",
            "admin-islands",
            "admin",
            "tollgate-client",
            "simulator",
            "embedded-postgres",
        ],
    ),
    (
        "test-support",
        &[
            "domain",
            "protocol",
            "tokens",
            "store",
            "limits",
            "ledger",
            "upstream",
            "gateway",
            "control",
            "admin",
            "tollgate-client",
            "simulator",
            "embedded-postgres",
            "test-redis",
            "server",
        ],
    ),
    ("xtask", &["embedded-postgres"]),
    ("tests", &[]),
];

/// Crates without input, output, clock or randomness.
const PURE: [&str; 3] = ["domain", "protocol", "tokens"];
const IMPURE_LIBRARIES: [&str; 12] = [
    "axum",
    "getrandom",
    "hyper",
    "hyper-util",
    "leptos",
    "mio",
    "rand",
    "redis",
    "reqwest",
    "socket2",
    "sqlx",
    "tokio",
];
const CLOCKS_AND_RANDOMNESS: [&str; 6] = [
    "Utc::now",
    "Local::now",
    "Instant::now",
    "SystemTime::now",
    "getrandom",
    "rand::",
];

/// Functions of `control` that write and leave no entry in the audit log, and why. All others that commit also note.
const UNNOTED: [(&str, &str, &str); 1] = [(
    "crates/control/src/sign_in.rs",
    "count_attempt",
    "an attempt is not anybody's change; letting somebody in is noted",
)];

/// A library and the crates through which alone it may be reached.
const DOORS: [(&str, &[&str]); 2] = [("sqlx", &["store", "test-support"]), ("redis", &["limits"])];

const TOP_LEVEL: [&str; 15] = [
    ".cargo",
    ".ci",
    ".gitignore",
    ".github",
    "ARCHITECTURE.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "crates",
    "migrations",
    "public",
    "rustfmt.toml",
    "style",
    "tests",
];

#[test]
fn arrows_between_crates_point_down_only() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let Some(may_use) = arrows.get(package.name.as_str()) else {
            wrong.push(format!(
                "`{}` is new: give it a row here and in ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        for used in normal_dependencies(package).filter(|used| ours.contains(used)) {
            if !may_use.contains(&used) {
                wrong.push(format!(
                    "`{}` may not use `{used}`: move what it needs to where both may look",
                    package.name
                ));
            }
        }
    }
    for name in arrows.keys().filter(|name| !ours.contains(*name)) {
        wrong.push(format!("`{name}` has a row here and no longer exists: remove the row"));
    }
    assert_tidy(wrong);
}

#[test]
fn pure_crates_depend_on_nothing_that_acts() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in metadata
        .packages
        .iter()
        .filter(|package| PURE.contains(&package.name.as_str()))
    {
        for used in normal_dependencies(package).filter(|used| IMPURE_LIBRARIES.contains(used)) {
            wrong.push(format!(
                "`{}` is pure and may not use `{used}`: let the caller act and pass in",
                package.name
            ));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn pure_crates_ask_for_neither_time_nor_randomness() {
    let mut wrong = Vec::new();
    for name in PURE {
        for source in sources(&format!("crates/{name}/src"))
            .into_iter()
            .filter(|source| !source.is_test())
        {
            for (line, text) in source.code_lines() {
                for word in CLOCKS_AND_RANDOMNESS.iter().filter(|word| text.contains(**word)) {
                    wrong.push(format!(
                        "{}:{line}: `{word}`: take the value as a parameter",
                        source.name
                    ));
                }
            }
        }
    }
    assert_tidy(wrong);
}

#[test]
fn databases_are_reached_through_their_door_only() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        for (library, doors) in DOORS {
            let uses_it = normal_dependencies(package).any(|used| used == library);
            if uses_it && !doors.contains(&package.name.as_str()) {
                wrong.push(format!(
                    "`{}` may not use `{library}`: ask `{}` for an operation",
                    package.name, doors[0]
                ));
            }
        }
    }
    assert_tidy(wrong);
}

#[test]
fn sql_is_written_in_store_and_migrations_only() {
    let mut wrong = Vec::new();
    for source in sources("crates").into_iter().filter(|source| !source.is_test()) {
        if DOORS[0]
            .1
            .iter()
            .any(|door| source.name.starts_with(&format!("crates/{door}/")))
        {
            continue;
        }
        for (line, text) in source.code_lines().filter(|(_, text)| is_sql(text)) {
            wrong.push(format!(
                "{}:{line}: SQL (`{}`): make it an operation of `store`",
                source.name,
                text.trim()
            ));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn every_source_file_opens_with_a_sentence_that_says_what_it_is_for() {
    let mut wrong = Vec::new();
    // A `tests.rs` is explained by the file it stands below.
    for source in sources("crates")
        .into_iter()
        .chain(sources("tests"))
        .filter(|source| !source.is_test())
    {
        let mut opening = source.text.lines().map_while(|line| line.strip_prefix("//! "));
        let first = opening.next().unwrap_or_default();
        let last = opening.last().unwrap_or(first);
        let starts_well = first.starts_with(|c: char| c.is_uppercase() || c == '`' || c.is_ascii_digit());
        if !starts_well || !last.ends_with(['.', ':', '?', '!', ')']) {
            wrong.push(format!(
                "{}: open it with `//! ` and one sentence: what is it for?",
                source.name
            ));
        }
        if first == "placeholder" {
            wrong.push(format!("{}: is it still empty?", source.name));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn the_readme_has_a_line_for_every_crate() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    let mut wrong = Vec::new();
    for name in folder_names("crates") {
        let names_it = |line: &str| line.contains(&format!("`{name}`")) || line.contains(&format!("{name}/"));
        if !readme.lines().any(names_it) {
            wrong.push(format!("README.md: add one line that says what `{name}` is"));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn migrations_are_named_by_time_and_by_what_they_do() {
    let mut wrong = Vec::new();
    let mut times = BTreeSet::new();
    for name in folder_names("migrations") {
        let parts = name.strip_suffix(".sql").and_then(|stem| stem.split_once('_'));
        let is_named_well = parts.is_some_and(|(time, what)| {
            time.len() == 14
                && time.bytes().all(|byte| byte.is_ascii_digit())
                && !what.is_empty()
                && what
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        });
        if !is_named_well {
            wrong.push(format!("migrations/{name}: name it `YYYYMMDDhhmmss_what_it_does.sql`"));
        }
        if let Some((time, _)) = parts
            && !times.insert(time.to_owned())
        {
            wrong.push(format!(
                "migrations/{name}: another one has this time, and their order must be certain"
            ));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn whoever_changes_something_leaves_a_note_of_it() {
    let sources: Vec<Source> = sources("crates/control/src")
        .into_iter()
        .filter(|source| !source.is_test())
        .collect();
    let functions: Vec<(&str, &str, String)> = sources
        .iter()
        .flat_map(|source| {
            functions(&source.text)
                .into_iter()
                .map(|(name, body)| (source.name.as_str(), name, body))
        })
        .collect();
    // Those that note themselves, and those that call them with their transaction.
    let mut noting = BTreeSet::from(["note"]);
    loop {
        let known = noting.len();
        for (_, name, body) in &functions {
            if noting.iter().any(|of| body.contains(&format!(".{of}("))) {
                noting.insert(name);
            }
        }
        if noting.len() == known {
            break;
        }
    }
    let mut wrong = Vec::new();
    let mut excused = BTreeSet::new();
    for (file, name, body) in &functions {
        let commits = body.contains("commit(") || body.contains(".commit()");
        // `commit` itself ends what its caller has noted.
        if !commits || noting.contains(name) || *name == "commit" {
            continue;
        }
        if UNNOTED.iter().any(|(of, unnoted, _)| of == file && unnoted == name) {
            excused.insert(*name);
        } else {
            wrong.push(format!(
                "{file}: `{name}` commits and notes nothing: call `self.note` in the same transaction, or say in UNNOTED why not"
            ));
        }
    }
    for (file, name, _) in UNNOTED.iter().filter(|(_, name, _)| !excused.contains(name)) {
        wrong.push(format!(
            "{file}: `{name}` needs no excuse any more: remove it from UNNOTED"
        ));
    }
    assert_tidy(wrong);
}

#[test]
fn the_top_level_holds_only_what_a_newcomer_expects() {
    // What git would commit; a developer's own ignored files do not matter.
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = String::from_utf8_lossy(&output.stdout);
    let entries: BTreeSet<&str> = files.lines().filter_map(|file| file.split('/').next()).collect();
    assert!(!entries.is_empty(), "git lists no files");
    assert_tidy(
        entries
            .into_iter()
            .filter(|entry| !TOP_LEVEL.contains(entry))
            .map(|entry| format!("{entry}: find it a room below, or add it to the list in tests/it/tidy.rs"))
            .collect(),
    );
}

#[test]
fn colours_are_written_in_the_tokens_only() {
    let mut wrong = Vec::new();
    for name in folder_names("style")
        .into_iter()
        .filter(|name| name.ends_with(".css") && name != "tokens.css")
    {
        let text = fs::read_to_string(root().join("style").join(&name)).expect("a stylesheet");
        for (index, line) in text.lines().enumerate() {
            if let Some(colour) = find_colour(line) {
                let line = index + 1;
                wrong.push(format!(
                    "style/{name}:{line}: `{colour}`: give it a name in style/tokens.css and use that"
                ));
            }
        }
    }
    assert_tidy(wrong);
}

#[test]
fn every_stylesheet_is_imported() {
    let main = fs::read_to_string(root().join("style/main.css")).expect("style/main.css");
    assert_tidy(
        folder_names("style")
            .into_iter()
            .filter(|name| name.ends_with(".css") && name != "main.css" && !main.contains(name.as_str()))
            .map(|name| format!("style/{name}: import it in style/main.css, or remove it"))
            .collect(),
    );
}

#[test]
fn lint_exceptions_are_expectations_with_a_reason() {
    // In two pieces, so that this file does not hold what it looks for.
    let attributes = ["#[", "#!["].map(|start| format!("{start}allow("));
    let mut wrong = Vec::new();
    for source in sources("crates").into_iter().chain(sources("tests")) {
        for (line, _) in source
            .code_lines()
            .filter(|(_, text)| attributes.iter().any(|found| text.contains(found)))
        {
            wrong.push(format!(
                "{}:{line}: use `expect(..., reason = \"...\")`, which ends when it is needless",
                source.name
            ));
        }
    }
    assert_tidy(wrong);
}

#[test]
fn what_counts_as_a_function() {
    let text = "impl A {\n    pub(crate) async fn b<T>(&self) {\n        c()\n    }\n\n    // fn no()\n}\n\nfn d() {\n    e()\n}\n";
    let found = functions(text);
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["b", "d"]);
    assert!(found[0].1.contains("c()") && !found[0].1.contains("e()"));
}

#[test]
fn what_counts_as_sql_or_colour() {
    for sql in [
        r#"let q = "select 1";"#,
        "    insert into keys (id)",
        r#"query("DELETE FROM keys")"#,
        "update a set b = 1",
    ] {
        assert!(is_sql(sql), "{sql}");
    }
    for other in [
        "select(&mut rows)",
        r#"<select name="plan">"#,
        r#""update the set of keys""#,
        "let select = 1;",
    ] {
        assert!(!is_sql(other), "{other}");
    }
    for colour in [
        "color: #fff;",
        "border: 1px solid rgb(0 0 0);",
        "background: white;",
        "a { color: #12ab34 }",
    ] {
        assert!(find_colour(colour).is_some(), "{colour}");
    }
    for other in [
        "#main { margin: 0 }",
        "color: var(--white);",
        "white-space: nowrap;",
        "fill: color-mix(in srgb, var(--a), var(--b));",
    ] {
        assert!(find_colour(other).is_none(), "{other}");
    }
}

/// A file of Rust, by its path from the top.
struct Source {
    name: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.name.ends_with("/tests.rs") || self.name.contains("/tests/")
    }

    /// Lines that are not comments, counted from 1.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, text)| (index + 1, text));
        lines.filter(|(_, text)| !text.trim_start().starts_with("//"))
    }
}

fn assert_tidy(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the workspace")
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

fn normal_dependencies(package: &Package) -> impl Iterator<Item = &str> {
    let normal = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.as_str())
}

fn folder_names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(!names.is_empty(), "{folder} is empty");
    names
}

fn sources(folder: &str) -> Vec<Source> {
    let root = root();
    let mut waiting = vec![root.join(folder)];
    let mut sources = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let name = path
                    .strip_prefix(&root)
                    .expect("below the top")
                    .to_string_lossy()
                    .into_owned();
                sources.push(Source { name, text });
            }
        }
    }
    assert!(!sources.is_empty(), "{folder} holds no sources");
    sources.sort_by(|left, right| left.name.cmp(&right.name));
    sources
}

/// The functions of a formatted source with their bodies, which end with a brace under their first word. A function within
/// another is part of it, and found as well.
fn functions(text: &str) -> Vec<(&str, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let (head, rest) = match code.split_once("fn ") {
            Some((head, rest)) if !code.starts_with("//") => (head, rest),
            _ => continue,
        };
        let is_head = head
            .split_whitespace()
            .all(|word| word == "async" || word == "const" || word == "pub" || word.starts_with("pub("));
        if !is_head {
            continue;
        }
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let body = lines[start..].iter().take_while(|line| **line != end);
        found.push((name, body.copied().collect::<Vec<_>>().join("\n")));
    }
    found
}

/// Whether the line, or a string literal in it, begins a statement.
fn is_sql(line: &str) -> bool {
    let lower = line.to_lowercase();
    let begins = |text: &str| {
        let text = text.trim_start();
        [
            "select ",
            "insert into ",
            "delete from ",
            "create table ",
            "alter table ",
            "drop table ",
        ]
        .iter()
        .any(|word| text.starts_with(word))
            || (text.starts_with("update ") && text.contains(" set ") && text.contains(" = "))
    };
    lower.split('"').any(begins)
}

/// The first colour in a declaration's value.
fn find_colour(line: &str) -> Option<String> {
    const FUNCTIONS: [&str; 8] = ["rgb", "rgba", "hsl", "hsla", "hwb", "lab", "oklch", "oklab"];
    const NAMES: [&str; 14] = [
        "black", "white", "red", "green", "blue", "gray", "grey", "silver", "orange", "yellow", "purple", "teal",
        "navy", "maroon",
    ];
    // What follows a colon is a value, but for pseudo-classes, whose names are no colours.
    let (_, value) = line.split_once(':')?;
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '-' | '_' | '(');
    value.split(|c: char| !is_inner(c)).find_map(|word| {
        let is_hex = word.strip_prefix('#').is_some_and(|digits| {
            matches!(digits.len(), 3 | 4 | 6 | 8) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let calls = |name: &str| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
        (is_hex || NAMES.contains(&word) || FUNCTIONS.into_iter().any(calls)).then(|| word.to_owned())
    })
}
