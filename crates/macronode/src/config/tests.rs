//! Layering, every shape of error, values, diffs, schema and documentation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::diff::ChangedKey;
use super::kind::Checks as _;
use super::*;
use ron_types::settings::Reload;

fn sources(file: Option<&Path>, env: &[(&str, &str)], flags: &str) -> Sources {
    Sources {
        file: file.map(Path::to_owned),
        explicit_file: file.is_some(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        flags: flags.parse().expect("flags of the test are TOML"),
    }
}

/// Loads a file text, variables and flags; the messages name the file `f.toml`.
fn attempt(text: &str, env: &[(&str, &str)], flags: &str) -> Result<Loaded, Vec<String>> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("f.toml");
    std::fs::write(&file, text).expect("the temporary directory can be written");
    load(&sources(Some(&file), env, flags)).map_err(|errors| {
        let lines = errors.to_string().replace(&file.display().to_string(), "f.toml");
        lines.lines().map(str::to_owned).collect()
    })
}

fn refuse(text: &str, env: &[(&str, &str)], flags: &str, expected: &[&str]) {
    let errors = attempt(text, env, flags).map(|_| ()).expect_err("the configuration is wrong");
    assert_eq!(errors, expected, "for {text:?} {env:?} {flags:?}");
}

#[test]
fn amnesia_is_switched_on_by_the_name_that_the_family_shares() {
    let amnesia = |env: &[(&str, &str)]| attempt("", env, "").expect("valid").config.amnesia;
    assert!(amnesia(&[("AMNESIA", "1")]));
    assert!(!amnesia(&[("MACRO_AMNESIA", "0"), ("AMNESIA", "1")]), "the node's own name says more");
    assert!(amnesia(&[("AMNESIA", "0"), ("MACRO_AMNESIA", "1")]));
    let refused = attempt("", &[("AMNESIA", "perhaps")], "").map(|_| ()).expect_err("neither on nor off");
    assert!(refused.len() == 1 && refused[0].contains("AMNESIA") && refused[0].contains("perhaps"), "{refused:?}");
}

#[test]
fn readiness_needs_the_planes_and_what_is_named() {
    let required = |text: &str| -> Vec<&str> {
        let config = attempt(text, &[], "").expect("valid").config;
        crate::specs::units().filter(|unit| config.requires(unit)).map(|unit| unit.name).collect()
    };
    let by_spec: Vec<&str> = crate::specs::units().filter(|unit| unit.required).map(|unit| unit.name).collect();
    assert_eq!(required(""), by_spec);
    assert!(PLANES.iter().all(|plane| by_spec.contains(plane)), "{by_spec:?}");
    assert_eq!(required("[readiness]\nrequired = [\"oap\"]\n"), ["access", "workers", "oap"]);
}

#[test]
fn nothing_set_gives_the_defaults() {
    let loaded = load(&Sources::default()).expect("the defaults are valid");
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.origins.0.is_empty());
    assert_eq!(loaded.file, None);
    assert_eq!(loaded.config.warnings(), Vec::<String>::new());
}

