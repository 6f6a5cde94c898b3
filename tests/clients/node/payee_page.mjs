// A payee opens the page of an epoch in a browser, asks for a payout, and has it verified there.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { check, eventually, fresh, runChecks } from './harness.mjs';
import { withPage } from './browser.mjs';
import { dice, ozTree, sumTree } from './trees.mjs';
import { blake3 } from './page/blake3.mjs';
import { keccak256 } from './page/keccak.mjs';
import { compareBytes, verifyOz, verifySum } from './page/verify.mjs';

const NODE = process.env.AWS_ENDPOINT_URL;
const TOKEN = readFileSync(join(process.env.MACRO_DATA_DIR, 'operator.token'), 'utf8').trim();
/** An id that would take over the page if it were put there as markup. */
const MARKUP = '<img src=x onerror="document.title=\'taken over\'">';
const hex = (bytes) => Buffer.from(bytes).toString('hex');

async function ask(path, options = {}) {
  const headers = { authorization: `Bearer ${TOKEN}`, accept: 'application/json', ...options.headers };
  return fetch(NODE + path, { ...options, headers });
}

async function asked(path, options) {
  const response = await ask(path, options);
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

/** Has an epoch computed from rows of `actor,quantity`, and waits until it is sealed. */
async function computed(rows, policy = {}) {
  const epoch = fresh('page');
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  // Somebody who did nothing, so that the usage of each epoch is its own.
  const csv = `actor,quantity\n${[...rows, [`of ${epoch}`, 0]].map(([actor, quantity]) => `${quoted(actor)},${quantity}\n`).join('')}`;
  const b3 = `b3:${hex(blake3(Buffer.from(csv)))}`;
  await ask(`/rewarder/inputs/${b3}`, { method: 'PUT', body: csv });
  const assets = [{ asset: 'RON', pool: '1000003', weights: { usage: '1' }, ...policy }];
  const body = { inputs: [{ b3 }], policy: { id: 'page', ruleset: 1, assets }, unsigned: true };
  const request = { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  await ask(`/rewarder/epochs/${epoch}/compute`, request);
  await eventually(async () => {
    const { state } = await asked(`/rewarder/epochs/${epoch}`);
    return state !== 'computing';
  }, `${epoch} is sealed`);
  return epoch;
}

const ROWS = [['alice', 500], ['bob', 333], [MARKUP, 7], ['d/e f?#%', 12], ['zoë', 1], ['nothing', 0],
  ['0x00000000000000000000000000000000000000Ab', 90]];
const address = (epoch, fragment = '') => `${NODE}/rewarder/epochs/${epoch}${fragment}`;
const withToken = (fragment = '') => `#token=${encodeURIComponent(TOKEN)}${fragment}`;

async function payout(page, actor) {
  await page.type('#actor', actor);
  await page.press('Enter');
  await page.shown('[data-verify]');
  await eventually(() => page.evaluate('document.querySelector("[data-verdict]") === null'), 'a new answer');
  await page.click('[data-verify]');
  return { said: await page.shown('[data-verdict]'), verdict: await page.evaluate(
    'document.querySelector("[data-verdict]").dataset.verdict') };
}

check('hashes', () => {
  const pattern = (length) => Uint8Array.from({ length }, (_, place) => place % 251);
  // From the vectors that BLAKE3 is published with.
  const vectors = {
    0: 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262',
    1: '2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213',
    1023: '10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11',
    1024: '42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7',
    1025: 'd00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444',
    2048: 'e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a',
    2049: '5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030',
    3073: '7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3',
    4097: '9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995',
    8192: 'aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63',
  };
  Object.entries(vectors).forEach(([length, hash]) => assert.equal(hex(blake3(pattern(Number(length)))), hash));
  const keccak = (text) => hex(keccak256(Buffer.from(text)));
  assert.equal(keccak(''), 'c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470');
  assert.equal(keccak('abc'), '4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45');
});

check('proofs of any shape, and bent ones', () => {
  const roll = dice('proofs');
  for (let count = 1; count <= 40; count += 1) {
    const names = Array.from({ length: count }, (_, place) => `${'n'.repeat(roll(40))}-${place}`);
    names.sort((a, b) => compareBytes(Buffer.from(a), Buffer.from(b)));
    const payouts = names.map((name) => [name, String(BigInt(roll(1e9) + 1) ** 3n)]);
    const [oz, sum] = [ozTree(payouts), sumTree('A', payouts)];
    payouts.forEach(([actor, amount], place) => {
      const proof = oz.proofs[place];
      assert.ok(verifyOz({ root: oz.root, actor, amount, proof }).ok);
      assert.ok(!verifyOz({ root: oz.root, actor, amount: `${amount}0`, proof }).ok);
      const of = { root: sum.root, rootSum: sum.sum, asset: 'A', actor, amount };
      const leaf = sum.ways[place];
      assert.ok(verifySum({ ...of, proof: { kind: 'paid', leaf } }).ok);
      assert.ok(!verifySum({ ...of, asset: 'B', proof: { kind: 'paid', leaf } }).ok);
      assert.ok(!verifySum({ ...of, rootSum: `${sum.sum}0`, proof: { kind: 'paid', leaf } }).ok);
      const before = { kind: 'unpaid', before: sum.ways[place - 1] ?? null, after: leaf };
      assert.ok(!verifySum({ ...of, amount: '0', proof: before }).ok, 'it is paid');
      const between = `${actor}\u0001`;
      const gap = { kind: 'unpaid', before: leaf, after: sum.ways[place + 1] ?? null };
      assert.ok(verifySum({ ...of, actor: between, amount: '0', proof: gap }).ok);
    });
  }
  for (const proof of [undefined, null, 7, [], {}, { kind: 'paid' }, { kind: 'paid', leaf: {} }, { kind: 'unpaid' }]) {
    const root = `b3:${'00'.repeat(32)}`;
    assert.ok(!verifySum({ root, rootSum: '1', asset: 'A', actor: 'a', amount: '1', proof }).ok);
  }
});

check('a payee enters an id and verifies', async () => {
  const epoch = await computed(ROWS);
  await withPage(async (page) => {
    await page.go(address(epoch, withToken()));
    assert.equal(await page.shown('#epoch'), epoch);
    assert.ok(!(await page.evaluate('location.href')).includes('token'), 'the token left the address');
    assert.match(await page.shown('#assets'), /1.000.003/);
    assert.equal(await page.evaluate('document.querySelectorAll("#assets rect").length > 0'), true);
    let sum = 0n;
    for (const [actor, quantity] of ROWS) {
      const { said, verdict } = await payout(page, actor);
      assert.equal(verdict, 'ok', said);
      const proofs = await asked(`/rewarder/epochs/${epoch}/proof/${encodeURIComponent(actor)}?format=sum`);
      sum += BigInt(proofs.proofs[0].amount);
      assert.equal(said.includes('not paid'), quantity === 0, said);
      assert.equal(said.includes('OpenZeppelin tree'), quantity > 0);
    }
    assert.equal(sum, 1000003n, 'everybody together has the pool');
    assert.equal((await payout(page, 'a stranger')).verdict, 'ok');
    assert.match(await page.text('#payout'), /No row of the usage names this id/);
    assert.equal(await page.evaluate('document.title'), `Payouts of ${epoch}`, 'markup in an id is text');
    assert.deepEqual(page.complaints, []);
  });
});

check('what was tampered with does not verify', async () => {
  const epoch = await computed(ROWS);
  const lies = [
    ['format=oz', (answer) => { answer.proofs[0].amount = '999999'; }],
    ['format=oz', (answer) => { answer.proofs[0].proof.pop(); }],
    ['format=sum', (answer) => { answer.proofs[0].amount = '999999'; }],
    ['format=sum', (answer) => { answer.proofs[0].proof.leaf.amount = '999999'; answer.proofs[0].amount = '999999'; }],
    ['format=sum', (answer) => { answer.proofs[0].proof.leaf.siblings[0][1] = '1'; }],
    ['format=sum', (answer) => { answer.proofs[0].proof = { kind: 'unpaid', before: null, after: null }; }],
  ];
  await withPage(async (page) => {
    for (const [part, change] of lies) {
      await page.lie(part, (answer) => { change(answer); return answer; });
      await page.go(address(epoch, withToken()));
      const { said, verdict } = await payout(page, 'alice');
      assert.equal(verdict, 'bad', `${change}: ${said}`);
      assert.match(said, /does not verify/);
    }
    await page.lie();
    await page.go(address(epoch, withToken('&id=alice&verify')));
    assert.match(await page.shown('[data-verdict]'), /^Verified: alice/);
  });
});

check('without a token, with nobody to pay, in quarantine', async () => {
  const epoch = await computed(ROWS);
  const empty = await computed([['idle', 0]]);
  const big = '3'.repeat(38);
  const quarantined = await computed([['a', big], ['b', big]], { weights: { usage: '9999', other: '1' } });
  await withPage(async (page) => {
    await page.go(address(epoch));
    await page.shown('#token');
    assert.equal(await page.evaluate('document.querySelector("#mine").hidden'), true);
    await page.type('#token', 'not a token');
    await page.press('Enter');
    await page.shown('#token');
    await page.type('#token', TOKEN);
    await page.press('Enter');
    assert.match(await page.shown('#assets'), /RON/);
    await page.go(address(empty, withToken()));
    assert.match(await page.shown('#assets'), /nothing to plot/);
    assert.equal((await payout(page, 'idle')).verdict, 'ok');
    await page.go(address(quarantined, withToken()));
    assert.match(await page.shown('#status'), /quarantined: nothing is paid/);
    assert.match(await page.shown('#assets'), /pays nobody/);
    await page.go(address('never-computed', withToken()));
    await eventually(async () => (await page.text('#status')).length > 0, 'a refusal');
  });
});

check('on a phone, in the dark', async () => {
  const epoch = await computed(ROWS);
  await withPage(async (page) => {
    await page.screen({ width: 320, height: 640, dark: true });
    await page.go(address(epoch, withToken('&id=alice&verify')));
    await page.shown('[data-verdict]');
    assert.ok(await page.evaluate('document.documentElement.scrollWidth') <= 320, 'nothing sticks out');
    const background = await page.evaluate('getComputedStyle(document.body).backgroundColor');
    assert.equal(background, 'rgb(15, 19, 24)');
    const unnamed = `[...document.querySelectorAll('input')].filter((field) => field.labels.length === 0).length`;
    assert.equal(await page.evaluate(unnamed), 0, 'every field has a label');
  });
});

await runChecks();
