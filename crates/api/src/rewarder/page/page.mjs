// The page of one epoch: its totals, and for one payee the amount, the reasons and the proofs.
//
// Everything the node answers is text to this page: it is put into the document as text, never as markup.

import {
  contradictions, correctionSentences, grouped, poolSentences, uncountedSentences, whyZero,
} from "./explain.mjs";
import { plot } from "./plot.mjs";
import { verifyOz, verifySum } from "./verify.mjs";

const $ = (id) => document.getElementById(id);
const base = location.pathname.replace(/\/+$/, "");

/** The token lives here and nowhere else. */
let token = "";
/** Manifest and distribution of the epoch, once they are read. */
let epoch = { manifest: undefined, distribution: undefined };
/** Counts the ids asked for, so that a slow answer does not overwrite a later one. */
let asked = 0;

/** An element with attributes and children; children that are no elements are text. */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

const show = (id, isShown) => { $(id).hidden = !isShown; };

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function get(path) {
  const headers = { accept: "application/json" };
  if (token) {
    headers.authorization = `Bearer ${token}`;
  }
  let response;
  try {
    response = await fetch(base + path, { headers, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch {
    throw new Refused(0, "The node does not answer.");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Refused(response.status, body.detail ?? body.title ?? `The node answers ${response.status}.`);
  }
  return body;
}

// ---- the epoch ----

const STATUS = {
  settled: ["ok", "settled: every payout is in the ledger"],
  released: ["warn", "released: payouts are on their way to the ledger"],
  quarantined: ["bad", "quarantined: nothing is paid, an operator decides"],
  held: ["warn", "waits for release by a person"],
  computing: ["warn", "being computed"],
  refused: ["bad", "refused"],
};

function showStatus(state) {
  const [tone, words] = STATUS[state.state] ?? ["warn", String(state.state)];
  const reason = state.quarantine?.reason ?? state.reason ?? state.held_because ?? state.refusal?.detail;
  $("status").replaceChildren(element("span", { class: `pill ${tone}` }, words), reason ? ` ${reason}` : "");
}

function table(head, rows) {
  const cell = (name, one) => element(name, one.number ? { class: "number" } : {}, one.text ?? one);
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((one) => cell("th", one)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((one) => cell("td", one)))))));
}

const number = (digits) => ({ number: true, text: grouped(digits) });

function assetBlock(asset) {
  const buckets = epoch.distribution?.assets?.find((one) => one.asset === asset.asset)?.buckets ?? [];
  return element("div", {},
    element("h3", {}, asset.asset),
    table(["", { number: true, text: "units" }], [
      ["pool", number(asset.pool)],
      ["paid", number(asset.paid)],
      ["left over", number(asset.delta)],
      ["payees", number(asset.payees)],
    ]),
    buckets.length > 0
      ? plot(buckets, asset.asset)
      : element("p", { class: "faint" }, "Nobody is paid, so there is nothing to plot."),
    element("dl", {},
      element("dt", {}, "root, OpenZeppelin"), element("dd", {}, element("code", {}, asset.roots?.oz ?? "none")),
      element("dt", {}, "root, sum tree"), element("dd", {}, element("code", {}, asset.roots?.sum ?? "none"))));
}

function showManifest(state, manifest) {
  const assets = manifest.assets ?? [];
  $("assets").replaceChildren(...(assets.length > 0
    ? assets.map(assetBlock)
    : [element("p", {}, "This epoch pays nobody.")]));
  const policy = manifest.policy ?? {};
  const facts = [
    ["commitment", state.commitment],
    ["run key", manifest.run_key],
    ["policy", `${policy.id ?? "?"} (${policy.signed ? `signed by ${policy.signers?.length ?? 0}` : "not signed"})`],
    ["policy hash", policy.hash],
    ["usage", manifest.rows === undefined ? undefined : `${manifest.rows} rows of ${manifest.actors} actors`],
    ["usage hash", manifest.content],
    ["corrects", manifest.corrects?.epoch],
  ];
  $("facts").replaceChildren(...facts.filter(([, value]) => value !== undefined && value !== null)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, element("code", {}, String(value)))]));
  show("totals", true);
  show("run", true);
}

