//! What the seal log says of an epoch.

use std::collections::BTreeMap;

use ron_calculus::Units;
use serde::{Deserialize, Serialize};

/// How far an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochStatus {
    /// Computed and durable; its payouts wait for somebody to release them.
    Held,
    /// Its payouts are on their way to the ledger.
    Released,
    /// Its payouts are in the ledger, and count and sums agree.
    Settled,
    /// Something does not add up; nothing more leaves, and a person decides.
    Quarantined,
}

impl EpochStatus {
    /// Every status, in the order of an epoch's life.
    pub const ALL: [EpochStatus; 4] =
        [EpochStatus::Held, EpochStatus::Released, EpochStatus::Settled, EpochStatus::Quarantined];

    /// As it is written in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            EpochStatus::Held => "held",
            EpochStatus::Released => "released",
            EpochStatus::Settled => "settled",
            EpochStatus::Quarantined => "quarantined",
        }
    }
}

/// Why an epoch is quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuarantineReason {
    /// More would be paid than there is, or the parts do not add up.
    Conservation,
    /// A number left its range.
    Overflow,
    /// The usage does not fit the policy.
    Schema,
    /// The ledger refused a payout, or holds something else than was sent.
    Intent,
    /// Artifacts are not what was sealed.
    Integrity,
    /// A person said that it is not paid.
    Rejected,
}

impl QuarantineReason {
    /// Every reason.
    pub const ALL: [QuarantineReason; 6] = [
        QuarantineReason::Conservation,
        QuarantineReason::Overflow,
        QuarantineReason::Schema,
        QuarantineReason::Intent,
        QuarantineReason::Integrity,
        QuarantineReason::Rejected,
    ];

    /// Whether a person can lift it once its cause is mended: the amounts are sound, only their way to the ledger was
    /// not. A run without amounts stays as it is, and has paid nobody.
    pub const fn is_liftable(self) -> bool {
        matches!(self, QuarantineReason::Intent | QuarantineReason::Integrity)
    }

    /// As it is written in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            QuarantineReason::Conservation => "conservation",
            QuarantineReason::Overflow => "overflow",
            QuarantineReason::Schema => "schema",
            QuarantineReason::Intent => "intent",
            QuarantineReason::Integrity => "integrity",
            QuarantineReason::Rejected => "rejected",
        }
    }
}

/// Reason and words of a quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Class of the failure.
    pub reason: QuarantineReason,
    /// One sentence for the operator, with what is known of the place.
    pub detail: String,
}

/// Sums of one asset of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetTotal {
    /// Name of the asset.
    pub asset: String,
    /// Units that were to be paid out.
    pub pool: Units,
    /// Units of all amounts together.
    pub paid: Units,
    /// Actors with an amount above zero.
    pub payees: u64,
    /// Units that a correction leaves over; of an ordinary run these are the pool minus what is paid.
    #[serde(default, skip_serializing_if = "Units::is_zero")]
    pub freed: Units,
}

impl AssetTotal {
    /// Units that another epoch may carry in.
    pub fn left_over(&self) -> Units {
        // The pool of a correction is exactly what it pays.
        Units(self.pool.0.saturating_sub(self.paid.0).saturating_add(self.freed.0))
    }
}

/// One epoch that is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Id of the epoch.
    pub epoch: String,
    /// Hash of the request that was computed: the same request again finds the epoch.
    pub request: String,
    /// Key of the run.
    pub run_key: String,
    /// Commitment over inputs and outputs.
    pub commitment: String,
    /// Name of the policy.
    pub policy: String,
    /// Hash of each artifact.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<String, String>,
    /// Rows of all inputs.
    pub rows: u64,
    /// Actors in them.
    pub actors: u64,
    /// Payouts, all assets together.
    pub intents: u64,
    /// What its usage is known by: the hash of what its files say, and those of the first files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<String>,
    /// Sums of each asset.
    pub totals: Vec<AssetTotal>,
    /// How far it is.
    pub status: EpochStatus,
    /// Why its payouts wait for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_because: Option<String>,
    /// Whether its payouts may ever leave: not those of a run whose inputs die with the process.
    pub is_payable: bool,
    /// Who released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
    /// The epoch whose leftovers were added to its pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<String>,
    /// The epoch that it corrects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<String>,
    /// Whether it pays out what that epoch left over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_left_over: bool,
    /// Place among the payouts up to which the ledger has answered.
    pub place: u64,
    /// Payouts before that place.
    pub sent: u64,
    /// Place in the order in which epochs were settled, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_as: Option<u64>,
    /// Wall clock when it was settled, in milliseconds since 1970; 0 if it is not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub settled_ms: u64,
    /// Who removed its artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<String>,
    /// Who knows that the ledger lost what it paid, of which nothing can be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_by: Option<String>,
    /// What was compared with the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciliation: Option<serde_json::Value>,
    /// Why it is quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// One record of the seal log. The first of an epoch is its row: the only commit point of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum SealRecord {
    /// Everything about an epoch: the seal of a run, or a copy that lets an old segment go.
    Row(Box<EpochRow>),
    /// Payouts may leave.
    Released {
        /// Id of the epoch.
        epoch: String,
        /// Subject that said so, or `policy`.
        by: String,
    },
    /// A person has mended what quarantined the epoch: its payouts may leave again, all of them from the first on.
    Lifted {
        /// Id of the epoch.
        epoch: String,
        /// Subject that said so.
        by: String,
    },
    /// So many payouts are answered for.
    Sent {
        /// Id of the epoch.
        epoch: String,
        /// Place behind the last of them.
        place: u64,
        /// Payouts before that place.
        intents: u64,
    },
    /// Everything is paid, and the ledger agrees.
    Settled {
        /// Id of the epoch.
        epoch: String,
        /// Place in the order of settlement.
        settled_as: u64,
        /// Wall clock, in milliseconds since 1970.
        #[serde(default)]
        at_ms: u64,
        /// What was compared.
        reconciliation: serde_json::Value,
    },
    /// Its artifacts are removed; what is left is what it paid.
    Removed {
        /// Id of the epoch.
        epoch: String,
        /// Subject or setting that said so.
        by: String,
    },
    /// It is this late, as far as the node has seen.
    Seen {
        /// Milliseconds since 1970.
        at_ms: u64,
    },
    /// The rows of these epochs are gone.
    Forgotten {
        /// The first bytes of the BLAKE3 hash of each id, in hexadecimal.
        names: Vec<String>,
    },
    /// Nothing more leaves.
    Quarantined {
        /// Id of the epoch.
        epoch: String,
        /// Why.
        #[serde(flatten)]
        quarantine: Quarantine,
        /// What was compared, if it came to that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reconciliation: Option<serde_json::Value>,
    },
}

