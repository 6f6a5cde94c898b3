// The distribution as a plot: how many payees get how much.

const SVG = "http://www.w3.org/2000/svg";
const [HEIGHT, LEFT, BOTTOM, TOP] = [220, 44, 46, 14];

function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  if (text !== undefined) {
    node.textContent = text;
  }
  return node;
}

/** A round amount in few characters: 1, 20, 5k, 2M, 1e27. */
export function short(text) {
  const zeros = text.length - 1;
  for (const [digits, letter] of [[3, ""], [6, "k"], [9, "M"], [12, "G"]]) {
    if (zeros < digits) {
      return `${text.slice(0, text.length - (digits - 3)) || "0"}${letter}`;
    }
  }
  return `${text[0]}e${zeros}`;
}

/** Bars of a histogram. `buckets` are {from, below, payees, paid}; the one that holds `mine` is marked. */
export function plot(buckets, asset, mine) {
  // Letters keep their size on a narrow screen, so that fewer of them fit.
  const isNarrow = matchMedia("(max-width: 34rem)").matches;
  const [width, labels] = isNarrow ? [330, 6] : [760, 14];
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  const most = Math.max(1, ...buckets.map((bucket) => bucket.payees));
  const payees = buckets.reduce((sum, bucket) => sum + bucket.payees, 0);
  const label = `How many of ${payees} payees get how much ${asset}: `
    + buckets.filter((bucket) => bucket.payees > 0)
      .map((bucket) => `${bucket.payees} get ${bucket.from} to below ${bucket.below}`).join(", ");
  svg.append(shape("title", {}, label));
  const floor = HEIGHT - BOTTOM;
  for (const count of most % 2 === 0 ? [0, most / 2, most] : [0, most]) {
    const y = floor - (count / most) * (floor - TOP);
    svg.append(shape("line", { class: "axis", x1: LEFT, x2: width, y1: y, y2: y }));
    svg.append(shape("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, String(count)));
  }
  const step = (width - LEFT) / Math.max(1, buckets.length);
  // Every bar has its edge; only so many labels fit side by side.
  const every = Math.ceil(buckets.length / labels);
  buckets.forEach((bucket, place) => {
    const x = LEFT + place * step;
    // A bar of one payee among millions is still to be seen.
    const height = bucket.payees === 0 ? 0 : Math.max(2, (bucket.payees / most) * (floor - TOP));
    const isMine = mine !== undefined && mine >= BigInt(bucket.from) && mine < BigInt(bucket.below);
    const bar = shape("rect", {
      class: isMine ? "mine" : "bar", x: x + step * 0.08, y: floor - height, width: step * 0.84, height, rx: 1,
    });
    bar.append(shape("title", {}, `${bucket.payees} payees get ${bucket.from} to below ${bucket.below}`
      + (bucket.paid === undefined ? "" : `, together ${bucket.paid}`)));
    svg.append(bar);
    if (place % every === 0) {
      svg.append(shape("text", { x: x + 2, y: floor + 15 }, short(bucket.from)));
    }
  });
  const middle = LEFT + (width - LEFT) / 2;
  const caption = { x: middle, y: HEIGHT - 8, "text-anchor": "middle" };
  svg.append(shape("text", caption, `payees by units of ${asset} they get`));
  return svg;
}
