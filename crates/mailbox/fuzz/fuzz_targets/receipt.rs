//! Any text gives a receipt or an error, a receipt survives being written, and none is accepted that was not given.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_mailbox::types::MessageId;
use svc_mailbox::{Receipt, Secret};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(receipt) = text.parse::<Receipt>() {
        assert_eq!(receipt.to_string().parse::<Receipt>(), Ok(receipt));
        assert!(Secret::new([7; 32]).check(&receipt).is_err());
    }
    if let Ok(id) = text.parse::<MessageId>() {
        assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
    }
});
