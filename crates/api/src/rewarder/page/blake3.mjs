// BLAKE3, without keys and of 32 bytes: https://github.com/BLAKE3-team/BLAKE3-specs
//
// A message is cut into chunks of 1024 bytes, a chunk into blocks of 64; the chunks are the leaves of a tree.

const IV = [
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];
// The word of a block that stands at each place after one round.
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];

const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;

const CHUNK_BYTES = 1024;
const BLOCK_BYTES = 64;

const turned = (word, bits) => (word >>> bits) | (word << (32 - bits));

function mix(state, a, b, c, d, first, second) {
  state[a] = state[a] + state[b] + first;
  state[d] = turned(state[d] ^ state[a], 16);
  state[c] = state[c] + state[d];
  state[b] = turned(state[b] ^ state[c], 12);
  state[a] = state[a] + state[b] + second;
  state[d] = turned(state[d] ^ state[a], 8);
  state[c] = state[c] + state[d];
  state[b] = turned(state[b] ^ state[c], 7);
}

/** The chaining value after one block. A message that a page reads has fewer than 2^32 chunks, and the top of the tree
 * has at most one block, so that the upper half of the counter is always zero. */
function compress(chain, block, counter, blockBytes, flags) {
  const state = new Uint32Array([...chain, ...IV.slice(0, 4), counter, 0, blockBytes, flags]);
  let words = block;
  for (let round = 0; round < 7; round += 1) {
    // Columns, then diagonals.
    mix(state, 0, 4, 8, 12, words[0], words[1]);
    mix(state, 1, 5, 9, 13, words[2], words[3]);
    mix(state, 2, 6, 10, 14, words[4], words[5]);
    mix(state, 3, 7, 11, 15, words[6], words[7]);
    mix(state, 0, 5, 10, 15, words[8], words[9]);
    mix(state, 1, 6, 11, 12, words[10], words[11]);
    mix(state, 2, 7, 8, 13, words[12], words[13]);
    mix(state, 3, 4, 9, 14, words[14], words[15]);
    const before = words;
    words = PERMUTATION.map((place) => before[place]);
  }
  return state.slice(0, 8).map((word, place) => word ^ state[place + 8]);
}

function wordsOf(bytes) {
  const block = new DataView(new ArrayBuffer(BLOCK_BYTES));
  bytes.forEach((byte, place) => block.setUint8(place, byte));
  return Array.from({ length: 16 }, (_, word) => block.getUint32(4 * word, true));
}

function chunk(bytes, counter, rootFlag) {
  const blocks = Math.max(1, Math.ceil(bytes.length / BLOCK_BYTES));
  let chain = new Uint32Array(IV);
  for (let number = 0; number < blocks; number += 1) {
    const piece = bytes.subarray(BLOCK_BYTES * number, BLOCK_BYTES * (number + 1));
    const isLast = number === blocks - 1;
    const flags = (number === 0 ? CHUNK_START : 0) | (isLast ? CHUNK_END | rootFlag : 0);
    chain = compress(chain, wordsOf(piece), counter, piece.length, flags);
  }
  return chain;
}

/** Hash of the part of the tree over these bytes, whose first chunk has this number. */
function subtree(bytes, counter, rootFlag) {
  if (bytes.length <= CHUNK_BYTES) {
    return chunk(bytes, counter, rootFlag);
  }
  // The left side has as many chunks as a power of two can have and leave one for the right.
  let left = 1;
  while (2 * left * CHUNK_BYTES < bytes.length) {
    left *= 2;
  }
  const children = [
    ...subtree(bytes.subarray(0, left * CHUNK_BYTES), counter, 0),
    ...subtree(bytes.subarray(left * CHUNK_BYTES), counter + left, 0),
  ];
  return compress(new Uint32Array(IV), children, 0, BLOCK_BYTES, PARENT | rootFlag);
}

/** The 32 bytes of the hash of some bytes. */
export function blake3(bytes) {
  const hash = new DataView(new ArrayBuffer(32));
  subtree(bytes, 0, ROOT).forEach((word, place) => hash.setUint32(4 * place, word, true));
  return new Uint8Array(hash.buffer);
}