async function open() {
  const id = decodeURIComponent(base.split("/").pop());
  $("epoch").textContent = id;
  document.title = `Payouts of ${id}`;
  try {
    const state = await get("");
    // A sealed epoch has the members of its manifest beside its state.
    const manifest = state.run_key ? state : undefined;
    const isPaying = manifest !== undefined && (manifest.assets ?? []).length > 0;
    // A plot is worth having, and nothing depends on it.
    const distribution = isPaying ? await get("/distribution").catch(() => undefined) : undefined;
    epoch = { manifest, distribution };
    showStatus(state);
    show("access", false);
    if (manifest) {
      showManifest(state, manifest);
    }
    show("mine", isPaying);
    return isPaying;
  } catch (error) {
    const needsToken = error.status === 401 || error.status === 403;
    show("access", needsToken);
    $("status").replaceChildren(element("span", { class: needsToken ? "" : "bad" },
      needsToken && !token ? "This epoch is not public." : error.message));
    if (needsToken) {
      $("token").focus();
    }
    return false;
  }
}

// ---- one payee ----

function copyable(title, value) {
  const text = JSON.stringify(value, null, 2);
  const block = element("pre", { tabindex: "0" }, text);
  const button = element("button", { type: "button", class: "plain" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without TLS the clipboard is out of reach; what is selected can be copied by hand.
      getSelection().selectAllChildren(block);
      button.textContent = "Selected";
    }
  });
  return element("details", {}, element("summary", {}, title), block, button);
}

function poolBlock(pool) {
  const wrong = contradictions(pool);
  const integers = Object.entries(pool).filter(([, value]) => typeof value === "string" && /^\d+$/.test(value));
  return element("div", {},
    pool.group ? element("h4", {}, `Group ${pool.group}`) : undefined,
    poolSentences(pool).map((sentence) => element("p", {}, sentence)),
    wrong.map((one) => element("p", { class: "bad" }, `These numbers contradict each other: ${one}.`)),
    element("details", {}, element("summary", {}, "All integers"),
      table(["", { number: true, text: "integer" }],
        integers.map(([name, value]) => [name.replaceAll("_", " "), number(value)]))));
}

/** The published root is the manifest's: a proof that brings its own root proves nothing. */
function check(actor, asset, proofs) {
  const published = epoch.manifest.assets.find((one) => one.asset === asset);
  const [oz, sum] = [proofs.oz, proofs.sum];
  const results = [];
  if (!sum) {
    // In public there are no sum proofs, since they show amounts of others; nor can it be shown that nobody is paid.
    if (BigInt(oz.amount) > 0n) {
      results.push(["OpenZeppelin tree (keccak-256)", verifyOz({
        root: published.roots.oz, actor, amount: oz.amount, proof: oz.proof,
      })]);
    }
  } else if (BigInt(sum.amount) === 0n) {
    results.push(["Sum tree: no payout", verifySum({
      root: published.roots.sum, rootSum: published.provable, asset, actor, amount: "0", proof: sum.proof,
    })]);
  } else {
    results.push(["OpenZeppelin tree (keccak-256)", verifyOz({
      root: published.roots.oz, actor, amount: oz.amount, proof: oz.proof,
    })]);
    results.push(["Sum tree (BLAKE3)", verifySum({
      root: published.roots.sum, rootSum: published.provable, asset, actor, amount: sum.amount, proof: sum.proof,
    })]);
    if (oz.amount !== sum.amount) {
      results.push(["Amounts", { ok: false, says: ["The two proofs are of different amounts."] }]);
    }
  }
  const [all, pool] = [BigInt(published.provable), BigInt(published.pool)];
  const compared = all <= pool ? "no more than" : "more than";
  results.push(["Conservation", {
    ok: all <= pool,
    says: [`All payouts that can be proven are ${grouped(all)} units, ${compared} the pool of ${grouped(pool)}.`],
  }]);
  return results;
}

function verdict(actor, asset, amount, results) {
  const ok = results.every(([, result]) => result.ok);
  const paid = amount === "0" ? "not paid" : `paid ${grouped(amount)} units of ${asset}`;
  const words = ok
    ? `Verified: ${actor} is ${paid} in this epoch.`
    : "This does not verify. Do not rely on the amount shown; ask the operator, and keep the proof.";
  return element("div", { "data-verdict": ok ? "ok" : "bad" },
    element("p", { class: `verdict ${ok ? "ok" : "bad"}` }, words),
    element("ol", { class: "checks" }, results.map(([name, result]) => element("li", {},
      element("strong", { class: result.ok ? "ok" : "bad" }, `${name}: ${result.ok ? "holds" : "does not hold"}. `),
      result.says.join(" ")))));
}

