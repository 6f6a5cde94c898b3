//! Names of content, signed records about it, and the store that keeps them.

mod bytes_io;
mod content_id;
mod ipns;
mod key;
mod name;
mod peer;
mod possession;
mod records;
mod store;
pub mod wire;

pub use content_id::{ContentId, NotAContentId};
pub use ipns::{IpnsError, IpnsRecord};
pub use key::{Distance, Key, NotAKey};
pub use multiaddr::{self, Multiaddr};
pub use name::{Name, NotAName, NotASubject, Subject};
pub use peer::{NotAPeerId, NotAPublicKey, PeerId, PublicKey, Signer};
pub use possession::Possession;
pub use records::{
    CLOCK_SKEW_MS, NameRecord, PeerRecord, ProviderFields, ProviderRecord, Record, RecordError, RecordKind, TTL_MAX_MS,
};
pub use store::{Applied, Bounds, Change, Counts, Expired, Provided, Store, StoreError, StoreOpened};
