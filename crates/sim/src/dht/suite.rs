//! The scenarios that are run as a whole: a healthy network, sick peers, liars, churn.

use std::sync::Arc;

use ron_lookup::Conclusion;
use ron_store::Record;

use super::churn::{self, ChurnCounts};
use super::client::{Client, Sought};
use super::report::DhtReport;
use super::titles::Title;
use super::world::{BEGIN_MS, Membership, Nature, REPLICAS, World, random_position};
use crate::gossip::percentiles;
use crate::rng::Rng;

/// Nodes that look things up.
const CLIENTS: usize = 8;
/// Of a hundred lookups, those of keys without a record.
const ABSENT_PERCENT: u64 = 20;
/// Names that a liar stands beside, in a network with liars.
const ECLIPSED: usize = 5;
/// Answers that end a lookup: a node takes the first good one, whoever gives it.
const FIRST: usize = 1;
/// Answers that end the look in the background, which wants to hear all of the nearest.
const WIDE: usize = usize::MAX;
/// Of so many lookups whose first answer was the newest record, one is followed by a look in the background.
const UPGRADES_EVERY: usize = 8;
/// Of a hundred nodes, those that leave in an hour.
const CHURN_PERCENT: u64 = 30;

/// What happens to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhtScenario {
    /// Nothing but lookups.
    Steady,
    /// A tenth of the nodes are black holes, another tenth answers late.
    Sick,
    /// A fifth of the nodes lies; some names are surrounded.
    Liars,
    /// Nodes leave and come for hours before the lookups.
    Churn,
}

impl DhtScenario {
    /// All of them.
    pub const ALL: [DhtScenario; 4] = [DhtScenario::Steady, DhtScenario::Sick, DhtScenario::Liars, DhtScenario::Churn];
}

/// Size and luck of a run.
#[derive(Clone, Copy, Debug)]
pub struct DhtSettings {
    /// Lookups in all.
    pub lookups: usize,
    /// Names in the network.
    pub titles: usize,
    /// Hours of churn.
    pub churn_hours: u64,
    /// Whether records are handed on under churn; without it they are lost, which shows that it is needed.
    pub repairs: bool,
    /// The seed.
    pub seed: u64,
}

/// Runs one scenario in a copy of `world`, a network of honest nodes.
pub fn run_dht(scenario: DhtScenario, world: &World, settings: DhtSettings) -> DhtReport {
    let mut world = world.clone();
    let mut rng = Rng::new(settings.seed ^ 0xd4_7d47);
    let titles: Vec<Title> = (0..settings.titles).map(|number| Title::new(number, BEGIN_MS, &mut rng)).collect();
    spoil(scenario, &mut world, &titles, &mut rng);
    publish(&mut world, &titles);
    let churned = if scenario == DhtScenario::Churn {
        churn::run(&mut world, settings.churn_hours * 60, CHURN_PERCENT, settings.repairs)
    } else {
        ChurnCounts::default()
    };
    // Liars alone make the first answer differ from what all of the nearest say.
    let upgrades = scenario == DhtScenario::Liars;
    let mut report = look_up(&mut world, &titles, settings.lookups, upgrades, &mut rng);
    let is_kept =
        |title: &&Title| world.nodes.iter().any(|node| node.is_alive && node.records.contains_key(&title.key));
    report.surviving = (titles.iter().filter(is_kept).count(), titles.len());
    (report.left, report.repair_calls) = (churned.left, churned.repair_calls);
    report
}

/// Gives nodes their natures, and liars their lies. Nodes that ask stay honest.
fn spoil(scenario: DhtScenario, world: &mut World, titles: &[Title], rng: &mut Rng) {
    for node in world.nodes.iter_mut().skip(CLIENTS) {
        let luck = rng.between(0, 99);
        node.nature = match scenario {
            DhtScenario::Sick if luck < 10 => Nature::BlackHole,
            DhtScenario::Sick if luck < 20 => Nature::Slow,
            DhtScenario::Liars if luck < 20 => Nature::Liar,
            _ => Nature::Honest,
        };
    }
    if scenario == DhtScenario::Liars {
        for title in titles {
            let mut lies = title.forged.clone();
            lies.push(Arc::clone(&title.older));
            world.lies.insert(title.key, lies);
        }
        for title in titles.iter().take(ECLIPSED) {
            (1..=REPLICAS as u8).for_each(|number| world.eclipse(&title.key, number));
        }
    }
}

