//! A real PostgreSQL, over its socket, over TCP and over TLS, and with its connections killed.

use super::*;
use ron_ledger::{PostgresLedger, PostgresOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Postgres, PostgresStart};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

/// Connections are killed here, not the machine: syncs would only make it slow.
fn start() -> Postgres {
    let settings = ["fsync=off", "log_min_messages=fatal", "max_connections=20"].map(str::to_owned).to_vec();
    Postgres::start(&PostgresStart { settings, identity: None }).expect("a server")
}

fn ledger(address: String) -> PostgresLedger {
    PostgresLedger::new(&PostgresOptions::at(address)).expect("options")
}

/// A connection beside the ledger's, and the task that moves its bytes.
async fn onlooker(server: &Postgres) -> (tokio_postgres::Client, JoinSet<()>) {
    let (client, connection) = tokio_postgres::connect(&server.over_socket(), NoTls).await.expect("a connection");
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await;
    });
    (client, driver)
}

#[tokio::test]
async fn it_does_what_a_ledger_does() {
    let server = start();
    let ledger = ledger(server.over_socket());
    does_what_a_ledger_does(&ledger).await;
    assert_eq!(ledger.verify().await.expect("good"), Vec::<String>::new());
    assert_eq!(ledger.connections(), 2, "one, and another after the batch that was refused inside PostgreSQL");
    overflows_are_refused(&ledger).await;
    assert_eq!(ledger.verify().await.expect("good"), Vec::<String>::new());
    keeps_pots(&ledger).await;
    assert_eq!(ledger.verify().await.expect("good"), Vec::<String>::new());
    nodes_race_for_a_pot(&server).await;
    tables_of_before_have_no_pots(&server).await;
    many_ledgers_send_the_same(&server).await;
    a_newer_schema_is_left_alone(&server, &ledger).await;
}

async fn overflows_are_refused(ledger: &PostgresLedger) {
    let full = Batch { asset: "BIG".to_owned(), ..batch(9, vec![pay(900, "full", u128::MAX)]) };
    assert_eq!(ledger.submit(&full).await.expect("good"), [Outcome::Accepted], "to the last unit");
    let more = Batch { asset: "BIG".to_owned(), ..batch(9, vec![pay(901, "full", 1)]) };
    refusal(ledger.submit(&more).await);
    let sums = Tally { asset: "BIG".to_owned(), count: 1, paid: u128::MAX, taken_back: 0 };
    assert_eq!(ledger.tally(&[9; 32]).await.expect("good"), [sums]);
}

/// Several nodes with other usage at one epoch: one of them pays, and nothing of the others is booked.
async fn nodes_race_for_a_pot(server: &Postgres) {
    for pot in 30..40_u8 {
        let mut tasks = JoinSet::new();
        for node in 0..4_u8 {
            let ledger = ledger(server.over_tcp());
            tasks.spawn(async move {
                let run = 100 + node;
                let first = u64::from(pot) * 10_000 + u64::from(node) * 1000;
                let sent = Batch { run: [run, pot].repeat(16).try_into().expect("32 bytes"), ..many(pot, first, 50) };
                (sent.run, ledger.submit(&sent).await)
            });
        }
        let ledger = ledger(server.over_tcp());
        let mut booked = 0;
        for (run, answer) in tasks.join_all().await {
            let expected = if answer.is_ok() { vec![tally(50, 50, 0)] } else { vec![] };
            booked += expected.len();
            assert_eq!(ledger.tally(&run).await.expect("good"), expected);
            assert!(answer.is_ok() || refusal(answer).contains("taken"));
        }
        assert_eq!(booked, 1, "pot {pot}");
    }
}

