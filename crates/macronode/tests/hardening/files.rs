//! The log's files: few descriptors, lost or cut segments, unknown versions, one owner, failed syncs.
