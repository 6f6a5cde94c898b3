//! Texts of ids: what is read, how it is written, and that both agree.

use multibase::Base;
use proptest::collection::vec;
use proptest::prelude::*;
use ron_store::{ContentId, Key, Name, NotAContentId, NotAName, PeerId, PublicKey, Subject};

use crate::samples::{label, public_key};

const BASES: [Base; 23] = [
    Base::Base2,
    Base::Base8,
    Base::Base10,
    Base::Base16Lower,
    Base::Base16Upper,
    Base::Base32Lower,
    Base::Base32Upper,
    Base::Base32PadLower,
    Base::Base32PadUpper,
    Base::Base32HexLower,
    Base::Base32HexUpper,
    Base::Base32HexPadLower,
    Base::Base32HexPadUpper,
    Base::Base32Z,
    Base::Base36Lower,
    Base::Base36Upper,
    Base::Base58Flickr,
    Base::Base58Btc,
    Base::Base64,
    Base::Base64Pad,
    Base::Base64Url,
    Base::Base64UrlPad,
    Base::Base256Emoji,
];

/// Content, the `b3:` id, the CID and its first bytes, as made with js-multiformats.
#[test]
fn blake3_ids_are_those_of_other_implementations() {
    let check = |bytes: &[u8], b3: &str, cid: &str| {
        let id = ContentId::of_bytes(bytes);
        assert_eq!((id.to_string().as_str(), id.cid_text().as_str()), (b3, cid));
        assert_eq!(id.b3_text().as_deref(), Some(b3));
        assert_eq!((b3.parse(), cid.parse()), (Ok(id), Ok(id)));
        assert_eq!(id.cid_bytes()[..4], [0x01, 0x55, 0x1e, 0x20]);
        assert_eq!(id.multihash_bytes(), id.cid_bytes()[2..]);
        assert_eq!((id.verifies(bytes), id.verifies(b"else")), (Some(true), Some(false)));
    };
    check(
        b"",
        "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi",
    );
    check(
        b"abc",
        "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu",
    );
}

/// The empty folder of IPFS, and its block.
#[test]
fn version_0_is_dag_pb_by_sha2() {
    let id: ContentId = "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn".parse().expect("a CID");
    assert_eq!(id.to_string(), "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354");
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!((id.codec(), id.b3_text()), (0x70, None));
    assert_eq!((id.verifies(&[0x0a, 0x02, 0x08, 0x01]), id.verifies(b"")), (Some(true), Some(false)));
}

#[test]
fn codecs_of_one_digest_share_their_key() {
    let digest = *blake3::hash(b"abc").as_bytes();
    let prefixes = [(0x55, "bafkr4i"), (0x70, "bafyb4i"), (0x71, "bafyr4i")];
    for (codec, prefix) in prefixes {
        let id = ContentId::from_cid_bytes(&[&[1, codec, 0x1e, 0x20], digest.as_slice()].concat()).expect("a CID");
        assert!(id.cid_text().starts_with(prefix), "{id}");
        assert_eq!(id.key(), ContentId::of_bytes(b"abc").key());
    }
    // The SHA-256 of the 34 bytes of the multihash, by another program.
    let multihash = ContentId::of_bytes(b"abc").multihash_bytes();
    assert_eq!(multihash.len(), 34);
    assert_eq!(Key::of_multihash(&multihash), ContentId::of_bytes(b"abc").key());
}

/// A varint of ten bytes can have bits beyond the 64th, which some readers drop.
#[test]
fn an_id_has_one_spelling() {
    let long = |last: u8| [[0x80; 8].as_slice(), &[last]].concat();
    let digest = [[0x1e, 0x20].as_slice(), &[7; 32]].concat();
    let cid = |last| [[1, 0x80].as_slice(), &long(last), &digest].concat();
    assert!(ContentId::from_cid_bytes(&cid(0x01)).is_ok());
    assert!(ContentId::from_cid_bytes(&cid(0x03)).is_err());
    let peer = [[0x92].as_slice(), &long(0x02), &digest[1..]].concat();
    assert!(PeerId::from_bytes(&peer).is_err());
}

#[test]
fn texts_that_are_no_ids_of_content() {
    let check = |text: &str, expected| assert_eq!(text.parse::<ContentId>(), Err(expected), "{text}");
    check("", NotAContentId::Cid);
    check("b3:", NotAContentId::B3);
    check(&format!("b3:{}", "A".repeat(64)), NotAContentId::B3);
    check(&format!("b3:{}", "a".repeat(63)), NotAContentId::B3);
    check(&format!("b3:{}", "é".repeat(32)), NotAContentId::B3);
    check(&"1".repeat(769), NotAContentId::TooLong);
    check("bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsm", NotAContentId::Cid);
    check("/ipfs/bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi", NotAContentId::Cid);
    check("zQmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn", NotAContentId::Cid);
    check("QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3N0", NotAContentId::Cid);
}

