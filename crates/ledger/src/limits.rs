//! Bounds of every ledger, so that what one takes, all take.

/// Entries in one batch; a larger one is refused.
pub const BATCH_ENTRIES_MAX: usize = 16_384;
/// Bytes of the name of an account.
pub const ACCOUNT_BYTES_MAX: usize = 1024;
/// Bytes of the name of an asset.
pub const ASSET_BYTES_MAX: usize = 128;
/// Assets in one embedded book.
pub const ASSETS_MAX: usize = 1024;
/// Lines in one page of a statement or of the list of accounts.
pub const PAGE_LINES_MAX: usize = 1000;

/// The length of a name shares sixteen bits with its direction.
const _: () = assert!(ACCOUNT_BYTES_MAX < 1 << 15 && ASSET_BYTES_MAX < 1 << 15);
