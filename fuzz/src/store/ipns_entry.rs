//! An IPNS record as bytes: the node only reads those of others, so that there is no encoder of its own.

use ron_transport::NodeKey;

const VALUE: &[u8] = b"/ipfs/bafkr4idoesnotmatterhere";
const VALIDITY: &[u8] = b"2033-05-18T03:33:20.123456789Z";
const SEQUENCE: u8 = 7;
const TTL_NS: u8 = 100;

/// The data and the signature over it, as fields of protobuf.
pub fn signed(key: &NodeKey) -> Vec<u8> {
    let data = data();
    let signature = key.sign(&[b"ipns-signature:".as_slice(), &data].concat());
    [field(8, &signature), field(9, &data)].concat()
}

/// The same for readers of version 1, whose signature nobody looks at.
pub fn older_fields() -> Vec<u8> {
    let number = |field: u8, number: u8| vec![field << 3, number];
    [field(1, VALUE), field(2, &[1; 64]), number(3, 0), field(4, VALIDITY), number(5, SEQUENCE), number(6, TTL_NS)]
        .concat()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    const BYTES: u8 = 2;
    let head = match bytes.len() {
        short @ 0..0x80 => vec![number << 3 | BYTES, short as u8],
        long => vec![number << 3 | BYTES, long as u8 | 0x80, (long >> 7) as u8],
    };
    [head.as_slice(), bytes].concat()
}

/// What is signed: a map of DAG-CBOR, shorter keys first.
fn data() -> Vec<u8> {
    const NUMBER: u8 = 0;
    const BYTES: u8 = 2;
    const TEXT: u8 = 3;
    const MAP: u8 = 5;
    let head = |kind: u8, count: usize| match count {
        0..24 => vec![kind << 5 | count as u8],
        _ => vec![kind << 5 | 24, count as u8],
    };
    let entry = |key: &str, value: Vec<u8>| [head(TEXT, key.len()), key.as_bytes().to_vec(), value].concat();
    let bytes = |bytes: &[u8]| [head(BYTES, bytes.len()), bytes.to_vec()].concat();
    [
        head(MAP, 5),
        entry("TTL", head(NUMBER, usize::from(TTL_NS))),
        entry("Value", bytes(VALUE)),
        entry("Sequence", head(NUMBER, usize::from(SEQUENCE))),
        entry("Validity", bytes(VALIDITY)),
        entry("ValidityType", head(NUMBER, 0)),
    ]
    .concat()
}
