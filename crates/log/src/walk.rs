//! Shows the records of a log that nobody has open, bodies included. It never changes a byte.

use crate::error::LogError;
use crate::manifest;
use crate::model::Replayed;
use crate::scan::{Contents, Cursor, scan};
use crate::verify::{self, VerifyReport, verify};
use std::io;
use std::path::Path;

/// Verifies the log in this directory, then shows every whole record with its body, in the order of their numbers.
/// [`LogError::InUse`] if a node has the log open.
pub fn walk(directory: &Path, visit: &mut dyn FnMut(Replayed<'_>, &[u8])) -> Result<VerifyReport, LogError> {
    let reading = |error: io::Error| LogError::io("reading the log", &error);
    let _lock = verify::lock(directory)?;
    // Read twice: only the whole log tells which end is torn, and records of a torn end were never promised.
    let report = verify(directory, &mut |_, _| {})?;
    let files = verify::list(directory).map_err(reading)?;
    let (_, manifest) = manifest::newest(verify::read_manifests(directory).map_err(reading)?)?.unzip();
    let seed = verify::find_seed(&verify::read_headers(&files)?, manifest.as_ref())?;
    let mut cursor = Cursor::default();
    for segment in &report.segments {
        let Some(file) = files.iter().find(|file| file.segment == segment.segment) else { continue };
        let bytes = std::fs::read(&file.path).map_err(reading)?;
        let contents = Contents { scan: scan(seed, segment.segment, &bytes, cursor), bytes };
        cursor = contents.scan.cursor;
        let is_kept = |lsn: u64| segment.last_lsn.is_some_and(|last| lsn <= last);
        for entry in contents.scan.entries.iter().filter(|entry| is_kept(entry.lsn)) {
            let body_at = entry.head_at as usize + usize::from(entry.head_len);
            let body = &contents.bytes[body_at..body_at + entry.body_len as usize];
            visit(contents.replayed(segment.segment, entry), body);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Log, LogOptions, RealDisk};
    use std::sync::Arc;

    #[test]
    fn records_are_shown_whole_and_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            LogOptions { segment_bytes: 4096, quota_bytes: 1 << 20, reserve_bytes: 1024, ..LogOptions::default() };
        {
            let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
            let (log, _) = Log::open(disk, options, &mut |_, _| {}).unwrap();
            for number in 0..20_u8 {
                log.appender().append(Class::Data, &[number], &[number; 500]).unwrap();
                log.flush().unwrap();
            }
            assert_eq!(walk(folder.path(), &mut |_, _| {}), Err(LogError::InUse));
        }
        let before = snapshot(folder.path());
        let mut seen = Vec::new();
        let report = walk(folder.path(), &mut |replayed, body| {
            assert_eq!(body, [replayed.head[0]; 500]);
            seen.push((replayed.lsn.0, replayed.head[0]));
        });
        assert!(report.unwrap().is_clean());
        assert_eq!(seen, (0..20).map(|number| (u64::from(number) + 1, number)).collect::<Vec<_>>());
        assert_eq!(snapshot(folder.path()), before);
    }

    fn snapshot(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
        files.sort();
        files
    }
}
