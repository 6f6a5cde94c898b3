//! The page of gates: every gate of the contract, what holds it, and where that runs.
//!
//! The project's own copy of the contract lies in contract/. Where the original is beside the checkout, its gates are
//! read too, so that the copy cannot quietly fall behind.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where a holder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    /// With every change.
    Ci,
    /// With every change, and longer in the soak.
    Both,
    /// Only in the soak.
    Soak,
}

impl Runs {
    fn words(self) -> &'static str {
        match self {
            Ci => "CI",
            Both => "CI, and more in the soak",
            Soak => "soak",
        }
    }
}

/// Something that fails when a gate is missed.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// A test function: its file, from the root, and its name.
    Test(&'static str, &'static str, Runs),
    /// A step of `cargo xtask ci` or `cargo xtask soak`, or of both.
    Step(&'static str, Runs),
    /// A part of the bench: its file, from the root, and the command that runs it.
    Bench(&'static str, &'static str),
}

use Holder::{Bench, Step, Test};
use Runs::{Both, Ci, Soak};

/// What holds each gate.
const HELD: &[(&str, &[Holder])] = &[
    (
        "drain",
        &[
            Test(DRAIN, "a_drain_under_load_ends_in_time_and_loses_no_answer", Both),
            Test(OVERLAY_STOPPED, "a_drain_ends_in_time_with_a_stopped_peer", Ci),
        ],
    ),
    (
        "deadline",
        &[
            Test(LIMITS, "every_request_ends_at_its_deadline", Ci),
            Test(LIMITS, "a_request_that_waits_for_a_worker_ends_at_its_deadline_too", Ci),
            Test(INDEX_HEDGING, "the_deadline_holds_whatever_peers_do", Ci),
            Test(INDEX_DEADLINE, "twelve_routers_are_silent_and_a_lookup_ends_at_its_deadline", Ci),
        ],
    ),
    (
        "backpressure",
        &[
            Test(LIMITS, "twice_the_sustainable_load_is_refused_fast_and_held_in_bounded_memory", Both),
            Test(OVERLAY_STOPPED, "others_do_not_wait_for_a_stopped_peer_and_it_is_told_as_busy", Ci),
        ],
    ),
    (
        "loom",
        &[
            Step("loom", Ci),
            Test(LOOM, "a_drained_guard_has_nobody_at_work", Ci),
            Test(LOOM, "a_budget_is_never_overdrawn_and_comes_back_whole", Ci),
            Step("shuttle", Both),
            Test(KERNEL_MODELS, "a_drain_answers_every_admitted_job_exactly_once", Both),
            Test(KERNEL_MODELS, "a_bus_receiver_ends_with_the_newest_state", Both),
            Test(KERNEL_MODELS, "a_reader_never_sees_a_torn_or_older_snapshot", Both),
            Test(MAILBOX_MODELS, "recv_ack_and_expiry_of_a_fair_topic", Both),
            Test(MAILBOX_MODELS, "recv_ack_and_expiry_of_a_line", Both),
        ],
    ),
    (
        "chaos",
        &[
            Test(FAULTS, "killing_a_tenth_of_the_workers_again_and_again_is_survived", Ci),
            Test(MAILBOX_FAULTS, "killed_shard_workers_lose_nothing_and_keep_order_and_the_probe_tells", Both),
        ],
    ),
    ("sanitizers", &[Step("sanitizers", Both)]),
    (
        "fuzz",
        &[
            Step("fuzz", Soak),
            Test(FUZZ_TABLE, "every_target_has_a_test", Ci),
            Test(FRAMES, "frames_over_the_limit_are_refused_by_their_header", Ci),
            Test(FRAMES, "many_peers_that_announce_much_and_send_little_cost_little", Ci),
        ],
    ),
    (
        "amnesia",
        &[
            Test(AMNESIA, "amnesia_opens_nothing_for_writing_in_a_whole_life", Ci),
            Test(AMNESIA_MEMORY, "no_secret_and_no_message_is_in_memory_at_the_last_moment", Ci),
        ],
    ),
    (
        "pq",
        &[
            Test(TLS, "tls_is_1_3_with_http2_and_a_key_exchange_that_lasts", Ci),
            Test(TLS, "old_plain_and_stalled_clients_do_not_get_in", Ci),
            Test(SESSION_IDENTITY, "the_key_exchange_is_what_both_policies_allow", Ci),
            Test(SESSION_TCP, "a_handshake_that_stalls_ends_after_three_seconds", Ci),
        ],
    ),
    (
        "index-hedge",
        &[
            Test(INDEX_HEDGING, "an_alpha_peer_dropped_in_flight_a_beta_peer_wins_and_the_losers_are_cancelled", Ci),
            Test(INDEX_HEDGING, "a_lookup_that_nobody_waits_for_is_cancelled_at_its_targets", Ci),
            Test(INDEX_STOPPED, "one_of_twelve_nodes_stands_still_and_no_lookup_waits_for_it", Ci),
        ],
    ),
    (
        "index-flood",
        &[
            Test(INDEX_PRESSURE, "one_address_meets_its_cap_and_others_do_not", Ci),
            Test(INDEX_LOOKUP_FLOOD, "a_flood_of_lookups_leaves_the_p99_of_others_as_it_was", Ci),
            Test(INDEX_FLOOD, "a_flood_of_one_address_changes_little_for_others", Ci),
        ],
    ),
    ("mailbox-once", &[Test(MAILBOX_GATES, "many_producers_with_one_key_make_one_delivery", Ci)]),
    (
        "mailbox-visibility",
        &[
            Test(MAILBOX_GATES, "a_message_nobody_acknowledged_is_back_at_the_end_of_its_lease", Ci),
            Test(MAILBOX_GATES, "an_acknowledgement_is_final", Ci),
        ],
    ),
    ("mailbox-kill", &[Test(KILL, "nothing_acknowledged_is_lost_when_the_node_is_killed_again_and_again", Both)]),
    (
        "mailbox-order",
        &[
            Test(MAILBOX_FAULTS, "order_within_a_shard_holds_and_a_failover_disturbs_it_little", Ci),
            Test(MAILBOX_FAULTS, "killed_shard_workers_lose_nothing_and_keep_order_and_the_probe_tells", Both),
        ],
    ),
    ("chaos-rewarder", &[Test(REWARDER, "half_of_the_workers_die_under_load_and_every_run_is_sealed_once", Ci)]),
    (
        "rewarder-conserve",
        &[
            Test(REWARDER_SERVICE, "a_breach_of_conservation_is_sealed_as_such_and_pays_nobody", Ci),
            Test(REWARDER_CRASH, "the_power_goes_at_every_operation_of_the_disk", Both),
            Test(REWARDER_CRASH, "the_node_dies_or_hears_nothing_at_every_call_to_the_ledger", Ci),
            Test(REWARDER_POSTGRES, "a_node_killed_while_postgres_is_its_ledger_pays_everybody_once", Both),
        ],
    ),
    ("runtimes", &[Step("current-thread", Both), Bench(RUNTIMES, "macronode-bench kernel")]),
];

