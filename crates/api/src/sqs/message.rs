//! Messages on their way in: what may be said in one, and how it is kept in a message of the mailbox.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use svc_mailbox::types::{Dedup, Groups, TopicSettings};
use svc_mailbox::{Outgoing, bounds};

use super::attributes::{self, CONTENT_BASED, DEDUPLICATION_SCOPE};
use super::digest::{self, AttributesDigest};
use super::error::SqsError;
use super::model::{AttributeValue, MessageAttributes, SendEntry, SendMessage, Sent};

/// Attributes of a message of the mailbox that are no message attributes here.
pub(super) const TYPE: &str = "$type.";
pub(super) const TRACE: &str = "$trace";
pub(super) const SENDER: &str = bounds::SENDER_NOTE;
/// Deduplication id of a message in a queue that does not deduplicate: kept and shown, nothing more.
pub(super) const DEDUPLICATION_ID: &str = "$deduplication_id";

const ATTRIBUTES_MAX: usize = 10;
const NAME_BYTES_MAX: usize = 256;
const DIGITS_MAX: usize = 38;

/// Base64 as clients write it: some leave the padding out.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Circumstances of a send, the same for all messages of a batch.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    /// Id of the sender that receivers see; empty for none.
    pub sender: &'a str,
    pub corr_id: &'a str,
    /// Trace of the request, for messages that name none themselves.
    pub trace: Option<&'a str>,
}

/// A message as it was given, alone or in a batch.
#[derive(Default)]
pub(super) struct Draft {
    pub body: Option<String>,
    pub delay_seconds: Option<i64>,
    pub attributes: MessageAttributes,
    pub system_attributes: MessageAttributes,
    pub deduplication_id: Option<String>,
    pub group_id: Option<String>,
}

macro_rules! draft_of {
    ($($request:ident),*) => {$(
        impl From<$request> for Draft {
            fn from(request: $request) -> Self {
                Draft {
                    body: request.message_body,
                    delay_seconds: request.delay_seconds,
                    attributes: request.message_attributes.unwrap_or_default(),
                    system_attributes: request.message_system_attributes.unwrap_or_default(),
                    deduplication_id: request.message_deduplication_id,
                    group_id: request.message_group_id,
                }
            }
        }
    )*};
}
draft_of!(SendMessage, SendEntry);

impl Draft {
    /// Bytes that count: the body, and the names, types and values of its attributes.
    pub fn size(&self) -> u64 {
        let of_value = |value: &AttributeValue| {
            let text = value.string_value.as_ref().map_or(0, String::len);
            let binary = value.binary_value.as_deref().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4);
            value.data_type.as_ref().map_or(0, String::len) + text + binary
        };
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + of_value(value));
        (self.body.as_ref().map_or(0, String::len) + attributes.sum::<usize>()) as u64
    }

    /// Refuses a message that lacks what its queue keeps order by. One such entry refuses its whole batch.
    pub fn check_order_ids(&self, settings: &TopicSettings) -> Result<(), SqsError> {
        if !is_fifo(settings) {
            return Ok(());
        }
        if self.deduplication_id.is_none() && !settings.labels.contains_key(CONTENT_BASED) {
            return Err(SqsError::no_deduplication_id());
        }
        self.group_id.as_ref().map(drop).ok_or_else(|| SqsError::missing("MessageGroupId"))
    }

    /// The message for the mailbox, and what is answered once it is in; the id and number are filled in then.
    pub fn outgoing(self, settings: &TopicSettings, origin: Origin<'_>) -> Result<(Outgoing, Sent), SqsError> {
        let size = self.size();
        let body = self.body.filter(|body| !body.is_empty()).ok_or_else(|| SqsError::missing("MessageBody"))?;
        if let Some(character) = illegal_character(&body) {
            return Err(SqsError::invalid_contents(character));
        }
        let mut attrs = Vec::with_capacity(self.attributes.len() * 2 + 3);
        let md5_of_message_attributes = keep_attributes(self.attributes, &mut attrs)?;
        let bytes_max = settings.payload_bytes_max;
        if size > u64::from(bytes_max) {
            return Err(SqsError::message_too_long(bytes_max.into()));
        }
        let md5_of_message_system_attributes =
            keep_system_attributes(self.system_attributes, origin.trace, &mut attrs)?;
        if !origin.sender.is_empty() {
            attrs.push((SENDER.to_owned(), origin.sender.to_owned()));
        }
        let delay_ms = delay_ms(self.delay_seconds, settings)?;
        let (idem_key, dedup) = dedup(self.deduplication_id, &body, settings, &mut attrs)?;
        let sent = Sent {
            md5_of_message_body: digest::md5_of(body.as_bytes()),
            md5_of_message_attributes,
            md5_of_message_system_attributes,
            ..Sent::default()
        };
        let group = group(self.group_id, settings)?;
        let (payload, corr_id) = (body.into(), origin.corr_id.to_owned());
        let existing_only = true;
        Ok((Outgoing { idem_key, dedup, group, attrs, payload, delay_ms, corr_id, existing_only }, sent))
    }
}

