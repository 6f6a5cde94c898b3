// A libp2p node in JavaScript meets ours: who it is, what it speaks, that it lives, and whom it knows.

import assert from 'node:assert/strict';
import { publicKeyFromRaw } from '@libp2p/crypto/keys';
import { identify } from '@libp2p/identify';
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht';
import { noise } from '@libp2p/noise';
import { peerIdFromPublicKey, peerIdFromString } from '@libp2p/peer-id';
import { ping } from '@libp2p/ping';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { multiaddr } from '@multiformats/multiaddr';
import { createLibp2p } from 'libp2p';
import { CID } from 'multiformats/cid';
import { check, eventually, runChecks } from './harness.mjs';
import { ask, besideAnother, node } from './node.mjs';

const KAD = '/macronode/kad/1.0.0';
const PATIENCE_MS = 20_000;
const ABC = CID.parse('bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu');

/** Where our node listens over TCP, and who it says it is. */
async function whereabouts(of = node) {
  const { peer_id: id, listen } = await ask(of, 'GET', '/dht/peers');
  const address = listen.find((text) => text.includes('/tcp/'));
  assert.ok(address, `it listens over TCP: ${listen}`);
  return { id, address: multiaddr(`${address.replace(/\/p2p\/.*$/, '')}/p2p/${id}`) };
}

const inTheDht = { dht: kadDHT({ protocol: KAD, clientMode: true, peerInfoMapper: passthroughMapper }) };

/** Does something with a node of another make that has dialled ours. */
async function withNode(action, services = inTheDht) {
  const ours = await whereabouts();
  const other = await createLibp2p({
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: { identify: identify(), ping: ping(), ...services },
  });
  try {
    const connection = await other.dial(ours.address, { signal: AbortSignal.timeout(PATIENCE_MS) });
    await action(other, peerIdFromString(ours.id), connection);
  } finally {
    await other.stop();
  }
}

/**
 * What the node says of itself, once identify has heard it. Protocols alone do not tell that: the peer store also notes
 * those of streams that were opened before.
 */
function identified(other, id) {
  return eventually(async () => {
    const peer = await other.peerStore.get(id).catch(() => undefined);
    return peer?.metadata.has('AgentVersion') ? peer : undefined;
  }, 'what our node says of itself');
}

/** The answers of our node to a walk of the other one. */
async function answersOf(id, walk) {
  const answers = [];
  for await (const event of walk) {
    if (event.name === 'PEER_RESPONSE' && event.from.equals(id)) answers.push(event);
  }
  return answers;
}

const patient = () => ({ signal: AbortSignal.timeout(PATIENCE_MS) });

check('the_peer_id_is_the_key_of_the_node', () => withNode(async (other, id, connection) => {
  const { node_key: key } = await ask(node, 'GET', '/index/stats');
  const expected = peerIdFromPublicKey(publicKeyFromRaw(Buffer.from(key, 'hex')));
  assert.equal(id.toString(), expected.toString());
  // What the handshake proved, not what anybody said.
  assert.equal(connection.remotePeer.toString(), expected.toString());
  assert.equal(connection.encryption, '/noise');
  assert.equal(connection.multiplexer, '/yamux/1.0.0');
}));

check('identify_tells_what_it_speaks', () => withNode(async (other, id) => {
  const peer = await identified(other, id);
  for (const protocol of ['/ipfs/id/1.0.0', '/ipfs/ping/1.0.0', '/macronode/index/1', KAD]) {
    assert.ok(peer.protocols.includes(protocol), `${protocol} in ${peer.protocols}`);
  }
  assert.ok(!peer.protocols.includes('/ipfs/kad/1.0.0'), 'a network of its own');
  const agent = new TextDecoder().decode(peer.metadata.get('AgentVersion'));
  assert.match(agent, /^macronode\//);
}));

// Without the DHT, which pings each node that it meets: libp2p in Rust serves one ping stream of a peer at a time, and a
// second one takes the place of the first.
check('ping_comes_back', () => withNode(async (other, id) => {
  for (let turn = 0; turn < 3; turn += 1) {
    const took = await other.services.ping.ping(id, patient());
    assert.ok(took >= 0, `${took} ms`);
  }
}, {}));

check('find_node_names_the_nodes_it_knows', () => besideAnother(async (second) => {
  const wanted = await eventually(async () => {
    const { peers } = await ask(node, 'GET', '/dht/peers');
    const { peer_id: id } = await ask(second, 'GET', '/dht/peers');
    return peers.some((peer) => peer.peer_id === id && peer.connections > 0) ? id : undefined;
  }, 'the second node in the DHT of the first');
  await withNode(async (other, id) => {
    await identified(other, id);
    const target = peerIdFromString(wanted).toMultihash().bytes;
    const named = await eventually(async () => {
      const answers = await answersOf(id, other.services.dht.getClosestPeers(target, patient()));
      return answers.flatMap((answer) => answer.closer).find((peer) => peer.id.toString() === wanted);
    }, 'our node names the second one');
    assert.ok(named.multiaddrs.length > 0, 'and where it is');
    // Told by ours, reached by the other: the answer is one that can be used.
    const reached = await other.dial(named.multiaddrs.filter((address) => address.toString().includes('/tcp/')), patient());
    assert.equal(reached.remotePeer.toString(), wanted);
  });
}));

check('kademlia_keeps_no_record_of_strangers', () => withNode(async (other, id) => {
  await identified(other, id);
  let told = 0;
  for await (const event of other.services.dht.provide(ABC, patient())) {
    told += event.name === 'SEND_QUERY' && event.messageName === 'ADD_PROVIDER' && event.to.equals(id) ? 1 : 0;
  }
  assert.equal(told, 1, 'our node was told of a provider');
  const answers = await answersOf(id, other.services.dht.findProviders(ABC, patient()));
  assert.ok(answers.length > 0, 'it answers');
  assert.deepEqual(answers.flatMap((answer) => answer.providers), [], 'records travel by our own protocol');
}));

await runChecks();
