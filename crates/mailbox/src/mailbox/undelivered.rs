//! Messages that were leased for an answer which will not be sent.

use super::Mailbox;
use super::receive::Delivery;

impl Mailbox {
    /// Gives leases back whose messages cannot be handed out after all: these deliveries did not happen and do not
    /// count. It waits for nothing, so that a caller who leaves in this moment leaves no lease behind.
    pub fn undeliver(&self, deliveries: &[Delivery]) {
        let routing = self.engine.routing.get().value;
        for Delivery { receipt, .. } in deliveries {
            let owner = &self.engine.shards[routing.shard_of(receipt.part)];
            owner.returned.put([(receipt.part, receipt.seq, receipt.fence)]);
        }
    }
}