/// Ids and their CIDs as the specification of peer ids has them.
#[test]
fn peer_ids_are_those_of_other_implementations() {
    let check = |base58: &str, cid: &str, is_ed25519: bool| {
        let peer: PeerId = base58.parse().expect("a peer id");
        assert_eq!((cid.parse(), peer.to_string().as_str()), (Ok(peer), base58));
        assert_eq!(peer.cid_text().parse(), Ok(peer));
        assert_eq!(peer.ed25519().is_some(), is_ed25519);
        assert_eq!(peer.ed25519().map(|key| PeerId::of_ed25519(&key)), is_ed25519.then_some(peer));
        assert_eq!(peer.key(), Key::of_multihash(peer.as_bytes()));
    };
    check(
        "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",
        "bafzaajaiaejcal72gwuz2or47oyxxn6b3rkwdmmkrxgkjxzy3rqt5kczyn7lcm3l",
        true,
    );
    check(
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
        false,
    );
    for text in ["", "1", "Qm", "12D3KooW", "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi", "b", "z"] {
        assert!(text.parse::<PeerId>().is_err(), "{text}");
    }
    assert!("1".repeat(129).parse::<PeerId>().is_err());
}

#[test]
fn names_and_what_are_none() {
    let owner = public_key(1);
    let check = |text: &str, expected: Result<Name, NotAName>| {
        assert_eq!(text.parse::<Name>(), expected, "{text}");
        if let Ok(name) = expected {
            assert_eq!(text.parse(), Ok(Subject::Name(name)));
        }
    };
    check("name:docs/guide", Name::new("docs/guide", None));
    check(&format!("name:docs@{owner}"), Name::new("docs", Some(owner)));
    check("docs", Err(NotAName::Prefix));
    check("name:", Err(NotAName::Label));
    check("name:Docs", Err(NotAName::Label));
    check(&format!("name:{}", "a".repeat(129)), Err(NotAName::Label));
    check(&format!("name:@{owner}"), Err(NotAName::Label));
    assert!("name:docs@".parse::<Name>().is_err() && "name:docs@12".parse::<Name>().is_err());
    let name = Name::new("docs", None).expect("a name");
    assert_eq!(name.clone().owned_by(owner).owned_by(public_key(2)).owner(), Some(owner));
    assert_ne!(name.key(), name.owned_by(owner).key());
}

#[test]
fn distance_is_symmetric_and_zero_only_to_itself() {
    let (a, b) = (Key([0x0f; 32]), Key([0x0e; 32]));
    assert_eq!(a.distance(&b), b.distance(&a));
    assert_eq!((a.distance(&a).common_bits(), a.distance(&b).common_bits()), (256, 7));
    assert!(a.distance(&b) < a.distance(&Key([0xff; 32])));
}

proptest! {
    #[test]
    fn an_id_is_the_same_from_every_base(
        codec in prop_oneof![Just(0x55), Just(0x70), Just(0x71), any::<u64>()],
        code in prop_oneof![Just(0x1e_u64), Just(0x12), Just(0x00), any::<u64>()],
        digest in vec(any::<u8>(), 0..=64),
    ) {
        let hash = multihash::Multihash::<64>::wrap(code, &digest).expect("at most 64 bytes");
        let bytes = cid::Cid::new_v1(codec, hash).to_bytes();
        let id = ContentId::from_cid_bytes(&bytes).expect("a CID");
        prop_assert_eq!(&id.cid_bytes(), &bytes);
        for base in BASES {
            let text = multibase::encode(base, &bytes);
            prop_assert_eq!(text.parse::<ContentId>(), Ok(id), "{}", text);
        }
        prop_assert_eq!(id.to_string().parse::<ContentId>(), Ok(id));
        prop_assert_eq!(id.to_string().parse::<Subject>(), Ok(Subject::Content(id)));
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(ContentId::from_cid_bytes(&longer).is_err());
    }

    #[test]
    fn any_text_is_an_id_that_is_written_as_it_is_read_or_none(text in "\\PC{0,100}") {
        if let Ok(subject) = text.parse::<Subject>() {
            prop_assert_eq!(subject.to_string().parse::<Subject>(), Ok(subject));
        }
        if let Ok(peer) = text.parse::<PeerId>() {
            prop_assert_eq!(peer.to_string().parse::<PeerId>(), Ok(peer));
        }
    }

    #[test]
    fn names_and_keys_are_written_as_they_are_read(label in label(), owner in any::<Option<[u8; 32]>>()) {
        let name = Name::new(&label, owner.map(PublicKey)).expect("a name");
        prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name.clone()));
        let key = name.key();
        prop_assert_eq!(key.to_string().parse::<Key>(), Ok(key));
    }

    #[test]
    fn peer_ids_are_the_same_from_every_base(key in any::<[u8; 32]>()) {
        let peer = PeerId::of_ed25519(&key);
        prop_assert_eq!(peer.ed25519(), Some(key));
        prop_assert_eq!(PeerId::from_bytes(peer.as_bytes()), Ok(peer));
        let cid = [&[1, 0x72], peer.as_bytes()].concat();
        for base in [Base::Base36Lower, Base::Base32Lower, Base::Base58Btc, Base::Base16Lower] {
            prop_assert_eq!(multibase::encode(base, &cid).parse::<PeerId>(), Ok(peer));
        }
    }
}
