// Helia's client of Delegated Routing V1, and the IPNS library of its makers, on the routes that we offer to IPFS.

import assert from 'node:assert/strict';
import {
  delegatedRoutingV1HttpApiClient,
  delegatedRoutingV1HttpApiClientContentRouting,
  delegatedRoutingV1HttpApiClientPeerRouting,
} from '@helia/delegated-routing-v1-http-api-client';
import { generateKeyPair } from '@libp2p/crypto/keys';
import { peerIdFromPrivateKey, peerIdFromString } from '@libp2p/peer-id';
import {
  createIPNSRecord, createIPNSRecordWithExpiration, marshalIPNSRecord, multihashToIPNSRoutingKey, unmarshalIPNSRecord,
} from 'ipns';
import { ipnsValidator } from 'ipns/validator';
import { CID } from 'multiformats/cid';
import * as raw from 'multiformats/codecs/raw';
import { sha256 } from 'multiformats/hashes/sha2';
import { check, eventually, runChecks } from './harness.mjs';
import { ask, besideAnother, killNode, node, publish } from './node.mjs';

const HOUR_MS = 3_600_000;
const DAG_PB = 0x70;
const TCP = '/ip4/203.0.113.7/tcp/4001';
const QUIC = '/ip6/2001:db8::7/udp/4001/quic-v1';
const BITSWAP = 'transport-bitswap';
const GATEWAY = 'transport-ipfs-gateway-http';
const ABC = CID.parse('bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu');
const TEXT = new TextEncoder();

/** What the client would only have written to its log: it drops records that it cannot read, and errors of peers. */
const complaints = [];
const log = Object.assign(() => {}, {
  enabled: true,
  error: (...words) => complaints.push(words),
  trace: () => {},
  newScope: () => log,
});
const components = { logger: { forComponent: () => log } };

/** The content types of answers, in the order in which they came. */
const types = [];
const { fetch } = globalThis;
globalThis.fetch = async (...words) => {
  const response = await fetch(...words);
  types.push(response.headers.get('content-type'));
  return response;
};

const client = delegatedRoutingV1HttpApiClient({ url: node.url })(components);

/** All that comes, in plain words; nothing may be dropped on the way, and all must have come as lines. */
async function records(found) {
  const before = [complaints.length, types.length];
  const all = await Array.fromAsync(found);
  assert.deepEqual(complaints.slice(before[0]), []);
  assert.deepEqual(types.slice(before[1]), ['application/x-ndjson']);
  return all.map(({ Schema, ID, Addrs, Protocols }) => {
    assert.equal(Schema, 'peer');
    return { id: peerIdFromString(ID.toString()).toString(), addrs: Addrs.map(String), protocols: Protocols };
  });
}

const providers = (cid, options) => records(client.getProviders(cid, options));

const contentOf = async (text) => CID.createV1(raw.code, await sha256.digest(TEXT.encode(text)));
const somebody = async (kind = 'Ed25519') => peerIdFromPrivateKey(await generateKeyPair(kind)).toString();

/** Publishes over HTTP that a peer has some content; what a client should see of it. */
async function provide(cid, { id, addrs = [TCP, QUIC], protocols = [BITSWAP] }) {
  const body = { peer_id: id, addrs, protocols, ttl_s: 3600 };
  await ask(node, 'POST', `/providers/${cid}`, body);
  return { id, addrs, protocols };
}

const byId = (all) => all.toSorted((one, other) => (one.id < other.id ? -1 : 1));

check('a_provider_comes_with_its_addresses_and_protocols', async () => {
  const cid = await contentOf('one provider');
  const published = await provide(cid, { id: await somebody() });
  assert.deepEqual(await providers(cid), [published]);
  // The same hash under another codec and in the older form.
  assert.deepEqual(await providers(CID.createV1(DAG_PB, cid.multihash)), [published]);
  assert.deepEqual(await providers(CID.createV0(cid.multihash)), [published]);
});

