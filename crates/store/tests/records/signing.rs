//! Records: what was signed verifies, and nothing else does.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use proptest::prelude::*;
use ron_store::{
    CLOCK_SKEW_MS, ContentId, Key, Multiaddr, NameRecord, PeerRecord, ProviderFields, ProviderRecord, PublicKey,
    Record, RecordError, TTL_MAX_MS,
};

use crate::samples::{NOW_MS, public_key, record, signer};

fn fields() -> ProviderFields {
    ProviderFields {
        key: Key([7; 32]),
        peer: public_key(1).peer_id(),
        addrs: vec!["/ip4/192.0.2.17/tcp/4001".parse().expect("an address")],
        protocols: vec!["transport-bitswap".to_owned()],
        region: None,
        sequence: 1,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + 1_000,
    }
}

fn sign(change: impl FnOnce(&mut ProviderFields)) -> Result<ProviderRecord, RecordError> {
    let mut fields = fields();
    change(&mut fields);
    ProviderRecord::sign(fields, &signer(1))
}

#[test]
fn a_provider_record_is_small() {
    let record = sign(|_| {}).expect("a record");
    assert!(record.encode().len() <= 180, "{} bytes", record.encode().len());
}

#[test]
fn bounds_hold_when_signing_and_when_verifying() {
    let addr = fields().addrs[0].clone();
    assert_eq!(sign(|fields| fields.addrs = vec![addr.clone(); 9]), Err(RecordError::Addresses));
    assert_eq!(sign(|fields| fields.addrs = vec![Multiaddr::empty()]), Err(RecordError::Addresses));
    let long = format!("/dns/{}/tcp/1", "a".repeat(126)).parse().expect("an address");
    assert_eq!(sign(|fields| fields.addrs = vec![long]), Err(RecordError::Addresses));
    assert_eq!(sign(|fields| fields.protocols = vec!["a".to_owned(); 9]), Err(RecordError::Protocols));
    assert_eq!(sign(|fields| fields.protocols = vec!["a b".to_owned()]), Err(RecordError::Protocols));
    assert_eq!(sign(|fields| fields.protocols = vec!["a".repeat(65)]), Err(RecordError::Protocols));
    for region in ["", "Europe", "eu_west", &"a".repeat(33)] {
        assert_eq!(sign(|fields| fields.region = Some(region.to_owned())), Err(RecordError::Region), "{region}");
    }
    assert_eq!(sign(|fields| fields.expires_ms = NOW_MS - 1), Err(RecordError::Lifetime));
    assert_eq!(sign(|fields| fields.expires_ms = NOW_MS + TTL_MAX_MS + 1), Err(RecordError::Lifetime));
    assert_eq!(
        NameRecord::sign("No", ContentId::of_bytes(b""), 1, NOW_MS, NOW_MS + 1, &signer(1)),
        Err(RecordError::Label)
    );
    let mut record = sign(|_| {}).expect("a record");
    record.addrs = vec![addr; 9];
    assert_eq!(record.verify(), Err(RecordError::Addresses));
}

#[test]
fn a_region_is_signed_and_a_record_without_one_has_its_old_form() {
    let plain = sign(|_| {}).expect("a record");
    let placed = sign(|fields| fields.region = Some("eu-west".to_owned())).expect("a record");
    assert_eq!(plain.encode()[64], 0, "the key, the signer, then what stands in the record");
    assert_eq!(placed.encode().len(), plain.encode().len() + 1 + "eu-west".len());
    let read = ProviderRecord::decode(&placed.encode()).expect("its own form");
    assert_eq!((read.region.as_deref(), read.verify()), (Some("eu-west"), Ok(())));
    let moved = ProviderRecord { region: Some("eu-east".to_owned()), ..placed };
    assert_eq!(moved.verify(), Err(RecordError::Signature));
    assert_eq!(ProviderRecord { region: None, ..moved }.verify(), Err(RecordError::Signature));
    let mut unknown_form = plain.encode();
    unknown_form[64] = 4;
    assert_eq!(ProviderRecord::decode(&unknown_form), Err(RecordError::Malformed));
}

#[test]
fn who_signs_for_a_peer() {
    assert!(sign(|_| {}).expect("a record").is_self_signed());
    let vouched = sign(|fields| fields.peer = public_key(2).peer_id()).expect("a record");
    assert!(!vouched.is_self_signed());
    assert_eq!(vouched.verify(), Ok(()));
    let mut stolen = vouched;
    stolen.signer = public_key(2);
    assert_eq!(stolen.verify(), Err(RecordError::Signature));
    let mut peer = PeerRecord::sign(vec![], 1, NOW_MS + 1, &signer(1)).expect("a record");
    peer.peer = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N".parse().expect("a peer id");
    assert_eq!(peer.verify(), Err(RecordError::Signer));
}

