//! The simulated disk loses what it should and nothing else.

use super::*;

fn one_file(disk: &SimDisk) -> Arc<dyn DiskFile> {
    let file = disk.create("a").unwrap();
    file.write_at(0, &[1; 4096]).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file
}

#[test]
fn what_was_synced_survives_whatever_happens() {
    for seed in 0..50 {
        let disk = SimDisk::new(1);
        let file = one_file(&disk);
        file.write_at(1000, &[2; 2000]).unwrap();
        let left = disk.crash(seed).bytes_of("a").unwrap();
        assert_eq!(left.len(), 4096);
        assert!(left[..1000].iter().chain(&left[3000..]).all(|byte| *byte == 1), "seed {seed}");
    }
}

#[test]
fn unsynced_sectors_survive_in_any_combination() {
    let disk = SimDisk::new(1);
    let file = one_file(&disk);
    file.write_at(0, &[2; 4096]).unwrap();
    let left = |seed| disk.crash(seed).bytes_of("a").unwrap();
    assert_eq!(left(0), [1; 4096]);
    assert_eq!(left(1), [2; 4096]);
    let torn = (2..40).map(left).filter(|bytes| bytes.contains(&1) && bytes.contains(&2));
    let mut torn: Vec<Vec<u8>> = torn.collect();
    torn.sort();
    torn.dedup();
    assert!(torn.len() > 5, "{} different ways to tear", torn.len());
    for bytes in torn {
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    }
}

#[test]
fn names_are_lost_until_the_directory_is_synced() {
    let disk = SimDisk::new(1);
    one_file(&disk);
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.crash(0).names(), ["a"]);
    assert_eq!(disk.crash(1).names(), ["b"]);
    disk.remove("b").unwrap();
    disk.sync_dir().unwrap();
    assert!(disk.crash(0).names().is_empty());
}

#[test]
fn a_failed_sync_loses_its_pages_for_good() {
    let disk = SimDisk::new(1);
    let file = one_file(&disk);
    file.write_at(0, &[2; 512]).unwrap();
    disk.fail_sync(disk.syncs());
    assert!(file.sync().is_err());
    file.sync().unwrap();
    let mut seen = [0];
    file.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [2], "the page cache still shows it");
    assert_eq!(disk.crash(1).bytes_of("a").unwrap()[0], 1, "the medium never had it");
}

#[test]
fn a_full_disk_says_so() {
    let disk = SimDisk::new(1);
    let file = one_file(&disk);
    disk.limit_bytes(Some(5000));
    assert_eq!(disk.free_bytes().unwrap(), 904);
    assert_eq!(file.write_at(4096, &[0; 1000]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.write_at(0, &[3; 4096]).unwrap();
}

#[test]
fn after_the_crash_nothing_happens() {
    let disk = SimDisk::new(1);
    let file = one_file(&disk);
    disk.crash_at(disk.operations());
    assert!(file.write_at(0, &[9; 10]).is_err());
    assert!(disk.has_crashed() && file.sync().is_err() && disk.list().is_err());
    assert_eq!(disk.crash(0).bytes_of("a").unwrap()[0], 1);
}
