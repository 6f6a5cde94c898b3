// What the job asks of nodes beside routing: as their operator, and a second node for the first to know.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { eventually } from './harness.mjs';

const { AWS_ENDPOINT_URL: url, MACRONODE: program, MACRO_DATA_DIR: data } = process.env;

const addressesIn = (folder) => JSON.parse(readFileSync(join(folder, 'addresses.json'), 'utf8'));

/** The node that the runner started. */
export const node = { url, data };

/** One request as the operator of a node. */
export async function ask({ url, data }, method, path, body) {
  const token = readFileSync(join(data, 'operator.token'), 'utf8').trim();
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const response = await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  assert.equal(response.status, 200, `${method} ${path}: ${text}`);
  return JSON.parse(text);
}

/** Publishes these bytes with the command line; what it tells. */
export function publish(content, ...words) {
  const folder = mkdtempSync(join(tmpdir(), 'helia-'));
  try {
    const file = join(folder, 'file');
    writeFileSync(file, content);
    const command = ['index', 'publish', file, '--json', '--data-dir', data, ...words];
    return JSON.parse(execFileSync(program, command, { encoding: 'utf8' }));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Does something while a second node has a session with ours. */
export async function besideAnother(action) {
  const folder = mkdtempSync(join(tmpdir(), 'helia-node-'));
  const { node_key: key } = await ask(node, 'GET', '/index/stats');
  const planes = ['api', 'admin', 'oap'].flatMap((plane) => [`--${plane}`, '127.0.0.1:0']);
  const words = ['run', '--data-dir', join(folder, 'data'), ...planes, '--services', 'http,oap,overlay,dht,index'];
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('MACRO_')));
  const peer = ['--peer', `${key}@${addressesIn(data).oap}`];
  const child = spawn(program, [...words, ...peer], { cwd: folder, env, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = once(child, 'exit');
  try {
    const other = { data: join(folder, 'data') };
    await eventually(async () => {
      assert.equal(child.exitCode, null, 'the second node has ended');
      try {
        const { api, admin } = addressesIn(other.data);
        other.url = `http://${api}`;
        const ready = await fetch(`http://${admin}/readyz`);
        return ready.ok && (await ready.json()).services.every((service) => service.serving);
      } catch {
        return false;
      }
    }, 'a second node');
    await action(other);
  } finally {
    child.kill();
    await ended;
    rmSync(folder, { recursive: true });
  }
}

/** Has the runner kill our node, and start it again on the same files and ports. */
export async function killNode() {
  const lines = createInterface({ input: process.stdin });
  console.log('@kill');
  const [answer] = await once(lines, 'line');
  lines.close();
  process.stdin.unref();
  assert.equal(answer, 'up');
}
