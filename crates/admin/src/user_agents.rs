//! What a browser calls itself, in words that its owner would use.

/// Browsers by a word in their text. Those that also name another one stand before it: most claim to be Safari.
const BROWSERS: [(&str, &str); 8] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
];
/// Systems by a word in their text; iPhones claim to be like Macs, and Android is a Linux.
const SYSTEMS: [(&str, &str); 7] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
];
/// Characters of a name that is shown as it came.
const NAME_CHARS_MAX: usize = 60;

/// `Firefox on Windows`; what is no browser that we know, as it calls itself.
pub fn told(user_agent: &str) -> String {
    let known = |words: &[(&str, &'static str)]| {
        let mut words = words.iter();
        words.find(|(word, _)| user_agent.contains(word)).map(|(_, name)| *name)
    };
    match (known(&BROWSERS), known(&SYSTEMS)) {
        (Some(browser), Some(system)) => t!("{browser} on {system}", browser, system),
        (Some(browser), None) => browser.to_owned(),
        (None, _) if user_agent.chars().count() > NAME_CHARS_MAX => {
            let start: String = user_agent.chars().take(NAME_CHARS_MAX).collect();
            format!("{start}…")
        }
        (None, _) => user_agent.to_owned(),
    }
}

#[cfg(test)]
mod tests;
