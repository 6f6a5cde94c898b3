// Checks proofs of payouts. Nothing here believes the node: a proof counts only if it leads to the root.
//
// Each check answers {ok, says}: whether it holds, and the sentences of what was done, up to the one that failed.

import { blake3 } from "./blake3.mjs";
import { keccak256 } from "./keccak.mjs";

const encoder = new TextEncoder();
const U128_MAX = (1n << 128n) - 1n;
// More siblings than any tree has.
const SIBLINGS_MAX = 64;

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Bytes of exactly 64 small hex digits; only one text stands for a hash. */
function hash32(text) {
  if (typeof text !== "string" || !/^[0-9a-f]{64}$/.test(text)) {
    throw new Error("a hash in it is not 64 hex digits");
  }
  return Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
}

const without = (prefix, text) => {
  if (typeof text !== "string" || !text.startsWith(prefix)) {
    throw new Error(`a hash in it does not begin with ${prefix}`);
  }
  return hash32(text.slice(prefix.length));
};

/** An amount: decimal digits without a leading zero, below 2^128. Numbers of JavaScript would lose digits. */
export function units(text) {
  if (typeof text !== "string" || !/^(0|[1-9][0-9]{0,38})$/.test(text) || BigInt(text) > U128_MAX) {
    throw new Error("an amount in it is not a whole number");
  }
  return BigInt(text);
}

function whole(number) {
  if (!Number.isSafeInteger(number) || number < 0) {
    throw new Error("a place in it is not a whole number");
  }
  return number;
}

function littleEndian(number, length) {
  let rest = BigInt(number);
  return Uint8Array.from({ length }, () => {
    const byte = Number(rest & 0xffn);
    rest >>= 8n;
    return byte;
  });
}

const bigEndian = (number, length) => littleEndian(number, length).reverse();

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Order of bytes: below 0 if the first comes first. */
export function compareBytes(a, b) {
  const length = Math.min(a.length, b.length);
  for (let place = 0; place < length; place += 1) {
    if (a[place] !== b[place]) {
      return a[place] - b[place];
    }
  }
  return a.length - b.length;
}

// Runs a check, and turns whatever a bent proof throws into a sentence.
function checked(says, check) {
  try {
    const ok = check((sentence) => says.push(sentence));
    return { ok, says };
  } catch (error) {
    says.push(error.message);
    return { ok: false, says };
  }
}

// ---- OpenZeppelin standard-v1 ----

const isAddress = (actor) => /^0x[0-9a-fA-F]{40}$/.test(actor);

/** keccak256(keccak256(abi.encode(actor, amount))). */
export function ozLeaf(actor, amount) {
  const number = bigEndian(amount, 32);
  if (isAddress(actor)) {
    const address = Uint8Array.from(actor.slice(2).match(/../g), (pair) => parseInt(pair, 16));
    return keccak256(keccak256(joined(new Uint8Array(12), address, number)));
  }
  // Where the text starts, the amount, the length of the text, its bytes, zeros up to a whole word.
  const text = encoder.encode(actor);
  const padding = new Uint8Array((32 - (text.length % 32)) % 32);
  const encoded = joined(bigEndian(64, 32), number, bigEndian(text.length, 32), text, padding);
  return keccak256(keccak256(encoded));
}

/** Whether the proof shows that the actor is paid this amount in the tree with this root (`0x…`). */
export function verifyOz({ root, actor, amount, proof }) {
  return checked([], (say) => {
    if (!Array.isArray(proof) || proof.length > SIBLINGS_MAX) {
      say("The answer holds no list of siblings.");
      return false;
    }
    const kind = isAddress(actor) ? "address" : "string";
    let node = ozLeaf(actor, units(amount));
    say(`Leaf: keccak256 of keccak256 of (${kind} ${actor}, uint256 ${amount}) is 0x${hex(node)}.`);
    for (const text of proof) {
      const sibling = without("0x", text);
      // The smaller of a pair comes first, so that a proof need not say on which side a sibling stands.
      node = keccak256(compareBytes(node, sibling) <= 0 ? joined(node, sibling) : joined(sibling, node));
    }
    const found = `0x${hex(node)}`;
    const ok = found === root;
    say(`${proof.length} siblings lead from it to ${found}, which is ${ok ? "" : "not "}the published root.`);
    return ok;
  });
}

// ---- the sum tree ----

const part = (bytes) => joined(littleEndian(bytes.length, 8), bytes);
const named = (text) => part(encoder.encode(text));

