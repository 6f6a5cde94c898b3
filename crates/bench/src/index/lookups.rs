//! Lookups in networks of nodes, some of which do not answer: ours, ours without hedges, and stock Kademlia.

use std::time::Duration;

use hdrhistogram::Histogram;
use ron_store::ContentId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ours::OurNetwork;
use super::processes::ProcessNetwork;
use super::thread::Hindrance;
use super::{Absent, Options};
use crate::load::new_histogram;

/// Time that nodes have to find each other, or that records have to find their places.
pub const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// Nodes of the networks, in a whole run and in a short one.
pub const SIZES: [usize; 2] = [12, 100];
pub const SIZES_QUICK: [usize; 2] = [12, 24];
/// Lookups of a node that has joined before it is measured: it has met its neighbours then.
const WARM_UP: u64 = 10;

/// One lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// Whether somebody has what was looked up.
    pub is_published: bool,
    /// Time to the first provider, if there was one.
    pub first: Option<Duration>,
    /// Time to the end of the lookup, if it was waited for.
    pub end: Option<Duration>,
    /// Questions asked.
    pub asks: usize,
    /// Questions among them that were asked because others took long.
    pub hedges: usize,
}

/// What is looked up in one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Lookups of something that somebody has.
    pub published: u64,
    /// Lookups of something that nobody has.
    pub unpublished: u64,
    /// Time between the beginnings of two lookups.
    pub every: Duration,
    /// Time after the last beginning for which a lookup that has not ended is waited for.
    pub patience: Duration,
}

impl Plan {
    /// What is looked up, in order, each with whether somebody has it.
    pub fn wanted(&self) -> impl Iterator<Item = (ContentId, bool)> + use<> {
        let (published, all) = (self.published, self.published + self.unpublished);
        // Spread, so that both kinds meet the same minutes of the machine.
        let stride = (all / self.unpublished.max(1)).max(1);
        let mut next = [0, published];
        (0..all).map(move |turn| {
            let is_published = next[0] < published && (turn % stride != 0 || next[1] >= all);
            let kind = usize::from(!is_published);
            next[kind] += 1;
            (content(next[kind] - 1), is_published)
        })
    }
}

/// The content with this number.
pub fn content(number: u64) -> ContentId {
    ContentId::of_bytes(&number.to_le_bytes())
}

/// What a node that has joined looks up first; nobody has it, so that all its neighbours are asked.
pub fn warm_up() -> impl Iterator<Item = ContentId> {
    (0..WARM_UP).map(|number| content(u64::MAX - number))
}

/// What is wrong with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Nodes that are hindered.
    pub nodes: usize,
    /// How they are hindered.
    pub how: Option<Hindrance>,
}

/// The troubles that are measured.
pub const TROUBLES: [Trouble; 4] = [
    Trouble { nodes: 0, how: None },
    Trouble { nodes: 1, how: Some(Hindrance::Still) },
    Trouble { nodes: 3, how: Some(Hindrance::Still) },
    Trouble { nodes: 3, how: Some(Hindrance::Slow) },
];

/// Who looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our index.
    Hedged,
    /// Our index with `index.beta = 0`.
    Unhedged,
    /// Our binary: a process for each node, asked over HTTP.
    Processes,
    /// `get_providers` of libp2p's Kademlia as it comes.
    Kademlia,
}

/// All lookups of one kind in one network with one trouble, one item for each round.
pub struct Series {
    /// Who looked up.
    pub kind: Kind,
    /// Nodes of the network.
    pub nodes: usize,
    /// What was wrong with it.
    pub trouble: Trouble,
    /// Figures of the rounds.
    pub rounds: Vec<Figures>,
}

/// Milliseconds of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Median time to the first provider.
    pub first_p50: f64,
    /// The same for the slowest in a hundred.
    pub first_p99: f64,
    /// Slowest in a hundred to the end of the lookup.
    pub end_p99: f64,
    /// Slowest in a hundred to the end of a lookup of what nobody has; none if nothing of the kind was looked up.
    pub nobody_p99: f64,
    /// Lookups of both kinds.
    pub lookups: usize,
    /// Lookups of something published that found nothing in their time.
    pub missed: usize,
    /// Questions asked.
    pub asks: usize,
    /// Hedges among them.
    pub hedges: usize,
}