impl SealRecord {
    /// The epoch it is about; empty if it is about none.
    pub fn epoch(&self) -> &str {
        match self {
            SealRecord::Seen { .. } | SealRecord::Forgotten { .. } => "",
            SealRecord::Row(row) => &row.epoch,
            SealRecord::Released { epoch, .. }
            | SealRecord::Lifted { epoch, .. }
            | SealRecord::Sent { epoch, .. }
            | SealRecord::Settled { epoch, .. }
            | SealRecord::Removed { epoch, .. }
            | SealRecord::Quarantined { epoch, .. } => epoch,
        }
    }
}

impl EpochRow {
    /// Whether nothing is paid from its artifacts any more.
    pub fn is_over(&self) -> bool {
        match self.status {
            EpochStatus::Settled => true,
            EpochStatus::Quarantined => !self.is_liftable(),
            EpochStatus::Held | EpochStatus::Released => false,
        }
    }

    /// Whether payouts of it have left, or may have.
    pub fn is_paying(&self) -> bool {
        matches!(self.status, EpochStatus::Released | EpochStatus::Settled) || self.is_liftable()
    }

    /// Whether it can never pay anything: what it carried in, or took up, is there still.
    pub fn is_dead(&self) -> bool {
        self.status == EpochStatus::Quarantined && !self.is_liftable()
    }

    /// Milliseconds since 1970 that a record shows to have come; 0 if it shows none.
    pub fn seen_ms(record: &SealRecord) -> u64 {
        match record {
            SealRecord::Row(row) => row.settled_ms,
            SealRecord::Settled { at_ms, .. } | SealRecord::Seen { at_ms } => *at_ms,
            _ => 0,
        }
    }

    /// Whether a person rejected it before anything was paid: its name is free for another run.
    pub fn is_rejected(&self) -> bool {
        self.quarantine.as_ref().is_some_and(|quarantine| quarantine.reason == QuarantineReason::Rejected)
    }

    /// Whether a person may lift its quarantine.
    pub fn is_liftable(&self) -> bool {
        let reason = self.quarantine.as_ref().map(|quarantine| quarantine.reason);
        self.status == EpochStatus::Quarantined && reason.is_some_and(QuarantineReason::is_liftable)
    }

    /// The row after a record; a settled epoch stays what it is, and a quarantined one unless it is lifted.
    pub fn apply(&mut self, record: &SealRecord) {
        let is_over = matches!(self.status, EpochStatus::Settled | EpochStatus::Quarantined);
        match record {
            SealRecord::Row(row) => *self = (**row).clone(),
            SealRecord::Removed { by, .. } => {
                self.removed_by = Some(by.clone());
                self.artifacts.clear();
            }
            SealRecord::Lifted { by, .. } if self.is_liftable() => {
                self.status = EpochStatus::Released;
                self.released_by = Some(by.clone());
                (self.quarantine, self.reconciliation) = (None, None);
                // The ledger may have been restored from an older copy: every payout is sent again, and it finds those
                // that it has by their keys.
                (self.place, self.sent) = (0, 0);
            }
            _ if is_over => {}
            SealRecord::Released { by, .. } => {
                self.status = EpochStatus::Released;
                self.released_by = Some(by.clone());
            }
            SealRecord::Lifted { .. } | SealRecord::Seen { .. } | SealRecord::Forgotten { .. } => {}
            SealRecord::Sent { place, intents, .. } => (self.place, self.sent) = (*place, *intents),
            SealRecord::Settled { settled_as, at_ms, reconciliation, .. } => {
                self.status = EpochStatus::Settled;
                self.settled_ms = *at_ms;
                self.sent = self.intents;
                self.settled_as = Some(*settled_as);
                self.reconciliation = Some(reconciliation.clone());
            }
            SealRecord::Quarantined { quarantine, reconciliation, .. } => {
                self.status = EpochStatus::Quarantined;
                self.quarantine = Some(quarantine.clone());
                self.reconciliation.clone_from(reconciliation);
            }
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