const sumLeaf = (asset, actor, amount) => ({
  hash: blake3(joined(named("svc-rewarder|sum|leaf|v1"), named(asset), named(actor), littleEndian(amount, 16))),
  sum: amount,
});

function sumNode(left, right) {
  const sum = left.sum + right.sum;
  // A sum that wraps around would hide payouts.
  if (sum > U128_MAX) {
    throw new Error("the sums in it are too large");
  }
  // The sums of both sides enter by themselves: their sum alone would let somebody move units between them.
  const sides = [left, right].flatMap((side) => [littleEndian(side.sum, 16), side.hash]);
  return { hash: blake3(joined(named("svc-rewarder|sum|node|v1"), ...sides)), sum };
}

function sumRoot(asset, leaves, top) {
  const { hash, sum } = top ?? { hash: new Uint8Array(32), sum: 0n };
  const ends = [littleEndian(leaves, 8), littleEndian(sum, 16), hash];
  return { hash: blake3(joined(named("svc-rewarder|sum|root|v1"), named(asset), ...ends)), sum };
}

/** The root that a way leads to. The number of leaves says how many siblings there are and where each stands. */
function climb(asset, path) {
  let [index, width] = [whole(path.index), whole(path.leaves)];
  const amount = units(path.amount);
  if (amount === 0n || index >= width || !Array.isArray(path.siblings) || path.siblings.length > SIBLINGS_MAX) {
    throw new Error("it is no way from a leaf to a root");
  }
  let node = sumLeaf(asset, path.actor, amount);
  const siblings = path.siblings.values();
  while (width > 1) {
    if (index % 2 === 1 || index + 1 < width) {
      const [text, sum] = siblings.next().value ?? [];
      const sibling = { hash: hash32(text), sum: units(sum) };
      node = index % 2 === 1 ? sumNode(sibling, node) : sumNode(node, sibling);
    }
    [index, width] = [Math.floor(index / 2), Math.ceil(width / 2)];
  }
  if (!siblings.next().done) {
    throw new Error("it has siblings that no level needs");
  }
  return sumRoot(asset, path.leaves, node);
}

/** Whether the proof shows that the actor is paid this amount (none, if it is "0") in the tree with this root (`b3:…`),
 * below which there are `rootSum` units. */
export function verifySum({ root, rootSum, asset, actor, amount, proof }) {
  return checked([], (say) => {
    const published = { hash: hex(without("b3:", root)), sum: units(rootSum) };
    const leads = (path) => {
      const found = climb(asset, path);
      const ok = hex(found.hash) === published.hash && found.sum === published.sum;
      const where = `leaf ${path.index + 1} of ${path.leaves}, ${path.amount} units of ${path.actor}`;
      const to = `b3:${hex(found.hash)} with ${found.sum} units below it`;
      say(`From ${where}, ${path.siblings.length} siblings lead to ${to}: ${ok ? "" : "not "}the published root.`);
      return ok;
    };
    if (proof?.kind === "paid") {
      const isMine = proof.leaf.actor === actor && units(proof.leaf.amount) === units(amount);
      if (!isMine) {
        say(`The leaf pays ${proof.leaf.amount} units to ${proof.leaf.actor}, not ${amount} to ${actor}.`);
      }
      return leads(proof.leaf) && isMine;
    }
    if (proof?.kind !== "unpaid" || units(amount) !== 0n) {
      say("The proof shows no payout, but the answer names an amount.");
      return false;
    }
    return isGap({ published, asset, actor, proof, say }) && [proof.before, proof.after].filter(Boolean).every(leads);
  });
}

/** Whether nobody between these two neighbours is paid, and the actor would stand between them. */
function isGap({ published, asset, actor, proof, say }) {
  const [before, after, me] = [proof.before, proof.after, encoder.encode(actor)];
  const inOrder = (!before || compareBytes(encoder.encode(before.actor), me) < 0)
    && (!after || compareBytes(me, encoder.encode(after.actor)) < 0);
  let neighbours;
  if (before && after) {
    neighbours = before.leaves === after.leaves && before.index + 1 === after.index;
  } else if (before) {
    neighbours = before.index + 1 === before.leaves;
  } else if (after) {
    neighbours = after.index === 0;
  } else {
    neighbours = hex(sumRoot(asset, 0, undefined).hash) === published.hash && published.sum === 0n;
  }
  const ok = inOrder && neighbours;
  say(ok
    ? "Payouts stand in the order of their ids; the ones shown are neighbours, and this id would be between them."
    : "The payouts shown are not the neighbours of the place where this id would be.");
  return ok;
}
