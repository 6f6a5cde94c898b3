//! The gate index-flood where a flood costs the most: each of its questions holds a resolver until its time is over.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join_all, select};
use ron_store::{ContentId, Record, Subject};
use ron_types::limits::index::RESOLVERS;
use svc_index::words::{Outcome, ResolveOptions};
use tokio::time::sleep;

use crate::world::{Behaviour, Router, Setup, TENANT, World, ms, new_key, provider, setup};

/// Questions of the other client: of each kind so many, no more than a reply can answer, a new one after each pause, so
/// that six of them are under way at once.
const QUESTIONS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(200);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200));

/// Times of the other client's answers: for content that somebody has, and for content that nobody has.
#[derive(Default)]
struct Times {
    found: Mutex<Vec<Duration>>,
    missed: Mutex<Vec<Duration>>,
}

fn id(kind: &str, number: u64) -> ContentId {
    ContentId::of_bytes(format!("{kind} {number}").as_bytes())
}

/// One target that is well and eleven that never answer, of which no more than a third may be left out: what nobody has
/// is looked for until the time is over.
fn sick_network() -> Setup {
    let mut setup = setup();
    setup.resolvers = setup.options.resolvers;
    assert_eq!(setup.resolvers, RESOLVERS, "as it is by default");
    let key = new_key();
    let records = (0..QUESTIONS).map(|number| Record::Provider(provider(id("here", number), &key, 1))).collect();
    // It is near to every key, and so among the first that are asked.
    setup.upstreams.push(Arc::new(Router("https://router.example", records)));
    setup.script.peers(1..=11, &Behaviour::Silent);
    setup
}

/// As many questions as one address may have under way, for as long as this is polled; each about something else.
async fn flood(world: &World, from: IpAddr, answered: &AtomicU64) {
    let connection = |number: usize| async move {
        for turn in 0_u64.. {
            let _slot = world.index.admit(from).expect("its own share");
            let subject = Subject::Content(id(&format!("{from} {number}"), turn));
            let options = ResolveOptions { from: Some(from), ..ResolveOptions::default() };
            match world.index.resolve(TENANT, subject, options).await {
                Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                Err(_) => {
                    sleep(ms(100)).await;
                    0
                }
            };
        }
    };
    let at_once = world.live.get().value.per_ip_connections;
    join_all((0..at_once).map(connection)).await;
}

/// The other client's questions, which must all be answered.
async fn ask_others(world: &World, times: &Times) {
    let ask = |kind: &'static str, number: u64| async move {
        sleep(PAUSE * number as u32).await;
        let _slot = world.index.admit(OTHER).expect("it asks little");
        let options = ResolveOptions { from: Some(OTHER), ..ResolveOptions::default() };
        let answer = world.index.resolve(TENANT, Subject::Content(id(kind, number)), options).await.expect("an answer");
        let is_found = answer.outcome == Outcome::Found;
        assert_eq!(is_found, kind == "here", "{kind} {number}: {:?}", answer.outcome);
        let list = if is_found { &times.found } else { &times.missed };
        list.lock().expect("no panic").push(answer.took);
    };
    let here = join_all((0..QUESTIONS).map(|number| ask("here", number)));
    let nowhere = join_all((0..QUESTIONS).map(|number| ask("nowhere", number)));
    tokio::join!(here, nowhere);
}

fn p99(times: &Mutex<Vec<Duration>>) -> Duration {
    let mut times = times.lock().expect("no panic").clone();
    times.sort();
    times[times.len() * 99 / 100 - 1]
}

/// The other client's p99 of both kinds, beside a flood of so many addresses.
async fn p99s(floods: u8) -> [Duration; 2] {
    let times = Arc::new(Times::default());
    let taken = Arc::clone(&times);
    sick_network()
        .run(|world| async move {
            let answered = AtomicU64::new(0);
            let flooders = (1..=floods).map(|last| flood(&world, IpAddr::from([192, 0, 2, last]), &answered));
            let flooders = Box::pin(async {
                join_all(flooders).await;
                std::future::pending::<()>().await;
            });
            let others = Box::pin(async {
                // The flood has all it can get by then.
                sleep(ms(3_000)).await;
                ask_others(&world, &taken).await;
            });
            select(others, flooders).await;
            assert_eq!(answered.load(Ordering::Relaxed) > 100, floods > 0, "a flood is one");
        })
        .await;
    [p99(&times.found), p99(&times.missed)]
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_lookups_leaves_the_p99_of_others_as_it_was() {
    let quiet = p99s(0).await;
    for floods in [1, 3] {
        let flooded = p99s(floods).await;
        eprintln!("p99 beside {floods} flooding addresses {flooded:?}, alone {quiet:?}");
        for (flooded, quiet) in flooded.into_iter().zip(quiet) {
            assert!(flooded <= quiet.mul_f64(1.2), "{flooded:?} beside a flood of {floods}, {quiet:?} without");
        }
    }
}
