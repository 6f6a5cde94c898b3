//! A node whose ledger is a real PostgreSQL, killed with SIGKILL again and again while it pays, and its connections
//! with it: every epoch ends settled, and every payout is in the tables once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ron_ledger::{PostgresLedger, PostgresOptions};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Postgres, PostgresStart};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::process::Process;
use crate::rewarder::service::{Caller, UNSIGNED, assert_no_leftovers, caller_of, usage, write_settings};

/// Payees of most epochs: one call to the ledger for each asset.
const FEW: usize = 200;
/// Payees of some: two calls for each asset.
const MANY: usize = 4_200;
const POOLS: [(&str, u64); 2] = [("RON", 1_000_003), ("PTS", 77_777)];
/// Questions to PostgreSQL after which a moment that does not come is given up: the epoch is over already.
const LOOKS_MAX: usize = 3_000;

/// Numbers that are the same in each run of the test.
struct Dice(u64);

impl Dice {
    /// From 0 on, below `high`.
    fn roll(&mut self, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % high
    }
}

/// Somebody who looks at the tables, ends connections, and is no ledger.
struct Onlooker {
    client: tokio_postgres::Client,
    /// Moves the bytes of the connection.
    _driver: JoinSet<()>,
}

impl Onlooker {
    async fn of(server: &Postgres) -> Onlooker {
        let (client, connection) = tokio_postgres::connect(&server.over_socket(), NoTls).await.expect("a connection");
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        Onlooker { client, _driver: driver }
    }

    async fn count(&self, question: &str) -> i64 {
        self.client.query_one(question, &[]).await.expect("answered").get(0)
    }

    /// Waits until the answer is above zero, and for so many questions more.
    async fn until(&self, question: &str, more: u64) {
        for _ in 0..LOOKS_MAX {
            if self.count(question).await > 0 {
                break;
            }
        }
        for _ in 0..more {
            self.count("SELECT 1::bigint").await;
        }
    }
}

/// When something is ended.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the request.
    After(Duration),
    /// While PostgreSQL works for the node, after so many questions more.
    AtWork(u64),
    /// When the first payouts of the epoch are booked, after so many questions more.
    Booked(u64),
}

impl Moment {
    /// An epoch that nothing disturbs takes `usual` from the request to its settlement.
    fn by(dice: &mut Dice, usual: Duration) -> Moment {
        match dice.roll(4) {
            0 => Moment::AtWork(dice.roll(12)),
            1 => Moment::Booked(dice.roll(12)),
            _ => Moment::After(usual.mul_f64(dice.roll(1_000) as f64 / 1_000.0)),
        }
    }

    async fn come(self, onlooker: &Onlooker, epoch: &str) {
        match self {
            Moment::After(time) => tokio::time::sleep(time).await,
            Moment::AtWork(more) => {
                let at_work = "SELECT count(*) FROM pg_stat_activity
                    WHERE application_name = 'macronode-ledger' AND state <> 'idle'";
                onlooker.until(at_work, more).await;
            }
            Moment::Booked(more) => {
                let booked =
                    format!("SELECT count(*) FROM macronode_ledger.transfers WHERE debit = 'epoch/{epoch}' LIMIT 1");
                onlooker.until(&booked, more).await;
            }
        }
    }
}

/// Ends the connections of the node; gives their number.
async fn end_connections(onlooker: &Onlooker) -> i64 {
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'macronode-ledger'";
    onlooker.count(ended).await
}

/// What was found after the kills, to show that they met the node at work.
#[derive(Debug, Default)]
struct Found {
    unsealed: u64,
    unsettled: u64,
    settled: u64,
    connections_ended: i64,
    duplicates: f64,
}

impl Found {
    /// Many kills came before the end of an epoch, some between a booking and its note, and many connections ended.
    fn is_enough(&self, rounds: u64) -> bool {
        let Found { unsealed, unsettled, connections_ended, duplicates, .. } = *self;
        let are_early = unsealed + unsettled > rounds / 5;
        are_early && unsettled > 0 && duplicates > 0.0 && connections_ended > rounds.cast_signed() / 8
    }
}

struct Test {
    folder: tempfile::TempDir,
    onlooker: Onlooker,
    found: Found,
    /// Rounds whose epoch was not seen settled yet. More than one, if a kill meets an epoch that an earlier kill met.
    open: BTreeSet<u64>,
}

impl Test {
    async fn new(server: &Postgres) -> Test {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        write_settings(&at("ledger.toml"), format!("address = {:?}\n", server.over_tcp()));
        // Without the mailbox a node starts sooner.
        let config = format!(
            "services = [\"http\", \"oap\", \"rewarder\"]\n{UNSIGNED}ledger = \"postgres\"\nledger_settings = {:?}\n",
            at("ledger.toml").display().to_string(),
        );
        std::fs::write(at("macronode.toml"), config).expect("written");
        let onlooker = Onlooker::of(server).await;
        Test { folder, onlooker, found: Found::default(), open: BTreeSet::new() }
    }

