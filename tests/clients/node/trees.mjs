// Small trees over payouts, built here by the rules that docs/rewards.md states, so that the page's checks can be tried
// on any shape and on bent proofs.

import { createHash } from 'node:crypto';

import { blake3 } from './page/blake3.mjs';
import { keccak256 } from './page/keccak.mjs';
import { ozLeaf } from './page/verify.mjs';

const hex = (bytes) => Buffer.from(bytes).toString('hex');

/** Root and proofs of an OpenZeppelin tree over [actor, amount] pairs. */
export function ozTree(payouts) {
  const leaves = payouts.map(([actor, amount]) => Buffer.from(ozLeaf(actor, BigInt(amount))));
  const sorted = [...leaves].sort(Buffer.compare);
  const nodes = new Array(2 * sorted.length - 1);
  sorted.forEach((leaf, place) => { nodes[nodes.length - 1 - place] = leaf; });
  for (let place = sorted.length - 2; place >= 0; place -= 1) {
    const pair = [nodes[2 * place + 1], nodes[2 * place + 2]].sort(Buffer.compare);
    nodes[place] = Buffer.from(keccak256(Buffer.concat(pair)));
  }
  const proof = (place) => {
    const siblings = [];
    for (let at = place; at > 0; at = Math.floor((at - 1) / 2)) {
      siblings.push(`0x${hex(nodes[at % 2 === 0 ? at - 1 : at + 1])}`);
    }
    return siblings;
  };
  const placeOf = (leaf) => nodes.findLastIndex((node) => node.equals(leaf));
  return { root: `0x${hex(nodes[0])}`, proofs: leaves.map((leaf) => proof(placeOf(leaf))) };
}

const number = (value, bytes) => {
  const text = BigInt(value).toString(16).padStart(2 * bytes, '0');
  return Buffer.from(text, 'hex').reverse();
};
const named = (text) => Buffer.concat([number(Buffer.byteLength(text), 8), Buffer.from(text)]);
const hash = (...parts) => Buffer.from(blake3(Buffer.concat(parts)));

/** Root and ways of a sum tree over [actor, amount] pairs, which stand in the order of the actors' bytes. */
export function sumTree(asset, payouts) {
  let level = payouts.map(([actor, amount]) => ({
    hash: hash(named('svc-rewarder|sum|leaf|v1'), named(asset), named(actor), number(amount, 16)),
    sum: BigInt(amount),
  }));
  const ways = payouts.map(([actor, amount], index) => (
    { actor, amount: String(amount), index, leaves: payouts.length, siblings: [] }));
  for (let height = 0; level.length > 1; height += 1) {
    for (const way of ways) {
      const sibling = level[(way.index >> height) ^ 1];
      if (sibling) way.siblings.push([hex(sibling.hash), String(sibling.sum)]);
    }
    const below = level;
    level = [];
    for (let at = 0; at < below.length; at += 2) {
      const [left, right] = [below[at], below[at + 1]];
      const sides = () => [number(left.sum, 16), left.hash, number(right.sum, 16), right.hash];
      level.push(right
        ? { hash: hash(named('svc-rewarder|sum|node|v1'), ...sides()), sum: left.sum + right.sum }
        : left);
    }
  }
  const top = level[0] ?? { hash: Buffer.alloc(32), sum: 0n };
  const end = [number(payouts.length, 8), number(top.sum, 16), top.hash];
  const root = hash(named('svc-rewarder|sum|root|v1'), named(asset), ...end);
  return { root: `b3:${hex(root)}`, sum: String(top.sum), ways };
}

/** The same numbers each time. */
export function dice(seed) {
  let state = createHash('sha256').update(String(seed)).digest();
  return (sides) => {
    state = createHash('sha256').update(state).digest();
    return state.readUInt32LE() % sides;
  };
}
