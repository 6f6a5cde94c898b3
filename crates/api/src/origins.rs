//! Whose dead letters a caller may send back, where no destination is named and each goes to the topic it was for.

use svc_mailbox::Mailbox;
use svc_mailbox::types::TopicName;

/// Topics whose dead letters go back out of `letters`: every one that sends its dead there, and the caller needs the
/// right to send to each. None, for a caller that may send to all topics, means every letter, also those of topics that
/// send their dead elsewhere by now.
pub(crate) fn allowed<E>(
    mailbox: &Mailbox,
    letters: &TopicName,
    may_send: impl Fn(&str) -> Result<(), E>,
) -> Result<Option<Vec<TopicName>>, E> {
    // The empty name stands for every topic.
    if may_send("").is_ok() {
        return Ok(None);
    }
    let origins = mailbox.origins_of(letters);
    origins.iter().try_for_each(|origin| may_send(origin.as_str()))?;
    Ok(Some(origins))
}
