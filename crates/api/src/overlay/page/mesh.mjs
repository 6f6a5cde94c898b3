// The drawing of a mesh: this node in the middle, its peers around it, and a link to each.
//
// Everything the node answers is text to this page: it is put into the document as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
/** An element of a drawing; children that are no elements are text. */
function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children);
  return node;
}

export const short = (id) => `${id.slice(0, 8)}…`;

/** `eager`, `lazy`, `idle` or `lost`: how a peer takes part in a lane; of all lanes, the most it does in any. */
export function linkOf(peer, lane) {
  if (peer.state !== "connected") {
    return "lost";
  }
  const links = (peer.lanes ?? []).filter((one) => lane === "" || one.lane === lane).map((one) => one.link);
  return links.includes("eager") ? "eager" : links.includes("lazy") ? "lazy" : "idle";
}

function linkShape(peer, [x, y], [cx, cy], lane) {
  return shape("line", { class: `link ${linkOf(peer, lane)}`, x1: cx, y1: cy, x2: x, y2: y });
}

function peerShapes(peer, [x, y], lane) {
  const link = linkOf(peer, lane);
  const share = Math.min(1, peer.queued_bytes / Math.max(1, peer.queued_bytes_max));
  const shapes = [
    shape("circle", { class: `peer ${link}`, cx: x, cy: y, r: 22 },
      shape("title", {}, `${peer.node_id}\n${peer.addr}\n${peer.state}, ${link}`)),
    shape("text", { x, y: y + 4, "text-anchor": "middle" }, peer.node_id.slice(0, 4)),
    shape("text", { class: "faint", x, y: y + 38, "text-anchor": "middle" },
      peer.rtt_ms === null ? peer.state : `${peer.rtt_ms.toFixed(1)} ms`),
    shape("rect", { class: "room", x: x - 26, y: y + 44, width: 52, height: 5, rx: 2 }),
    shape("rect", { class: share > .9 ? "queue full" : "queue", x: x - 26, y: y + 44, width: 52 * share, height: 5, rx: 2 }),
  ];
  if (peer.busy_total > 0) {
    shapes.push(shape("text", { class: "busy", x: x + 20, y: y - 18 }, String(peer.busy_total)));
  }
  return shapes;
}

/** Peers beyond these do not fit the circle; the table has them all. */
const DRAWN_MAX = 48;

export function mesh(nodeId, peers, lane) {
  const drawn = peers.slice(0, DRAWN_MAX);
  const radius = Math.max(110, drawn.length * 11);
  const [width, height] = [2 * radius + 260, 2 * radius + 130];
  const centre = [width / 2, height / 2 - 10];
  const place = (index) => {
    const angle = 2 * Math.PI * index / drawn.length - Math.PI / 2;
    return [centre[0] + radius * Math.cos(angle), centre[1] + radius * Math.sin(angle)];
  };
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "links of this node" },
    // Links first, so that no link crosses a word.
    ...drawn.map((peer, index) => linkShape(peer, place(index), centre, lane)),
    ...drawn.flatMap((peer, index) => peerShapes(peer, place(index), lane)),
    shape("circle", { class: "me", cx: centre[0], cy: centre[1], r: 14 }, shape("title", {}, nodeId)),
    shape("text", { class: "faint", x: centre[0], y: centre[1] + 32, "text-anchor": "middle" },
      drawn.length < peers.length ? `${peers.length - drawn.length} more in the table` : "this node"));
}