fn is_fifo(settings: &TopicSettings) -> bool {
    settings.groups == Groups::Fifo
}

/// The first character of a text that may not be in a message.
pub(super) fn illegal_character(text: &str) -> Option<char> {
    let is_legal = |byte: u8| byte >= 0x20 || matches!(byte, 0x9 | 0xA | 0xD);
    // Almost every text is good. That is found out fastest by looking at all its bytes, many at a time; the two
    // characters beyond them start with the last of these.
    let suspicious = |byte: u8| (byte < 0x20) & (byte != 0x9) & (byte != 0xA) & (byte != 0xD) | (byte == 0xEF);
    if !text.bytes().fold(false, |found, byte| found | suspicious(byte)) {
        return None;
    }
    text.chars().find(|character| match character {
        '\u{FFFE}' | '\u{FFFF}' => true,
        character => u8::try_from(*character).is_ok_and(|byte| !is_legal(byte)),
    })
}

fn delay_ms(delay_seconds: Option<i64>, settings: &TopicSettings) -> Result<Option<u64>, SqsError> {
    let Some(given) = delay_seconds else { return Ok(None) };
    let seconds = u64::try_from(given).ok().filter(|seconds| attributes::DELAY_SECONDS.contains(seconds));
    let Some(seconds) = seconds else {
        let reason = "DelaySeconds must be >= 0 and <= 900.";
        return Err(SqsError::invalid_parameter("DelaySeconds", given, reason));
    };
    match (is_fifo(settings), seconds) {
        // The messages of such a queue are all delayed alike.
        (true, 0) => Ok(None),
        (true, _) => Err(SqsError::not_for_this_queue("DelaySeconds", given)),
        // One that would wait for longer than it is kept is never seen.
        (false, seconds) => Ok(Some((seconds * 1000).min(settings.retention_ms))),
    }
}

fn group(group_id: Option<String>, settings: &TopicSettings) -> Result<Option<String>, SqsError> {
    match group_id {
        Some(group) => checked_id("MessageGroupId", group).map(Some),
        None if is_fifo(settings) => Err(SqsError::missing("MessageGroupId")),
        None => Ok(None),
    }
}

/// The key a message is known again by, and where. A standard queue only keeps it among the attributes.
fn dedup(
    deduplication_id: Option<String>,
    body: &str,
    settings: &TopicSettings,
    attrs: &mut Vec<(String, String)>,
) -> Result<(Option<String>, Dedup), SqsError> {
    let deduplication_id = deduplication_id.map(|id| checked_id("MessageDeduplicationId", id)).transpose()?;
    if !is_fifo(settings) {
        attrs.extend(deduplication_id.map(|id| (DEDUPLICATION_ID.to_owned(), id)));
        return Ok((None, Dedup::default()));
    }
    let key = match deduplication_id {
        Some(id) => id,
        None if settings.labels.contains_key(CONTENT_BASED) => digest::sha256_of(body.as_bytes()),
        None => return Err(SqsError::no_deduplication_id()),
    };
    let by_group = settings.labels.contains_key(DEDUPLICATION_SCOPE);
    Ok((Some(key), if by_group { Dedup::Group } else { Dedup::Topic }))
}

/// An id by the rule of the mailbox's keys, which is the rule of SQS, too; what is said of a bad one is SQS's.
pub(super) fn checked_id(parameter: &str, id: String) -> Result<String, SqsError> {
    if bounds::is_key(&id) {
        return Ok(id);
    }
    let reason = format!("{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length.");
    Err(SqsError::invalid_parameter(parameter, id, reason))
}

/// Checks message attributes and adds them to those of the message; the digest of them.
fn keep_attributes(
    attributes: MessageAttributes,
    attrs: &mut Vec<(String, String)>,
) -> Result<Option<String>, SqsError> {
    if attributes.len() > ATTRIBUTES_MAX {
        let count = attributes.len();
        let message = format!("Number of message attributes [{count}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].");
        return Err(SqsError::invalid_value(message));
    }
    let mut digest = AttributesDigest::default();
    for (name, value) in attributes {
        check_name(&name)?;
        let (data_type, value) = checked_value(&name, value, &mut digest)?;
        let is_plain = data_type == "String";
        let type_name = (!is_plain).then(|| [TYPE, &name].concat());
        attrs.push((name, value));
        attrs.extend(type_name.map(|type_name| (type_name, data_type)));
    }
    Ok(digest.finish())
}

