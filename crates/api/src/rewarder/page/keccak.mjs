// Keccak-256, the hash of Ethereum: what browsers have under the name SHA-3 pads differently and gives other hashes.
//
// Lanes are BigInts of 64 bits. That is slow and easy to compare with FIPS 202, section 3; a page hashes some dozens of
// short texts.

const MASK = (1n << 64n) - 1n;
const RATE_BYTES = 136;

const ROUND_CONSTANTS = [
  0x0000000000000001n, 0x0000000000008082n, 0x800000000000808an, 0x8000000080008000n,
  0x000000000000808bn, 0x0000000080000001n, 0x8000000080008081n, 0x8000000000008009n,
  0x000000000000008an, 0x0000000000000088n, 0x0000000080008009n, 0x000000008000000an,
  0x000000008000808bn, 0x800000000000008bn, 0x8000000000008089n, 0x8000000000008003n,
  0x8000000000008002n, 0x8000000000000080n, 0x000000000000800an, 0x800000008000000an,
  0x8000000080008081n, 0x8000000000008080n, 0x0000000080000001n, 0x8000000080008008n,
];

// By how many bits the lane at x + 5y is turned.
const ROTATIONS = [
  0n, 1n, 62n, 28n, 27n,
  36n, 44n, 6n, 55n, 20n,
  3n, 10n, 43n, 25n, 39n,
  41n, 45n, 15n, 21n, 8n,
  18n, 2n, 61n, 56n, 14n,
];

const turned = (lane, bits) => ((lane << bits) | (lane >> (64n - bits))) & MASK;

function permute(state) {
  for (const constant of ROUND_CONSTANTS) {
    // theta: each lane takes up the parity of two columns
    const parity = [0, 1, 2, 3, 4].map((x) => state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20]);
    for (let place = 0; place < 25; place += 1) {
      const x = place % 5;
      state[place] ^= parity[(x + 4) % 5] ^ turned(parity[(x + 1) % 5], 1n);
    }
    // rho and pi: lanes are turned and change places
    const moved = new Array(25);
    for (let x = 0; x < 5; x += 1) {
      for (let y = 0; y < 5; y += 1) {
        moved[y + 5 * ((2 * x + 3 * y) % 5)] = turned(state[x + 5 * y], ROTATIONS[x + 5 * y]);
      }
    }
    // chi: the only step that is not linear
    for (let place = 0; place < 25; place += 1) {
      const [x, row] = [place % 5, place - (place % 5)];
      state[place] = moved[place] ^ (~moved[row + ((x + 1) % 5)] & MASK & moved[row + ((x + 2) % 5)]);
    }
    // iota
    state[0] ^= constant;
  }
}

/** The 32 bytes of the hash of some bytes. */
export function keccak256(bytes) {
  // One bit after the message, one at the end of the block: in Ethereum's version without the bits that SHA-3 adds.
  const padded = new Uint8Array((Math.floor(bytes.length / RATE_BYTES) + 1) * RATE_BYTES);
  padded.set(bytes);
  padded[bytes.length] ^= 0x01;
  padded[padded.length - 1] ^= 0x80;
  const view = new DataView(padded.buffer);
  const state = new Array(25).fill(0n);
  for (let start = 0; start < padded.length; start += RATE_BYTES) {
    for (let lane = 0; lane < RATE_BYTES / 8; lane += 1) {
      state[lane] ^= view.getBigUint64(start + 8 * lane, true);
    }
    permute(state);
  }
  const hash = new DataView(new ArrayBuffer(32));
  for (let lane = 0; lane < 4; lane += 1) {
    hash.setBigUint64(8 * lane, state[lane], true);
  }
  return new Uint8Array(hash.buffer);
}
