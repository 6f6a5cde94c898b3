//! Refusals in the words of SQS: the shape that new clients match on, the legacy code that old ones do.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;
use ron_types::{Error, Kind};

use crate::problem::Problem;

/// A refusal. Constructors below exist for every one that SQS knows; messages are those of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqsError {
    /// Name of the error's shape, `__type` without its namespace.
    pub shape: &'static str,
    /// The code of the Query protocol, also in `x-amzn-query-error`.
    pub code: &'static str,
    pub status: StatusCode,
    pub message: Cow<'static, str>,
    /// Time after which a retry makes sense.
    pub retry_after: Option<Duration>,
}

/// Time after which a retry makes sense, for errors that name none.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// A part of a request that is repeated in a message is cut to this.
const ECHO_BYTES_MAX: usize = 1024;

impl SqsError {
    /// An error the caller made, answered with status 400.
    pub fn new(shape: &'static str, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        SqsError { shape, code, status: StatusCode::BAD_REQUEST, message: message.into(), retry_after: None }
    }

    /// A mistake of the caller whose shape is also its code.
    fn plain(shape: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::new(shape, shape, message)
    }

    pub fn with_status(self, status: StatusCode) -> Self {
        SqsError { status, ..self }
    }

    /// Whether the caller is to blame: `Sender`, or `Receiver` where the node is.
    pub fn is_senders(&self) -> bool {
        !self.status.is_server_error()
    }
}

/// Errors about queues.
impl SqsError {
    pub fn no_queue() -> Self {
        let code = "AWS.SimpleQueueService.NonExistentQueue";
        SqsError::new("QueueDoesNotExist", code, "The specified queue does not exist.")
    }

    /// The name is taken by a queue whose `attribute` differs.
    pub fn queue_exists(attribute: &str) -> Self {
        let message =
            format!("A queue already exists with the same name and a different value for attribute {attribute}");
        SqsError::new("QueueNameExists", "QueueAlreadyExists", message)
    }

    pub fn queue_deleted_recently(cooldown: Duration) -> Self {
        let seconds = cooldown.as_secs();
        let message = format!(
            "You must wait {seconds} seconds after deleting a queue before you can create another with the same name."
        );
        SqsError::new("QueueDeletedRecently", "AWS.SimpleQueueService.QueueDeletedRecently", message)
    }

    pub fn purge_in_progress(queue: &str) -> Self {
        let message = format!("Only one PurgeQueue operation on {queue} is allowed every 60 seconds.");
        SqsError::new("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", message)
            .with_status(StatusCode::FORBIDDEN)
    }

    /// `QueueUrl` is not an address of this node.
    pub fn invalid_address(url: &str) -> Self {
        SqsError::plain("InvalidAddress", format!("The address {} is not valid for this endpoint.", echo(url)))
            .with_status(StatusCode::NOT_FOUND)
    }

    pub fn attribute_name(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::plain("InvalidAttributeName", message)
    }

    pub fn unknown_attribute(name: &str) -> Self {
        SqsError::attribute_name(format!("Unknown Attribute {}.", echo(name)))
    }

    pub fn invalid_attribute(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::plain("InvalidAttributeValue", message)
    }

    pub fn invalid_attribute_value(attribute: &str) -> Self {
        SqsError::invalid_attribute(format!("Invalid value for the parameter {attribute}."))
    }

    pub fn over_limit(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::plain("OverLimit", message).with_status(StatusCode::FORBIDDEN)
    }

    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::new("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", message)
    }

    /// No move task of the source has this id.
    pub fn no_move_task() -> Self {
        SqsError::plain("ResourceNotFoundException", "Task does not exist.").with_status(StatusCode::NOT_FOUND)
    }

    /// The queue that a move task names in `parameter` is not there.
    pub fn no_resource(parameter: &str) -> Self {
        let message = format!("The resource that you specified for the {parameter} parameter doesn't exist.");
        SqsError::plain("ResourceNotFoundException", message).with_status(StatusCode::NOT_FOUND)
    }
}

