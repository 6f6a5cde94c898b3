// The last lookups of one node, looked at every second.
//
// Everything the node answers is text to this page: it is put into the document as text, never as markup.

import { course, short } from "./course.mjs";

const $ = (id) => document.getElementById(id);
const LOOK_EVERY_MS = 1000;
/** Lookups that are drawn; the node remembers more. */
const DRAWN_MAX = 12;

/** The token lives here and nowhere else. */
let token = "";
/** The timer of the next look, so that there is one at most. */
let timer;

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children.flat());
  return node;
}

const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;

async function ask(path) {
  const headers = { accept: "application/json" };
  if (token) {
    headers.authorization = `Bearer ${token}`;
  }
  const response = await fetch(path, { headers, credentials: "omit", cache: "no-store", redirect: "error" });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw Object.assign(new Error(body.detail ?? `The node answers ${response.status}.`), { status: response.status });
  }
  return body;
}

const OUTCOMES = { found: "ok", absent: "", unknown: "warn", degraded: "bad" };

function lookup(one) {
  const time = new Date(one.at_ms).toLocaleTimeString();
  const left = one.open_targets > 0 ? `, ${one.open_targets} not asked` : "";
  return element("div", { class: "lookup" },
    element("h3", {}, one.id),
    element("p", { class: "faint" },
      element("span", { class: OUTCOMES[one.outcome] ?? "" }, one.outcome),
      ` at ${time} in ${one.took_ms.toFixed(1)} ms, ${counted(one.found, "record")}${left}`),
    course(one));
}

function table(targets) {
  const row = (target) => element("tr", {},
    element("td", {}, element("code", { title: target.target }, short(target.target))),
    element("td", {}, target.class),
    element("td", {}, element("span", { class: target.breaker === "closed" ? "ok" : "bad" }, target.breaker)));
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, ["target", "kind", "breaker"].map((name) => element("th", {}, name)))),
    element("tbody", {}, targets.map(row))));
}

function show(stats, { lookups }) {
  $("node").textContent = stats.peer_id;
  document.title = `Lookups of ${short(stats.peer_id)}`;
  const open = stats.targets.filter((target) => target.breaker !== "closed").length;
  $("status").className = open > 0 ? "warn" : "";
  $("status").textContent = `${counted(stats.records, "record")}, ${counted(stats.cached, "answer")} in memory, `
    + `${counted(stats.flights, "lookup")} under way`
    + (open > 0 ? `; ${open} of ${stats.targets.length} targets left out` : "");
  $("courses").replaceChildren(...(lookups.length > 0 ? lookups.slice(0, DRAWN_MAX).map(lookup)
    : [element("p", { class: "faint" }, "None yet. Try macronode index resolve ID --fresh --trace.")]));
  $("table").replaceChildren(stats.targets.length > 0 ? table(stats.targets)
    : element("p", { class: "faint" }, "Nobody was asked yet."));
  $("access").hidden = true;
  $("lookups").hidden = $("targets").hidden = false;
}

async function turn() {
  clearTimeout(timer);
  try {
    show(await ask("/index/stats"), await ask("/index/lookups"));
  } catch (error) {
    $("status").className = "bad";
    $("status").textContent = error.status === undefined ? "The node does not answer." : error.message;
    if (error.status === 401 || error.status === 403) {
      // Asked for a token once; without a new one there is nothing to try again.
      $("access").hidden = false;
      $("lookups").hidden = $("targets").hidden = true;
      return;
    }
  }
  timer = setTimeout(turn, LOOK_EVERY_MS);
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  turn();
});

// A link may bring the token behind its hash, which browsers send to nobody; it does not stay in the address.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token = given;
  history.replaceState(null, "", location.pathname);
  turn();
} else {
  $("token").focus();
}
