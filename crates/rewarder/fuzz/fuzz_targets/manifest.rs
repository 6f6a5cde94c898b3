//! Any bytes as `run.json` are a run that can be opened or a refusal; what is opened reads nothing outside its folder.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ron_log::{Disk, RamDisk};
use svc_rewarder::SealedRun;
use svc_rewarder::correction_statement::CorrectionStatement;
use svc_rewarder::manifest::Manifest;

fuzz_target!(|bytes: &[u8]| {
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    if let Ok(run) = SealedRun::named(disk, bytes.to_vec(), 64 << 20, 1) {
        assert_eq!(run.manifest().to_bytes().expect("canonical"), bytes);
        assert!(run.load().is_err(), "its files are missing");
        let _ = CorrectionStatement::of(&run);
    }
    // Most noise is not canonical; the reader behind that check is tried as well.
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) {
        let canonical = manifest.to_bytes().expect("canonical");
        let again: Manifest = serde_json::from_slice(&canonical).expect("what was written is read");
        assert_eq!(again, manifest);
    }
});