/// Gates of services that are not on the list yet, each with its service.
const WAITING: &[(&str, &str)] = &[];

const DRAIN: &str = "crates/macronode/tests/it/gates/drain.rs";
const LIMITS: &str = "crates/macronode/tests/it/gates/limits.rs";
const FAULTS: &str = "crates/macronode/tests/it/gates/faults.rs";
const FRAMES: &str = "crates/macronode/tests/it/hostile/frames.rs";
const TLS: &str = "crates/macronode/tests/it/hostile/tls.rs";
const AMNESIA: &str = "crates/macronode/tests/it/operations/amnesia.rs";
const AMNESIA_MEMORY: &str = "crates/macronode/tests/it/operations/amnesia_memory.rs";
const MAILBOX_GATES: &str = "crates/macronode/tests/it/mailbox/gates.rs";
const MAILBOX_FAULTS: &str = "crates/macronode/tests/it/mailbox/faults.rs";
const REWARDER: &str = "crates/macronode/tests/it/rewarder/crowds.rs";
const REWARDER_CRASH: &str = "crates/rewarder/src/service/crash.rs";
const REWARDER_POSTGRES: &str = "crates/macronode/tests/it/rewarder/postgres.rs";
const REWARDER_SERVICE: &str = "crates/rewarder/src/service/tests.rs";
const OVERLAY_STOPPED: &str = "crates/macronode/tests/it/overlay/stopped.rs";
const INDEX_HEDGING: &str = "crates/index/tests/index/hedging.rs";
const INDEX_DEADLINE: &str = "crates/macronode/tests/it/index/deadline.rs";
const INDEX_PRESSURE: &str = "crates/index/tests/index/pressure.rs";
const INDEX_LOOKUP_FLOOD: &str = "crates/index/tests/index/flood.rs";
const INDEX_FLOOD: &str = "crates/macronode/tests/it/index/flood.rs";
const INDEX_STOPPED: &str = "crates/macronode/tests/it/index/stopped.rs";
const SESSION_IDENTITY: &str = "crates/transport/src/tests/identity.rs";
const SESSION_TCP: &str = "crates/transport/src/tests/tcp.rs";
const KILL: &str = "crates/macronode/tests/it/mailbox/kill.rs";
const LOOM: &str = "tools/models/loom-models/src/cells.rs";
const KERNEL_MODELS: &str = "tools/models/shuttle-models/src/kernel.rs";
const MAILBOX_MODELS: &str = "tools/models/shuttle-models/src/mailbox.rs";
const FUZZ_TABLE: &str = "fuzz/tests/targets/table.rs";
const RUNTIMES: &str = "crates/bench/src/kernel/runtimes.rs";
const CI_STEPS: &str = "xtask/src/ci.rs";
const SOAK_STEPS: &str = "xtask/src/soak.rs";