#[test]
fn time_is_judged_by_the_clock_of_the_reader() {
    let record = Record::Provider(sign(|_| {}).expect("a record"));
    assert_eq!(record.verify(NOW_MS - CLOCK_SKEW_MS), Ok(()));
    assert_eq!(record.verify(NOW_MS - CLOCK_SKEW_MS - 1), Err(RecordError::NotYet));
    assert_eq!(record.verify(NOW_MS + 999), Ok(()));
    assert_eq!(record.verify(NOW_MS + 1_000), Err(RecordError::Expired));
    let peer = |expires_ms| Record::Peer(PeerRecord::sign(vec![], 1, expires_ms, &signer(1)).expect("a record"));
    assert_eq!(peer(NOW_MS).verify(NOW_MS), Err(RecordError::Expired));
    assert_eq!(peer(NOW_MS + TTL_MAX_MS + CLOCK_SKEW_MS).verify(NOW_MS), Ok(()));
    assert_eq!(peer(u64::MAX).verify(NOW_MS), Err(RecordError::Lifetime));
}

#[test]
fn a_withdrawal_lasts_as_long_as_what_it_withdraws() {
    let withdrawal = sign(|fields| {
        fields.addrs.clear();
        fields.expires_ms = fields.issued_ms;
    });
    let withdrawal = withdrawal.expect("a record");
    assert!(withdrawal.withdraws());
    let record = Record::Provider(withdrawal);
    assert_eq!(record.verify(NOW_MS + TTL_MAX_MS - 1), Ok(()));
    assert_eq!(record.verify(NOW_MS + TTL_MAX_MS), Err(RecordError::Expired));
}

#[test]
fn a_signature_over_one_thing_is_none_over_another() {
    // A name record and a peer record with the same signed fields would be mistaken for each other without their kinds.
    let name = NameRecord::sign("a", ContentId::of_bytes(b""), 1, NOW_MS, NOW_MS + 1, &signer(1)).expect("a record");
    let mut peer = PeerRecord::sign(vec![], 1, NOW_MS + 1, &signer(1)).expect("a record");
    peer.signature = name.signature;
    assert_eq!(peer.verify(), Err(RecordError::Signature));
}

/// With a key of small order, a signature of nothing verifies over one message in a few.
#[test]
fn keys_for_which_anyone_can_sign_are_refused() {
    for (first, rest) in [(0x01, 0x00), (0x00, 0x00), (0xec, 0xff)] {
        let mut key = [rest; 32];
        (key[0], key[31]) = (first, rest & 0x7f);
        let mut forged = [0; 64];
        forged[0] = 1;
        assert!((0..=255_u8).all(|message| !PublicKey(key).verifies(&[message], &forged)), "{first}");
        let library = |message: u8| UnparsedPublicKey::new(&ED25519, key).verify(&[message], &forged).is_ok();
        assert!((0..=255_u8).any(library), "the library takes them, so the check is needed: {first}");
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_and_verifies(record in record()) {
        let bytes = record.encode();
        let decoded = Record::decode(&bytes);
        prop_assert_eq!(decoded.as_ref(), Ok(&record));
        prop_assert_eq!(record.verify(NOW_MS), Ok(()));
        prop_assert!(Record::decode(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(Record::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn any_flipped_bit_is_noticed(record in record(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = record.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let verified = Record::decode(&bytes).and_then(|record| record.verify(NOW_MS));
        prop_assert!(verified.is_err(), "byte {} of {}", at, bytes.len());
    }

    #[test]
    fn any_flipped_bit_of_a_long_number_is_noticed(sequence in 1_u64 << 56.., at in 0..24_usize, bit in 0..8) {
        let record = PeerRecord::sign(vec![], sequence, NOW_MS + 1, &signer(1)).expect("a record");
        let mut bytes = Record::Peer(record).encode();
        bytes[33 + at] ^= 1_u8 << bit;
        let verified = Record::decode(&bytes).and_then(|record| record.verify(NOW_MS));
        prop_assert!(verified.is_err(), "byte {}", at);
    }

    #[test]
    fn any_bytes_are_a_record_in_its_one_form_or_none(
        kind in 1_u8..=4,
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        bytes.insert(0, kind);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }
}
