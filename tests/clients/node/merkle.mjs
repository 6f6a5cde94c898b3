// OpenZeppelin's own library rebuilds our roots from the payouts alone and verifies every proof of whole epochs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SimpleMerkleTree, StandardMerkleTree } from '@openzeppelin/merkle-tree';
import { check, runChecks } from './harness.mjs';

const ADDRESS = ['address', 'uint256'];
const STRING = ['string', 'uint256'];
const POOL = '1000000000000000000000000007';

const isAddress = (account) => /^0x[0-9a-fA-F]{40}$/.test(account);
const encodingOf = (account) => (isAddress(account) ? ADDRESS : STRING);

/** Spread over all addresses, the same in every run; some in capital letters, as wallets write them. */
function address(index) {
  const digits = (BigInt(index + 1) * 0x9e3779b97f4a7c15f39cc0605cedc835n).toString(16).padStart(40, '0').slice(-40);
  return `0x${index % 5 === 0 ? digits.toUpperCase() : digits}`;
}

const word = (index) => `${'payee '.repeat(index % 9)}${index} \u00e9\u{1f980}`;

/** Runs an epoch with the command line: the manifest, and a line for each payout. */
function epoch(accounts) {
  const folder = mkdtempSync(join(tmpdir(), 'merkle-'));
  try {
    const [usage, policy, out] = ['usage.csv', 'policy.json', 'run'].map((name) => join(folder, name));
    // Every hundredth did nothing: it is listed, but is no leaf.
    const rows = accounts.map((account, index) => `${account},${index % 100 === 99 ? 0 : 1 + ((index * 7919) % 1000)}`);
    writeFileSync(usage, `actor,quantity\n${rows.join('\n')}\n`);
    const asset = { asset: 'RON', pool: POOL, weights: { usage: '1' } };
    writeFileSync(policy, JSON.stringify({ id: 'merkle', ruleset: 1, assets: [asset] }));
    const reward = (...words) =>
      execFileSync(process.env.MACRONODE, ['reward', ...words], { encoding: 'utf8', maxBuffer: 2 ** 28 });
    reward('run', '--epoch', 'merkle', '--usage', usage, '--policy', policy, '--unsigned', '--out', out);
    const lines = reward('proofs', out, '--format', 'oz').trim().split('\n');
    const manifest = JSON.parse(readFileSync(join(out, 'run.json'), 'utf8'));
    return { root: manifest.assets[0].roots.oz, payouts: lines.map((line) => JSON.parse(line)) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function verifyAll({ root, payouts }, accounts) {
  const paid = accounts.filter((_, index) => index % 100 !== 99);
  assert.deepEqual(new Set(payouts.map(({ account }) => account)), new Set(paid));
  assert.equal(payouts.length, paid.length);
  const sum = payouts.reduce((total, { amount }) => total + BigInt(amount), 0n);
  assert.equal(sum, BigInt(POOL), 'the pool is met to the unit');
  for (const { account, amount, proof } of payouts) {
    assert.ok(StandardMerkleTree.verify(root, encodingOf(account), [account, amount], proof), account);
  }
  for (const { account, amount, proof } of payouts.slice(0, 100)) {
    const more = String(BigInt(amount) + 1n);
    assert.ok(!StandardMerkleTree.verify(root, encodingOf(account), [account, more], proof), `${account}: ${more}`);
  }
}

function rebuild({ payouts }, encoding) {
  return StandardMerkleTree.of(payouts.map(({ account, amount }) => [account, amount]), encoding);
}

check('ten_thousand_addresses', () => {
  const accounts = Array.from({ length: 10_000 }, (_, index) => address(index));
  const run = epoch(accounts);
  const tree = rebuild(run, ADDRESS);
  assert.equal(tree.root, run.root);
  verifyAll(run, accounts);
  for (const { account, amount, proof } of run.payouts.slice(0, 200)) {
    assert.deepEqual(tree.getProof([account, amount]), proof);
  }
});

check('two_thousand_words', () => {
  const accounts = Array.from({ length: 2_000 }, (_, index) => word(index));
  const run = epoch(accounts);
  assert.equal(rebuild(run, STRING).root, run.root);
  verifyAll(run, accounts);
});

check('addresses_and_words_in_one_tree', () => {
  const accounts = Array.from({ length: 2_000 }, (_, index) => (index % 2 ? word(index) : address(index)));
  const run = epoch(accounts);
  // The library's standard tree has one encoding; a tree of one leaf is that leaf, and its simple tree takes leaves.
  const leaf = ({ account, amount }) => StandardMerkleTree.of([[account, amount]], encodingOf(account)).root;
  assert.equal(SimpleMerkleTree.of(run.payouts.map(leaf)).root, run.root);
  verifyAll(run, accounts);
});

check('one_payee', () => {
  const run = epoch([address(7)]);
  assert.equal(rebuild(run, ADDRESS).root, run.root);
  assert.deepEqual(run.payouts[0].proof, []);
});

await runChecks();