/// A row of the contract.
struct Gate {
    id: String,
    says: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn gates_in(folder: &Path) -> Vec<Gate> {
    let text = std::fs::read_to_string(folder.join("gates.toml")).expect("the gates of the contract");
    let table: toml::Table = text.parse().expect("valid TOML");
    let word = |row: &toml::Value, key: &str| row[key].as_str().expect("text").to_owned();
    let rows = table["gate"].as_array().expect("a list").iter();
    rows.map(|row| Gate { id: word(row, "id"), says: word(row, "says") }).collect()
}

fn holders(gate: &str) -> &'static [Holder] {
    HELD.iter().find(|(id, _)| *id == gate).map_or(&[], |(_, holders)| holders)
}

/// The service a gate waits for; none once the service exists.
fn waits_for(gate: &str) -> Option<&'static str> {
    let exists = |name: &str| macronode::services::SERVICES.iter().any(|service| service.spec().name == name);
    WAITING.iter().find(|(id, service)| *id == gate && !exists(service)).map(|(_, service)| *service)
}

/// Text of docs/gates.md.
pub fn page() -> String {
    let mut page =
        "# Acceptance gates\n\nGenerated by `cargo xtask docgen`; edits here are overwritten.\n\n".to_owned();
    page.push_str(
        "What the contract promises, and what fails when it is missed. CI is `cargo xtask ci`, the soak is \
         `cargo xtask soak`; a step of them is run alone with `cargo xtask ci --only STEP`. A gate that nothing holds \
         fails the build unless its service does not exist yet; the part of a promise that speaks of a service to come \
         waits with it.\n\n\
         | gate | promise | held by | runs in |\n| --- | --- | --- | --- |\n",
    );
    for Gate { id, says } in gates_in(&root().join("contract")) {
        match waits_for(&id) {
            Some(service) => {
                let _ = writeln!(page, "| `{id}` | {says} | waits for the service {service} | - |");
            }
            None => write_holders(&mut page, &id, &says),
        }
    }
    page
}

