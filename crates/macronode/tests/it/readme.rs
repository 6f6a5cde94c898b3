//! A newcomer's path: the commands of the README and of the pages it leads to, run as they stand against a node run as
//! they say.
//!
//! Only the addresses and the path of the binary are put in place of the printed ones, so that the test can run beside
//! other nodes.

use std::process::Command;

use testkit::Node;

/// The commands of one block of a section, comments left out; a line that ends with a backslash goes on.
fn commands(page: &str, heading: &str, block: usize) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + page;
    let text = std::fs::read_to_string(path).expect("the page");
    let section = text.split(heading).nth(1).expect("the section").split("\n## ").next().expect("its text");
    let block = section.split("```sh").nth(block).expect("the block").split("```").next().expect("its end");
    let block = block.replace("\\\n", " ");
    block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Runs a command as it stands, but for addresses and the path of the binary; gives what it says.
fn run(node: &Node, shown: &str) -> String {
    let here =
        shown.replace("127.0.0.1:8080", &node.api.to_string()).replace("127.0.0.1:9600", &node.admin.to_string());
    let said = run_in(node.dir.path(), &here);
    assert!(!said.is_empty(), "{shown} says something");
    said
}

/// Runs a command in this folder.
fn run_in(folder: &std::path::Path, shown: &str) -> String {
    let here = shown.replace("target/release/macronode", env!("CARGO_BIN_EXE_macronode"));
    let ran = Command::new("sh").args(["-c", &here]).current_dir(folder).output().expect("sh runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{shown}\n{said}{}", String::from_utf8_lossy(&ran.stderr));
    said
}

#[tokio::test]
async fn every_command_for_trying_the_kernel_works_as_it_stands() {
    let binary = env!("CARGO_BIN_EXE_macronode");
    let mut node = Node::options_for(binary).dev().chaos().start().await.expect("the node starts");
    let commands = commands("docs/development.md", "## Try it", 2);
    assert!(commands.len() >= 10, "the section has its commands: {commands:?}");
    for shown in commands {
        let said = run(&node, &shown);
        let promised = [("/v1/echo", r#"{"message":"hello"}"#), ("/v1/work", "E_TIMEOUT"), ("/chaos/kill", "worker[")];
        for (command, answer) in promised.into_iter().filter(|(command, _)| shown.contains(command)) {
            assert!(said.contains(answer), "{command} answers {answer}: {said}");
        }
    }
    let exit = node.wait_exit(std::time::Duration::from_secs(10)).await.expect("the last command drained it");
    assert_eq!(exit.code(), Some(0));
}

#[tokio::test]
async fn the_mailbox_of_the_readme_works_as_it_stands() {
    let node = Node::options_for(env!("CARGO_BIN_EXE_macronode")).start().await.expect("the node starts");
    let heading = "## The mailbox in five commands";
    let breaker = commands("docs/deploy.md", "## When consumers fail", 1);
    let shown = [commands("README.md", heading, 1), commands("README.md", heading, 2), breaker].concat();
    assert_eq!(shown.len(), 7, "five, the one over HTTP and the breaker: {shown:?}");
    let promised =
        ["fsynced", r#"{"order":1}"#, "msg_id", "delayed", "delayed", r#""durability":"fsynced""#, "breaker"];
    for (shown, answer) in shown.iter().zip(promised) {
        let said = run(&node, shown);
        assert!(said.contains(answer), "{shown} answers {answer}: {said}");
    }
}

/// A command that goes on until it is told to end; what it says is in a file.
struct Running(std::process::Child, std::path::PathBuf);

impl Running {
    fn start(folder: &std::path::Path, shown: &str, output: &str) -> Running {
        let here = shown.replace("target/release/macronode", env!("CARGO_BIN_EXE_macronode"));
        let output = folder.join(output);
        let file = std::fs::File::create(&output).expect("made");
        // The shell becomes the command, so that it is the command that is told to end.
        let child = Command::new("sh").args(["-c", &format!("exec {here}")]).current_dir(folder).stdout(file).spawn();
        Running(child.expect("sh runs"), output)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }
}

impl Drop for Running {
    /// Ends it as Ctrl-C does, so that a cluster ends its nodes.
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_three_nodes_of_the_readme_gossip_as_they_stand() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let heading = "## Three nodes that gossip, in four commands";
    let shown = [commands("README.md", heading, 1), commands("README.md", heading, 2)].concat();
    let [cluster, subscribe, publish, peers] = &shown[..] else { panic!("four commands: {shown:?}") };
    let cluster = Running::start(folder.path(), cluster, "cluster.txt");
    testkit::eventually("the nodes", async || cluster.said().contains("node-3").then_some(())).await;
    let run = |shown: &str| run_in(folder.path(), shown);
    let hears = Running::start(folder.path(), subscribe, "heard.txt");
    testkit::eventually("the subscription", async || hears.said().contains("# hearing chat").then_some(())).await;
    // To one peer or to two: where the other one relays faster, a peer asks the publisher to leave it to that one.
    let said = run(publish);
    assert!(said.contains("seq 1, sent to ") && !said.contains("no peer"), "{said}");
    testkit::eventually("the message", async || hears.said().contains(" 1 hello\n").then_some(())).await;
    assert_eq!(run(peers).matches("connected").count(), 2);
}

#[tokio::test]
async fn the_two_nodes_of_the_readme_publish_and_resolve_as_they_stand() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let heading = "## Publish and resolve, in four commands";
    let shown = [commands("README.md", heading, 1), commands("README.md", heading, 2)].concat();
    let [cluster, write, publish, resolve] = &shown[..] else { panic!("four commands: {shown:?}") };
    let cluster = Running::start(folder.path(), cluster, "cluster.txt");
    testkit::eventually("the nodes", async || cluster.said().contains("node-2").then_some(())).await;
    run_in(folder.path(), write);
    let published = run_in(folder.path(), publish);
    let id = published.split_whitespace().find(|word| word.starts_with("b3:")).expect("the id").to_owned();
    // Whoever asks before the nodes know each other is told so, and asks again.
    testkit::eventually("the content", async || run_in(folder.path(), resolve).contains(&id).then_some(())).await;
}

#[tokio::test]
async fn the_payouts_of_the_readme_come_out_as_they_stand() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = commands("README.md", "## From a CSV to verified payouts in five commands", 1);
    assert_eq!(shown.len(), 5, "{shown:?}");
    let promised = ["", "", "2026-11 written to epoch", "verified: 2026-11 comes out the same", "ann gets 600000"];
    for (shown, answer) in shown.iter().zip(promised) {
        let said = run_in(folder.path(), shown);
        assert!(said.contains(answer), "{shown} answers {answer}: {said}");
    }
    // What the text below them promises of the same folder.
    let proof = run_in(folder.path(), "target/release/macronode reward proof epoch ann");
    assert!(proof.contains("600000"), "{proof}");
}

#[test]
fn the_rust_of_the_readme_is_the_example() {
    let readme = include_str!("../../../../README.md");
    let (_, example) =
        include_str!("../../../client/examples/orders.rs").split_once("\n\n").expect("a first line and the rest");
    assert!(readme.contains(&format!("```rust\n{example}```")), "the README shows crates/client/examples/orders.rs");
}