check('a_file_that_the_command_published_is_found_by_its_blake3_cid', async () => {
  const published = publish('abc', '--addr', TCP);
  assert.equal(published.cid, ABC.toString());
  const [found, ...others] = await providers(ABC);
  assert.deepEqual(others, []);
  assert.equal(found.id, published.provider.peer_id);
  assert.deepEqual(found.addrs, published.provider.addrs);
  assert.ok(found.addrs.includes(TCP), found.addrs);
});

check('nobody_is_an_answer_without_records', async () => {
  assert.deepEqual(await providers(await contentOf('nobody has this')), []);
  assert.deepEqual(await records(client.getPeers(peerIdFromString(await somebody()).toCID())), []);
});

check('many_providers_with_keys_of_several_kinds', async () => {
  const cid = await contentOf('many providers');
  const ids = await Promise.all(Array.from({ length: 60 }, () => somebody()));
  ids.push(await somebody('secp256k1'), await somebody('RSA'));
  const published = [];
  for (const [index, id] of ids.entries()) {
    published.push(await provide(cid, { id, addrs: [`/dns4/peer-${index}.example/tcp/443/tls/ws`] }));
  }
  assert.deepEqual(byId(await providers(cid)), byId(published));
});

check('filters_choose_addresses_and_providers', async () => {
  const cid = await contentOf('filters');
  const both = await provide(cid, { id: await somebody() });
  const site = ['/dns/web.example/tcp/443/tls/http'];
  const web = await provide(cid, { id: await somebody(), addrs: site, protocols: [GATEWAY] });
  const shy = await provide(cid, { id: await somebody(), addrs: [], protocols: [] });
  const only = (record, ...addrs) => ({ ...record, addrs });
  for (const [options, expected] of [
    [{}, [both, web, shy]],
    [{ filterAddrs: ['tcp'] }, [only(both, TCP), web]],
    [{ filterAddrs: ['tcp', 'quic-v1'] }, [both, web]],
    [{ filterAddrs: ['!ip6'] }, [only(both, TCP), web]],
    [{ filterAddrs: ['!tcp'] }, [only(both, QUIC)]],
    [{ filterAddrs: ['tcp', 'unknown'] }, [only(both, TCP), web, shy]],
    [{ filterAddrs: ['webtransport'] }, []],
    [{ filterProtocols: [BITSWAP] }, [both]],
    [{ filterProtocols: [BITSWAP, 'unknown'] }, [both, shy]],
    [{ filterProtocols: [GATEWAY] }, [web]],
    [{ filterAddrs: ['tls'], filterProtocols: [BITSWAP] }, []],
    [{ filterAddrs: ['TCP'], filterProtocols: ['Transport-Bitswap'] }, [only(both, TCP)]],
  ]) {
    assert.deepEqual(byId(await providers(cid, options)), byId(expected), JSON.stringify(options));
  }
  // Filters of a client as a whole go with every request of it.
  const narrow = delegatedRoutingV1HttpApiClient({ url: node.url, filterProtocols: [GATEWAY] })(components);
  assert.deepEqual(await records(narrow.getProviders(cid)), [web]);
});

check('peers_are_found_with_their_addresses', () => besideAnother(async (other) => {
  const { peer_id: id } = await ask(other, 'GET', '/index/stats');
  const { listen } = await ask(other, 'GET', '/dht/peers');
  const cid = peerIdFromString(id).toCID();
  const known = await eventually(async () => {
    const found = await records(client.getPeers(cid));
    return found.length > 0 && found;
  }, 'the second node known to the first');
  assert.deepEqual(known, [{ id, addrs: listen, protocols: [] }]);
  const quic = await records(client.getPeers(cid, { filterAddrs: ['quic-v1'] }));
  assert.deepEqual(quic, [{ id, addrs: listen.filter((addr) => addr.endsWith('/quic-v1')), protocols: [] }]);
  assert.deepEqual(await records(client.getPeers(cid, { filterAddrs: ['webtransport'] })), []);
  // As libp2p asks.
  const routing = delegatedRoutingV1HttpApiClientPeerRouting({ url: node.url })(components);
  const peer = await routing.findPeer(peerIdFromString(id));
  assert.deepEqual([peer.id.toString(), peer.multiaddrs.map(String)], [id, listen]);
}));