impl Figures {
    /// What the lookups of a round come to; one that never ended counts with the time it was waited for.
    pub fn of(lookups: &[Lookup], patience: Duration) -> anyhow::Result<Figures> {
        let [mut first, mut end, mut nobody] = [new_histogram()?, new_histogram()?, new_histogram()?];
        let mut figures = Figures { lookups: lookups.len(), ..Figures::default() };
        let record = |histogram: &mut Histogram<u64>, time: Duration| {
            histogram.saturating_record(time.as_micros() as u64);
        };
        for lookup in lookups {
            figures.asks += lookup.asks;
            figures.hedges += lookup.hedges;
            let ended = lookup.end.unwrap_or(patience);
            if lookup.is_published {
                figures.missed += usize::from(lookup.first.is_none());
                record(&mut first, lookup.first.unwrap_or(patience));
                record(&mut end, ended);
            } else {
                record(&mut nobody, ended);
            }
        }
        let millis = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        figures.first_p50 = millis(&first, 0.5);
        figures.first_p99 = millis(&first, 0.99);
        figures.end_p99 = millis(&end, 0.99);
        figures.nobody_p99 = millis(&nobody, 0.99);
        Ok(figures)
    }
}

/// The networks of one size, each if it could be made.
struct Networks {
    ours: Option<OurNetwork>,
    processes: Option<ProcessNetwork>,
    #[cfg(feature = "peers")]
    kademlia: Option<super::kademlia::KademliaNetwork>,
}

/// Measures networks of all sizes.
pub async fn measure(options: &Options, absent: &mut Vec<Absent>) -> Vec<Series> {
    let mut all = Vec::new();
    for nodes in options.size.pick(SIZES_QUICK, SIZES).into_iter().filter(|nodes| options.nodes.contains(nodes)) {
        let plan = options.plan();
        eprintln!("a network of {nodes} nodes");
        if let Err(error) = raise_descriptors(nodes) {
            super::not_measured(absent, &format!("networks of {nodes} nodes"), &error);
            continue;
        }
        let networks = Networks::start(options, nodes, &plan, absent).await;
        // A hundred nodes show the same in fewer rounds: each of their lookups asks more of them.
        let rounds = if nodes > 50 { options.rounds.div_ceil(2) } else { options.rounds };
        for round in 0..rounds {
            for (turn, trouble) in TROUBLES.into_iter().enumerate() {
                eprintln!("{nodes} nodes, {trouble}: round {} of {rounds}", round + 1);
                networks.measure(&plan, nodes, trouble, round + turn, &mut all, absent).await;
            }
        }
    }
    all
}

/// All nodes are in this process, and a connection between two of them takes a descriptor at both.
fn raise_descriptors(nodes: usize) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let needed = (nodes * nodes) as u64;
    let may_have = limit.maximum.unwrap_or(u64::MAX);
    anyhow::ensure!(may_have >= needed, "{needed} descriptors may be needed and {may_have} are allowed");
    Ok(())
}

impl Networks {
    async fn start(options: &Options, nodes: usize, plan: &Plan, absent: &mut Vec<Absent>) -> Networks {
        let mut lacks = |what: &str, error: anyhow::Error| {
            super::not_measured(absent, &format!("{what}, {nodes} nodes"), &error);
        };
        let ours = OurNetwork::start(nodes, plan.published).await;
        let ours = ours.map_err(|error| lacks("our network in one process", error)).ok();
        let processes = match &options.node {
            // A process has its own threads, caches and files: a hundred of them would measure this machine.
            Ok(binary) if nodes == SIZES[0] => {
                let started = ProcessNetwork::start(binary, nodes, plan.published, &options.scratch).await;
                started.map_err(|error| lacks("our network of processes", error)).ok()
            }
            Ok(_) => None,
            Err(error) => {
                lacks("our network of processes", anyhow::anyhow!("{error}"));
                None
            }
        };
        #[cfg(feature = "peers")]
        let kademlia = match options.peers {
            true => {
                let started = super::kademlia::KademliaNetwork::start(nodes, plan.published).await;
                started.map_err(|error| lacks("libp2p's Kademlia", error)).ok()
            }
            false => None,
        };
        #[cfg(not(feature = "peers"))]
        if options.peers {
            lacks("libp2p's Kademlia", anyhow::anyhow!("this binary was built without the feature `peers`"));
        }
        Networks {
            ours,
            processes,
            #[cfg(feature = "peers")]
            kademlia,
        }
    }