/// Errors about messages and their receipts.
impl SqsError {
    /// `character` may not be in a message.
    pub fn invalid_contents(character: char) -> Self {
        let message = format!(
            "Invalid binary character '#x{:X}' was found in the message body, the set of allowed characters is \
             #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            u32::from(character)
        );
        SqsError::plain("InvalidMessageContents", message)
    }

    /// `character` may not be in the value of this message attribute.
    pub fn invalid_attribute_character(attribute: &str, character: char) -> Self {
        let message = format!(
            "Invalid binary character '#x{:X}' was found in the value of message (user) attribute '{}', the set of \
             allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            u32::from(character),
            echo(attribute)
        );
        SqsError::invalid_value(message)
    }

    /// The body, or the body with its attributes, is larger than the queue takes.
    pub fn message_too_long(bytes_max: u64) -> Self {
        let message =
            format!("One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes.");
        SqsError::invalid_value(message)
    }

    pub fn no_deduplication_id() -> Self {
        let message = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId \
                       provided explicitly";
        SqsError::invalid_value(message)
    }

    /// The handle was never a receipt of this queue.
    pub fn receipt_invalid(handle: &str) -> Self {
        let message = format!("The input receipt handle \"{}\" is not a valid receipt handle.", echo(handle));
        SqsError::plain("ReceiptHandleIsInvalid", message)
    }

    /// The message of a FIFO queue is visible again.
    pub fn receipt_expired(handle: &str) -> Self {
        SqsError::invalid_parameter("ReceiptHandle", handle, "The receipt handle has expired.")
    }

    /// The receipt is good, but nobody holds the message any more.
    pub fn message_not_available(handle: &str) -> Self {
        let reason = "Message does not exist or is not available for visibility timeout change.";
        SqsError::invalid_parameter("ReceiptHandle", handle, reason)
    }

    pub fn message_not_inflight() -> Self {
        let code = "AWS.SimpleQueueService.MessageNotInflight";
        SqsError::new("MessageNotInflight", code, "The specified message isn't in flight.")
    }
}

/// Errors about batches.
impl SqsError {
    /// `entry` is the member of the Query protocol, such as `SendMessageBatchRequestEntry`.
    pub fn empty_batch(entry: &str) -> Self {
        let message = format!("There should be at least one {entry} in the request.");
        SqsError::new("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", message)
    }

    pub fn too_many_entries(sent: usize) -> Self {
        let message = format!("Maximum number of entries per request are 10. You have sent {sent}.");
        let code = "AWS.SimpleQueueService.TooManyEntriesInBatchRequest";
        SqsError::new("TooManyEntriesInBatchRequest", code, message)
    }

    pub fn id_repeated(id: &str) -> Self {
        let code = "AWS.SimpleQueueService.BatchEntryIdsNotDistinct";
        SqsError::new("BatchEntryIdsNotDistinct", code, format!("Id {} repeated.", echo(id)))
    }

    pub fn invalid_entry_id() -> Self {
        let message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. \
                       It can be at most 80 letters long.";
        SqsError::new("InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", message)
    }

    pub fn batch_too_long(bytes_max: u64, sent: u64) -> Self {
        let message = format!("Batch requests cannot be longer than {bytes_max} bytes. You have sent {sent} bytes.");
        SqsError::new("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", message)
    }
}

/// Errors about parameters.
impl SqsError {
    pub fn invalid_value(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::new("InvalidParameterValueException", "InvalidParameterValue", message)
    }

    /// This parameter cannot have this value.
    pub fn invalid_parameter(parameter: &str, value: impl Display, reason: impl Display) -> Self {
        let value = value.to_string();
        let value = echo(&value);
        SqsError::invalid_value(format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}"))
    }

    /// A number that is not between its bounds, both of which are allowed.
    pub fn out_of_range(parameter: &str, value: impl Display, min: i64, max: i64) -> Self {
        SqsError::invalid_parameter(parameter, value, format_args!("Must be between {min} and {max}, if provided."))
    }

