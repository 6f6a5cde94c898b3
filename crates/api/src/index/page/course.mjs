// The drawing of a lookup: a bar for everybody who was asked, from the question to its end.
//
// Everything the node answers is text to this page: it is put into the document as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
/** Asks beyond these are counted, not drawn. */
const DRAWN_MAX = 24;
const [NAME_WIDTH, LINE_WIDTH, WORD_WIDTH, ROW] = [150, 520, 190, 20];

/** An element of a drawing; children that are no elements are text. */
function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children);
  return node;
}

/** Both ends of an id: of peers the ends differ, and the beginnings are alike. */
export const short = (id) => id.length <= 20 || id.includes("://") ? id.slice(0, 28) : `${id.slice(0, 6)}…${id.slice(-6)}`;

const WORDS = { won: "winner", empty: "answered without it", timed_out: "no answer in time", skipped: "not asked: breaker open" };
const word = (ask) => (ask.hedge ? "hedge, " : "") + (ask.breaker === "half_open" ? "probe, " : "") + (WORDS[ask.end] ?? ask.end);
const classes = (ask) => `ask ${["won", "cancelled", "failed", "timed_out"].includes(ask.end) ? ask.end : ""} ${ask.hedge ? "hedge" : ""}`;

function row(ask, index, end) {
  const y = 24 + index * ROW;
  const place = (time) => NAME_WIDTH + LINE_WIDTH * Math.min(1, Math.max(0, time / end));
  const shapes = [shape("text", { x: 0, y: y + 12 }, short(ask.target), shape("title", {}, ask.target))];
  if (ask.end !== "skipped") {
    const [from, to] = [place(ask.asked_ms), place(ask.ended_ms ?? end)];
    shapes.push(shape("rect", { class: classes(ask), x: from, y: y + 3, width: Math.max(2, to - from), height: 11, rx: 2 },
      shape("title", {}, `${ask.asked_ms.toFixed(1)} to ${ask.ended_ms === null ? "the end" : `${ask.ended_ms.toFixed(1)} ms`}`)));
  }
  shapes.push(shape("text", { class: "faint", x: NAME_WIDTH + LINE_WIDTH + 10, y: y + 12 }, word(ask)));
  return shapes;
}

/** The course of one lookup. */
export function course(lookup) {
  const drawn = lookup.course.slice(0, DRAWN_MAX);
  const end = Math.max(0.001, lookup.took_ms, ...drawn.map((ask) => ask.ended_ms ?? 0));
  const height = 30 + drawn.length * ROW + (drawn.length < lookup.course.length ? ROW : 0);
  const more = lookup.course.length - drawn.length;
  return shape("svg", { viewBox: `0 0 ${NAME_WIDTH + LINE_WIDTH + WORD_WIDTH} ${height}`, role: "img", "aria-label": "course of the lookup" },
    shape("text", { class: "faint", x: NAME_WIDTH, y: 12 }, "0"),
    shape("text", { class: "faint", x: NAME_WIDTH + LINE_WIDTH, y: 12, "text-anchor": "end" }, `${end.toFixed(1)} ms`),
    shape("line", { class: "axis", x1: NAME_WIDTH, y1: 18, x2: NAME_WIDTH + LINE_WIDTH, y2: 18 }),
    ...drawn.flatMap((ask, index) => row(ask, index, end)),
    ...(more > 0 ? [shape("text", { class: "faint", x: 0, y: height - 8 }, `and ${more} more`)] : []));
}