    /// One round of one trouble, the systems one after the other; another one goes first each time.
    async fn measure(
        &self,
        plan: &Plan,
        nodes: usize,
        trouble: Trouble,
        round: usize,
        all: &mut Vec<Series>,
        absent: &mut Vec<Absent>,
    ) {
        let kinds = [Kind::Hedged, Kind::Unhedged, Kind::Processes, Kind::Kademlia];
        let which = victims(nodes, trouble.nodes, round);
        for turn in 0..kinds.len() {
            let kind = kinds[(turn + round) % kinds.len()];
            let Some(looked_up) = self.look_up(kind, plan, &which, trouble.how).await else { continue };
            match looked_up.and_then(|lookups| Figures::of(&lookups, plan.patience)) {
                Ok(figures) => {
                    let same =
                        |series: &&mut Series| (series.kind, series.nodes, series.trouble) == (kind, nodes, trouble);
                    match all.iter_mut().find(same) {
                        Some(series) => series.rounds.push(figures),
                        None => all.push(Series { kind, nodes, trouble, rounds: vec![figures] }),
                    }
                }
                Err(error) => {
                    eprintln!("*** {kind:?} failed: {error:#}");
                    absent.push((format!("{kind}, {nodes} nodes, {trouble}, one round"), format!("{error:#}")));
                }
            }
        }
    }

    /// The lookups of one kind; none if its network is not there.
    async fn look_up(
        &self,
        kind: Kind,
        plan: &Plan,
        which: &[usize],
        how: Option<Hindrance>,
    ) -> Option<anyhow::Result<Vec<Lookup>>> {
        match kind {
            Kind::Hedged | Kind::Unhedged => {
                Some(Box::pin(self.ours.as_ref()?.look_up(plan, kind == Kind::Hedged, which, how)).await)
            }
            Kind::Processes => Some(Box::pin(self.processes.as_ref()?.look_up(plan, which, how)).await),
            #[cfg(feature = "peers")]
            Kind::Kademlia => Some(Box::pin(self.kademlia.as_ref()?.look_up(plan, which, how)).await),
            #[cfg(not(feature = "peers"))]
            Kind::Kademlia => None,
        }
    }
}

/// Nodes to hinder, others in each round; never the first, through which new nodes join.
fn victims(nodes: usize, count: usize, round: usize) -> Vec<usize> {
    // Seven has no factor in common with 11 or 99, so that the victims differ.
    (0..count).map(|number| 1 + (round * 3 + number) * 7 % (nodes - 1)).collect()
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.how {
            None => f.write_str("all answer"),
            Some(Hindrance::Still) => write!(f, "{} black-holed", self.nodes),
            Some(Hindrance::Slow) => write!(f, "{} slow", self.nodes),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Hedged => "macronode",
            Kind::Unhedged => "macronode without hedges",
            Kind::Processes => "macronode, processes over HTTP",
            Kind::Kademlia => "libp2p kad",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { published: 6, unpublished: 2, every: Duration::ZERO, patience: Duration::from_secs(12) }
    }

    #[test]
    fn everything_is_looked_up_once() {
        let mut wanted: Vec<_> = plan().wanted().collect();
        assert_eq!(wanted.iter().filter(|(_, is_published)| *is_published).count(), 6);
        assert!(!wanted[0].1 && wanted[1].1, "both kinds from the beginning");
        wanted.sort_by_key(|(content, _)| content.cid_text());
        wanted.dedup();
        assert_eq!(wanted.len(), 8);
    }

    #[test]
    fn victims_are_distinct_and_never_the_first() {
        for nodes in SIZES {
            for round in 0..40 {
                let mut which = victims(nodes, 3, round);
                which.sort_unstable();
                which.dedup();
                assert!(which.len() == 3 && which[0] > 0 && which[2] < nodes, "{which:?}");
            }
        }
    }

    #[test]
    fn a_lookup_that_never_ended_counts_with_the_time_it_was_waited_for() {
        let ms = Duration::from_millis;
        let lookup = |is_published, first, end| Lookup { is_published, first, end, asks: 3, hedges: 1 };
        let lookups =
            [lookup(true, Some(ms(1)), Some(ms(2))), lookup(true, None, None), lookup(false, None, Some(ms(400)))];
        let figures = Figures::of(&lookups, plan().patience).expect("a histogram");
        assert_eq!((figures.missed, figures.asks, figures.hedges), (1, 9, 3));
        assert!((0.9..1.1).contains(&figures.first_p50) && figures.first_p99 > 11_900.0, "{figures:?}");
        assert!((399.0..401.0).contains(&figures.nobody_p99) && figures.end_p99 > 11_900.0, "{figures:?}");
    }
}
