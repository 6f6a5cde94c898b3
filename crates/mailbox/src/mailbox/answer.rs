//! What messages take when they are written in an answer, and what does not fit into one.

use ron_types::limits::mailbox::ANSWER_BYTES_MAX;

use super::inspect::Seen;
use super::receive::Delivery;
use crate::bounds::json_bytes;
use crate::receiving::LeaseKey;

/// Bytes that names, times and hashes of a message take when it is written.
const FRAME_BYTES: usize = 1024;
/// Bytes that the names and numbers of one earlier delivery take when it is written.
const ATTEMPT_FRAME_BYTES: usize = 80;

/// Keeps as many messages as an answer has room for when it is written, the first in any case, and gives the leases of
/// the others. Messages are chosen by what they take in the log; characters that are escaped take up to six times of
/// that, and an answer that no client can take would cost its messages a delivery for nothing.
pub(super) fn split_off_without_room(deliveries: &mut Vec<Delivery>) -> Vec<LeaseKey> {
    let rest = deliveries.split_off(fitting(deliveries.iter().map(bytes_of_delivery)));
    rest.iter().map(|Delivery { receipt, .. }| (receipt.part, receipt.seq, receipt.fence)).collect()
}

/// How many messages of these sizes one answer has room for: the first has, whatever its size.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut total = 0;
    let has_room = |(place, bytes): &(usize, usize)| {
        total += bytes;
        *place == 0 || total <= ANSWER_BYTES_MAX
    };
    sizes.enumerate().take_while(has_room).count()
}

fn bytes_of_delivery(delivery: &Delivery) -> usize {
    let history = delivery.history.iter();
    let history = history.map(|one| ATTEMPT_FRAME_BYTES + json_bytes(&one.consumer) + json_bytes(&one.outcome));
    let dead = delivery.dead.as_ref().map_or(0, |dead| json_bytes(&dead.last_error));
    body_bytes(&delivery.payload, &delivery.attrs) + history.sum::<usize>() + dead
}

/// Bytes that a message which was looked at takes when it is written.
pub(super) fn bytes_of_seen(seen: &Seen) -> usize {
    let dead = seen.dead.as_ref().map_or(0, |dead| json_bytes(&dead.last_error));
    body_bytes(&seen.payload, &seen.attrs) + dead
}

/// Bytes of a message as JSON, its payload in base64.
fn body_bytes(payload: &[u8], attrs: &[(String, String)]) -> usize {
    let attrs: usize = attrs.iter().map(|(name, value)| json_bytes(name) + json_bytes(value) + 6).sum();
    FRAME_BYTES + payload.len().div_ceil(3) * 4 + attrs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_what_it_has_room_for_and_one_message_in_any_case() {
        let half = ANSWER_BYTES_MAX / 2;
        for (sizes, expected) in [
            (vec![], 0),
            (vec![ANSWER_BYTES_MAX + 1, 1], 1),
            (vec![half, half, 1], 2),
            (vec![half, half + 1, 1], 1),
            (vec![1; 100], 100),
        ] {
            assert_eq!(fitting(sizes.iter().copied()), expected, "{sizes:?}");
        }
    }
}
