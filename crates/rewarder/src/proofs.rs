//! What a payee takes away: a proof of one amount, for a contract or a wallet (`oz`) or against the whole pool (`sum`).

use std::io::{self, Write};
use std::str::FromStr;

use rayon::prelude::*;
use ron_calculus::Units;
use ron_calculus::tree::oz::leaf_encoding;
use ron_calculus::tree::sum::SumProof;
use serde::{Deserialize, Serialize};

use crate::hashing::{b3, hex0x};
use crate::sealed::{Loaded, SealedError};

/// Actors whose proofs one thread writes in one go.
const CHUNK_ACTORS: usize = 512;

/// Kind of a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProofFormat {
    /// OpenZeppelin's `standard-v1`: any JavaScript or Solidity client verifies it.
    #[default]
    Oz,
    /// The BLAKE3 sum tree: also shows that the payout is counted in the total, or that there is none.
    Sum,
}

impl FromStr for ProofFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<ProofFormat, String> {
        match text {
            "oz" => Ok(ProofFormat::Oz),
            "sum" => Ok(ProofFormat::Sum),
            _ => Err(format!("`{text}` is no format of proofs; there are oz and sum")),
        }
    }
}

/// Proofs of one actor, one for each asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorProofs {
    /// Name of the epoch.
    pub epoch: String,
    /// The actor.
    pub actor: String,
    /// By asset in the policy's order.
    pub proofs: Vec<AssetProof>,
}

/// Proof of one amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetProof {
    /// Name of the asset.
    pub asset: String,
    /// Units that the actor is paid.
    pub amount: Units,
    /// The proof.
    #[serde(flatten)]
    pub proof: Proof,
}

/// A proof with the root that it leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum Proof {
    /// OpenZeppelin's `standard-v1`.
    Oz {
        /// Root of the tree; none if nobody is paid.
        root: Option<String>,
        /// Types of the leaf's values: the actor and the amount.
        leaf_encoding: [String; 2],
        /// Siblings from the leaf to the root; none if the actor is not paid, for then there is no leaf.
        proof: Option<Vec<String>>,
    },
    /// The BLAKE3 sum tree.
    Sum {
        /// Hash of the root.
        root: String,
        /// Units below the root: all payouts of the asset.
        root_sum: Units,
        /// The way from the leaf to the root, or the neighbours of the place where it would be.
        proof: SumProof,
    },
}

impl Loaded {
    /// Proofs of one actor for all assets, or for one.
    pub fn prove(&self, actor: &str, format: ProofFormat, asset: Option<&str>) -> Result<ActorProofs, SealedError> {
        let (roster, paying) = self.computed.paying();
        let found = roster.find(actor);
        let mut proofs = Vec::new();
        for (index, allocation) in paying.iter().enumerate() {
            if asset.is_some_and(|asset| asset != allocation.asset) {
                continue;
            }
            let amount = found.map_or(0, |place| allocation.amounts[place]);
            let proof = match format {
                ProofFormat::Oz => self.prove_oz(index, actor, amount)?,
                ProofFormat::Sum => self.prove_sum(index, actor)?,
            };
            proofs.push(AssetProof { asset: allocation.asset.clone(), amount: Units(amount), proof });
        }
        match asset {
            Some(asset) if proofs.is_empty() => Err(SealedError::UnknownAsset(asset.to_owned())),
            _ => Ok(ActorProofs { epoch: self.computed.basis.epoch.to_string(), actor: actor.to_owned(), proofs }),
        }
    }

    fn prove_oz(&self, index: usize, actor: &str, amount: u128) -> Result<Proof, SealedError> {
        let tree = self.oz_tree(index)?;
        let siblings = (amount > 0).then(|| tree.proof(actor, amount)).flatten();
        let proof = siblings.map(|siblings| siblings.iter().map(|hash| hex0x(hash)).collect());
        let leaf_encoding = leaf_encoding(actor).map(str::to_owned);
        Ok(Proof::Oz { root: tree.root().map(|root| hex0x(&root)), leaf_encoding, proof })
    }

    fn prove_sum(&self, index: usize, actor: &str) -> Result<Proof, SealedError> {
        let (roster, paying) = self.computed.paying();
        let tree = self.sum_tree(index)?;
        let root = tree.root();
        let proof = tree.prove(roster, &paying[index].amounts, actor);
        Ok(Proof::Sum { root: b3(&root.hash), root_sum: Units(root.sum), proof })
    }

    /// Writes a line for each payout: `{"account","amount","asset","proof"}`. Threads make pieces at the same time,
    /// which leave in order; memory stays bounded.
    pub fn write_proofs(
        &self,
        format: ProofFormat,
        asset: Option<&str>,
        threads: usize,
        to: &mut dyn Write,
    ) -> Result<u64, SealedError> {
        let (roster, paying) = self.computed.paying();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build().map_err(io::Error::other)?;
        let chosen: Vec<usize> = (0..paying.len()).filter(|i| asset.is_none_or(|a| a == paying[*i].asset)).collect();
        if let (Some(asset), true) = (asset, chosen.is_empty()) {
            return Err(SealedError::UnknownAsset(asset.to_owned()));
        }
        let mut count = 0;
        for index in chosen {
            // Built before the threads start: each of them would otherwise wait for the first.
            match format {
                ProofFormat::Oz => self.oz_tree(index).map(|_| ())?,
                ProofFormat::Sum => self.sum_tree(index).map(|_| ())?,
            }
            let chunks = roster.len().div_ceil(CHUNK_ACTORS);
            let at_once = 4 * threads.max(1);
            for first in (0..chunks).step_by(at_once) {
                let range = first..chunks.min(first + at_once);
                let make = |chunk: usize| self.proof_lines(format, index, chunk);
                let pieces: Vec<_> = pool.install(|| range.into_par_iter().map(make).collect());
                for piece in pieces {
                    let (lines, text) = piece?;
                    to.write_all(&text)?;
                    count += lines;
                }
            }
        }
        Ok(count)
    }

    fn proof_lines(&self, format: ProofFormat, index: usize, chunk: usize) -> Result<(u64, Vec<u8>), SealedError> {
        let (roster, paying) = self.computed.paying();
        let allocation = &paying[index];
        let end = roster.len().min((chunk + 1) * CHUNK_ACTORS);
        let (mut lines, mut text) = (0, Vec::new());
        for place in chunk * CHUNK_ACTORS..end {
            let (actor, amount) = (roster.get(place), allocation.amounts[place]);
            if amount == 0 {
                continue;
            }
            let line = ProofLine { account: actor, amount: Units(amount), asset: &allocation.asset };
            match format {
                ProofFormat::Oz => {
                    let siblings = self.oz_tree(index)?.proof(actor, amount).unwrap_or_default();
                    let proof: Vec<String> = siblings.iter().map(|hash| hex0x(hash)).collect();
                    line.write(&proof, &mut text)?;
                }
                ProofFormat::Sum => {
                    line.write(&self.sum_tree(index)?.prove(roster, &allocation.amounts, actor), &mut text)?;
                }
            }
            lines += 1;
        }
        Ok((lines, text))
    }
}

struct ProofLine<'a> {
    account: &'a str,
    amount: Units,
    asset: &'a str,
}

impl ProofLine<'_> {
    fn write(&self, proof: &impl Serialize, text: &mut Vec<u8>) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a, P> {
            account: &'a str,
            amount: Units,
            asset: &'a str,
            proof: &'a P,
        }
        let ProofLine { account, amount, asset } = *self;
        serde_json::to_writer(&mut *text, &Line { account, amount, asset, proof })?;
        text.push(b'\n');
        Ok(())
    }
}
