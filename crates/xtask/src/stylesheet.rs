//! One stylesheet from many: the files that `style/main.css` imports, in its order.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

#[cfg(test)]
mod tests;

/// Plain CSS joined as it is. A file that nothing imports is an error, for it would be missed silently.
pub(crate) fn join(folder: &Path) -> Result<String> {
    let main_path = folder.join("main.css");
    let main = fs::read_to_string(&main_path).with_context(|| main_path.display().to_string())?;
    let mut joined = String::new();
    let mut imported = vec!["main.css".to_owned()];
    for line in main.lines() {
        let Some(name) = import(line) else {
            joined.push_str(line);
            joined.push('\n');
            continue;
        };
        let path = folder.join(name);
        let sheet = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        joined.push_str(sheet.trim_end());
        joined.push('\n');
        imported.push(name.to_owned());
    }
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".css") && !imported.contains(&name) {
            bail!("style/{name} is not imported by style/main.css: add `@import \"{name}\";` or remove it");
        }
    }
    Ok(joined)
}

/// `@import "name.css";` or `@import url("./name.css");` names a file beside `main.css`.
fn import(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix("@import")?.trim().strip_suffix(';')?.trim();
    let rest = rest
        .strip_prefix("url(")
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(rest);
    let name = rest.trim_matches(['"', '\'']);
    Some(name.strip_prefix("./").unwrap_or(name))
}