/** An IPNS name: puts records of its key, and gets what the node has. */
async function newName(kind = 'Ed25519') {
  const key = await generateKeyPair(kind);
  const name = key.publicKey.toCID();
  const routingKey = multihashToIPNSRoutingKey(key.publicKey.toMultihash());
  const record = async (value, sequence, options) =>
    marshalIPNSRecord(await createIPNSRecord(key, value, sequence, HOUR_MS, options));
  const [get, put] = [() => client.getIPNS(name), (bytes) => client.putIPNS(name, bytes)];
  return { key, name, routingKey, record, get, put };
}

const isMiss = { name: 'NotFoundError' };
const isRefused = { name: 'BadResponseError' };

check('an_ipns_record_comes_back_to_the_byte', async () => {
  for (const [kind, options] of [['Ed25519'], ['Ed25519', { v1Compatible: false }], ['RSA']]) {
    const { name, routingKey, record, get, put } = await newName(kind);
    await assert.rejects(get(), isMiss);
    const bytes = await record(`/ipfs/${ABC}`, 1n, options);
    await put(bytes);
    const found = await get();
    assert.deepEqual(found, bytes, `${kind} ${name}`);
    assert.deepEqual(await get(), bytes, 'asked again');
    await ipnsValidator(routingKey, found);
    assert.equal(unmarshalIPNSRecord(found).value, `/ipfs/${ABC}`);
  }
});

check('the_newest_ipns_record_stays', async () => {
  const { record, get, put } = await newName();
  const current = async () => unmarshalIPNSRecord(await get()).sequence;
  const old = await record(ABC, 1n);
  await put(old);
  await put(await record(await contentOf('second'), 2n));
  assert.equal(await current(), 2n);
  // Whatever is said to whoever comes too late, nothing goes back.
  await put(old).catch(() => {});
  assert.equal(await current(), 2n);
});

check('ipns_records_that_do_not_hold_are_refused', async () => {
  const [mine, other] = [await newName(), await newName()];
  const good = await mine.record(ABC, 1n);
  await assert.rejects(other.put(good), isRefused, 'of another name');
  for (let place = 0; place < good.length; place += 7) {
    const bent = good.slice();
    bent[place] ^= 0x10;
    // A bit of the old signature, which nobody checks any more, may go unnoticed, here and in the library.
    const holds = await ipnsValidator(mine.routingKey, bent).then(() => true, () => false);
    if (!holds) await assert.rejects(mine.put(bent), isRefused, `bent at ${place}`);
  }
  const past = new Date(Date.now() - HOUR_MS).toISOString();
  const expired = marshalIPNSRecord(await createIPNSRecordWithExpiration(other.key, ABC, 1n, past));
  await assert.rejects(other.put(expired), isRefused, 'of the past');
  await assert.rejects(other.get(), isMiss);
});

check('libp2p_finds_content_and_names', async () => {
  const routing = delegatedRoutingV1HttpApiClientContentRouting({ url: node.url })(components);
  const cid = await contentOf('asked by libp2p');
  const published = await provide(cid, { id: await somebody() });
  const found = await Array.fromAsync(routing.findProviders(cid));
  const told = found.map(({ id, multiaddrs }) => ({ id: id.toString(), addrs: multiaddrs.map(String) }));
  assert.deepEqual(told, [{ id: published.id, addrs: published.addrs }]);
  const { routingKey, record } = await newName();
  const bytes = await record(cid, 1n);
  await routing.put(routingKey, bytes);
  assert.deepEqual(await routing.get(routingKey), bytes);
});

check('records_are_there_after_a_kill', async () => {
  const cid = await contentOf('after a kill');
  const published = await provide(cid, { id: await somebody() });
  const { record, get, put } = await newName();
  const bytes = await record(cid, 1n);
  await put(bytes);
  await killNode();
  assert.deepEqual(await providers(cid), [published]);
  assert.deepEqual(await get(), bytes);
});

await runChecks();
