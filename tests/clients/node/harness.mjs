// What the checks share: they run in order with one line each, and the exit code says whether all held.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE_MS = 20_000;
const checks = [];

/** Registers a check; they run in the order in which they stand. */
export function check(name, action) {
  checks.push({ name, action });
}

/** Runs every check, or those named on the command line. */
export async function runChecks() {
  const wanted = process.argv.slice(2);
  const chosen = checks.filter(({ name }) => wanted.length === 0 || wanted.includes(name));
  let failed = chosen.length === 0;
  for (const { name, action } of chosen) {
    const started = Date.now();
    try {
      await action();
      console.log(`pass ${name} ${((Date.now() - started) / 1000).toFixed(1)}s`);
    } catch (error) {
      failed = true;
      console.error(error);
      console.log(`fail ${name}`);
    }
  }
  process.exitCode = failed ? 1 : 0;
}

/** A queue name nobody has used. */
export function fresh(stem, suffix = '') {
  return `${stem}-${randomUUID().replaceAll('-', '').slice(0, 12)}${suffix}`;
}

/** Calls `look` until it gives something true, and gives that. */
export async function eventually(look, what) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `not in time: ${what}`);
    await sleep(50);
  }
}
