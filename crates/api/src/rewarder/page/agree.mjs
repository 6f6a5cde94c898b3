// Compares the page's scripts with the node: reads one case on each line, says what differs, and ends with the count.
// Only the tests run it; it is not served.

import { createInterface } from "node:readline";

import { blake3 } from "./blake3.mjs";
import { contradictions } from "./explain.mjs";
import { keccak256 } from "./keccak.mjs";
import { hex, verifyOz, verifySum } from "./verify.mjs";

let cases = 0;

function expect(what, found, expected) {
  cases += 1;
  if (found !== expected) {
    console.log(`${what}: ${found}, not ${expected}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const one = JSON.parse(line);
  switch (one.kind) {
    case "hash": {
      const bytes = Uint8Array.from({ length: one.length }, (_, place) => place % 251);
      expect(`blake3 of ${one.length} bytes`, hex(blake3(bytes)), one.blake3);
      expect(`keccak256 of ${one.length} bytes`, hex(keccak256(bytes)), one.keccak);
      break;
    }
    case "oz":
      expect(`oz ${one.name}`, verifyOz(one).ok, one.ok);
      break;
    case "sum":
      expect(`sum ${one.name}`, verifySum(one).ok, one.ok);
      break;
    case "pool":
      expect(`explanation of ${one.name}`, contradictions(one.pool).join("; "), "");
      break;
    default:
      console.log(`unknown case ${line}`);
  }
}
console.log(`${cases} cases`);
