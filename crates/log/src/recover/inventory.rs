//! What the directory of a log holds, against what its manifest says. Taking it changes nothing.

use super::Trouble;
use crate::core::{log_name, parse_name, sidecar_name};
use crate::disk::{Disk, read_up_to};
use crate::error::LogError;
use crate::frame::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::manifest::{self, Listed, Manifest};
use crate::model::LogOptions;
use crate::upkeep::zero_fills;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The file of a segment as it was found.
#[derive(Clone, Copy, Debug)]
pub struct OnDisk {
    /// Bytes that records may use.
    pub segment_bytes: u32,
    /// Bytes the file had from the start; 0 if it grows.
    pub whole_bytes: u32,
    /// Bytes the file has.
    pub bytes: u64,
    /// At least one copy of the header is damaged.
    pub is_header_bad: bool,
}

/// Files of a log.
pub struct Inventory {
    pub seed: u32,
    pub segments: BTreeMap<u32, OnDisk>,
    pub sidecars: BTreeSet<u32>,
    /// Segments that nobody has written to yet, taken out of `segments`.
    pub blank: BTreeSet<u32>,
    /// The newest whole manifest, and which of its files holds it.
    pub manifest: Option<(usize, Manifest)>,
    /// A header says that the log keeps a manifest.
    pub is_listed: bool,
    /// Names of files of a segment whose removal was not finished.
    pub remains: Vec<String>,
    unfinished: Vec<String>,
}

impl Inventory {
    /// Reads names, manifest and headers, one file after another.
    pub fn take(disk: &dyn Disk, options: &LogOptions) -> Result<Inventory, Trouble> {
        let names = disk.list()?;
        let of_ending = |ending| names.iter().filter_map(move |name| parse_name(name, ending));
        let mut numbers: BTreeSet<u32> = of_ending(".log").collect();
        let manifest = manifest::newest(manifest::read(disk)?)?;
        let mut inventory = Inventory {
            seed: 0,
            segments: BTreeMap::new(),
            sidecars: of_ending(".idx").collect(),
            blank: BTreeSet::new(),
            is_listed: false,
            remains: Vec::new(),
            unfinished: names.iter().filter(|name| name.ends_with(".tmp")).cloned().collect(),
            manifest,
        };
        inventory.set_aside_retired(&mut numbers);
        inventory.read_headers(disk, options, &numbers)?;
        Ok(inventory)
    }

    /// Segments from before the oldest that is listed were retired. Only the one just before it can be what a crash
    /// left of a removal, and goes; older ones were put there by hand and are left alone.
    fn set_aside_retired(&mut self, numbers: &mut BTreeSet<u32>) {
        let Some(oldest) = self.manifest.as_ref().and_then(|(_, manifest)| manifest.oldest()) else { return };
        let kept = numbers.split_off(&oldest);
        let retired = std::mem::replace(numbers, kept);
        for segment in retired {
            if segment + 1 == oldest {
                self.remains.push(log_name(segment));
            } else {
                tracing::error!(
                    segment,
                    oldest,
                    "a segment from before the log's oldest lies beside it; it is not read"
                );
            }
        }
    }

    fn read_headers(&mut self, disk: &dyn Disk, options: &LogOptions, numbers: &BTreeSet<u32>) -> Result<(), Trouble> {
        let mut headers = BTreeMap::new();
        for &segment in numbers {
            let file = disk.open(&log_name(segment))?;
            let bytes = read_up_to(file.as_ref(), u64::from(SEGMENT_HEADER_LEN))?;
            if let Some(version) = SegmentHeader::unknown_version(&bytes) {
                let what = format!("{} (version {version})", log_name(segment));
                return Err(LogError::UnknownVersion { what }.into());
            }
            headers.insert(segment, (file.len()?, SegmentHeader::decode(&bytes, segment)));
        }
        let seed = headers.values().find_map(|(_, header)| header.map(|(header, _)| header.seed));
        self.seed = self.find_seed(disk, seed, headers.len())?;
        self.is_listed = headers.values().any(|(_, header)| header.is_some_and(|(header, _)| header.is_listed));
        let grows = !zero_fills(disk, options);
        for (segment, (bytes, header)) in headers {
            let listed = self.listed(segment).map(|listed| listed.whole_bytes);
            let segment_bytes = match header {
                Some((header, _)) => header.segment_bytes,
                None => listed.filter(|bytes| *bytes > 0).unwrap_or_else(|| u32::try_from(bytes).unwrap_or(u32::MAX)),
            };
            let segment_bytes = segment_bytes.max(SEGMENT_HEADER_LEN);
            let whole_bytes = listed.unwrap_or(if grows { 0 } else { segment_bytes });
            let is_header_bad = header.is_none_or(|(_, both)| !both);
            self.segments.insert(segment, OnDisk { segment_bytes, whole_bytes, bytes, is_header_bad });
        }
        Ok(())
    }