fn check_name(name: &str) -> Result<(), SqsError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(SqsError::invalid_value("Message (user) attribute names must be between 1 and 256 characters."));
    }
    if is_attribute_name(name) {
        return Ok(());
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    Err(SqsError::invalid_value(if name.bytes().all(allowed) {
        "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for \
         internal use. Additionally, they cannot start or end with '.', or have periods in succession."
    } else {
        "Message (user) attributes name can only contain upper and lower score characters, digits, periods, hyphens \
         and underscores. "
    }))
}

/// Whether a message attribute may have this name.
pub(super) fn is_attribute_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let starts = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !(name.starts_with('.') || name.ends_with('.') || name.contains(".."))
        && !(starts("AWS.") || starts("Amazon."))
}

/// The type of an attribute and its value as text: bytes stay in base64.
fn checked_value(
    name: &str,
    value: AttributeValue,
    digest: &mut AttributesDigest,
) -> Result<(String, String), SqsError> {
    let AttributeValue { data_type, string_value, binary_value } = value;
    let data_type = data_type.filter(|data_type| !data_type.is_empty()).ok_or_else(|| {
        SqsError::invalid_value(format!("The message attribute '{name}' must contain a non-empty attribute type."))
    })?;
    let base = data_type.split('.').next().unwrap_or_default();
    if !matches!(base, "String" | "Number" | "Binary") || data_type.len() > NAME_BYTES_MAX {
        return Err(SqsError::invalid_value(format!(
            "The type of message (user) attribute '{name}' is invalid. You must use only the following supported type \
             prefixes: Binary, Number, String."
        )));
    }
    let is_binary = base == "Binary";
    let value = if is_binary { binary_value } else { string_value };
    let Some(mut value) = value.filter(|value| !value.is_empty()) else {
        let message =
            format!("Message (user) attribute '{name}' must contain a non-empty value of type '{data_type}'.");
        return Err(SqsError::invalid_value(message));
    };
    if is_binary {
        let bytes = BASE64.decode(&value);
        let bytes = bytes.map_err(|_| SqsError::serialization(format!("BinaryValue of '{name}' is not base64")))?;
        digest.bytes(name, &data_type, &bytes);
        if value.len() % 4 != 0 {
            value = BASE64.encode(&bytes);
        }
    } else {
        if let Some(character) = illegal_character(&value) {
            return Err(SqsError::invalid_attribute_character(name, character));
        }
        if base == "Number" && !is_number(&value) {
            let message = format!("Can't cast the value of message (user) attribute '{name}' to a number.");
            return Err(SqsError::invalid_value(message));
        }
        digest.text(name, &data_type, &value);
    }
    Ok((data_type, value))
}

/// Whether a text is a number: up to 38 digits that count, with a sign, a point and an exponent or without.
pub(super) fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok_and(|exponent| exponent <= 128)
    });
    let leading = digits().take_while(|byte| *byte == b'0').count();
    let counting = digits().count() - leading;
    digits().next().is_some() && digits().all(|byte| byte.is_ascii_digit()) && counting <= DIGITS_MAX && exponent_fits
}

/// The one attribute that infrastructure may add; it does not count as part of the message. The trace of the request
/// stands in for it, without a digest, because nobody sent it as an attribute.
fn keep_system_attributes(
    attributes: MessageAttributes,
    trace: Option<&str>,
    attrs: &mut Vec<(String, String)>,
) -> Result<Option<String>, SqsError> {
    if attributes.is_empty() {
        attrs.extend(trace.map(|trace| (TRACE.to_owned(), trace.to_owned())));
    }
    let mut digest = AttributesDigest::default();
    for (name, value) in attributes {
        if name != "AWSTraceHeader" {
            return Err(SqsError::invalid_value(format!("Message system attribute name '{name}' is invalid.")));
        }
        if value.data_type.as_deref() != Some("String") {
            let message = "The data type of message system attribute 'AWSTraceHeader' must be String.";
            return Err(SqsError::invalid_value(message));
        }
        let (_, value) = checked_value(&name, value, &mut digest)?;
        attrs.push((TRACE.to_owned(), value));
    }
    Ok(digest.finish())
}
