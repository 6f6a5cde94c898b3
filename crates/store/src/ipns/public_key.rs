//! Keys of IPNS names: in the name itself, or beside the record if they are too long for one.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

use super::IpnsError;
use super::entry::{Field, Fields};
use crate::bytes_io::Malformed;
use crate::{PeerId, PublicKey};

const RSA: u64 = 0;
const ED25519_KEY: u64 = 1;

/// What stands before a digest, and before an inlined key, in a peer id.
const HASHED_PREFIX: [u8; 2] = [0x12, 0x20];
const INLINED: u8 = 0x00;

/// Whether `signature` over `message` is by the key of `name`, which may stand in `beside` as well or only there.
pub(super) fn verify(name: &PeerId, beside: Option<&[u8]>, message: &[u8], signature: &[u8]) -> Result<(), IpnsError> {
    let key = key_of(name, beside)?;
    let (kind, bytes) = read(key)?;
    let is_signed = match kind {
        RSA => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, bytes).verify(message, signature).is_ok(),
        ED25519_KEY => PublicKey(bytes.try_into().map_err(|_| IpnsError::Key)?).verifies(message, signature),
        _ => return Err(IpnsError::KeyKind),
    };
    if is_signed { Ok(()) } else { Err(IpnsError::Signature) }
}

/// The protobuf of the key that `name` is made of. One beside the record must be that of the name.
fn key_of<'a>(name: &'a PeerId, beside: Option<&'a [u8]>) -> Result<&'a [u8], IpnsError> {
    match name.as_bytes() {
        [INLINED, _, inlined @ ..] => match beside {
            Some(key) if key != inlined => Err(IpnsError::Key),
            _ => Ok(inlined),
        },
        id => {
            let key = beside.ok_or(IpnsError::Key)?;
            let is_of_name = id.strip_prefix(&HASHED_PREFIX) == Some(digest(&SHA256, key).as_ref());
            if is_of_name { Ok(key) } else { Err(IpnsError::Key) }
        }
    }
}

/// Kind and bytes of a key in its protobuf.
fn read(protobuf: &[u8]) -> Result<(u64, &[u8]), IpnsError> {
    let (mut kind, mut bytes) = (None, None);
    for field in Fields::new(protobuf) {
        match field.map_err(|Malformed| IpnsError::Key)? {
            (1, Field::Number(number)) => kind = Some(number),
            (2, Field::Bytes(key)) => bytes = Some(key),
            _ => return Err(IpnsError::Key),
        }
    }
    kind.zip(bytes).ok_or(IpnsError::Key)
}
