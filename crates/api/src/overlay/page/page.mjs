// The mesh around one node, looked at every second.

import { $, ask, element, live } from "./live.mjs";
import { linkOf, mesh, short } from "./mesh.mjs";

/** Keeps the chosen lane while it exists. */
function showLanes(peers) {
  const names = [...new Set(peers.flatMap((peer) => (peer.lanes ?? []).map((one) => one.lane)))].sort();
  const select = $("lane");
  const known = [...select.options].slice(1).map((option) => option.value);
  if (select.options.length === 0 || known.join("\n") !== names.join("\n")) {
    const chosen = select.value;
    select.replaceChildren(element("option", { value: "" }, "any"),
      ...names.map((name) => element("option", { value: name }, name)));
    select.value = names.includes(chosen) ? chosen : "";
  }
  return select.value;
}

const number = (text) => ({ number: true, text });
const bytes = (count) => count < 10_240 ? `${count} B` : count < 10_485_760 ? `${Math.round(count / 1024)} KiB`
  : `${Math.round(count / 1_048_576)} MiB`;

function lanesText(peer) {
  const lanes = peer.lanes ?? [];
  const named = (link) => lanes.filter((one) => one.link === link).map((one) => one.lane).join(", ");
  return ["eager", "lazy"].filter((link) => named(link)).map((link) => `${link}: ${named(link)}`).join("; ") || "none";
}

function table(peers, lane) {
  const head = ["node", "address", "state", "direction", "key exchange", number("rtt"), number("queue"), number("Busy"),
    "link", "lanes"];
  const row = (peer) => [
    element("code", { title: peer.node_id }, short(peer.node_id)),
    peer.addr,
    element("span", { class: peer.state === "connected" ? "ok" : "warn" }, peer.state),
    peer.direction,
    peer.tls_group ?? "",
    number(peer.rtt_ms === null ? "" : `${peer.rtt_ms.toFixed(2)} ms`),
    number(bytes(peer.queued_bytes)),
    number(element("span", peer.busy_total > 0 ? { class: "bad" } : {}, String(peer.busy_total))),
    linkOf(peer, lane),
    { wide: true, text: lanesText(peer) },
  ];
  const cell = (name, one) => {
    const kind = one.number ? "number" : one.wide ? "wide" : "";
    return element(name, kind ? { class: kind } : {}, one.text ?? one);
  };
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((one) => cell("th", one)))),
    element("tbody", {}, peers.map((peer) => element("tr", {}, row(peer).map((one) => cell("td", one)))))));
}

function show({ node_id: nodeId, listen, peers }) {
  $("node").textContent = nodeId;
  document.title = `Mesh of ${short(nodeId)}`;
  const connected = peers.filter((peer) => peer.state === "connected").length;
  $("status").className = connected === peers.length ? "" : "warn";
  $("status").textContent = `${connected} of ${peers.length} peers connected; `
    + (listen ? `reached at ${listen}` : "dials only");
  const lane = showLanes(peers);
  $("drawing").replaceChildren(mesh(nodeId, peers, lane));
  $("table").replaceChildren(peers.length > 0 ? table(peers, lane)
    : element("p", { class: "faint" }, "No peers. Add one with macronode overlay connect NODEID@HOST:PORT."));
}

const turn = live(async () => show(await ask("/overlay/peers")), ["mesh", "peers"]);
$("lane").addEventListener("change", turn);
