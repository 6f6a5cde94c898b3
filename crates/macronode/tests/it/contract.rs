//! Holds the running node to the contract: every row of the node itself is found live, with the promised properties.
//!
//! The project's own copy lies in contract/. Where the original is beside the checkout, its rows are read too, so that
//! the copy cannot quietly fall behind.

use std::path::{Path, PathBuf};

use ron_types::Kind;
use serde_json::Value;
use testkit::{Node, Plane};

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = root.join("../shared/contract");
    [root.join("contract"), shared].into_iter().filter(|folder| folder.exists()).collect()
}

fn tables(file: &str) -> Vec<toml::Table> {
    let read = |folder: PathBuf| std::fs::read_to_string(folder.join(file)).expect("a contract file");
    folders().into_iter().map(read).map(|text| text.parse().expect("valid TOML")).collect()
}

/// Gates of the node that wait for the service that will use them. One that has come alive must leave this list.
const WAITING_GATES: [&str; 3] = ["feed_fanout", "graph_expand", "search_qps"];

/// The crates whose rows must hold: the node's and those of its services.
fn owners() -> Vec<String> {
    let services = macronode::services::SERVICES.iter().map(|service| format!("svc-{}", service.spec().name));
    services.chain(["macronode".to_owned(), "all".to_owned()]).collect()
}

/// The rows of one list that concern the node itself and the services that exist.
fn rows(file: &str, list: &str) -> Vec<toml::Table> {
    let (mut rows, owners) = (Vec::new(), owners());
    for table in tables(file) {
        let all = table[list].as_array().expect("a list").iter().filter_map(toml::Value::as_table);
        let ours = all.filter(|row| {
            let service = row.get("service").and_then(toml::Value::as_str);
            service.is_none_or(|service| owners.iter().any(|owner| owner == service))
        });
        rows.extend(ours.cloned());
    }
    assert!(!rows.is_empty(), "{file} has rows for this node");
    rows
}

fn text<'a>(row: &'a toml::Table, key: &str) -> &'a str {
    row.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

async fn node() -> Node {
    Node::options_for(env!("CARGO_BIN_EXE_macronode")).dev().start().await.expect("the node starts")
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in the live topology"))
}

#[tokio::test]
async fn every_task_and_channel_of_the_contract_is_live() {
    let node = node().await;
    let topology = node.get(Plane::Admin, "/topology").await.expect("the admin plane answers").json().expect("JSON");
    for row in rows("tasks.toml", "task") {
        // The services share the node's one HTTP plane.
        let (owner, name) = match (text(&row, "service"), text(&row, "name")) {
            (_, "http_listener") => ("macronode", "overlay_http"),
            // Taking up revocations belongs to the node: every service's capabilities are in one list.
            (_, "capability_refresher") => ("macronode", "capability_refresher"),
            // One task of the node reads the configuration; services read snapshots of it.
            (_, "config_reloader") => ("macronode", "config_watcher"),
            named => named,
        };
        let live = named(&topology["tasks"], name);
        assert_eq!(live["service"], owner);
        assert_eq!(live["phase"].as_i64(), row["phase"].as_integer(), "phase of {name}");
    }
    let shard_capacity = ron_types::limits::mailbox::SHARD_CAPACITY as i64;
    for row in rows("channels.toml", "channel") {
        // Services hear of the shutdown from the kernel's own watch.
        let name = if text(&row, "name") == "shutdown_rx" { "shutdown" } else { text(&row, "name") };
        let capacity = match text(&row, "capacity") {
            "" => row["capacity"].as_integer(),
            "mailbox.shard_capacity" => Some(shard_capacity),
            "min(512, shard_capacity/4)" => Some((shard_capacity / 4).min(512)),
            other => panic!("{other} is not understood"),
        };
        // A node has one queue of each name: `work` is its own, and `events_tx` the mailbox's.
        let name = match (text(&row, "service"), name) {
            ("svc-rewarder", "work") => "reward_work",
            ("svc-overlay", "events_tx") => "overlay_events",
            ("svc-index", "events_tx") => "index_events",
            (_, name) => name,
        };
        for name in each_shard(name) {
            let live = named(&topology["queues"], &name);
            assert_eq!(live["kind"], text(&row, "kind"), "kind of {name}");
            assert_eq!(live["policy"], text(&row, "policy"), "policy of {name}");
            assert_eq!(live["capacity"].as_i64(), capacity, "capacity of {name}");
        }
    }
}

