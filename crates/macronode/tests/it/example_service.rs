//! The recipe for services, followed: a node with one more service shows it in every place that walks the list.

mod greeter;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use http::Method;
use macronode::services::Service;
use testkit::{Client, Node, Plane, Signal};

static GUESTS: [&dyn Service; 1] = [&greeter::GreeterService];
/// Holds the command line of a node that this test binary is to become.
const ARGUMENTS: &str = "MACRO_TEST_ARGUMENTS";

/// Not a test of its own: with a command line in the environment this process becomes the binary with the guest.
#[test]
fn binary_with_the_guest() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments = std::iter::once("macronode").chain(arguments.lines()).map(Into::into);
    std::process::exit(i32::from(macronode::main_with_guests(&GUESTS, arguments).number()));
}

/// A script that behaves like the binary, with the guest on its list.
fn binary(folder: &Path) -> PathBuf {
    let path = folder.join("macronode-with-guest");
    let itself = std::env::current_exe().expect("a test knows its binary");
    let script = format!(
        "#!/bin/sh\n{ARGUMENTS}=$(printf '%s\\n' \"$@\")\nexport {ARGUMENTS}\nexec '{}' --exact example_service::binary_with_the_guest \
         --nocapture --quiet\n",
        itself.display()
    );
    std::fs::write(&path, script).expect("the folder can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary(folder)).args(arguments).current_dir(folder).output().expect("it runs")
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn it_is_known_to_commands_schema_documents_and_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    for (arguments, expected) in [
        (vec!["--help"], vec!["greeter", "macronode greeter hello ann"]),
        (vec!["greeter", "hello", "ann"], vec!["hello ann"]),
        (
            vec!["config", "schema"],
            vec!["\"greeter\"", "Times a greeting is said.", "\"greeter_calls\"", "MACRO_GREETER__REPEAT"],
        ),
        (vec!["config", "print"], vec!["[greeter]", "repeat = 1", "greeter_calls = \"2xcpu\""]),
        (vec!["token", "mint", "--help"], vec!["greeter:<verb>:<name>", "be greeted", "greeter.greetings_per_second"]),
        (
            vec![
                "token",
                "mint",
                "--subject",
                "ann",
                "--allow",
                "greeter:greet:bob*",
                "--limit",
                "greeter.greetings_per_second=5",
            ],
            vec![""],
        ),
    ] {
        let text = said(here, &arguments);
        for part in expected {
            assert!(text.contains(part), "{arguments:?} says {part}: {text}");
        }
    }
    let refused = run(here, &["token", "mint", "--subject", "ann", "--allow", "greeter:shout:bob"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("greet"));
}

#[test]
fn it_is_in_the_documents() {
    macronode::services::add_guests(&GUESTS);
    let concurrency = macronode::docs::concurrency();
    for part in [
        "| greeter | yes |",
        "| greeter_worker | greeter |",
        "| `greetings` | mpsc | 16 |",
        "greeter_calls",
        "s_http -. serves .-> s_greeter",
    ] {
        assert!(concurrency.contains(part), "{part}: {concurrency}");
    }
    assert!(macronode::docs::config().contains("| `greeter.repeat` | `MACRO_GREETER__REPEAT` |"));
    assert!(macronode::docs::http().contains("/v1/greetings/{name}"));
    assert!(macronode::docs::cli().contains("macronode greeter hello"));
}

#[tokio::test]
async fn it_serves_reloads_and_drains_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node =
        Node::options_for(binary(folder.path())).config("[greeter]\nrepeat = 2\n").start().await.expect("it starts");
    let topology = node.get(Plane::Admin, "/topology").await.expect("an answer").json().expect("JSON");
    let has = |list: &str, name: &str| topology[list].as_array().expect("a list").iter().any(|row| row["name"] == name);
    assert!(has("services", "greeter") && has("tasks", "greeter_worker"));
    assert!(has("queues", "greetings") && has("gates", "greeter_calls"));
    let http = topology["services"].as_array().expect("a list").iter().find(|row| row["name"] == "http").expect("http");
    assert!(http["serves"].as_array().expect("a list").iter().any(|name| name == "greeter"), "{http}");
    let step = |task: &str| {
        let drain = topology["drain"].as_array().expect("a list");
        drain
            .iter()
            .position(|step| step["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|name| name == task)))
    };
    assert!(step("overlay_http") < step("greeter_worker"), "the plane leaves before what it serves");

    let openapi = node.get(Plane::Api, "/openapi.json").await.expect("an answer").json().expect("JSON");
    assert!(openapi["paths"]["/v1/greetings/{name}"]["get"].is_object());
    assert!(openapi.to_string().contains("Says hello."));

    let data_dir = node.data_dir().display().to_string();
    let mint = ["token", "mint", "--subject", "ann", "--allow", "greeter:greet:bob", "--data-dir", &data_dir];
    let minted = said(folder.path(), &mint);
    let token = minted.lines().find(|line| line.len() > 100).expect("a token on a line of its own").to_owned();
    let greet = async |name: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let mut client = Client::connect(node.address(Plane::Api)).await.expect("the plane listens");
        let path = format!("/v1/greetings/{name}");
        client.request(Method::GET, &path, &[("authorization", &bearer)], "").await.expect("an answer")
    };
    let answer = greet("bob", &token).await;
    assert_eq!((answer.status, answer.json().expect("JSON")["text"].as_str()), (200, Some("hello bob hello bob")));
    assert_eq!(greet("eve", &token).await.status, 403, "another resource");
    assert_eq!(greet("bob", "nonsense").await.status, 401);

    let check = said(folder.path(), &["topology", "--check", "--data-dir", &data_dir]);
    assert!(check.contains("ok: what runs is what is declared"), "{check}");
    node.signal(Signal::Term);
    let status = node.wait_exit(Duration::from_secs(10)).await.expect("it leaves");
    assert_eq!(status.code(), Some(0), "{}", node.stderr());
}
