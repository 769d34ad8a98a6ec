//! Every golden file, and every input that once broke a check.

use std::fs;
use std::path::{Path, PathBuf};

use super::CHECKS;

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut waiting = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => waiting.push(path),
                false => files.push(path),
            }
        }
    }
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

#[test]
fn golden_files_hold() {
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")) {
        let data = fs::read(&path).expect("a readable file");
        for (_, check) in CHECKS {
            check(&data);
        }
    }
}

#[test]
fn what_once_failed_holds() {
    for (name, check) in CHECKS {
        for path in files(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("fuzz/regressions")
                .join(name),
        ) {
            println!("{}", path.display());
            check(&fs::read(&path).expect("a readable file"));
        }
    }
}
