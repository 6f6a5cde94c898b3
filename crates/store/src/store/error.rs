//! Why the store does not answer.

use std::path::PathBuf;

/// Reason why the store does not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The file cannot be read or written.
    #[error("the store: {0}")]
    File(#[from] std::io::Error),
    /// What is in the file is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> Self {
        match error {
            // These kinds say that bytes are missing or make no sense, not that the disk failed.
            redb::Error::Io(error)
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                StoreError::Damaged(error.to_string())
            }
            redb::Error::Io(error) => StoreError::File(error),
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => StoreError::File(std::io::Error::other(error)),
            other => StoreError::Damaged(other.to_string()),
        }
    }
}

macro_rules! by_way_of_the_common_error {
    ($($kind:ident),+) => {
        $(impl From<redb::$kind> for StoreError {
            fn from(error: redb::$kind) -> Self {
                redb::Error::from(error).into()
            }
        })+
    };
}

by_way_of_the_common_error!(DatabaseError, TransactionError, TableError, StorageError, CommitError);
