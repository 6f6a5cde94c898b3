// Reads the Mermaid blocks of Markdown files with Mermaid's own parser; prints `pass` or `fail` for each.
//
//   node check.mjs FILE...        every block must parse, and every file must have one
//   node check.mjs --self-test    a valid map passes and planted mistakes fail

import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

// Mermaid cleans labels with DOMPurify, which wants a browser: a window without pages is enough to parse.
const { window } = new JSDOM("");
Object.assign(globalThis, { window, document: window.document });
const { default: mermaid } = await import("mermaid");

/** What stands between the fences of each block, with the number of its first line. */
function blocks(markdown) {
  const found = [];
  let open = null;
  markdown.split("\n").forEach((line, index) => {
    if (open === null && line.trim() === "```mermaid") {
      open = { line: index + 2, text: "" };
    } else if (open !== null && line.trim() === "```") {
      found.push(open);
      open = null;
    } else if (open !== null) {
      open.text += `${line}\n`;
    }
  });
  return found;
}

/** What the parser objects to; nothing if the map is valid. */
async function complaint(text) {
  try {
    await mermaid.parse(text);
    return null;
  } catch (error) {
    return String(error.message ?? error);
  }
}

async function checkFile(path) {
  const maps = blocks(readFileSync(path, "utf8"));
  if (maps.length === 0) {
    console.log(`fail ${path}: no mermaid block`);
    return false;
  }
  let good = true;
  for (const { line, text } of maps) {
    const said = await complaint(text);
    console.log(said === null ? `pass ${path}:${line}` : `fail ${path}:${line}\n${said}`);
    good &&= said === null;
  }
  return good;
}

async function selfTest() {
  const valid = 'flowchart LR\n  subgraph a\n    b\n  end\n  q_b(["b (4)"])\n  b --> q_b\n';
  const planted = [
    ["a bracket in an id", valid.replaceAll("q_b", "q_b[0]")],
    ["an open subgraph", valid.replace("  end\n", "")],
    ["an edge to nowhere", `${valid}  b -->\n`],
    ["no kind of map", valid.replace("flowchart LR", "flaw LR")],
    ["an empty map", ""],
  ];
  let good = (await complaint(valid)) === null;
  console.log(`${good ? "pass" : "fail"} self-test: a valid map`);
  for (const [name, text] of planted) {
    const isFound = (await complaint(text)) !== null;
    console.log(`${isFound ? "pass" : "fail"} self-test: ${name} is found`);
    good &&= isFound;
  }
  return good;
}

const files = process.argv.slice(2);
let good = files.length > 0;
for (const file of files) {
  good = (file === "--self-test" ? await selfTest() : await checkFile(file)) && good;
}
process.exit(good ? 0 : 1);