/// What paid from a pot before pots were written down goes on; nothing else pays from it.
async fn tables_of_before_have_no_pots(server: &Postgres) {
    let (onlooker, _driver) = onlooker(server).await;
    let before = ledger(server.over_socket());
    before.submit(&batch(50, vec![pay(5000, "a", 1)])).await.expect("good");
    onlooker.batch_execute("DROP TABLE macronode_ledger.pots").await.expect("good");
    let now = ledger(server.over_socket());
    let other = batch_from(51, 50, None, vec![pay(5100, "a", 1)]);
    assert!(refusal(now.submit(&other).await).contains("epoch/50 is taken"));
    assert_eq!(now.submit(&batch(50, vec![pay(5001, "b", 1)])).await.expect("good"), [Outcome::Accepted]);
    assert!(refusal(now.submit(&other).await).contains("taken by run b3:3232"));
    assert_eq!(now.submit(&batch(52, vec![pay(5200, "a", 1)])).await.expect("good"), [Outcome::Accepted]);
}

/// Several nodes at an empty run, in different orders: no deadlock, and every key once.
async fn many_ledgers_send_the_same(server: &Postgres) {
    let mut tasks = JoinSet::new();
    for node in 0..4_u64 {
        let ledger = ledger(server.over_tcp());
        tasks.spawn(async move {
            let mut accepted = 0;
            for round in 0..10 {
                let mut sent = many(7, 10_000 + round * 300, 300);
                sent.entries.rotate_left((node * 70) as usize);
                let outcomes = ledger.submit(&sent).await.expect("good");
                assert!(!outcomes.contains(&Outcome::Conflict));
                accepted += outcomes.iter().filter(|outcome| **outcome == Outcome::Accepted).count();
            }
            accepted
        });
    }
    let accepted: usize = tasks.join_all().await.into_iter().sum();
    let ledger = ledger(server.over_tcp());
    assert_eq!((accepted, ledger.tally(&[7; 32]).await.expect("good")), (3000, vec![tally(3000, 3000, 0)]));
    assert_eq!(ledger.verify().await.expect("good"), Vec::<String>::new());
}

async fn a_newer_schema_is_left_alone(server: &Postgres, known: &PostgresLedger) {
    let (onlooker, _driver) = onlooker(server).await;
    onlooker
        .batch_execute("UPDATE macronode_ledger.balances SET credits = credits + 1 WHERE account = 'ålice'")
        .await
        .expect("good");
    let faults = known.verify().await.expect("good");
    assert!(faults.iter().any(|fault| fault.starts_with("ålice: the balance in RON")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("RON: ")), "{faults:?}");
    onlooker.batch_execute("UPDATE macronode_ledger.version SET version = 2").await.expect("good");
    let why = absence(ledger(server.over_socket()).submit(&many(8, 20_000, 1)).await);
    assert!(why.contains("version 2"), "{why}");
}

#[tokio::test]
async fn a_server_is_believed_only_with_its_certificate() {
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (own, other) = (made(), made());
    let identity = Some((own.cert.pem(), own.signing_key.serialize_pem()));
    let settings = ["fsync=off", "log_min_messages=fatal"].map(str::to_owned).to_vec();
    let server = Postgres::start(&PostgresStart { settings, identity }).expect("a server");
    let folder = tempfile::tempdir().expect("good");
    let file = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).expect("good");
        Some(path)
    };
    let (ip, port) = (server.address.ip(), server.address.port());
    let address =
        |host: &str| format!("host={host} hostaddr={ip} port={port} user=postgres dbname=postgres sslmode=verify-full");
    let with = |host: &str, ca_file| {
        PostgresLedger::new(&PostgresOptions { ca_file, ..PostgresOptions::at(address(host)) }).expect("options")
    };
    let good = with("localhost", file("own.pem", own.cert.pem()));
    assert_eq!(good.submit(&many(1, 0, 10)).await.expect("good"), [Outcome::Accepted; 10]);
    let (onlooker, _driver) = onlooker(&server).await;
    let encrypted =
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'macronode-ledger'";
    let rows = onlooker.query(encrypted, &[]).await.expect("good");
    assert_eq!(rows.iter().map(|row| row.get::<_, bool>(0)).collect::<Vec<_>>(), [true]);
    let strange = with("localhost", file("other.pem", other.cert.pem()));
    let why = absence(strange.submit(&many(1, 10, 1)).await);
    assert!(why.contains("certificate"), "{why}");
    let misnamed = with("db.example", file("own.pem", own.cert.pem()));
    let why = absence(misnamed.submit(&many(1, 10, 1)).await);
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(good.tally(&[1; 32]).await.expect("good"), [tally(10, 10, 0)]);
}

