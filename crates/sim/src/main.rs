//! `sim --seeds N`: runs seeds, prints one summary line, and the trace of the first seed that fails. `sim gossip` and
//! `sim dht`: run networks of the gossip core and of the lookup core and print their figures.

use std::process::ExitCode;
use std::thread;

use clap::{Args, Parser, Subcommand};
use sim::dht::{DhtScenario, DhtSettings, Membership, World, run_dht};
use sim::gossip::{Scenario, Settings, Topology, run_suite};
use sim::{Failure, Mutation, Stats, run_seed, trace_seed};

/// Runs the real policy under seeds of bad luck.
///
/// A trace has one line per event: virtual time in ms, seed, kind of event, service or task, what followed.
#[derive(Parser)]
#[command(name = "sim", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the trace (of one seed, or of all).
    #[arg(long)]
    verbose: bool,
    /// Make this mistake on purpose, to see it caught: a variant of `ron_policy::Mutation`.
    #[cfg(feature = "mutation")]
    #[arg(long, value_parser = parse_mutation)]
    mutation: Option<Mutation>,
}

impl Options {
    fn mutation(&self) -> Option<Mutation> {
        #[cfg(feature = "mutation")]
        return self.mutation;
        #[cfg(not(feature = "mutation"))]
        None
    }
}

#[derive(Subcommand)]
enum Command {
    /// Runs the gossip core in networks: everything must arrive once and in order, at little more than one send.
    Gossip(GossipOptions),
    /// Runs the lookup core in networks: records are found in a few steps, survive churn, and no lie is believed.
    Dht(DhtOptions),
}

