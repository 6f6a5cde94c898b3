//! A newcomer's path: every command of the README's "Try it" section, run as it stands against a node run as it says.
//!
//! Only the addresses and the path of the binary are put in place of the printed ones, so that the test can run beside
//! other nodes.

use std::process::Command;

use testkit::Node;

/// The commands of the section's second block, comments left out.
fn commands(readme: &str) -> Vec<String> {
    let section = readme.split("## Try it").nth(1).expect("the section").split("\n## ").next().expect("its text");
    let block = section.split("```sh").nth(2).expect("the second block").split("```").next().expect("its end");
    block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_command_of_the_readme_works_as_it_stands() {
    let binary = env!("CARGO_BIN_EXE_macronode");
    let mut node = Node::options_for(binary).dev().chaos().start().await.expect("the node starts");
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("the README");
    let commands = commands(&readme);
    assert!(commands.len() >= 10, "the section has its commands: {commands:?}");
    for shown in commands {
        let here = shown
            .replace("127.0.0.1:8080", &node.api.to_string())
            .replace("127.0.0.1:9600", &node.admin.to_string())
            .replace("target/release/macronode", binary);
        let ran = Command::new("sh").args(["-c", &here]).current_dir(node.dir.path()).output().expect("sh runs");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{shown}\n{said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(!said.is_empty(), "{shown} says something");
        let promised = [("/v1/echo", r#"{"message":"hello"}"#), ("/v1/work", "E_TIMEOUT"), ("/chaos/kill", "worker[")];
        for (command, answer) in promised.into_iter().filter(|(command, _)| shown.contains(command)) {
            assert!(said.contains(answer), "{command} answers {answer}: {said}");
        }
    }
    let exit = node.wait_exit(std::time::Duration::from_secs(10)).await.expect("the last command drained it");
    assert_eq!(exit.code(), Some(0));
}