function payoutBlock(actor, explained, proofs) {
  const { asset } = explained;
  const amount = (proofs.sum ?? proofs.oz).amount;
  // What a correction pays is proven; what it takes back and what is due are explained beside it.
  const told = explained.correction?.pay ?? explained.amount;
  const buckets = epoch.distribution?.assets?.find((one) => one.asset === asset)?.buckets ?? [];
  const canVerify = proofs.sum !== undefined || amount !== "0";
  const button = element("button", { type: "button", "data-verify": asset }, "Verify here");
  const outcome = element("div", { "aria-live": "polite" });
  button.addEventListener("click", () => {
    outcome.replaceChildren(verdict(actor, asset, amount, check(actor, asset, proofs)));
  });
  return element("div", {},
    element("h3", {}, asset),
    element("p", { class: "amount" }, grouped(amount), " ", element("small", {}, `units of ${asset}`)),
    told === amount
      ? undefined
      : element("p", { class: "bad" }, `The explanation speaks of ${told} units, the proof of ${amount}.`),
    amount !== "0" && buckets.length > 0 ? plot(buckets, asset, BigInt(amount)) : undefined,
    element("h4", {}, "Why"),
    correctionSentences(explained).map((sentence) => element("p", {}, sentence)),
    explained.why_zero && (explained.pools ?? []).length === 0
      ? element("p", {}, whyZero(explained.why_zero))
      : (explained.pools ?? []).map(poolBlock),
    uncountedSentences(explained).map((sentence) => element("p", { class: "faint" }, sentence)),
    element("h4", {}, "Proof"),
    canVerify ? [button, outcome] : element("p", {}, "That an id is not paid is proven to bearers of a token alone."),
    copyable("OpenZeppelin proof", { actor, ...proofs.oz }),
    proofs.sum
      ? copyable("Sum proof", { actor, ...proofs.sum })
      : element("p", { class: "faint" }, "The sum proof shows amounts of others: it is for bearers of a token."));
}

async function showPayout(actor) {
  asked += 1;
  const mine = asked;
  const [target, path] = [$("payout"), encodeURIComponent(actor)];
  if (path === "." || path === "..") {
    target.replaceChildren(element("p", { class: "bad" }, "A browser cannot ask for this id; the command line can."));
    return;
  }
  target.replaceChildren(element("p", { class: "faint" }, "Asking the node…"));
  try {
    const isRefused = (error) => error.status === 401 || error.status === 403;
    // One after the other: a caller has a share of the few reads that a node does at once.
    const explanation = await get(`/explain/${path}`);
    const oz = await get(`/proof/${path}?format=oz`);
    const sum = await get(`/proof/${path}?format=sum`).catch((error) => {
      if (isRefused(error)) {
        return undefined;
      }
      throw error;
    });
    if (mine !== asked) {
      return;
    }
    const proofOf = (answer, asset) => (answer?.proofs ?? []).find((one) => one.asset === asset);
    const blocks = (explanation.assets ?? []).map((explained) => {
      const proofs = { oz: proofOf(oz, explained.asset), sum: proofOf(sum, explained.asset) };
      return proofs.oz && (proofs.sum || sum === undefined)
        ? payoutBlock(actor, explained, proofs)
        : element("p", { class: "bad" }, `The node gives no proof for ${explained.asset}.`);
    });
    target.replaceChildren(...(blocks.length > 0 ? blocks : [element("p", {}, "This epoch pays no asset.")]));
  } catch (error) {
    if (mine === asked) {
      target.replaceChildren(element("p", { class: "bad" }, error.message));
    }
  }
}

// ---- start ----

/** What the address says after `#`: a token, and perhaps an id. The token is taken out of the address at once. */
function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  token = fragment.get("token") ?? "";
  if (token) {
    fragment.delete("token");
    const rest = fragment.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return { actor: fragment.get("id"), verifies: fragment.has("verify") };
}

$("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  await open();
});

$("actor-form").addEventListener("submit", (event) => {
  event.preventDefault();
  showPayout($("actor").value);
});

const { actor, verifies } = readFragment();
const isPaying = await open();
if (isPaying && actor) {
  $("actor").value = actor;
  await showPayout(actor);
  if (verifies) {
    document.querySelectorAll("[data-verify]").forEach((button) => button.click());
  }
}