#[test]
fn defaults_are_those_of_the_contract() {
    let contract = include_str!("../../../../contract/defaults.toml").parse::<toml::Table>().expect("TOML");
    // The contract has no section for the OAP port, and two of its rows are gates rather than settings.
    let elsewhere =
        |path: &str| if path == "io.max_frame_bytes" { "oap.max_frame_bytes".into() } else { path.to_owned() };
    let defaults = Config::default().to_table();
    let mut compared = 0;
    for section in ["io", "http", "tls", "retry", "queues"] {
        for (name, expected) in contract[section].as_table().expect("a section") {
            let path = elsewhere(&format!("{section}.{name}"));
            let Some(key) = Key::find(&path) else {
                assert_eq!(path, "http.busy_answer_within", "every row of the contract is a key");
                continue;
            };
            let ours = key.value_in(&defaults).expect("a default");
            let bytes =
                |value: &toml::Value| value.as_str().and_then(|text| text.parse::<Size>().ok()).map(Size::bytes);
            let same = ours == expected || expected.as_integer() == bytes(ours).map(|bytes| bytes as i64);
            assert!(same, "{path}: {ours} here, {expected} in the contract");
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn later_layers_win_and_every_value_knows_its_origin() {
    let file = "workers = 7\n[http]\nrequest_deadline = \"1s\"\nroute_concurrency = 5\n[api]\naddr = \"127.0.0.1:1\"\n";
    let env = [("MACRO_HTTP__ROUTE_CONCURRENCY", "6"), ("MACRO_API__ADDR", "127.0.0.1:2"), ("HOME", "x")];
    let loaded = attempt(file, &env, "api.addr = \"127.0.0.1:3\"").expect("valid");
    let config = &loaded.config;
    assert_eq!((config.workers, config.http.request_deadline), (7, TimeSpan(1_000)));
    assert_eq!((config.http.route_concurrency, config.api.addr.port()), (6, 3));
    assert_eq!(config.oap.addr.port(), 9500);
    let origin = |key: &str| loaded.origins.of(key).to_string();
    assert!(origin("http.request_deadline").ends_with(".toml:3"), "{}", origin("http.request_deadline"));
    assert!(origin("workers").ends_with(".toml:1"), "{}", origin("workers"));
    assert_eq!(origin("http.route_concurrency"), "env MACRO_HTTP__ROUTE_CONCURRENCY");
    assert_eq!(origin("api.addr"), "flag --api");
    assert_eq!(origin("oap.addr"), "default");
}

#[test]
fn every_kind_can_be_set_from_the_environment() {
    let env = [
        ("MACRO_AMNESIA", "1"),
        ("MACRO_DEV", "off"),
        ("MACRO_SERVICES", "oap, http"),
        ("MACRO_RUNTIME", "current"),
        ("MACRO_DATA_DIR", "/var/lib/node"),
        ("MACRO_OAP__MAX_FRAME_BYTES", "64KiB"),
        ("MACRO_HTTP__MAX_BODY_BYTES", "1000"),
        ("MACRO_IO__IDLE_TIMEOUT", "2m"),
        ("MACRO_RETRY__INITIAL_JITTER_MS", "10,20"),
        ("MACRO_LOG__FILTER", "info,ron_kernel=debug"),
        ("MACRO_TEST_ANYTHING", "x"),
        ("MACRO_SOAK", "1"),
        ("MACRO_DOCGEN", "1"),
    ];
    let config = attempt("", &env, "").expect("valid").config;
    assert!(config.amnesia && !config.dev);
    assert_eq!(config.services, ["oap", "http"]);
    assert_eq!(config.runtime, Runtime::Current);
    assert_eq!(config.data_dir, Path::new("/var/lib/node"));
    assert_eq!((config.oap.max_frame_bytes, config.http.max_body_bytes), (Size(65_536), Size(1_000)));
    assert_eq!(config.io.idle_timeout, TimeSpan(120_000));
    assert_eq!(config.retry.initial_jitter_ms, [10, 20]);
    assert_eq!(config.log.filter, "info,ron_kernel=debug");
}

#[test]
fn a_named_file_must_exist_and_the_usual_one_need_not() {
    let path = PathBuf::from("/nowhere/macronode.toml");
    let mut sources = Sources { file: Some(path), ..Sources::default() };
    assert_eq!(load(&sources).expect("optional").file, None);
    sources.explicit_file = true;
    let text = load(&sources).expect_err("it is not there").to_string();
    assert!(text.starts_with("MN0001 cannot read /nowhere/macronode.toml: No such file"), "{text}");
}

#[test]
fn a_file_that_is_not_toml_names_the_line() {
    let errors = attempt("workers = 3\nhttp = [\n", &[], "").map(|_| ()).expect_err("not TOML");
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("MN0002 f.toml:2: not valid TOML: "), "{}", errors[0]);
}

#[test]
fn a_typo_is_refused_with_the_nearest_name() {
    refuse(
        "\n[http]\nrequest_deadlne = \"1s\"",
        &[],
        "",
        &["MN0003 unknown key `http.request_deadlne` (f.toml:3); did you mean `http.request_deadline`?"],
    );
    refuse("[htpp]\nx = 1", &[], "", &["MN0003 unknown section `htpp` (f.toml:1); did you mean `http`?"]);
    refuse(
        "[io]\nmax_frame_bytes = 1024",
        &[],
        "",
        &["MN0003 unknown key `io.max_frame_bytes` (f.toml:2); did you mean `oap.max_frame_bytes`?"],
    );
    refuse("colour = 1", &[], "", &["MN0003 unknown key `colour` (f.toml:1)"]);
    refuse(
        "",
        &[("MACRO_HTTP_REQUEST_DEADLINE", "1s")],
        "",
        &["MN0003 unknown variable `MACRO_HTTP_REQUEST_DEADLINE` (env MACRO_HTTP_REQUEST_DEADLINE); \
           did you mean `MACRO_HTTP__REQUEST_DEADLINE`?"],
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_refused() {
    let duration = "allowed: 1ms to 10m, written like \"5s\", \"150ms\" or \"2m\"";
    let missing_unit = format!("MN0004 `http.request_deadline` = 5 (f.toml:1) is not a duration; {duration}");
    refuse("http.request_deadline = 5", &[], "", &[&missing_unit]);
    let soon = format!(
        "MN0004 `http.request_deadline` = \"soon\" (env MACRO_HTTP__REQUEST_DEADLINE) is not a duration; {duration}"
    );
    refuse("", &[("MACRO_HTTP__REQUEST_DEADLINE", "soon")], "", &[&soon]);
    let number = "MN0004 `workers` = \"many\" (f.toml:1) is not a whole number; \
                  allowed: 1 to 1024, or 0 for one for each core, with `dev` max(20, 4 x cpu)";
    refuse("workers = \"many\"", &[], "", &[number]);
    let address = "MN0004 `api.addr` = \"localhost\" (flag --api) is not an address; \
                   allowed: an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
    refuse("", &[], "api.addr = \"localhost\"", &[address]);
    let section = "MN0004 `http` = 3 (f.toml:1) is not a section; \
                   allowed: a heading [http] with its keys on the lines below";
    refuse("http = 3", &[], "", &[section]);
    refuse(
        "amnesia = \"no\"",
        &[],
        "",
        &["MN0004 `amnesia` = \"no\" (f.toml:1) is not a switch; allowed: true or false"],
    );
}

#[test]
fn a_value_out_of_range_is_refused() {
    for (text, what) in [
        (
            "workers = 1025",
            "`workers` = 1025 (f.toml:1) is not allowed; allowed: 1 to 1024, or 0 for one for each core, with `dev` max(20, 4 x cpu)",
        ),
        ("queues.work = 0", "`queues.work` = 0 (f.toml:1) is not allowed; allowed: 1 to 65536"),
        ("queues.work = -1", "`queues.work` = -1 (f.toml:1) is not allowed; allowed: 1 to 65536"),
        ("retry.max_tries = 11", "`retry.max_tries` = 11 (f.toml:1) is not allowed; allowed: 1 to 10"),
        (
            "oap.max_frame_bytes = \"2MiB\"",
            "`oap.max_frame_bytes` = \"2MiB\" (f.toml:1) is not allowed; allowed: 1KiB to 1MiB",
        ),
        (
            "runtime = \"mutli\"",
            "`runtime` = \"mutli\" (f.toml:1) is not allowed; allowed: \"multi\" or \"current\"; did you mean `multi`?",
        ),
        (
            "services = [\"http\", \"opa\"]",
            "`services` = [\"http\", \"opa\"] (f.toml:1) is not allowed; \
             allowed: one or more of KNOWN, each once; did you mean `oap`?",
        ),
        ("services = []", "`services` = [] (f.toml:1) is not allowed; allowed: one or more of KNOWN, each once"),
        (
            "retry.initial_jitter_ms = [100, 50]",
            "`retry.initial_jitter_ms` = [100, 50] (f.toml:1) is not allowed; \
             allowed: two numbers from 1 to 60000, the lower first, such as [50, 100]",
        ),
        (
            "log.filter = \"a=nonsense\"",
            "`log.filter` = \"a=nonsense\" (f.toml:1) is not allowed; \
             allowed: a level such as \"info\", or pairs such as \"info,ron_kernel=debug\"",
        ),
    ] {
        let known = known_services().collect::<Vec<_>>().join(", ");
        refuse(text, &[], "", &[&format!("MN0005 {}", what.replace("KNOWN", &known))]);
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (text, expected) in [
        (
            "io.drain_deadline = \"9s\"",
            "MN0006 `io.drain_deadline` = \"9s\" (f.toml:1) is above `io.drain_deadline_max` = \"5s\" (default); \
             raise the ceiling too if such a long drain is meant",
        ),
        (
            "http.request_deadline_max = \"1s\"",
            "MN0006 `http.request_deadline` = \"2s\" (default) is above `http.request_deadline_max` = \"1s\" (f.toml:1); \
             the usual deadline must be one a caller could ask for",
        ),
        (
            "retry.cap = \"70ms\"",
            "MN0006 `retry.initial_jitter_ms` = [50, 100] (default) is above `retry.cap` = \"70ms\" (f.toml:1); \
             the first wait must fit under the cap of all waits",
        ),
        (
            "http.max_body_bytes = \"65MiB\"",
            "MN0006 `http.max_body_bytes` = \"65MiB\" (f.toml:1) is above `queues.work_bytes_max` = \"64MiB\" (default); \
             the largest body must fit into the work queue",
        ),
        (
            "api.tls_cert = \"c.pem\"",
            "MN0007 `api.tls_cert` = \"c.pem\" (f.toml:1) is set, but `api.tls_key` is not; set both or none",
        ),
        (
            "admin.tls_key = \"k.pem\"",
            "MN0007 `admin.tls_key` = \"k.pem\" (f.toml:1) is set, but `admin.tls_cert` is not; set both or none",
        ),
        (
            "admin.addr = \"0.0.0.0:9600\"",
            "MN0008 `admin.addr` = \"0.0.0.0:9600\" (f.toml:1) is not a loopback address and the admin plane has no TLS; \
             bind it to 127.0.0.1 or set `admin.tls_cert` and `admin.tls_key`",
        ),
        (
            "chaos = true\napi.addr = \"10.0.0.1:80\"",
            "MN0009 `api.addr` = \"10.0.0.1:80\" (f.toml:2) is not a loopback address, \
             but `chaos` = true (f.toml:1) allows loopback only; bind it to 127.0.0.1",
        ),
        (
            "oap.addr = \"127.0.0.1:9600\"",
            "MN0010 `oap.addr` = \"127.0.0.1:9600\" (f.toml:1) is the same address as \
             `admin.addr` = \"127.0.0.1:9600\" (default); give each its own port, or port 0 for a free one",
        ),
    ] {
        refuse(text, &[], "", &[expected]);
    }
}

#[test]
fn what_looks_similar_but_is_allowed_passes() {
    for text in [
        "io.drain_deadline = \"9s\"\nio.drain_deadline_max = \"9s\"",
        "admin.addr = \"0.0.0.0:9600\"\nadmin.tls_cert = \"c\"\nadmin.tls_key = \"k\"",
        "api.addr = \"127.0.0.1:0\"\nadmin.addr = \"127.0.0.1:0\"\noap.addr = \"127.0.0.1:0\"",
        "api.addr = \"127.0.0.2:9600\"",
        "chaos = true",
        "workers = 0",
    ] {
        assert!(attempt(text, &[], "").is_ok(), "{text}: {:?}", attempt(text, &[], ""));
    }
}

#[test]
fn all_problems_are_reported_at_once_and_none_twice() {
    let text = "wrokers = 3\n[io]\ndrain_deadline = \"soon\"\ndrain_deadline_max = \"1s\"\n[api]\ntls_key = \"k\"\n";
    let errors = attempt(text, &[("MACRO_QUEUES__BUS", "0")], "").map(|_| ()).expect_err("wrong");
    let codes: Vec<&str> = errors.iter().map(|line| &line[..6]).collect();
    assert_eq!(codes.len(), 4, "{errors:#?}");
    assert_eq!(codes.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["MN0003", "MN0004", "MN0005", "MN0007"]));
}

#[test]
fn warnings_name_what_is_allowed_but_risky() {
    let warned = |text: &str| attempt(text, &[], "").expect("allowed").config.warnings();
    for (text, start) in [
        ("api.addr = \"0.0.0.0:80\"", "`api.addr` = 0.0.0.0:80 is public without TLS"),
        ("chaos = true", "`chaos` is on"),
        ("http.request_deadline = \"3s\"", "`http.request_deadline` = 3s is not shorter"),
        ("connections.max = 10", "`connections.per_ip_max` = 256 is above"),
    ] {
        let warnings = warned(text);
        assert_eq!(warnings.len(), 1, "{text}");
        assert!(warnings[0].starts_with(start), "{}", warnings[0]);
    }
}

#[test]
fn a_service_that_no_client_can_reach_is_warned_of() {
    let served = crate::services::all().find(|service| !service.surfaces().is_empty()).expect("some have surfaces");
    let name = served.spec().name;
    for (others, is_reached) in [("", false), (", \"http\"", true), (", \"oap\"", true)] {
        let text = format!("services = [\"{name}\"{others}]");
        let warnings = attempt(&text, &[], "").expect("allowed").config.warnings();
        let told = format!("`services` has neither http nor oap: no client can reach {name}");
        assert_eq!(!warnings.iter().any(|warning| warning.starts_with(&told)), is_reached, "{others}: {warnings:?}");
    }
}

#[test]
fn a_difference_knows_what_it_takes() {
    let before = Config::default();
    assert_eq!(before.diff(&before.clone()), Vec::new());
    for (text, key, reload) in [
        ("http.request_deadline = \"1s\"", "http.request_deadline", Reload::Live),
        ("log.filter = \"debug\"", "log.filter", Reload::Live),
        ("connections.max = 500", "connections.max", Reload::Live),
        ("api.addr = \"127.0.0.1:1\"", "api.addr", Reload::Restart("http".to_owned())),
        ("oap.addr = \"127.0.0.1:1\"", "oap.addr", Reload::Restart("oap".to_owned())),
        ("admin.addr = \"127.0.0.1:1\"", "admin.addr", Reload::Process),
        ("data_dir = \"/x\"", "data_dir", Reload::Process),
        ("queues.work = 3", "queues.work", Reload::Process),
        ("services = [\"http\"]", "services", Reload::Process),
    ] {
        let after = attempt(text, &[], "").expect("valid").config;
        assert_eq!(before.diff(&after), [ChangedKey { key: key.to_owned(), reload }]);
    }
    let with_tls = attempt("api.tls_cert = \"c\"\napi.tls_key = \"k\"", &[], "").expect("valid").config;
    let keys: Vec<String> = before.diff(&with_tls).into_iter().map(|changed| changed.key).collect();
    assert_eq!(keys, ["api.tls_cert", "api.tls_key"]);
}

#[test]
fn a_restart_names_a_service_that_exists() {
    for key in keys() {
        if let Reload::Restart(service) = &key.reload {
            assert!(known_services().any(|known| known == service), "{}", key.path);
        }
    }
}

/// Every leaf of the schema, by path.
fn leaves(prefix: &str, schema: &Json, found: &mut Vec<(String, Json)>) {
    for (name, property) in schema["properties"].as_object().expect("an object with properties") {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match property.get("properties") {
            Some(_) => leaves(&path, property, found),
            None => found.push((path, property.clone())),
        }
    }
}

#[test]
fn every_key_of_the_schema_has_a_reload_class_and_a_meaning() {
    let mut found = Vec::new();
    leaves("", &schema(), &mut found);
    let in_schema: BTreeSet<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let in_table: BTreeSet<&str> = keys().iter().map(|key| key.path.as_str()).collect();
    assert_eq!(in_schema, in_table);
    for (path, property) in &found {
        assert!(property["x-reload"].is_string(), "{path}");
        assert!(property["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path}");
    }
}

#[test]
fn every_default_passes_its_own_check() {
    let defaults = Config::default().to_table();
    for key in keys() {
        if let Some(value) = key.value_in(&defaults) {
            assert_eq!(key.kind.check(value), Ok(()), "{}", key.path);
        }
    }
}

#[test]
fn the_page_is_stable_and_has_a_row_for_every_key() {
    let page = markdown();
    assert_eq!(page, markdown());
    for key in keys() {
        let row = format!("| `{}` | `{}` | ", key.path, key.env_name());
        assert_eq!(page.matches(&row).count(), 1, "{row}");
    }
    assert!(
        page.contains("| 0: one for each core, with `dev` max(20, 4 x cpu) |"),
        "defaults that depend on the machine are words"
    );
    let columns = |line: &str| line.matches(" | ").count();
    assert!(page.lines().filter(|line| line.starts_with("| ")).all(|line| columns(line) == 6));
}

#[test]
fn what_is_printed_loads_as_the_same_configuration() {
    let gate = services::gates().next().expect("a service has a gate").name;
    let text = format!("workers = 9\n[api]\ntls_cert = \"c\"\ntls_key = \"k\"\n[facets]\n{gate} = 3\n");
    let loaded = attempt(&text, &[("MACRO_AMNESIA", "true")], "").expect("valid");
    for with_sources in [false, true] {
        let again = attempt(&print(&loaded, with_sources), &[], "").expect("what is printed is valid");
        assert_eq!(again.config, loaded.config);
    }
    let printed = print(&loaded, true);
    assert!(printed.contains("# env MACRO_AMNESIA"), "{printed}");
    assert!(printed.contains("# tls_cert is not set"), "{printed}");
}

#[test]
fn workers_are_chosen_by_the_number_of_cores() {
    assert_eq!(Config::default().worker_count(), cpus());
    assert_eq!(Config { dev: true, ..Config::default() }.worker_count(), (4 * cpus()).clamp(20, 1024));
    assert_eq!(Config { workers: 3, ..Config::default() }.worker_count(), 3);
}

#[test]
fn many_problems_become_one_failure_with_each_code_once() {
    let file = "workers = 5000\nqueues.work = 0";
    let sources = sources(None, &[], file);
    let failure = crate::errors::Failure::from(load(&sources).expect_err("wrong"));
    let text = failure.to_string();
    assert_eq!(text.matches("MN0005").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.starts_with("MN0005 `")), "{text}");
}

#[test]
fn every_gate_of_a_service_has_a_key_and_the_permits_of_the_contract() {
    let contract = include_str!("../../../../contract/defaults.toml").parse::<toml::Table>().expect("TOML");
    for gate in services::gates() {
        let promised = contract[PERMITS_SECTION].get(gate.name).unwrap_or_else(|| panic!("{} has a row", gate.name));
        let key = Key::find(&format!("{PERMITS_SECTION}.{}", gate.name)).expect("a gate is a key");
        assert_eq!(key.value_in(&Config::default().to_table()), Some(promised), "{}", gate.name);
        let set = attempt(&format!("facets.{} = 7", gate.name), &[], "").expect("valid").config;
        assert_eq!(set.permits_of(gate), 7);
    }
    let errors = attempt("facets.nobody = 1", &[], "").map(|_| ()).expect_err("no gate is called so");
    assert!(errors[0].starts_with("MN0003 unknown key `facets.nobody`"), "{errors:?}");
}