    async fn start(&self) -> (Process, Caller) {
        let config = self.folder.path().join("macronode.toml").display().to_string();
        let node = Process::start(self.folder.path(), &self.data(), &["--config", &config]).await;
        let caller = caller_of(&node);
        (node, caller)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Gives the time that an epoch takes which nothing disturbs.
    async fn rehearse(&mut self) -> Duration {
        let (mut node, caller) = self.start().await;
        let began = Instant::now();
        self.ask_for(&caller, 0).await;
        assert_eq!(caller.ended(&epoch(0)).await["state"], "settled");
        let usual = began.elapsed();
        node.signal(Signal::KILL);
        node.wait_exit().await;
        usual
    }

    async fn ask_for(&self, caller: &Caller, round: u64) {
        let actors = if round % 8 == 5 { MANY } else { FEW };
        let b3 = caller.upload(&usage(actors, round as usize)).await;
        let weights = json!({"usage": "1"});
        let assets =
            POOLS.map(|(asset, pool)| json!({"asset": asset, "pool": pool.to_string(), "weights": weights.clone()}));
        let policy = json!({"id": "demo", "ruleset": 1, "assets": assets});
        let request = json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true});
        let begun = caller.compute(&epoch(round), &request).await;
        assert!(matches!(begun.status, 200 | 202), "{}", begun.text());
    }

    /// What became of the epochs that kills met; one that was not sealed is asked for again.
    async fn find(&mut self, caller: &Caller) {
        for round in self.open.clone() {
            let answer = caller.get(&format!("/rewarder/epochs/{}", epoch(round))).await;
            if answer.status == 404 {
                self.found.unsealed += 1;
                self.ask_for(caller, round).await;
                continue;
            }
            let state = answer.json().expect("JSON")["state"].clone();
            match state.as_str() {
                Some("released") => self.found.unsettled += 1,
                Some("settled") => {
                    self.found.settled += 1;
                    self.open.remove(&round);
                }
                _ => panic!("epoch {round} is {state} after a kill"),
            }
        }
    }

    /// Waits until every epoch is paid that kills met.
    async fn settled(&mut self, caller: &Caller) {
        for round in std::mem::take(&mut self.open) {
            assert_eq!(caller.ended(&epoch(round)).await["state"], "settled", "round {round}");
        }
    }

    /// One life of the node: from the epoch that the kill before it met, into the next kill.
    async fn live(&mut self, dice: &mut Dice, usual: Duration, round: u64) {
        let (mut node, caller) = self.start().await;
        self.find(&caller).await;
        // Now and then the next epoch comes while the one before is still being paid, and a kill meets both.
        if dice.roll(4) > 0 {
            self.settled(&caller).await;
            self.found.duplicates += node.metric(r#"reward_intents_total{outcome="duplicate"}"#).await;
        }
        self.open.insert(round);
        self.ask_for(&caller, round).await;
        if round % 2 == 1 {
            Moment::by(dice, usual).come(&self.onlooker, &epoch(round)).await;
            self.found.connections_ended += end_connections(&self.onlooker).await;
        }
        Moment::by(dice, usual).come(&self.onlooker, &epoch(round)).await;
        node.signal(Signal::KILL);
        node.wait_exit().await;
    }

    /// Every payout that the node says it made is in the tables, and nothing else is.
    async fn compare(&self, caller: &Caller, rounds: u64) {
        let mut booked = BTreeMap::new();
        let all = "SELECT debit, asset, credit, amount::text FROM macronode_ledger.transfers";
        for row in self.onlooker.client.query(all, &[]).await.expect("answered") {
            let payout: (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let before = booked.insert(payout.clone(), row.get::<_, String>(3));
            assert_eq!(before, None, "{payout:?} is paid twice");
        }
        for round in 0..=rounds {
            let lines = caller.get(&format!("/rewarder/epochs/{}/allocations", epoch(round))).await;
            let mut sums = BTreeMap::new();
            for line in lines.text().lines() {
                let line: Value = serde_json::from_str(line).expect("JSON");
                let [actor, asset, amount] = ["actor", "asset", "amount"].map(|key| line[key].as_str().expect("text"));
                if amount != "0" {
                    let payout = (format!("epoch/{}", epoch(round)), asset.to_owned(), actor.to_owned());
                    assert_eq!(booked.remove(&payout).as_deref(), Some(amount), "{payout:?}");
                }
                *sums.entry(asset.to_owned()).or_insert(0) += amount.parse::<u64>().expect("a number");
            }
            let pools = POOLS.map(|(asset, pool)| (asset.to_owned(), pool));
            assert_eq!(sums, BTreeMap::from(pools), "round {round}");
        }
        assert_eq!(booked, BTreeMap::new(), "payouts that no epoch made");
    }
}

fn epoch(round: u64) -> String {
    format!("round-{round:03}")
}

fn start_server() -> Postgres {
    // The node is killed here, not the machine: syncs would only make the server slow.
    let settings = ["fsync=off", "log_min_messages=fatal", "max_connections=20"].map(str::to_owned).to_vec();
    Postgres::start(&PostgresStart { settings, identity: None }).expect("a server")
}

#[tokio::test]
async fn a_node_killed_while_postgres_is_its_ledger_pays_everybody_once() {
    let server = start_server();
    let rounds_min = if testkit::soak() { 500 } else { 50 };
    let mut test = Test::new(&server).await;
    let usual = test.rehearse().await;
    let mut dice = Dice(0x1357_9bdf_2468_ace1);
    let mut rounds = 0;
    // Where others use the machine, too, fewer kills meet the node at work, and more of them are needed.
    while rounds < rounds_min || !test.found.is_enough(rounds_min) && rounds < 4 * rounds_min {
        rounds += 1;
        test.live(&mut dice, usual, rounds).await;
    }
    let (_node, caller) = test.start().await;
    test.find(&caller).await;
    test.settled(&caller).await;
    for round in 0..=rounds {
        assert_eq!(caller.ended(&epoch(round)).await["state"], "settled", "round {round}");
    }
    test.compare(&caller, rounds).await;
    let ledger = PostgresLedger::new(&PostgresOptions::at(server.over_tcp())).expect("options");
    assert_eq!(ledger.verify().await.expect("answered"), Vec::<String>::new());
    assert_no_leftovers(&test.data());
    println!("kill -9 with PostgreSQL, {rounds} rounds, an epoch takes {usual:?}: {:?}", test.found);
    assert!(test.found.is_enough(rounds_min), "the kills did not meet the node at work: {:?}", test.found);
}
