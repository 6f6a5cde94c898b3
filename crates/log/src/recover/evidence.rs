//! Keeps copies of bytes that recovery cuts or cannot read: nothing is destroyed.

use crate::disk::{Disk, remove_if_there};
use crate::scan::Contents;
use crate::upkeep::is_full;
use std::io;

/// Saves a torn tail before it is overwritten. A second cut at the same place gets a name of its own.
pub fn save_torn(disk: &dyn Disk, segment: u32, offset: u32, bytes: &[u8]) -> io::Result<()> {
    let names = disk.list()?;
    let name = (0_u32..)
        .map(|turn| if turn == 0 { String::new() } else { format!("-{turn}") })
        .map(|turn| format!("torn-{segment:08}-{offset}{turn}.bin"))
        .find(|name| !names.contains(name))
        .expect("some number is free");
    save(disk, &name, bytes)
}

/// End of the furthest torn tail that was ever cut from this segment; 0 if none was. Zeros were written up to there.
pub fn torn_end(disk: &dyn Disk, segment: u32) -> io::Result<u64> {
    let prefix = format!("torn-{segment:08}-");
    let mut end = 0;
    for name in disk.list()? {
        let rest = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".bin"));
        let offset = rest.and_then(|rest| rest.split('-').next()?.parse::<u64>().ok());
        if let Some(offset) = offset {
            end = end.max(offset.saturating_add(disk.open(&name)?.len()?));
        }
    }
    Ok(end)
}

/// Saves every damaged stretch once: it lies in a segment that will be retired some day.
pub fn save_damage(disk: &dyn Disk, segment: u32, contents: &Contents) -> io::Result<()> {
    if contents.scan.gaps.is_empty() {
        return Ok(());
    }
    let names = disk.list()?;
    for gap in contents.scan.gaps.iter().filter(|gap| gap.end > gap.offset) {
        let name = format!("bad-{segment:08}-{}.bin", gap.offset);
        let end = contents.bytes.len().min(gap.end as usize);
        if !names.contains(&name) {
            save(disk, &name, &contents.bytes[gap.offset as usize..end])?;
        }
    }
    Ok(())
}

/// On a full device nothing is saved: a node that could not start there would be worse than bytes that nobody was
/// promised.
fn save(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let saved = disk.create(&temporary).and_then(|file| {
        file.write_at(0, bytes)?;
        file.sync()?;
        disk.rename(&temporary, name)?;
        disk.sync_dir()
    });
    match saved {
        Err(error) if is_full(&error) => {
            tracing::warn!(name, bytes = bytes.len(), "the device is full: a copy of bytes that are cut was not kept");
            remove_if_there(disk, &temporary)
        }
        saved => saved,
    }
}
