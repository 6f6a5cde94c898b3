//! Frames that only another version writes: refused wherever they lie, with nothing cut or mended.

use super::*;
use crate::{Class, Log, SimDisk};

fn options() -> LogOptions {
    let (quota_bytes, reserve_bytes) = (1 << 20, 64 << 10);
    LogOptions { segment_bytes: 4096, quota_bytes, reserve_bytes, ..LogOptions::default() }
}

fn reopen(disk: &SimDisk) -> Result<Recovery, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Log::open(disk, options(), &mut |_, _| {}).map(|(_, recovery)| recovery)
}

#[test]
fn a_record_of_another_kind_is_neither_torn_nor_damaged() {
    let disk = SimDisk::new(4);
    let (log, _) = Log::open(Arc::new(disk.clone()), options(), &mut |_, _| {}).unwrap();
    let mut positions = Vec::new();
    for _ in 0..12 {
        positions.push(log.appender().append(Class::Data, b"head", &[3; 700]).unwrap());
        log.flush().unwrap();
    }
    let seed = log.core.seed;
    drop(log);
    for name in disk.names().iter().filter(|name| name.ends_with(".idx")) {
        disk.remove(name).unwrap();
    }
    disk.sync_dir().unwrap();
    for position in positions {
        let found = disk.crash(1);
        let name = log_name(position.segment);
        let place = FrameAddress { seed, segment: position.segment, offset: position.offset };
        let at = position.offset as usize;
        let mut header = found.bytes_of(&name).unwrap()[at..at + 32].to_vec();
        header[2] = 7;
        let crc = place.header_checksum(&header);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        found.overwrite(&name, at, &header);
        let before = found.bytes_of(&name);
        let refused = reopen(&found);
        assert!(matches!(refused, Err(LogError::UnknownVersion { .. })), "{position:?}: {refused:?}");
        assert_eq!(found.bytes_of(&name), before, "{position:?}");
        assert!(!found.names().iter().any(|name| name.ends_with(".bin")), "{position:?}: nothing was set aside");
    }
}
