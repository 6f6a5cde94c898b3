//! The generated documents are compared, repaired, then the build fails once: what is declared is what is documented.

use std::path::PathBuf;

fn check(name: &str, generated: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept == generated {
        return;
    }
    std::fs::write(&path, generated).expect("docs/ can be written");
    let asked = std::env::var_os("MACRO_DOCGEN").is_some_and(|mode| mode == "write");
    assert!(asked, "docs/{name} was out of date and has been rewritten: look at it and commit it");
}

#[test]
fn concurrency_is_what_the_specs_declare() {
    check("concurrency.md", &macronode::docs::concurrency());
}

#[test]
fn metrics_are_what_the_registry_holds() {
    check("metrics.md", &macronode::docs::metrics());
}

#[test]
fn config_is_what_the_schema_says() {
    check("config.md", &macronode::docs::config());
}
