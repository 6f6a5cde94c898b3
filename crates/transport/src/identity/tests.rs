//! Tests of keys, ids and the key file.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn an_id_is_sixty_four_lower_case_hex_digits_and_nothing_else() {
    let id = NodeKey::generate().expect("a key").node_id();
    let text = id.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(id));
    let mut in_upper_case = text.clone();
    in_upper_case.replace_range(..1, "A");
    for wrong in ["", &text[1..], &format!("{text}0"), &in_upper_case, &format!("g{}", &text[1..]), &"é".repeat(32)] {
        assert_eq!(wrong.parse::<NodeId>(), Err(NotANodeId), "{wrong}");
    }
}

#[test]
fn a_signature_is_checked_by_the_id_alone() {
    let key = NodeKey::generate().expect("a key");
    let signature = key.sign(b"message");
    assert!(key.node_id().verifies(b"message", &signature));
    assert!(!key.node_id().verifies(b"massage", &signature));
    assert!(!NodeKey::generate().expect("a key").node_id().verifies(b"message", &signature));
}

#[test]
fn a_key_survives_its_document() {
    let key = NodeKey::generate().expect("a key");
    let document = key.to_pkcs8().expect("written");
    assert_eq!(NodeKey::from_pkcs8(&document).expect("read").node_id(), key.node_id());
    assert!(matches!(NodeKey::from_pkcs8(&document[1..]), Err(KeyError::Unusable)));
    assert!(!format!("{key:?}").contains(&format!("{:02x}{:02x}", document[20], document[21])), "never shown");
}

#[test]
fn a_key_file_is_made_once_private_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.key");
    let made = NodeKey::load_or_create(&path).expect("made");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(NodeKey::load_or_create(&path).expect("read").node_id(), made.node_id());
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing unfinished is left");
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.key");
    NodeKey::load_or_create(&path).expect("made");
    for mode in [0o640, 0o604, 0o622] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        let refused = NodeKey::load_or_create(&path).expect_err("exposed");
        assert!(matches!(refused, KeyError::Exposed { mode: told, .. } if told == mode), "{refused}");
    }
}

#[test]
fn a_damaged_key_file_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.key");
    NodeKey::load_or_create(&path).expect("made");
    fs::write(&path, "not a key").expect("damaged");
    assert!(matches!(NodeKey::load_or_create(&path), Err(KeyError::Unusable)));
    assert_eq!(fs::read(&path).expect("there"), b"not a key");
}

#[test]
fn an_id_is_a_string_in_json() {
    let id = NodeKey::generate().expect("a key").node_id();
    let text = serde_json::to_string(&id).expect("written");
    assert_eq!(text, format!("\"{id}\""));
    assert_eq!(serde_json::from_str::<NodeId>(&text).expect("read"), id);
    assert!(serde_json::from_str::<NodeId>("\"00\"").is_err());
}
