//! Shares of the runs that wait or are computed, by number and by memory: nobody leaves no room for the next.

use std::sync::Arc;

use ron_auth::Subject;
use ron_kernel::share::{Bound, SubjectShare, SubjectShares};
use ron_types::Error;
use ron_types::limits::rewarder::{QUEUE_CAPACITY, WAITING_RUNS_BYTES_MAX};

/// Times its text that a policy takes in memory once it is read: one of a mebibyte was measured at eight.
const READ_FACTOR: usize = 10;
/// Bytes of a run without its policy and its files.
const RUN_BYTES: usize = 4096;
/// Bytes of one file of a run: its name, its path, what keeps it.
const FILE_BYTES: usize = 512;

const PLACES: Bound = Bound { what: "runs that wait", help: "wait until some of them are computed" };
const BYTES: Bound = Bound { what: "bytes of runs that wait", help: "wait until some of them are computed" };

const COMPARISONS: Bound = Bound { what: "comparisons of input files", help: "say their hashes in the request" };
/// Comparisons of input files with sealed runs at once: each reads whole files, and holds a permit of the reads.
const COMPARISONS_MAX: usize = 2;

/// The runs of all callers that were accepted and are not over.
pub(crate) struct RunShares {
    places: Arc<SubjectShares>,
    bytes: Arc<SubjectShares>,
    comparisons: Arc<SubjectShares>,
}

/// What one run holds of both, until it is over.
#[derive(Debug)]
pub(crate) struct RunShare {
    #[expect(dead_code, reason = "held for its drop")]
    place: SubjectShare,
    #[expect(dead_code, reason = "held for its drop")]
    bytes: SubjectShare,
}

impl Default for RunShares {
    fn default() -> RunShares {
        RunShares {
            places: SubjectShares::new(PLACES, QUEUE_CAPACITY),
            bytes: SubjectShares::new(BYTES, WAITING_RUNS_BYTES_MAX),
            comparisons: SubjectShares::new(COMPARISONS, COMPARISONS_MAX),
        }
    }
}

impl RunShares {
    /// Lets a caller have the files of a request compared with those of a sealed run.
    pub fn compare(&self, by: &Subject) -> Result<SubjectShare, Error> {
        self.comparisons.take(&by.name, by.is_operator)
    }

    /// Room for a run with a document of so many bytes and so many files, if its caller may have that. Asked before
    /// anything of it is read.
    pub fn take(&self, by: &Subject, document_bytes: usize, files: usize) -> Result<RunShare, Error> {
        let place = self.places.take(&by.name, by.is_operator)?;
        let bytes = RUN_BYTES
            .saturating_add(document_bytes.saturating_mul(READ_FACTOR))
            .saturating_add(files.saturating_mul(FILE_BYTES));
        Ok(RunShare { place, bytes: self.bytes.take_many(&by.name, by.is_operator, bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use ron_types::limits::rewarder::BODY_BYTES_MAX;

    use super::*;

    #[test]
    fn runs_that_wait_are_bounded_in_memory_and_shared_by_subject() {
        let shares = RunShares::default();
        let fill_as = |by: &Subject, document_bytes: usize| -> Vec<RunShare> {
            std::iter::from_fn(|| shares.take(by, document_bytes, 1).ok()).collect()
        };
        let fill = |name: &str, document_bytes: usize| fill_as(&Subject::named(name), document_bytes);
        let large = fill("ann", BODY_BYTES_MAX);
        assert!(!large.is_empty() && large.len() * READ_FACTOR * BODY_BYTES_MAX <= WAITING_RUNS_BYTES_MAX / 2);
        assert!(!fill("bob", BODY_BYTES_MAX).is_empty(), "there is room for the next");
        drop(large);
        let small = fill("ann", 100);
        assert_eq!(small.len(), QUEUE_CAPACITY / 2);
        assert_eq!(fill("bob", 100).len(), QUEUE_CAPACITY / 4);
        let rest = fill_as(&Subject::operator("operator"), 100);
        assert_eq!(rest.len(), QUEUE_CAPACITY / 2, "the operator takes what is left");
    }
}
