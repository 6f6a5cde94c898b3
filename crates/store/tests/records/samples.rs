//! Keys and records to test with.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use ron_store::{
    ContentId, IpnsRecord, Key, Multiaddr, NameRecord, PeerRecord, ProviderFields, ProviderRecord, PublicKey, Record,
    Signer as _, TTL_MAX_MS,
};
use ron_transport::NodeKey;

/// Unix milliseconds at which the tests take place.
pub const NOW_MS: u64 = 1_800_000_000_000;

/// Bytes that a record takes in the store: those of its row and of its value.
pub fn row_and_value_bytes(record: &Record) -> usize {
    match record {
        // The row begins with the key, which the value therefore leaves out, and ends with sixteen bytes of a hash.
        Record::Provider(record) => record.encode().len() + 16,
        // The row is the kind and the key; before the value stands when it is over.
        other => 33 + 8 + other.encode().len(),
    }
}

/// The key of a number, always the same.
pub fn signer(number: u8) -> NodeKey {
    let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    NodeKey::from_pkcs8(&[head.as_slice(), &[number; 32]].concat()).expect("any 32 bytes are a key")
}

pub fn public_key(number: u8) -> PublicKey {
    signer(number).public_key()
}

pub fn addr() -> impl Strategy<Value = Multiaddr> {
    let texts = [
        "/ip4/192.0.2.17/tcp/4001",
        "/ip6/2001:db8::7/udp/4001/quic-v1",
        "/dns/node.example/tcp/443/wss",
        "/ip4/192.0.2.17/tcp/4001/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA/p2p-circuit",
        "/memory/7",
    ];
    proptest::sample::select(texts.map(|text| text.parse().expect("an address")).to_vec())
}

pub fn content() -> impl Strategy<Value = ContentId> {
    any::<[u8; 32]>().prop_map(ContentId::blake3)
}

pub fn label() -> impl Strategy<Value = String> {
    "[a-z0-9._/-]{1,128}"
}

pub fn provider() -> impl Strategy<Value = ProviderRecord> {
    let said = (vec(addr(), 0..=8), vec("[!-~]{1,64}", 0..=8), any::<u64>(), 1..=TTL_MAX_MS, of("[a-z0-9-]{1,32}"));
    (any::<[u8; 32]>(), any::<bool>(), said).prop_map(|(key, vouched, (addrs, protocols, sequence, ttl_ms, region))| {
        let peer = if vouched { "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N" } else { "" };
        let peer = peer.parse().unwrap_or_else(|_| public_key(1).peer_id());
        let (issued_ms, expires_ms) = (NOW_MS, NOW_MS + ttl_ms);
        let fields = ProviderFields { key: Key(key), peer, addrs, protocols, region, sequence, issued_ms, expires_ms };
        ProviderRecord::sign(fields, &signer(1)).expect("a record within its bounds")
    })
}

pub fn name() -> impl Strategy<Value = NameRecord> {
    (label(), content(), any::<u64>(), 1..=TTL_MAX_MS).prop_map(|(label, value, sequence, ttl_ms)| {
        NameRecord::sign(&label, value, sequence, NOW_MS, NOW_MS + ttl_ms, &signer(2)).expect("within its bounds")
    })
}

pub fn peer() -> impl Strategy<Value = PeerRecord> {
    (vec(addr(), 0..=8), any::<u64>(), 1..=TTL_MAX_MS).prop_map(|(addrs, sequence, ttl_ms)| {
        PeerRecord::sign(addrs, sequence, NOW_MS + ttl_ms, &signer(3)).expect("within its bounds")
    })
}

pub fn ipns() -> impl Strategy<Value = IpnsRecord> {
    (vec(any::<u8>(), 0..200), any::<u64>(), any::<u64>()).prop_map(|(value, sequence, ttl_ns)| {
        let bytes = IpnsParts { value, sequence, ttl_ns, ..IpnsParts::default() }.signed_by(4);
        IpnsRecord::parse(&public_key(4).peer_id(), &bytes).expect("a valid record")
    })
}

pub fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        provider().prop_map(Record::Provider),
        name().prop_map(Record::Name),
        peer().prop_map(Record::Peer),
        ipns().prop_map(Record::Ipns),
    ]
}

/// What an IPNS record says, and how it is put together.
#[derive(Clone)]
pub struct IpnsParts {
    pub value: Vec<u8>,
    pub sequence: u64,
    pub ttl_ns: u64,
    pub validity: String,
    pub validity_kind: u64,
}

impl Default for IpnsParts {
    fn default() -> Self {
        IpnsParts {
            value: b"/ipfs/bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi".to_vec(),
            sequence: 7,
            ttl_ns: 60_000_000_000,
            validity: "2033-05-18T03:33:20.123456789Z".to_owned(),
            validity_kind: 0,
        }
    }
}

impl IpnsParts {
    /// The signed part: a map in the order that DAG-CBOR has, shorter keys first.
    pub fn data(&self) -> Vec<u8> {
        let mut out = vec![0xa5];
        put_cbor(&mut out, 3, b"TTL");
        put_head(&mut out, 0, self.ttl_ns);
        put_cbor(&mut out, 3, b"Value");
        put_cbor(&mut out, 2, &self.value);
        put_cbor(&mut out, 3, b"Sequence");
        put_head(&mut out, 0, self.sequence);
        put_cbor(&mut out, 3, b"Validity");
        put_cbor(&mut out, 2, self.validity.as_bytes());
        put_cbor(&mut out, 3, b"ValidityType");
        put_head(&mut out, 0, self.validity_kind);
        out
    }

    /// A record for readers of version 2: the data and the signature over it.
    pub fn signed_by(&self, number: u8) -> Vec<u8> {
        signed_entry(&self.data(), number)
    }

    /// The fields that older readers go by, with a signature of version 1 that nobody looks at.
    pub fn older_fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_field_bytes(&mut out, 1, &self.value);
        put_field_bytes(&mut out, 2, &[1; 64]);
        put_field_number(&mut out, 3, self.validity_kind);
        put_field_bytes(&mut out, 4, self.validity.as_bytes());
        put_field_number(&mut out, 5, self.sequence);
        put_field_number(&mut out, 6, self.ttl_ns);
        out
    }
}

pub fn signed_entry(data: &[u8], number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let signature = signer(number).sign(&[b"ipns-signature:".as_slice(), data].concat());
    put_field_bytes(&mut out, 8, &signature);
    put_field_bytes(&mut out, 9, data);
    out
}

pub fn put_field_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub fn put_field_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3);
    put_varint(out, number);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_cbor(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    put_head(out, kind, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_head(out: &mut Vec<u8>, kind: u8, number: u64) {
    let kind = kind << 5;
    match number {
        0..24 => out.push(kind | number as u8),
        24..0x100 => out.extend_from_slice(&[kind | 24, number as u8]),
        0x100..0x1_0000 => {
            out.push(kind | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(kind | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(kind | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}
