//! What an operator should know of the mailbox though it is well: shown on `/readyz` while it holds.

use std::sync::{Arc, Weak};

use ron_kernel::KernelHandle;

use crate::clock::Hold;
use crate::engine::{Engine, Opened};

/// Adds the sentences. They do not keep the engine alive: the kernel outlives it.
pub(crate) fn add(kernel: &KernelHandle, engine: &Arc<Engine>) {
    for note in [held_back, lost] {
        let engine: Weak<Engine> = Arc::downgrade(engine);
        kernel.add_note(move || note(engine.upgrade()?.opened().ok()?));
    }
}

fn held_back(opened: &Opened) -> Option<String> {
    let Hold { jump_ms, .. } = Some(opened.hold()).filter(|hold| *hold != Hold::NONE)?;
    Some(format!(
        "the clock is {} minutes ahead of the newest record of the mailbox: nothing from before expires by it until \
         `macronode mailbox clock confirm`, or a day has passed",
        jump_ms / 60_000
    ))
}

fn lost(opened: &Opened) -> Option<String> {
    let found = &opened.recovery;
    found.has_losses().then(|| {
        format!(
            "the last start found the mailbox's log damaged: {} records, {} files missing, {} cut; the rest is served. \
             `macronode mailbox verify` says which",
            found.quarantined_records, found.segments_missing, found.segments_cut
        )
    })
}
