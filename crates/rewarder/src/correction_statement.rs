//! What somebody signs who lets a correction be paid: the commitment of the correction, and so everything in it.

use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalError, to_canonical};
use crate::envelope::{CORRECTION_TYPE, Envelope, EnvelopeError};
use crate::epoch::EpochId;
use crate::hashing::b3;
use crate::keys::{SigningKey, TrustedKeys};
use crate::sealed::SealedRun;

/// The statement that trusted keys sign. It is not part of the run: a signature over a commitment cannot be in what is
/// committed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrectionStatement {
    /// Epoch of the correction.
    pub epoch: EpochId,
    /// Its commitment: usage, policy, bounds, and what was paid before.
    pub commitment: String,
    /// Commitment of the run that it corrects.
    pub corrects: String,
}

/// Why a correction is not believed.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The signatures are not those that are asked for.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// A statement without a canonical form.
    #[error("{0}")]
    Canonical(#[from] CanonicalError),
    /// The signatures are under something else.
    #[error("what was signed is not this correction")]
    OtherCorrection,
}

impl CorrectionStatement {
    /// The statement about a correction; none if the run is not one.
    pub fn of(run: &SealedRun) -> Option<CorrectionStatement> {
        let manifest = run.manifest();
        let corrects = manifest.corrects.as_ref()?.commitment.clone();
        Some(CorrectionStatement { epoch: manifest.epoch.clone(), commitment: b3(&run.commitment()), corrects })
    }

    /// An envelope with one more signature: a new one, or one that others have signed.
    pub fn sign(&self, signed: Option<&[u8]>, key: &SigningKey) -> Result<Envelope, StatementError> {
        let payload = to_canonical(self)?;
        let mut envelope = match signed {
            Some(bytes) => Envelope::parse(bytes)?,
            None => Envelope::of(CORRECTION_TYPE, &payload),
        };
        if envelope.payload()? != payload || envelope.payload_type != CORRECTION_TYPE {
            return Err(StatementError::OtherCorrection);
        }
        envelope.sign(key)?;
        Ok(envelope)
    }

    /// Whether enough trusted keys have signed this very statement.
    pub fn check(&self, signed: &[u8], trusted: &TrustedKeys) -> Result<(), StatementError> {
        let verified = Envelope::parse(signed)?.verify_as(CORRECTION_TYPE, trusted)?;
        if verified.payload == to_canonical(self)? { Ok(()) } else { Err(StatementError::OtherCorrection) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_believed_under_its_own_signatures_only() {
        let keys: Vec<SigningKey> = (0..2).map(|_| SigningKey::generate().expect("made")).collect();
        let trusted = TrustedKeys { threshold: 2, keys: keys.iter().map(SigningKey::public).collect() };
        let hash = |byte: u8| b3(&[byte; 32]);
        let statement =
            CorrectionStatement { epoch: "fix".parse().expect("a name"), commitment: hash(1), corrects: hash(2) };
        let one = statement.sign(None, &keys[0]).expect("signed").to_text();
        assert!(matches!(statement.check(one.as_bytes(), &trusted), Err(StatementError::Envelope(_))), "one of two");
        let two = statement.sign(Some(one.as_bytes()), &keys[1]).expect("signed").to_text();
        statement.check(two.as_bytes(), &trusted).expect("two of two");

        let other = CorrectionStatement { commitment: hash(3), ..statement.clone() };
        assert!(matches!(other.check(two.as_bytes(), &trusted), Err(StatementError::OtherCorrection)));
        assert!(matches!(other.sign(Some(one.as_bytes()), &keys[1]), Err(StatementError::OtherCorrection)));
        // A signature under the same bytes as a policy is none under a correction.
        let mut policy = Envelope::around(&to_canonical(&statement).expect("canonical"));
        keys.iter().for_each(|key| policy.sign(key).expect("signed"));
        assert!(matches!(statement.check(policy.to_text().as_bytes(), &trusted), Err(StatementError::Envelope(_))));
    }
}
