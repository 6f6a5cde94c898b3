//! The examples of the README, run as they stand: each must print what it sent and received.

use super::packages::{Packages, Unready, quietly};
use super::{Folders, packages};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

const SECTION: &str = "## Use it from your SQS code";
const LANGUAGES: [&str; 4] = ["sh", "python", "js", "rust"];
/// What every example sends; seen in its output, it came back.
const SENT: &str = "hello";

/// Writes the examples out and builds the one that needs it; the command that runs them all.
pub fn ready(folders: &Folders) -> Result<Command, Unready> {
    let text = std::fs::read_to_string(&folders.readme).with_context(|| folders.readme.display().to_string())?;
    let section = section(&text).with_context(|| format!("{} has no section `{SECTION}`", folders.readme.display()))?;
    let python = Packages::PYTHON.ready(folders, "")?;
    Packages::Npm.ready(folders, "")?;
    Packages::Cargo.ready(folders, "")?;
    let home = folders.cache.join("readme");
    std::fs::create_dir_all(home.join("src")).context("a folder for the examples")?;
    let example = |language| {
        let code = blocks(section, language);
        ensure!(!code.is_empty(), "no example in {language} in the README");
        Ok(code)
    };
    // The examples call the node as a reader would; here it lies elsewhere.
    let shell = example("sh")?.replace("target/release/macronode", "\"$MACRONODE\"");
    write(&home.join("example.sh"), &shell)?;
    write(&home.join("example.py"), &example("python")?)?;
    write(&folders.cache.join("node/example.mjs"), &example("js")?)?;
    write(&home.join("src/main.rs"), &example("rust")?)?;
    build(folders, &home)?;
    write(&home.join("all.sh"), &all(folders, &home))?;
    let mut command = Command::new("bash");
    let bin = Path::new(python.get_program()).parent().unwrap_or(&home).to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).context("PATH")?;
    command.arg("all.sh").current_dir(home).env("PATH", path);
    Ok(command)
}

/// The same packages as the Rust client's, under another name, so that everything but the example is built already.
fn build(folders: &Folders, home: &Path) -> Result<()> {
    for name in ["Cargo.toml", "Cargo.lock"] {
        let text = std::fs::read_to_string(folders.sources.join("rust").join(name)).context(name)?;
        write(&home.join(name), &text.replace("\"sqs-client-job\"", "\"sqs-client-example\""))?;
    }
    let mut command = packages::cargo_build(folders, home);
    quietly(&mut command)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn all(folders: &Folders, home: &Path) -> String {
    let (cache, target) = (folders.cache.display(), folders.target.display());
    let home = home.display();
    // The environment of every example is what the node prints with a new key, and nothing more.
    let mut script = "unset ${!AWS_*}\nexport $(\"$MACRONODE\" sqs key create)\n".to_owned();
    script += "try() {\n  said=$(\"${@:2}\") || { echo \"fail $1\"; return; }\n";
    script += &format!("  case \"$said\" in *{SENT}*) echo \"pass $1\" ;; *) echo \"fail $1: $said\" ;; esac\n}}\n");
    for (language, run) in LANGUAGES.into_iter().zip([
        format!("bash -eu '{home}/example.sh'"),
        format!("python '{home}/example.py'"),
        format!("node '{cache}/node/example.mjs'"),
        format!("'{target}/debug/sqs-client-example'"),
    ]) {
        script += &format!("try {language} {run}\n");
    }
    script
}

fn section(text: &str) -> Option<&str> {
    let heading = format!("{SECTION}\n");
    let rest = text.strip_prefix(&heading).or_else(|| Some(text.split_once(&format!("\n{heading}"))?.1))?;
    Some(rest.split_once("\n## ").map_or(rest, |(section, _)| section))
}

/// Every block of one language, joined in the order of the text.
fn blocks(section: &str, language: &str) -> String {
    let mut joined = String::new();
    let mut is_inside = false;
    for line in section.lines() {
        match (is_inside, line.strip_prefix("```")) {
            (false, Some(tag)) => is_inside = tag == language,
            (true, Some(_)) => is_inside = false,
            (true, None) => joined.extend([line, "\n"]),
            (false, None) => {}
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_one_language_are_found_in_one_section() {
        let text = format!(
            "# A\n\n```sh\nno\n```\n{SECTION}\n\n```sh\none\n```\nwords\n```python\ntwo\n```\n```sh\nthree\n```\n## B\n```sh\nno\n```\n"
        );
        let section = section(&text).expect("it is there");
        assert_eq!(blocks(section, "sh"), "one\nthree\n");
        assert_eq!(blocks(section, "python"), "two\n");
        assert_eq!(blocks(section, "js"), "");
        assert!(super::section("# A\n").is_none());
    }
}