/// Places each record at the nodes that its publisher believes to be the nearest.
fn publish(world: &mut World, titles: &[Title]) {
    let mut clients = clients(world);
    for (index, title) in titles.iter().enumerate() {
        let nearest = match world.membership {
            Membership::Complete => {
                world.shared.nearest(&title.key, REPLICAS).into_iter().map(|candidate| candidate.target).collect()
            }
            Membership::Partial => clients[index % CLIENTS].find_nearest(world, title.key).answered,
        };
        nearest.into_iter().take(REPLICAS).for_each(|node| world.keep(node, title.key, &title.newest));
    }
}

fn clients(world: &World) -> Vec<Client> {
    let asking = world.alive.iter().filter(|(_, node)| world.nodes[*node as usize].nature == Nature::Honest);
    let step = world.alive.len() / (2 * CLIENTS);
    asking.step_by(step.max(1)).take(CLIENTS).map(|(_, node)| Client::new(*node, world.now_ms)).collect()
}

/// Looks names up as the index does: the first valid record is the answer, and where `upgrades` all of the nearest are
/// asked after it, in the background, for a newer one.
fn look_up(world: &mut World, titles: &[Title], lookups: usize, upgrades: bool, rng: &mut Rng) -> DhtReport {
    let mut clients = clients(world);
    let mut report = DhtReport { membership: world.membership, nodes: world.alive.len(), ..DhtReport::default() };
    let (mut hops, mut took) = (Vec::new(), Vec::new());
    for number in 0..lookups {
        let client = &mut clients[number % CLIENTS];
        let is_absent = rng.percent(ABSENT_PERCENT);
        let title = &titles[rng.between(0, titles.len() as u64 - 1) as usize];
        let key = if is_absent { random_position(rng) } else { title.key };
        let first = client.look_up(world, key, FIRST);
        let (hops_of_first, took_ms) = (first.finished.hops, first.took_ms);
        let is_first = |record: &Arc<Record>| !is_absent && first.best.as_ref() == Some(record);
        report.first_stale += usize::from(is_first(&title.older));
        report.wrong += title.forged.iter().filter(|forged| is_first(forged)).count();
        report.longest_ms = report.longest_ms.max(first.took_ms);
        // Nothing is newer than the newest: after such an answer some looks suffice, to see that none makes it worse.
        let is_looked_at = is_first(&title.older) || number % UPGRADES_EVERY == 0;
        let sought = if upgrades && first.best.is_some() && is_looked_at {
            let wide = client.look_up(world, key, WIDE);
            report.longest_ms = report.longest_ms.max(wide.took_ms);
            first.upgraded(wide)
        } else {
            first
        };
        if is_absent {
            report.absent_lookups += 1;
            report.absent += usize::from(sought.finished.conclusion == Conclusion::Absent);
            report.invented += usize::from(sought.best.is_some());
        } else {
            count(&mut report, title, &sought);
            hops.push(hops_of_first);
            took.push(took_ms);
        }
    }
    (report.hops, report.took_ms) = (percentiles(&hops), percentiles(&took));
    for client in &clients {
        let (asks, hedges) = client.guards.budget.counts();
        report.asks = (report.asks.0 + asks, report.asks.1 + hedges);
    }
    report
}

fn count(report: &mut DhtReport, title: &Title, sought: &Sought) {
    report.lookups += 1;
    report.falsely_absent += usize::from(sought.finished.conclusion == Conclusion::Absent);
    match &sought.best {
        Some(best) if *best == title.newest => report.found += 1,
        Some(best) if *best == title.older => report.stale += 1,
        Some(_) => report.wrong += 1,
        None => {}
    }
}