    /// The secret is the same in all headers and in the manifest, so any good one serves for all.
    fn find_seed(&self, disk: &dyn Disk, in_headers: Option<u32>, segments: usize) -> Result<u32, LogError> {
        let listed = self.manifest.as_ref().map_or(0, |(_, manifest)| manifest.segments.len());
        let count = |segments: usize| u32::try_from(segments).unwrap_or(u32::MAX);
        match (in_headers, self.manifest.as_ref().map(|(_, manifest)| manifest.seed)) {
            (Some(header), Some(manifest)) if header != manifest => Err(LogError::ForeignManifest),
            (None, _) if segments == 0 && listed > 0 => Err(LogError::NoSegments { listed: count(listed) }),
            (Some(seed), _) | (None, Some(seed)) => Ok(seed),
            (None, None) if segments > 0 => Err(LogError::NoHeader { segments: count(segments) }),
            (None, None) => Ok(disk.secret()),
        }
    }

    /// Removes what was not finished, and sidecars of segments that are gone on purpose.
    pub fn remove_unfinished(&mut self, disk: &dyn Disk) -> io::Result<()> {
        for name in self.unfinished.drain(..) {
            disk.remove(&name)?;
        }
        let orphans: Vec<u32> = self.sidecars.iter().copied().filter(|number| !self.is_known(*number)).collect();
        for orphan in orphans {
            self.sidecars.remove(&orphan);
            disk.remove(&sidecar_name(orphan))?;
        }
        Ok(())
    }

    fn is_known(&self, number: u32) -> bool {
        self.segments.contains_key(&number) || self.listed(number).is_some()
    }

    pub fn listed(&self, number: u32) -> Option<&Listed> {
        self.manifest.as_ref().and_then(|(_, manifest)| manifest.get(number))
    }

    /// The oldest segment that is there or should be.
    pub fn oldest(&self) -> Option<u32> {
        let listed = self.manifest.as_ref().and_then(|(_, manifest)| manifest.oldest());
        self.segments.keys().next().copied().into_iter().chain(listed).min()
    }

    /// Segments that are listed and not there.
    pub fn missing(&self) -> impl Iterator<Item = &Listed> {
        let listed = self.manifest.iter().flat_map(|(_, manifest)| &manifest.segments);
        listed.filter(|listed| !self.segments.contains_key(&listed.number) && !self.blank.contains(&listed.number))
    }

    /// Numbers before `last` that are neither there nor listed.
    pub fn holes(&self, last: u32) -> impl Iterator<Item = u32> {
        (self.oldest().unwrap_or(last)..last).filter(|number| !self.is_known(*number))
    }

    /// Segments whose files are shorter than they were made.
    pub fn cut(&self) -> impl Iterator<Item = (u32, &OnDisk)> {
        let cut = self.segments.iter().filter(|(_, on_disk)| on_disk.bytes < u64::from(on_disk.whole_bytes));
        cut.map(|(number, on_disk)| (*number, on_disk))
    }

    /// There should be a manifest and there is no whole one.
    pub fn is_manifest_lost(&self) -> bool {
        self.manifest.is_none() && self.is_listed
    }
}
