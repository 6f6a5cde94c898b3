// The last lookups of one node, looked at every second.

import { course, short } from "./course.mjs";
import { $, ask, element, live } from "./live.mjs";

/** Lookups that are drawn; the node remembers more. */
const DRAWN_MAX = 12;

const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;

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
}

live(async () => show(await ask("/index/stats"), await ask("/index/lookups")), ["lookups", "targets"]);