fn write_holders(page: &mut String, id: &str, says: &str) {
    for (number, holder) in holders(id).iter().enumerate() {
        let (held_by, runs) = match holder {
            Test(file, name, runs) => (format!("[`{name}`](../{file})"), runs.words().to_owned()),
            Step(name, runs) => (format!("step `{name}`"), runs.words().to_owned()),
            Bench(file, command) => (format!("bench [{file}](../{file})"), format!("`{command}`")),
        };
        let (id, says) = if number == 0 { (format!("`{id}`"), says) } else { (String::new(), "") };
        let _ = writeln!(page, "| {id} | {says} | {held_by} | {runs} |");
    }
}

/// Why a gate is not held; nothing if it is, or waits.
fn complaint(gate: &str) -> Option<String> {
    match (waits_for(gate), holders(gate)) {
        (None, []) => Some(format!("nothing holds the gate {gate}")),
        (Some(_), [_, ..]) => Some(format!("the gate {gate} is held and no longer waits")),
        _ => None,
    }
}

/// Why what is named is not there; nothing if it is.
fn missing(holder: Holder) -> Option<String> {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap_or_default();
    let complaint = |is_right: bool, what: String| (!is_right).then_some(what);
    match holder {
        Test(file, name, runs) => {
            let source = read(file);
            let (before, after) = source.split_once(&format!("fn {name}(")).unwrap_or_default();
            let attributes = before.rsplit("\n\n").next().unwrap_or_default();
            let body = after.split("\n}\n").next().unwrap_or_default();
            let is_longer = runs != Both || body.contains("soak()") || MODELS.contains(&file);
            complaint(
                attributes.contains("test]") || attributes.contains("test(") || is_scenario(&source, name),
                format!("{file} has no test {name}"),
            )
            .or_else(|| complaint(is_longer, format!("{name} does nothing more in the soak")))
        }
        Step(name, runs) => {
            let has = |file: &str| read(file).contains(&format!("Step::new(\"{name}\","));
            complaint(runs == Soak || has(CI_STEPS), format!("ci has no step {name}"))
                .or_else(|| complaint(runs == Ci || has(SOAK_STEPS), format!("the soak has no step {name}")))
        }
        Bench(file, _) => complaint(root().join(file).is_file(), format!("{file} is missing")),
    }
}

/// Whether the list from which a test is made for each carrier of sessions names it.
fn is_scenario(source: &str, name: &str) -> bool {
    let list = source.split_once("\nfor_each_carrier! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
    list.is_some_and(|(list, _)| list.lines().any(|line| line.trim() == format!("{name},")))
}

/// Models of which the soak tries more by its own command.
const MODELS: [&str; 3] = [LOOM, KERNEL_MODELS, MAILBOX_MODELS];

#[test]
fn every_gate_of_the_contract_is_held_or_waits_for_its_service() {
    let folders = [root().join("contract"), root().join("../shared/contract")];
    let gates: Vec<Gate> =
        folders.iter().filter(|folder| folder.exists()).flat_map(|folder| gates_in(folder)).collect();
    let complaints: Vec<String> = gates.iter().filter_map(|gate| complaint(&gate.id)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let is_known = |id: &str| gates.iter().any(|gate| gate.id == id);
    let named = HELD.iter().map(|(id, _)| *id).chain(WAITING.iter().map(|(id, _)| *id));
    assert_eq!(named.filter(|id| !is_known(id)).collect::<Vec<_>>(), Vec::<&str>::new(), "gates of no contract");
    assert_eq!(complaint("made-up").as_deref(), Some("nothing holds the gate made-up"));
}

#[test]
fn what_holds_a_gate_exists() {
    let named = HELD.iter().flat_map(|(_, holders)| holders.iter());
    let complaints: Vec<String> = named.filter_map(|holder| missing(*holder)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let no_tests = [Test(DRAIN, "dev_node", Ci), Test(DRAIN, "made_up", Ci), Test(SESSION_IDENTITY, "groups", Ci)];
    for absent in no_tests.into_iter().chain([Step("made-up", Both), Step("deny", Both)]) {
        assert!(missing(absent).is_some(), "{absent:?}");
    }
}