    /// A parameter of the other kind of queue.
    pub fn not_for_this_queue(parameter: &str, value: impl Display) -> Self {
        let reason = "The request include parameter that is not valid for this queue type.";
        SqsError::invalid_parameter(parameter, value, reason)
    }

    pub fn missing(parameter: &str) -> Self {
        let message = format!("The request must contain the parameter {parameter}.");
        SqsError::new("MissingRequiredParameterException", "MissingParameter", message)
    }
}

/// Requests that no action gets to see.
impl SqsError {
    /// The body is not JSON, or a member of it has a wrong type.
    pub fn serialization(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::plain("SerializationException", message)
    }

    /// Error for a form that cannot be read.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::new("SerializationException", "MalformedInput", message)
    }

    pub fn unknown_operation(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::new("UnknownOperationException", "InvalidAction", message)
    }

    pub fn unknown_action(name: &str) -> Self {
        SqsError::unknown_operation(format!("The action {} is not valid for this endpoint.", echo(name)))
    }

    pub fn no_action() -> Self {
        SqsError::new("MissingAction", "MissingAction", "The request must contain the parameter Action.")
    }

    /// The key is valid but lacks the right for this queue.
    pub fn access_denied(queue: &str) -> Self {
        let message = match queue {
            "" => "Access to the resource is denied.".to_owned(),
            queue => format!("Access to the resource {} is denied.", echo(queue)),
        };
        SqsError::new("AccessDeniedException", "AccessDenied", message).with_status(StatusCode::FORBIDDEN)
    }

    /// There is no such key, or what it is bound to is no longer good.
    pub fn invalid_token() -> Self {
        let message = "The security token included in the request is invalid.";
        SqsError::new("InvalidClientTokenId", "InvalidClientTokenId", message).with_status(StatusCode::FORBIDDEN)
    }

    pub fn invalid_security(message: impl Into<Cow<'static, str>>) -> Self {
        SqsError::plain("InvalidSecurity", message).with_status(StatusCode::FORBIDDEN)
    }

    /// What the node says of itself with a status.
    fn of_status(status: StatusCode, message: Cow<'static, str>, retry_after: Option<Duration>) -> Self {
        let (shape, code, status) = match status.as_u16() {
            429 => ("RequestThrottled", "RequestThrottled", status),
            401 => ("InvalidSecurity", "InvalidSecurity", StatusCode::FORBIDDEN),
            403 => ("AccessDeniedException", "AccessDenied", status),
            404 => return SqsError::no_queue(),
            413 | 431 => ("RequestEntityTooLarge", "RequestEntityTooLarge", status),
            503 => ("ServiceUnavailable", "ServiceUnavailable", status),
            504 => ("RequestTimeout", "RequestTimeout", status),
            500.. => ("InternalFailure", "InternalFailure", StatusCode::INTERNAL_SERVER_ERROR),
            415 => ("InvalidParameterValueException", "InvalidParameterValue", status),
            _ => ("InvalidParameterValueException", "InvalidParameterValue", StatusCode::BAD_REQUEST),
        };
        let owed = matches!(status.as_u16(), 429 | 503).then_some(COME_BACK_AFTER);
        SqsError { shape, code, status, message, retry_after: retry_after.or(owed) }
    }
}

impl From<Error> for SqsError {
    /// What the node says of itself: busy, late, draining, broken. Refusals of SQS's own are made where they arise.
    fn from(error: Error) -> Self {
        let status = match error.kind {
            // Of a message, not of the request that carries it.
            Kind::FrameTooLarge => 400,
            kind => kind.http_status(),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        SqsError::of_status(status, error.detail, error.retry_after)
    }
}

impl From<&Problem> for SqsError {
    fn from(problem: &Problem) -> Self {
        SqsError::of_status(problem.status, problem.detail.clone(), problem.retry_after)
    }
}

/// The start of a text from the request, cut to `ECHO_BYTES_MAX` for a message.
fn echo(text: &str) -> &str {
    &text[..text.floor_char_boundary(ECHO_BYTES_MAX)]
}

#[cfg(test)]
pub(super) mod tests;