/// `name[shard]` stands for one of each shard.
fn each_shard(name: &str) -> Vec<String> {
    match name.strip_suffix("[shard]") {
        Some(name) => (0..ron_types::limits::mailbox::SHARDS_MAX).map(|shard| format!("{name}[{shard}]")).collect(),
        None => vec![name.to_owned()],
    }
}

#[tokio::test]
async fn every_metric_of_the_contract_is_scraped_with_its_type_and_labels() {
    let node = node().await;
    let echo = node.post(Plane::Api, "/v1/echo", r#"{"message":"x"}"#, &[("content-type", "application/json")]).await;
    assert_eq!(echo.expect("echo answers").status, 200);
    let scrape = node.get(Plane::Admin, "/metrics").await.expect("the admin plane answers").text();
    let described = ron_kernel::metrics::METRICS.iter().chain(ron_kernel::metrics::COLLECTED);
    let described = described.chain(macronode::services::SERVICES.iter().flat_map(|service| service.metrics()));
    let described: Vec<_> = described.map(|spec| spec.name).collect();
    for row in rows("metrics.toml", "metric") {
        let (name, kind) = (text(&row, "name"), text(&row, "type"));
        assert!(described.contains(&name), "{name} is declared");
        assert!(scrape.contains(&format!("# TYPE {name} {kind}\n")), "{name} is scraped as a {kind}");
        for label in row["labels"].as_array().expect("a list").iter().filter_map(toml::Value::as_str) {
            let starts = [format!("{name}{{"), format!("{name}_bucket{{"), format!("{name}_count{{")];
            let mut samples = scrape.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
            let labelled = samples.all(|line| line.contains(&format!("{label}=\"")));
            assert!(labelled, "every sample of {name} has the label {label}");
        }
    }
}

#[test]
fn every_error_of_the_contract_is_in_the_taxonomy() {
    for row in rows("errors.toml", "error") {
        let name = text(&row, "name");
        let kind = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name);
        let kind = kind.unwrap_or_else(|| panic!("{name} is not in the taxonomy"));
        assert_eq!(kind.code(), text(&row, "code"), "code of {name}");
        assert_eq!(i64::from(kind.http_status()), row["http"].as_integer().expect("a number"), "status of {name}");
        assert_eq!(kind.metric().unwrap_or_default(), text(&row, "metric"), "metric of {name}");
    }
}

#[test]
fn every_restart_law_of_the_contract_is_the_law_of_its_service() {
    use ron_policy::{Escalation, RestartLaw};
    let services = macronode::services::SERVICES.iter().map(|service| service.spec());
    let mut laws: Vec<(String, RestartLaw)> = services.map(|spec| (format!("svc-{}", spec.name), spec.law)).collect();
    laws.push(("macronode".to_owned(), RestartLaw::MACRONODE));
    let mut held = Vec::new();
    for table in tables("tasks.toml") {
        for (owner, row) in table["restart"].as_table().expect("a table") {
            let Some((_, law)) = laws.iter().find(|(name, _)| name == owner) else { continue };
            let number =
                |value: &toml::Value| value.as_integer().and_then(|it| u64::try_from(it).ok()).expect("a number");
            let jitter: Vec<u64> = row["jitter_ms"].as_array().expect("a window").iter().map(number).collect();
            assert_eq!(jitter, [law.jitter_ms.0, law.jitter_ms.1], "jitter of {owner}");
            assert_eq!(number(&row["cap_ms"]), law.cap_ms, "cap of {owner}");
            assert_eq!(number(&row["loop"]["more_than"]), u64::from(law.more_than), "loop of {owner}");
            assert_eq!(number(&row["loop"]["in_s"]) * 1_000, law.window_ms, "window of {owner}");
            let then = match law.then {
                Escalation::Degraded => "degraded",
                Escalation::Unready => "unready",
                Escalation::Fatal => "fatal",
            };
            assert_eq!(row["then"].as_str(), Some(then), "consequence for {owner}");
            held.push(owner.clone());
        }
    }
    // The DHT is a part of the index that the contract does not name: such a service has the node's own law.
    let is_held = |(owner, law): &(String, RestartLaw)| held.contains(owner) || *law == RestartLaw::MACRONODE;
    assert!(laws.iter().all(is_held), "every service has its law from the contract: {held:?}");
}