#[derive(Args)]
struct DhtOptions {
    /// Number of nodes; without it networks of 1,000 and 10,000.
    #[arg(long)]
    nodes: Option<usize>,
    /// What happens; without it everything in turn.
    #[arg(long, value_parser = parse_dht_scenario)]
    scenario: Option<DhtScenario>,
    /// The long form: everything in networks of 10,000 nodes as well, more lookups, a day of churn.
    #[arg(long)]
    long: bool,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct GossipOptions {
    /// Number of nodes; without it networks of 100 and 1,000.
    #[arg(long)]
    nodes: Option<usize>,
    /// Neighbours of each node.
    #[arg(long, default_value_t = 8)]
    degree: usize,
    /// Messages in the measured part.
    #[arg(long, default_value_t = 500)]
    messages: usize,
    /// What happens; without it everything in turn.
    #[arg(long, value_parser = parse_scenario)]
    scenario: Option<Scenario>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn parse_scenario(name: &str) -> Result<Scenario, String> {
    let known = Scenario::ALL.into_iter().find(|scenario| format!("{scenario:?}").eq_ignore_ascii_case(name));
    known.ok_or_else(|| format!("not one of {:?}", Scenario::ALL))
}

fn run_gossip(options: &GossipOptions) -> ExitCode {
    let sizes = options.nodes.map_or_else(|| vec![100, 1000], |nodes| vec![nodes]);
    let scenarios = options.scenario.map_or_else(|| Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    let mut is_clean = true;
    for nodes in sizes {
        for scenario in &scenarios {
            let settings = Settings::new(nodes, Topology::Random(options.degree), options.seed);
            let (report, network) = run_suite(*scenario, settings, options.messages);
            println!("{scenario:?} {report}");
            println!("  frames by kind {:?}", network.kinds);
            network.witness.violations.iter().take(10).for_each(|violation| println!("  {violation}"));
            let is_cheap = *scenario != Scenario::Steady || report.sends_per_delivery <= 1.3;
            is_clean &= network.witness.violations.is_empty() && report.missed == 0 && is_cheap;
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse_dht_scenario(name: &str) -> Result<DhtScenario, String> {
    let known = DhtScenario::ALL.into_iter().find(|scenario| format!("{scenario:?}").eq_ignore_ascii_case(name));
    known.ok_or_else(|| format!("not one of {:?}", DhtScenario::ALL))
}

/// Hours of churn in a partial network of this size would take minutes to compute: only the long form has them.
const SHORT_CHURN_NODES_MAX: usize = 2_000;

fn run_dht_suite(options: &DhtOptions) -> ExitCode {
    let sizes = options.nodes.map_or_else(|| vec![1_000, 10_000], |nodes| vec![nodes]);
    let scenarios = options.scenario.map_or_else(|| DhtScenario::ALL.to_vec(), |scenario| vec![scenario]);
    let (lookups, titles, churn_hours) = if options.long { (50_000, 1_000, 24) } else { (4_000, 200, 6) };
    let settings = DhtSettings { lookups, titles, churn_hours, repairs: true, seed: options.seed };
    let mut is_clean = true;
    for nodes in sizes {
        for membership in [Membership::Complete, Membership::Partial] {
            let world = World::new(nodes, membership, options.seed);
            let is_left_out = |scenario: &DhtScenario| {
                let is_costly = *scenario == DhtScenario::Churn && membership == Membership::Partial;
                is_costly && nodes > SHORT_CHURN_NODES_MAX && !options.long && options.scenario.is_none()
            };
            let chosen: Vec<_> = scenarios.iter().copied().filter(|scenario| !is_left_out(scenario)).collect();
            is_clean &= run_dht_scenarios(&chosen, &world, settings);
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs scenarios side by side and prints their figures in order; whether every promise was kept.
fn run_dht_scenarios(scenarios: &[DhtScenario], world: &World, settings: DhtSettings) -> bool {
    let mut is_clean = true;
    thread::scope(|scope| {
        let run = |scenario: DhtScenario| scope.spawn(move || run_dht(scenario, world, settings));
        let handles: Vec<_> = scenarios.iter().map(|scenario| (*scenario, run(*scenario))).collect();
        for (scenario, handle) in handles {
            let report = handle.join().expect("a run that panics is a defect of the simulator or the lookup");
            println!("{scenario:?} {report}");
            let broken = report.broken(scenario);
            broken.iter().for_each(|promise| println!("  {promise}"));
            is_clean &= broken.is_empty();
        }
    });
    is_clean
}

#[cfg(feature = "mutation")]
fn parse_mutation(name: &str) -> Result<Mutation, String> {
    let known = Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name);
    known.ok_or_else(|| format!("not one of {:?}", Mutation::ALL))
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.command {
        Some(Command::Gossip(gossip)) => return run_gossip(gossip),
        Some(Command::Dht(dht)) => return run_dht_suite(dht),
        None => {}
    }
    let (from, count) = options.seed.map_or((options.from, options.seeds), |seed| (seed, 1));
    let run = if options.verbose { run_aloud } else { run_in_parallel };
    let (stats, failures) = run(from, count, options.mutation());
    println!(
        "seeds {} events {} restarts {} drains {} aborts {} jobs {} violations {}",
        stats.seeds + failures.len() as u64,
        stats.events,
        stats.restarts,
        stats.drains,
        stats.aborts,
        stats.jobs,
        failures.len()
    );
    match failures.iter().min_by_key(|failure| failure.seed) {
        None => ExitCode::SUCCESS,
        Some(first) => {
            report(first, &options);
            ExitCode::FAILURE
        }
    }
}

fn report(failure: &Failure, options: &Options) {
    if !options.verbose {
        // The verdict is known; the second run is for its trace.
        let _same = trace_seed(failure.seed, options.mutation(), &mut |line| println!("{line}"));
    }
    println!("{failure}");
    let (features, mutation) = match options.mutation() {
        Some(mutation) => (" --features mutation", format!(" --mutation {mutation:?}")),
        None => ("", String::new()),
    };
    println!("again with: cargo run -p sim{features} -- --seed {} --verbose{mutation}", failure.seed);
}

fn run_aloud(from: u64, count: u64, mutation: Option<Mutation>) -> (Stats, Vec<Failure>) {
    let run = |offset| trace_seed(from.wrapping_add(offset), mutation, &mut |line| println!("{line}"));
    collect((0..count).map(run))
}

fn run_in_parallel(from: u64, count: u64, mutation: Option<Mutation>) -> (Stats, Vec<Failure>) {
    let lanes = thread::available_parallelism().map_or(1, |lanes| lanes.get() as u64);
    let run_lane = |lane: u64| {
        let offsets = (lane..count).step_by(lanes as usize);
        collect(offsets.map(|offset| run_seed(from.wrapping_add(offset), mutation)))
    };
    let mut total = (Stats::default(), Vec::new());
    thread::scope(|scope| {
        let handles: Vec<_> = (0..lanes).map(|lane| scope.spawn(move || run_lane(lane))).collect();
        for handle in handles {
            let (stats, failures) =
                handle.join().expect("a seed that panics is a defect of the simulator or the policy");
            total.0.add(stats);
            total.1.extend(failures);
        }
    });
    total
}

fn collect(results: impl Iterator<Item = Result<Stats, Failure>>) -> (Stats, Vec<Failure>) {
    let mut total = (Stats::default(), Vec::new());
    for result in results {
        match result {
            Ok(stats) => total.0.add(stats),
            Err(failure) => total.1.push(failure),
        }
    }
    total
}
