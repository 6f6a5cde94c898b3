//! IPNS records: those of another implementation are taken, and each broken rule is named.

use ron_store::{IpnsError, IpnsRecord, PeerId};

use crate::samples::{IpnsParts, public_key, put_field_bytes, put_field_number, signed_entry};

const VECTORS: &str = include_str!("../../vectors/ipns.txt");

fn vectors() -> impl Iterator<Item = (&'static str, PeerId, Vec<u8>)> {
    VECTORS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words in a line");
        (word(), word().parse().expect("a peer id"), from_hex(word()))
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn parse(bytes: &[u8]) -> Result<IpnsRecord, IpnsError> {
    IpnsRecord::parse(&public_key(4).peer_id(), bytes)
}

#[test]
fn records_of_another_implementation_are_taken() {
    for (what, name, bytes) in vectors() {
        let record = IpnsRecord::parse(&name, &bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        let value = b"/ipfs/bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi";
        assert_eq!(record.value().as_ref(), value, "{what}");
        assert_eq!((record.sequence(), record.ttl_ns()), (42, Some(300_000_000_000)), "{what}");
        // 2126-10-24, the day on which all of them end.
        assert_eq!(record.validity_ms() / 86_400_000, 57_274, "{what}");
        assert_eq!(record.bytes().as_ref(), bytes, "{what}");
        assert_eq!(record.name(), &name);
        let stranger = public_key(1).peer_id();
        let refused = IpnsRecord::parse(&stranger, &bytes);
        assert!(matches!(refused, Err(IpnsError::Signature | IpnsError::Key)), "{what}: {refused:?}");
    }
    assert_eq!(vectors().count(), 3);
}

/// Whatever byte of such a record is changed, the record says the same or is refused. The signature of version 1 is for
/// older readers, and nobody looks at it here.
#[test]
fn no_changed_byte_changes_what_a_record_says() {
    for (what, name, bytes) in vectors() {
        let record = IpnsRecord::parse(&name, &bytes).expect("a valid record");
        let said =
            |record: &IpnsRecord| (record.value().clone(), record.sequence(), record.validity_ms(), record.ttl_ns());
        // The fields before the signed ones are as long as they are, so a few hundred bytes cover all of them.
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            if let Ok(other) = IpnsRecord::parse(&name, &changed) {
                assert_eq!(said(&other), said(&record), "{what}: byte {at}");
            }
        }
    }
}

#[test]
fn each_rule_is_kept() {
    let parts = IpnsParts::default();
    let with = |change: &dyn Fn(&mut IpnsParts)| {
        let mut parts = parts.clone();
        change(&mut parts);
        parse(&parts.signed_by(4)).map(|record| record.validity_ms())
    };
    assert_eq!(with(&|_| {}), Ok(2_000_000_000_123));
    assert_eq!(with(&|parts| parts.validity_kind = 1), Err(IpnsError::Validity));
    assert_eq!(with(&|parts| parts.validity = "tomorrow".to_owned()), Err(IpnsError::Validity));
    assert_eq!(with(&|parts| parts.value = vec![0; 10 * 1024]), Err(IpnsError::TooLong));
    assert_eq!(parse(&parts.signed_by(5)), Err(IpnsError::Signature));
    assert_eq!(parse(&[]), Err(IpnsError::Unsigned));
    assert_eq!(parse(&parts.older_fields()), Err(IpnsError::Unsigned));
    assert_eq!(parse(&[0x0a, 0x7f]), Err(IpnsError::Malformed));
    assert_eq!(parse(&[0x08, 0x01]), Err(IpnsError::Malformed));
    assert_eq!(parse(&signed_entry(b"\xa0", 4)), Err(IpnsError::Data));
    assert_eq!(parse(&signed_entry(&[parts.data().as_slice(), &[0]].concat(), 4)), Err(IpnsError::Data));
}

#[test]
fn older_fields_say_what_is_signed() {
    let parts = IpnsParts::default();
    let joined = |older: &[u8]| parse(&[older, parts.signed_by(4).as_slice()].concat()).map(|_| ());
    assert_eq!(joined(&parts.older_fields()), Ok(()));
    let changes: [&dyn Fn(&mut IpnsParts); 5] = [
        &|parts| parts.value.push(b'x'),
        &|parts| parts.sequence += 1,
        &|parts| parts.ttl_ns += 1,
        &|parts| parts.validity.insert(0, '3'),
        &|parts| parts.validity_kind = 1,
    ];
    for change in changes {
        let mut other = parts.clone();
        change(&mut other);
        assert_eq!(joined(&other.older_fields()), Err(IpnsError::Contradiction));
    }
    // A value alone is a record to older readers too, whose sequence is zero then.
    let mut value_alone = Vec::new();
    put_field_bytes(&mut value_alone, 1, &parts.value);
    assert_eq!(joined(&value_alone), Err(IpnsError::Contradiction));
    let mut sequence_alone = Vec::new();
    put_field_number(&mut sequence_alone, 5, parts.sequence);
    assert_eq!(joined(&sequence_alone), Ok(()));
}

#[test]
fn a_key_beside_the_record_is_that_of_the_name() {
    let parts = IpnsParts::default();
    let with_key = |number: u8| {
        let mut bytes = parts.signed_by(4);
        let key = [[0x08, 0x01, 0x12, 0x20].as_slice(), &public_key(number).0].concat();
        put_field_bytes(&mut bytes, 7, &key);
        parse(&bytes).map(|_| ())
    };
    assert_eq!(with_key(4), Ok(()));
    assert_eq!(with_key(5), Err(IpnsError::Key));
    // A name that is the hash of a key says nothing without the key.
    let (_, name, bytes) = vectors().find(|(what, ..)| what.starts_with("rsa")).expect("an RSA record");
    assert!(IpnsRecord::parse(&name, &bytes).is_ok());
    assert_eq!(IpnsRecord::parse(&name, &parts.signed_by(4)), Err(IpnsError::Key));
}

#[test]
fn the_end_of_life_is_read_as_rfc_3339_has_it() {
    let check = |text: &str, expected: Option<u64>| {
        let parts = IpnsParts { validity: text.to_owned(), ..IpnsParts::default() };
        assert_eq!(parse(&parts.signed_by(4)).ok().map(|record| record.validity_ms()), expected, "{text}");
    };
    check("1970-01-01T00:00:00Z", Some(0));
    check("2000-02-29T23:59:59.999999999Z", Some(951_868_799_999));
    check("2033-05-18T03:33:20.5Z", Some(2_000_000_000_500));
    check("2033-05-18T05:33:20+02:00", Some(2_000_000_000_000));
    check("2033-05-17T22:03:20-05:30", Some(2_000_000_000_000));
    check("1900-02-28T00:00:00Z", None);
    for text in [
        "",
        "2033",
        "2033-05-18",
        "2033-05-18T03:33:20",
        "2033-13-18T03:33:20Z",
        "2033-02-29T03:33:20Z",
        "2033-05-18T24:33:20Z",
        "2033-05-18T03:33:20.Z",
        "2033-05-18T03:33:20.aZ",
        "2033-05-18T03:33:20+2:00",
        "-033-05-18T03:33:20Z",
        "2033-05-18T03:33:20.1234567890123456789Z",
    ] {
        check(text, None);
    }
}

#[test]
fn the_newer_record_is_known_by_its_sequence_then_its_end() {
    let record = |sequence, validity: &str| {
        let parts = IpnsParts { sequence, validity: validity.to_owned(), ..IpnsParts::default() };
        parse(&parts.signed_by(4)).expect("a valid record")
    };
    let (early, late) = ("2033-05-18T03:33:20Z", "2034-05-18T03:33:20Z");
    assert!(record(2, early).newer_than(&record(1, late)));
    assert!(record(1, late).newer_than(&record(1, early)));
    assert!(!record(1, early).newer_than(&record(1, early)));
}