#[tokio::test]
async fn nobody_there_is_told_and_nothing_waits_for_ever() {
    let closed = testkit::own_address();
    let address = format!("host={} port={} user=u dbname=d", closed.ip(), closed.port());
    absence(ledger(address).submit(&many(1, 0, 1)).await);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("good");
    let port = silent.local_addr().expect("good").port();
    let options = PostgresOptions {
        connect_timeout: Duration::from_millis(50),
        statement_timeout: Duration::from_millis(50),
        ..PostgresOptions::at(format!("host=127.0.0.1 port={port} user=u dbname=d"))
    };
    absence(PostgresLedger::new(&options).expect("good").submit(&many(1, 0, 1)).await);
}

/// Ends the connection of the ledger while it is at work, after so many questions more: at another moment of its
/// transaction each time. Gives the processes of the server that were ended.
async fn kill(onlooker: &tokio_postgres::Client, questions: u64) -> Vec<i32> {
    const TRIES_MAX: usize = 2000;
    let at_work =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'macronode-ledger' AND state <> 'idle'";
    for _ in 0..TRIES_MAX {
        if onlooker.query_one(at_work, &[]).await.expect("good").get::<_, i64>(0) > 0 {
            break;
        }
    }
    for _ in 0..questions {
        onlooker.query_one("SELECT 1", &[]).await.expect("good");
    }
    let ended = "
        SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'macronode-ledger' AND state <> 'idle'";
    onlooker.query(ended, &[]).await.expect("good").iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_killed_and_every_key_is_booked_once() {
    let rounds_min = if testkit::soak() { 500 } else { 50 };
    const ENTRIES: u64 = 400;
    let server = start();
    let (onlooker, _driver) = onlooker(&server).await;
    let ledger = Arc::new(ledger(server.over_tcp()));
    // A process that is slow to end is met again by the next kill, and counts once.
    let (mut killed, mut failures, mut found_booked, mut rounds) = (BTreeSet::new(), 0, 0, 0);
    // Where the ledger is done before it is killed, more rounds are needed.
    while rounds < rounds_min || killed.len() as u64 <= rounds_min / 4 && rounds < 10 * rounds_min {
        let round = rounds;
        rounds += 1;
        let mut sent = many(1, round * ENTRIES, ENTRIES);
        if round > 0 {
            // What an earlier round paid is taken back from now and then.
            sent.entries.push(take_back(1_000_000 + round, &format!("payee {}", round % 100), 1));
        }
        let submitting = async {
            loop {
                match ledger.submit(&sent).await {
                    Ok(outcomes) => {
                        assert!(!outcomes.contains(&Outcome::Conflict));
                        return outcomes.contains(&Outcome::Duplicate);
                    }
                    Err(LedgerError::Unavailable(_)) => failures += 1,
                    Err(refused) => panic!("{refused}"),
                }
            }
        };
        let (was_booked, ended) = tokio::join!(submitting, kill(&onlooker, round * 7 % 23));
        killed.extend(ended);
        found_booked += u64::from(was_booked);
    }
    let (paid, taken_back) = (u128::from(rounds * ENTRIES), u128::from(rounds - 1));
    assert_eq!(ledger.tally(&[1; 32]).await.expect("good"), [tally(rounds * ENTRIES + rounds - 1, paid, taken_back)]);
    assert_eq!(ledger.verify().await.expect("good"), Vec::<String>::new());
    let (killed, connections) = (killed.len() as u64, ledger.connections());
    assert!(killed > rounds_min / 4, "only {killed} connections were killed at work in {rounds} rounds");
    // One that was killed before it was set up does not count as made: the answer that was lost with it does.
    assert!(connections + failures >= killed, "{connections} connections, {failures} answers lost, {killed} killed");
    println!(
        "{rounds} rounds, {killed} killed, {failures} answers lost, {found_booked} batches found booked by a retry"
    );
}
