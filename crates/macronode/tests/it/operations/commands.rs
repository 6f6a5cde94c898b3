//! The command line as a newcomer uses it: mistakes are named, and a running node is found by its data directory.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use testkit::own_address;

use crate::process::{Process, command, finish, run};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[tokio::test]
async fn mistakes_are_named_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    let typo = write(here, "typo.toml", "[http]\nreqest_deadline = \"2s\"\n");
    let range = write(here, "range.toml", "[http]\nrequest_deadline = \"0s\"\n");
    let kind = write(here, "kind.toml", "workers = \"many\"\n");
    let syntax = write(here, "syntax.toml", "[http\n");
    let public = ["run", "--chaos", "--api", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    for (arguments, words) in [
        (vec!["run", "--amnesai"], vec!["--amnesia"]),
        (vec!["statsu"], vec!["status"]),
        (vec!["run", "--runtime", "both"], vec!["multi", "current"]),
        (vec!["config", "validate", &typo], vec!["MN0003", "reqest_deadline", "http.request_deadline", "typo.toml:2"]),
        (vec!["config", "validate", &range], vec!["http.request_deadline", "range.toml:2"]),
        (vec!["config", "validate", &kind], vec!["MN0004", "workers"]),
        (vec!["config", "validate", &syntax], vec!["MN0002", "syntax.toml:1"]),
        (vec!["config", "validate", "missing.toml"], vec!["MN0001", "missing.toml"]),
        (vec!["run", "--config", &typo], vec!["http.request_deadline"]),
        (vec!["run", "--admin", "0.0.0.0:0"], vec!["MN0008", "admin.addr", "admin.tls_cert"]),
        (public.to_vec(), vec!["MN0009", "api.addr", "chaos"]),
        (vec!["run", "--api", "127.0.0.1:7", "--oap", "127.0.0.1:7"], vec!["MN0010", "api.addr", "oap.addr"]),
        (vec!["run", "--api", "localhost"], vec!["api.addr"]),
    ] {
        let outcome = run(here, &arguments).await;
        outcome.expect(64, &words);
        assert!(outcome.stdout.is_empty(), "{arguments:?}: mistakes belong on stderr: {}", outcome.stdout);
    }
    let mut misled = command(crate::process::BINARY, here);
    misled.args(["config", "validate"]).env("MACRO_HTTP__REQEST_DEADLINE", "2s");
    finish(misled).await.expect(64, &["MACRO_HTTP__REQUEST_DEADLINE"]);
    assert!(!here.join("macronode-data").exists(), "a refused start leaves nothing behind");
}

#[tokio::test]
async fn a_taken_port_is_named_at_once() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for plane in ["api", "admin", "oap"] {
        let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = holder.local_addr().expect("bound").to_string();
        let mut arguments = vec!["run".to_owned()];
        for other in ["api", "admin", "oap"] {
            let address = if other == plane { taken.clone() } else { "127.0.0.1:0".to_owned() };
            arguments.extend([format!("--{other}"), address]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let outcome = run(folder.path(), &arguments).await;
        outcome.expect(70, &["MN0011", &format!("{plane}.addr"), &taken]);
        let mut check = vec!["check"];
        check.extend(&arguments[1..]);
        let checked = run(folder.path(), &check).await;
        checked.expect(70, &[&taken]);
        // Both are as slow as the machine is.
        let took_max = Duration::from_secs(1) + 3 * checked.took;
        assert!(outcome.took < took_max, "{plane}: took {:?}, a check {:?}", outcome.took, checked.took);
    }
    assert!(!folder.path().join("macronode-data").exists(), "a refused start leaves nothing behind");
}

#[tokio::test]
async fn commands_without_a_node() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    let free = ["--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    run(here, &[&["check"], free.as_slice()].concat()).await.expect(0, &[]);
    let printed = run(here, &["config", "print"]).await;
    printed.expect(0, &["request_deadline", "[http]"]);
    let effective = write(here, "effective.toml", &printed.stdout);
    run(here, &["config", "validate", &effective]).await.expect(0, &[]);
    run(here, &["config", "print", "--sources", "--log", "json"]).await.expect(0, &["--log", "default"]);
    let schema = run(here, &["config", "schema"]).await;
    schema.expect(0, &[]);
    let schema: serde_json::Value = serde_json::from_str(&schema.stdout).expect("the schema is JSON");
    assert!(schema["properties"]["http"].is_object(), "{schema}");
    run(here, &["version"]).await.expect(0, &[env!("CARGO_PKG_VERSION")]);
    run(here, &["--help"]).await.expect(0, &["Exit codes", "macronode drain --dry-run"]);
    let doctor = run(here, &[&["doctor", "--json"], free.as_slice()].concat()).await;
    doctor.expect(0, &[]);
    serde_json::from_str::<serde_json::Value>(&doctor.stdout).expect("the doctor's report is JSON");

    let nobody = own_address().to_string();
    for words in [vec!["status"], vec!["topology"], vec!["drain", "--dry-run"], vec!["status", "--json"]] {
        let outcome = run(here, &[words.as_slice(), &["--admin", &nobody]].concat()).await;
        outcome.expect(70, &["MN0017", &nobody, "macronode run"]);
    }
    run(here, &["service", "restart", "http", "--admin", &nobody]).await.expect(70, &["MN0018", "--data-dir"]);
}

#[tokio::test]
async fn a_running_node_is_found_by_its_data_directory() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    let mut node = Process::start(here, &data, &[]).await;
    let data = data.display().to_string();
    let on_node = async |words: &[&str]| run(here, &[words, &["--data-dir", &data]].concat()).await;

    on_node(&["status"]).await.expect(0, &["ready", "http", "workers"]);
    let status = on_node(&["status", "--json"]).await;
    status.expect(0, &[]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(status["accepts_reads"], true, "{status}");
    on_node(&["topology"]).await.expect(0, &["overlay_http", "work"]);
    let topology = on_node(&["topology", "--json"]).await;
    topology.expect(0, &[]);
    serde_json::from_str::<serde_json::Value>(&topology.stdout).expect("JSON");
    on_node(&["topology", "--mermaid"]).await.expect(0, &["flowchart"]);
    on_node(&["topology", "--check"]).await.expect(0, &[]);
    on_node(&["drain", "--dry-run"]).await.expect(0, &[]);
    on_node(&["version"]).await.expect(0, &[env!("CARGO_PKG_VERSION")]);
    on_node(&["service", "restart", "http"]).await.expect(0, &["http"]);
    on_node(&["service", "restart", "htpp"]).await.expect(70, &["htpp"]);
    node.wait_ready().await;

    let stranger = write(here, "stranger.token", &"0".repeat(64));
    on_node(&["drain", "--token-file", &stranger]).await.expect(70, &["MN0018", "stranger.token"]);
    node.wait_ready().await;
    on_node(&["drain"]).await.expect(0, &[]);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
    on_node(&["status"]).await.expect(70, &["MN0017"]);
}
