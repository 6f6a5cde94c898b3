//! The generated documents are compared, repaired, then the build fails once: what is declared is what is documented.

mod gates;

use std::collections::BTreeSet;
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

/// The names `module::rule_NN` of the tests of the hardening suite.
fn tests_of_rules() -> BTreeSet<String> {
    const RULE: &str = "::rule_";
    let rules = crate::nextest::tests().into_iter().filter_map(|test| {
        let (module, name) = test.strip_prefix("hardening::")?.split_once(RULE)?;
        Some(format!("{module}{RULE}{}", &name[..2]))
    });
    rules.collect()
}

/// The names `module::rule_NN` that docs/security.md gives.
fn tests_named_in_security() -> BTreeSet<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(page).expect("docs/security.md");
    text.split('`').filter(|word| word.contains("::rule_")).map(str::to_owned).collect()
}

/// The tests that docs/security.md links to, by name and file.
fn tests_linked_in_security() -> Vec<(String, PathBuf)> {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join("security.md")).expect("docs/security.md");
    let links = text.split("[`").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`](")?;
        let (path, _) = rest.split_once(')')?;
        path.ends_with(".rs").then(|| (name.to_owned(), docs.join(path)))
    });
    links.collect()
}

#[test]
fn every_test_that_security_links_to_is_where_it_says() {
    let linked = tests_linked_in_security();
    assert!(linked.len() >= 20, "the table of payouts is there");
    for (name, path) in linked {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(&format!("fn {name}(")), "{} has no test {name}", path.display());
    }
}

#[test]
fn every_rule_of_security_names_its_tests_and_every_test_of_a_rule_is_named() {
    let (named, written) = (tests_named_in_security(), tests_of_rules());
    assert_eq!(named, written, "docs/security.md on the left, the suite `hardening` on the right");
    for rule in 1..=25 {
        let of_rule = format!("::rule_{rule:02}");
        assert!(named.iter().any(|name| name.ends_with(&of_rule)), "rule {rule} has no test");
    }
}
