//! The generated documents are compared, repaired, then the build fails once: what is declared is what is documented.

#[path = "docs/gates.rs"]
mod gates;

use std::path::PathBuf;

/// Whether the page in docs/ is the generated one; it is from now on.
fn was_current(name: &str, generated: &str) -> bool {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != generated {
        std::fs::write(&path, generated).expect("docs/ can be written");
    }
    kept == generated
}

#[test]
fn generated_pages_are_what_the_code_declares() {
    let pages = macronode::docs::PAGES.iter().copied().chain([("gates.md", gates::page as fn() -> String)]);
    let outdated = pages.filter(|(name, write)| !was_current(name, &write()));
    let outdated: Vec<&str> = outdated.map(|(name, _)| name).collect();
    let asked = std::env::var_os("MACRO_DOCGEN").is_some_and(|mode| mode == "write");
    assert!(asked || outdated.is_empty(), "docs/{outdated:?} had to be rewritten: look at them and commit them");
}
