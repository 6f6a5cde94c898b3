//! Pages as a real browser shows them: Chromium without a window, on a profile of its own.

use std::process::{Command, Stdio};

/// What a browser asks of the world by itself is off: a test's browser talks to the test's node alone.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
];

/// The page after its scripts ran for up to so much of its own time, which stands still while it waits for the node.
/// `None`, with a line that says so, where no browser is installed; where CI runs, that is a failure.
pub async fn shown_in_browser(url: &str, page_time_ms: u64) -> Option<String> {
    let page = url.to_owned();
    let show = move || show(&page, page_time_ms);
    let shown = tokio::task::spawn_blocking(show).await.expect("the browser ends");
    if shown.is_none() {
        let where_it_must_be = std::env::var_os("CI").is_some();
        assert!(!where_it_must_be, "CI has no chromium to show {url}");
        println!("SKIPPED: there is no chromium to show {url}");
    }
    shown
}

fn show(url: &str, page_time_ms: u64) -> Option<String> {
    let profile = tempfile::tempdir().expect("a folder");
    let mut browser = Command::new("chromium");
    browser.args(FLAGS).arg(format!("--virtual-time-budget={page_time_ms}"));
    browser.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
    let output = browser.env("HOME", profile.path()).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
