//! What is asked for, what is written, and how many may listen.

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use ron_auth::{Authority, Grant, RootKey};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use svc_mailbox::{EventId, LiveOptions, MailboxOptions, Missed};

use super::*;
use crate::mailbox::Metered;

fn asked(pairs: &[(&str, &str)]) -> Result<Asked, Error> {
    Asked::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn filter(topics: &[&str]) -> Filter {
    let mut filter = Filter::default();
    topics.iter().for_each(|topic| filter.add(topic).expect("a topic"));
    filter
}

fn made(topic: &str) -> Event {
    Event::TopicMade { topic: topic.parse().expect("a name") }
}

#[test]
fn a_filter_takes_names_and_how_they_begin() {
    let some = filter(&["orders", "jobs.*"]);
    for (topic, expected) in [("orders", true), ("jobs.a", true), ("jobs", false), ("orders.dlq", false)] {
        assert_eq!(some.matches(&made(topic)), expected, "{topic}");
        assert!(filter(&[]).matches(&made(topic)) && filter(&["*"]).matches(&made(topic)));
    }
    let moved = Event::Moved { from: "x".parse().ok(), to: "jobs.a".parse().ok(), count: 3 };
    assert!(some.matches(&moved), "either end of a move counts");
    assert!(!some.matches(&Event::Rebalanced { shards: 3 }), "it concerns the whole node");
    assert!(filter(&[]).matches(&Event::Rebalanced { shards: 3 }));
    for wrong in ["", "a b", "a*b", "**", ".a"] {
        assert!(Filter::default().add(wrong).is_err(), "{wrong:?}");
    }
    let many: Vec<(&str, &str)> = std::iter::repeat_n(("topic", "t"), 33).collect();
    assert!(asked(&many[..32]).is_ok() && asked(&many).is_err());
}

#[test]
fn the_query_is_read_strictly() {
    let read = asked(&[("topic", "a"), ("follow", "false"), ("topic", "b.*"), ("replay", "true")]).expect("read");
    assert_eq!((read.filter, read.replay, read.follow), (filter(&["a", "b.*"]), true, false));
    for wrong in [("follow", "no"), ("replay", ""), ("topics", "a")] {
        assert!(asked(&[wrong]).is_err(), "{wrong:?}");
    }
}

#[test]
fn frames_are_what_readers_expect() {
    let position = EventId { run: 10, number: 7 };
    let mut text = String::new();
    frames::event(&mut text, position, &NumberedEvent { number: 6, at_ms: 5, event: made("t") });
    frames::missed(&mut text, position, Missed { count: None });
    let expected = "id: 000000000000000a-6\nevent: topic_made\n\
        data: {\"at_ms\":5,\"event\":\"topic_made\",\"topic\":\"t\"}\n\n\
        id: 000000000000000a-7\nevent: missed\ndata: {\"count\":null,\"event\":\"missed\"}\n\n";
    assert_eq!(text, expected);
    assert_eq!(frames::beat(position), ": beat\nid: 000000000000000a-7\n\n");
    let end = "id: 000000000000000a-7\nevent: end\ndata: {\"event\":\"end\",\"reason\":\"draining\"}\n\n";
    assert_eq!(frames::end(position, EventsEnd::Draining), end);
    assert!(frames::opened(position).starts_with(b"retry: 1000\nid: 000000000000000a-7\nevent: opened\n"));
}

/// A surface whose node has not been started; time stands still unless somebody waits for it.
fn app() -> Arc<App> {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let kernel = builder.handle();
    let authority = Authority::new(RootKey::generate(), None, || 0);
    let live = Snapshot::new(LiveOptions::default());
    let mailbox = svc_mailbox::install(&mut builder, MailboxOptions::default(), live);
    let metered = Metered::new(kernel.meter());
    Arc::new(App { mailbox, authority, kernel, metered, streams: Arc::default() })
}

async fn opened(app: &Arc<App>) -> (String, BodyDataStream) {
    let rights = vec!["mailbox:admin:*".parse().expect("a right")];
    let grant = Grant { subject: "someone".to_owned(), rights, ..Grant::default() };
    let token = app.authority.mint(&grant).expect("a token");
    let header = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
    let (mut parts, ()) =
        http::Request::builder().header("authorization", header).body(()).expect("built").into_parts();
    let bearer = <Bearer as axum::extract::FromRequestParts<()>>::from_request_parts(&mut parts, &()).await;
    let Ok(bearer) = bearer else { panic!("a token") };
    let answer = open(Arc::clone(app), Call::alone(), bearer, HeaderMap::new(), Query(Vec::new())).await;
    let Ok(response) = answer else { panic!("refused") };
    (token, response.into_body().into_data_stream())
}

async fn next(stream: &mut BodyDataStream) -> Option<String> {
    let bytes = stream.next().await?.expect("it cannot fail");
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_and_a_stream_ends_in_time() {
    let app = app();
    let began = clock::now();
    let (_, mut stream) = opened(&app).await;
    assert!(next(&mut stream).await.is_some_and(|text| text.contains("event: opened")));
    for beat in 1..STREAM_TIME_MAX.as_secs() / BEAT_EVERY.as_secs() {
        let text = next(&mut stream).await.expect("a beat");
        assert!(text.starts_with(": beat\nid: "), "{text}");
        assert_eq!((clock::now() - began).as_secs(), beat * BEAT_EVERY.as_secs());
    }
    let last = next(&mut stream).await.expect("an end");
    assert!(last.contains("\"reason\":\"deadline\""), "{last}");
    assert_eq!((clock::now() - began, next(&mut stream).await), (STREAM_TIME_MAX, None));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_ends_its_stream() {
    let app = app();
    let (token, mut stream) = opened(&app).await;
    assert!(next(&mut stream).await.is_some());
    let blocks = ron_auth::inspect(&token).expect("a token").blocks;
    app.authority.set_revoked(blocks.into_iter().map(|block| block.revocation_id));
    let began = clock::now();
    let last = next(&mut stream).await.expect("an end");
    assert!(last.contains("\"reason\":\"revoked\""), "{last}");
    assert!(clock::now() - began <= RECHECK_EVERY);
    assert_eq!(next(&mut stream).await, None);
}
