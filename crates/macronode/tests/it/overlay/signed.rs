//! Messages that their origins sign, on real nodes: what a network that requires it delivers, and what it refuses.

use bytes::Bytes;
use oap::{AppId, Frame, Hello};
use ron_gossip::wire::{Body, Data, Key, Message, Want};
use ron_gossip::{LaneName, Origin};
use ron_transport::{Heard, NodeId, NodeKey, PeerAddress, PostQuantum, Reader, Session, SessionLimits, Tls};
use rustix::process::Signal;

use crate::member::{Member, joined, network_with};
use crate::overlay::subscriber::Subscriber;
use testkit::eventually;

const REQUIRE: &str = "[overlay]\nsignatures = \"require\"\n";
const LARGE_BYTES: usize = 2_500 * 1024;
/// More than one signature's worth, so that batches follow each other.
const STREAMED: usize = 300;

async fn misbehaviour(member: &mut Member) -> f64 {
    member.process().metric("overlay_misbehaviour_total").await
}

#[tokio::test]
async fn a_line_that_requires_signatures_delivers_everything_once_and_in_order_also_after_a_kill() {
    let mut line = network_with(3, &[(1, 0), (2, 1)], REQUIRE).await;
    let mut far = Subscriber::open(&line[2], "chat", "").await;
    line[0].publish("chat", "one by one").await;
    line[0].publish("chat", vec![7; LARGE_BYTES]).await;
    let publisher = line[0].oap_client().await.publisher("chat").await.expect("opened");
    publisher.publish_all((0..STREAMED).map(|number| Bytes::from(number.to_string()))).await.expect("sent");
    publisher.finish().await.expect("published");
    let heard = far.messages(2 + STREAMED).await;
    let expected: Vec<u64> = (1..=2 + STREAMED as u64).collect();
    assert_eq!(heard.iter().map(|message| message.seq()).collect::<Vec<_>>(), expected);
    assert!(heard.iter().all(|message| message.origin() == line[0].id));
    assert_eq!(heard[1].payload().len(), LARGE_BYTES);
    // A node that lost everything gets it from the others' rings, and believes it.
    line[1].end(Signal::KILL).await;
    line[1].start().await;
    let mut back = Subscriber::open(&line[1], "chat", &format!("?from={}:1", line[0].id)).await;
    let heard = back.messages(2 + STREAMED).await;
    assert_eq!(heard.iter().map(|message| message.seq()).collect::<Vec<_>>(), expected);
    for member in &mut line {
        assert_eq!(misbehaviour(member).await, 0.0);
    }
}

#[tokio::test]
async fn what_is_not_signed_is_heard_by_nobody_who_requires_it() {
    let mut members = vec![Member::new(), Member::new()];
    members[0].configure(REQUIRE);
    let mut members = joined(members, &[(1, 0)]).await;
    let mut strict = Subscriber::open(&members[0], "chat", "").await;
    let mut lenient = Subscriber::open(&members[1], "chat", "?own=false").await;
    members[1].publish("chat", "unsigned").await;
    eventually("the refusal", async || (misbehaviour(&mut members[0]).await >= 1.0).then_some(())).await;
    let signed = members[0].publish("chat", "signed").await;
    assert_eq!(lenient.messages(1).await[0].data["msg_id"], signed["msg_id"], "who signs nothing hears what is signed");
    assert_eq!(strict.messages(1).await[0].data["msg_id"], signed["msg_id"], "nothing came before it");
}

/// A node of an attacker's own, with a session like any other.
async fn hostile(member: &Member) -> (NodeKey, Session) {
    let key = NodeKey::generate().expect("made");
    let tls = Tls::new(&key, PostQuantum::Hybrid).expect("made");
    let address: PeerAddress = member.address().parse().expect("an address");
    let hello = Hello::new(oap::FRAME_BYTES_MAX as u32, 64);
    let session = ron_transport::dial(&address, &tls, hello, &SessionLimits::default()).await.expect("let in");
    (key, session)
}

/// The first message that the node sends.
async fn first_data(reader: &mut Reader) -> Data {
    loop {
        let mut heard = Vec::new();
        reader.next_batch(&mut heard).await.expect("the session stands");
        for heard in heard {
            let Heard::Frame(Frame { app: AppId::GOSSIP, payload, .. }) = heard else { continue };
            if let Body::Data(data) = Message::decode(payload).expect("a message").body {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn nobody_speaks_in_the_name_of_another() {
    let mut node = Member::new();
    node.configure(REQUIRE);
    node.start().await;
    let mut subscriber = Subscriber::open(&node, "chat", "?own=false").await;
    let (key, mut session) = hostile(&node).await;
    let writing = tokio::spawn(session.writer.run());
    let lane = LaneName::new("chat").expect("a name");
    // What the node itself published is there to be had, with its seal.
    let own = node.publish("chat", "of the node").await;
    node.wait_connected(&key.node_id().to_string()).await;
    let me: NodeId = node.id.parse().expect("an id");
    let epoch = own["epoch"].as_u64().expect("a number");
    let want = Want { origin: Origin(*me.as_bytes()), epoch, from: 1, to: 1, chunk: 0 };
    let ask = Message { lane, body: Body::Pull(want) }.encode();
    session.outbox.push(1, Frame::event(AppId::GOSSIP, 0, ask)).expect("room");
    let sealed = tokio::time::timeout(testkit::PATIENCE_MAX, first_data(&mut session.reader)).await.expect("in time");
    assert_eq!((sealed.key.seq, sealed.seal.is_some()), (own["seq"].as_u64().expect("a number"), true));
    let victim: NodeId = Member::new().id.parse().expect("an id");
    let forged = [
        // In the name of somebody else: without a seal, and with one of another's.
        Data { key: Key { origin: Origin(*victim.as_bytes()), epoch, seq: 1 }, seal: None, ..sealed.clone() },
        Data { key: Key { origin: Origin(*victim.as_bytes()), epoch, seq: 1 }, ..sealed.clone() },
        // In its own name, with a seal over something else.
        Data { key: Key { origin: Origin(*key.node_id().as_bytes()), epoch, seq: 1 }, ..sealed.clone() },
        // A later life of the node itself.
        Data { key: Key { epoch: epoch + 60_000, ..sealed.key }, ..sealed.clone() },
    ];
    let count = forged.len() as f64;
    for data in forged {
        let message = Message { lane, body: Body::Data(data) }.encode();
        session.outbox.push(1, Frame::event(AppId::GOSSIP, 0, message)).expect("room");
    }
    eventually("the refusals", async || (misbehaviour(&mut node).await >= count).then_some(())).await;
    // Nothing of it was heard, and the node goes on in the life that it had.
    let (next, mut other) = (node.publish("chat", "again").await, Member::new());
    assert_eq!((&next["epoch"], &next["seq"]), (&own["epoch"], &2.into()));
    other.configure(REQUIRE);
    other.knows(&node.address());
    other.start().await;
    other.wait_connected(&node.id).await;
    let honest = other.publish("chat", "honest").await;
    assert_eq!(subscriber.messages(1).await[0].data["msg_id"], honest["msg_id"]);
    writing.abort();
}