#[test]
fn every_default_of_the_contract_is_the_default_of_the_configuration() {
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_macronode")).args(["config", "print"]).output();
    let printed = String::from_utf8(printed.expect("the binary runs").stdout).expect("text");
    let printed: toml::Table = printed.parse().expect("config print is valid TOML");
    // Sections of services that do not exist yet; a gate, not a setting; and what services let nobody change.
    let exists = |name: &str| macronode::services::SERVICES.iter().any(|service| service.spec().name == name);
    let later: Vec<&str> = ["overlay", "index", "rewarder"].into_iter().filter(|name| !exists(name)).collect();
    let window = |(low, high): (std::time::Duration, std::time::Duration)| {
        toml::Value::Array([low, high].map(|bound| toml::Value::Integer(bound.as_millis() as i64)).to_vec())
    };
    let fixed = |key: &str| {
        use ron_types::limits::{CAPABILITY_CACHE_TTL, mailbox, rewarder};
        Some(match key {
            "rpc_retry_jitter_ms" => window(rewarder::RPC_RETRY_JITTER),
            "requeue_jitter_ms" => window(rewarder::REQUEUE_JITTER),
            // A rule, not a value: the setting is `rewarder.epoch_duration`.
            "epoch_deadline" => "min(now + epoch_duration/2, the caller's deadline)".into(),
            "scanner_wake_min" => toml::Value::String(format!("{}ms", mailbox::SCANNER_WAKE_MIN.as_millis())),
            "scanner_wake_max" => toml::Value::String(format!("{}ms", mailbox::SCANNER_WAKE_MAX.as_millis())),
            "reorder_depth_max" => toml::Value::Integer(mailbox::REORDER_DEPTH_MAX as i64),
            "capability_cache_ttl" => toml::Value::String(format!("{}s", CAPABILITY_CACHE_TTL.as_secs())),
            _ => return None,
        })
    };
    for table in tables("defaults.toml") {
        for (section, values) in table.iter().filter(|(section, _)| !later.contains(&section.as_str())) {
            for (key, promised) in values.as_table().expect("a section") {
                let (section, key) = match (section.as_str(), key.as_str()) {
                    ("io", "max_frame_bytes") => ("oap", "max_frame_bytes"),
                    ("http", "busy_answer_within") => continue,
                    // This binary is a macronode.
                    ("overlay", "idle_timeout_micronode") => continue,
                    ("overlay", "idle_timeout_macronode") => ("overlay", "idle_timeout"),
                    ("facets", gate) if WAITING_GATES.contains(&gate) => {
                        assert!(printed[section].get(gate).is_none(), "{gate} no longer waits");
                        continue;
                    }
                    ("mailbox" | "rewarder", key) if fixed(key).is_some() => {
                        assert_eq!(fixed(key).as_ref(), Some(promised), "{section}.{key}");
                        continue;
                    }
                    (section, key) => (section, key),
                };
                let live = printed[section].get(key).unwrap_or_else(|| panic!("{section}.{key} is a setting"));
                assert_eq!(plain(live), plain(promised), "{section}.{key}");
            }
        }
    }
}

/// Sizes in bytes and times in milliseconds, however they are written.
fn plain(value: &toml::Value) -> toml::Value {
    let units = [("MiB", 1 << 20), ("KiB", 1 << 10), ("ms", 1), ("m", 60_000), ("s", 1_000)];
    let number = value.as_str().and_then(|text| {
        let (digits, unit) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
        Some(digits.trim().parse::<i64>().ok()? * unit)
    });
    number.map_or_else(|| value.clone(), toml::Value::Integer)
}
