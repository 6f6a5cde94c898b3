// Builds the tree of npm over made-up payouts and says how long it took.
import { StandardMerkleTree } from "@openzeppelin/merkle-tree";

const [leaves, step] = [Number(process.argv[2]), BigInt(process.argv[3])];
const address = (leaf) => "0x" + (BigInt(leaf) * step).toString(16).padStart(40, "0");
const payouts = Array.from({ length: leaves }, (_, leaf) => [address(leaf), (BigInt(leaf) * step + 1n).toString()]);
const begin = process.hrtime.bigint();
const tree = StandardMerkleTree.of(payouts, ["address", "uint256"]);
const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
console.log(JSON.stringify({ seconds, root: tree.root }));
