// A browser that a script drives: Chromium without a window, spoken to over a pair of pipes.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { eventually } from './harness.mjs';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const CALL_LIMIT_MS = 30_000;

/** Opens a browser, hands a page to `work`, and ends the browser whatever happens. */
export async function withPage(work) {
  const profile = mkdtempSync(join(tmpdir(), 'payee-page-'));
  const browser = await start(profile);
  try {
    return await work(await Page.open(browser));
  } finally {
    browser.process.kill('SIGKILL');
    await browser.ended;
    await removed(profile);
  }
}

/** The browser's own children outlive it by a moment and still write into its profile. */
async function removed(profile) {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      rmSync(profile, { recursive: true, force: true });
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  console.error(`${profile} is left behind`);
}

async function start(profile) {
  for (const name of NAMES) {
    const browser = await tried(name, profile);
    if (browser) return browser;
  }
  throw new Error(`no browser is installed: none of ${NAMES.join(', ')}`);
}

function tried(name, profile) {
  // What a browser asks of the world by itself is off.
  const alone = ['--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];
  const options = ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', ...alone];
  const child = spawn(name, [...options, `--user-data-dir=${profile}`, 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    env: { ...process.env, HOME: profile },
  });
  return new Promise((resolve) => {
    child.once('error', () => resolve(undefined));
    child.once('spawn', () => resolve(new Browser(child)));
  });
}

/** Calls go out on the third pipe, answers and events come in on the fourth; each ends with a zero byte. */
class Browser {
  constructor(child) {
    this.process = child;
    this.ended = new Promise((resolve) => child.once('exit', resolve));
    this.calls = new Map();
    this.listeners = [];
    this.next = 0;
    let rest = '';
    child.stdio[4].setEncoding('utf8').on('data', (text) => {
      const messages = (rest + text).split('\0');
      rest = messages.pop();
      messages.forEach((message) => this.hear(JSON.parse(message)));
    });
  }

  hear(message) {
    const call = this.calls.get(message.id);
    if (!call) {
      this.listeners.forEach((listener) => listener(message));
      return;
    }
    this.calls.delete(message.id);
    clearTimeout(call.timer);
    if (message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
    else call.resolve(message.result);
  }

  call(method, params = {}, sessionId = undefined) {
    this.next += 1;
    const id = this.next;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method}: no answer`)), CALL_LIMIT_MS);
      this.calls.set(id, { method, resolve, reject, timer });
    });
  }
}

/** One page. Texts are read from the document as a reader sees them. */
export class Page {
  static async open(browser) {
    const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(browser, sessionId);
    await page.call('Page.enable');
    await page.call('Runtime.enable');
    await page.call('Log.enable');
    return page;
  }

  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
    /** What the page complained about: exceptions, and what its policy blocked. */
    this.complaints = [];
    /** Changes the body of answers whose address contains a text. */
    this.tampering = undefined;
    browser.listeners.push((message) => this.hear(message));
  }

  call(method, params = {}) {
    return this.browser.call(method, params, this.session);
  }

  hear({ method, params, sessionId }) {
    if (sessionId !== this.session) return;
    if (method === 'Runtime.exceptionThrown') {
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    }
    if (method === 'Log.entryAdded' && params.entry.level === 'error') this.complaints.push(params.entry.text);
    if (method === 'Fetch.requestPaused') this.tamper(params).catch((error) => this.complaints.push(error.message));
  }

  async tamper({ requestId, request, responseStatusCode, responseHeaders }) {
    if (!request.url.includes(this.tampering.part)) {
      await this.call('Fetch.continueRequest', { requestId });
      return;
    }
    const { body, base64Encoded } = await this.call('Fetch.getResponseBody', { requestId });
    const text = base64Encoded ? Buffer.from(body, 'base64').toString('utf8') : body;
    const changed = JSON.stringify(this.tampering.change(JSON.parse(text)));
    const length = ['content-length', 'content-encoding'];
    await this.call('Fetch.fulfillRequest', {
      requestId,
      responseCode: responseStatusCode,
      responseHeaders: responseHeaders.filter(({ name }) => !length.includes(name.toLowerCase())),
      body: Buffer.from(changed).toString('base64'),
    });
  }

  /** From now on, answers whose address contains `part` come changed; without arguments they come as they are. */
  async lie(part = undefined, change = undefined) {
    this.tampering = part && { part, change };
    await this.call(part ? 'Fetch.enable' : 'Fetch.disable', part ? { patterns: [{ requestStage: 'Response' }] } : {});
  }

  /** Goes to an address; an address that differs after # alone is loaded anew too. */
  async go(url) {
    await this.call('Page.navigate', { url: 'about:blank' });
    await eventually(async () => await this.evaluate('location.href') === 'about:blank', 'an empty page');
    await this.call('Page.navigate', { url });
    await eventually(async () => await this.evaluate('document.readyState') === 'complete', `${url} is loaded`);
  }

  async evaluate(expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Text of all elements that a selector finds. */
  text(selector) {
    const all = `[...document.querySelectorAll(${JSON.stringify(selector)})]`;
    return this.evaluate(`${all}.map((node) => node.innerText).join('\\n')`);
  }

  /** Waits until a selector finds an element that is shown, and gives its text. */
  async shown(selector) {
    const found = `document.querySelector(${JSON.stringify(selector)})`;
    await eventually(() => this.evaluate(`${found} !== null && ${found}.getClientRects().length > 0`), selector);
    return this.text(selector);
  }

  /** Types into a field as somebody at a keyboard does. */
  async type(selector, text) {
    await this.shown(selector);
    await this.evaluate(`{ const field = document.querySelector(${JSON.stringify(selector)});
      field.focus(); field.value = ''; }`);
    await this.call('Input.insertText', { text });
  }

  async press(key) {
    const code = { Enter: 13, Tab: 9 }[key];
    const what = { key, code: key, windowsVirtualKeyCode: code, text: key === 'Enter' ? '\r' : undefined };
    await this.call('Input.dispatchKeyEvent', { type: 'keyDown', ...what });
    await this.call('Input.dispatchKeyEvent', { type: 'keyUp', ...what, text: undefined });
  }

  async click(selector) {
    await this.shown(selector);
    await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }

  /** What somebody with such a screen sees. */
  async screen({ width = 1000, height = 900, dark = false } = {}) {
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    const features = [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }];
    await this.call('Emulation.setEmulatedMedia', { features });
  }

  async picture(path) {
    const { data } = await this.call('Page.captureScreenshot', { captureBeyondViewport: true });
    writeFileSync(path, Buffer.from(data, 'base64'));
  }
}
