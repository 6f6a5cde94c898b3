//! Every refusal of the surface, as clients of both protocols see it.

use http::header;

use super::*;
use crate::corr::CorrId;
use crate::sqs::protocol::Protocol;

/// A refusal, and how clients must see it: shape and code of the Query protocol, status, message.
type Row = (SqsError, (&'static str, &'static str), u16, &'static str);

/// Refusals about queues and what is sent to them.
fn of_queues() -> Vec<Row> {
    let allowed = "Invalid binary character '#x0' was found in the message body, the set of allowed characters is \
                   #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF";
    let deduplication = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId \
                         provided explicitly";
    let too_long = "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.";
    let recently = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
    let exists = "A queue already exists with the same name and a different value for attribute DelaySeconds";
    let none = "The specified queue does not exist.";
    let parameter_value = ("InvalidParameterValueException", "InvalidParameterValue");
    let own = |name: &'static str, code: &'static str| (name, code);
    let aws = |code: &'static str| (code.trim_start_matches("AWS.SimpleQueueService."), code);
    vec![
        (SqsError::no_queue(), own("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"), 400, none),
        (SqsError::queue_exists("DelaySeconds"), own("QueueNameExists", "QueueAlreadyExists"), 400, exists),
        (
            SqsError::queue_deleted_recently(Duration::from_secs(60)),
            aws("AWS.SimpleQueueService.QueueDeletedRecently"),
            400,
            recently,
        ),
        (
            SqsError::purge_in_progress("jobs"),
            aws("AWS.SimpleQueueService.PurgeQueueInProgress"),
            403,
            "Only one PurgeQueue operation on jobs is allowed every 60 seconds.",
        ),
        (SqsError::invalid_address("x"), aws("InvalidAddress"), 404, "The address x is not valid for this endpoint."),
        (SqsError::unknown_attribute("FifoQueue"), aws("InvalidAttributeName"), 400, "Unknown Attribute FifoQueue."),
        (SqsError::invalid_attribute("No."), aws("InvalidAttributeValue"), 400, "No."),
        (
            SqsError::invalid_attribute_value("DelaySeconds"),
            aws("InvalidAttributeValue"),
            400,
            "Invalid value for the parameter DelaySeconds.",
        ),
        (SqsError::over_limit("Full."), aws("OverLimit"), 403, "Full."),
        (SqsError::unsupported("No."), aws("AWS.SimpleQueueService.UnsupportedOperation"), 400, "No."),
        (
            SqsError::no_resource("SourceArn"),
            aws("ResourceNotFoundException"),
            404,
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        ),
        (SqsError::invalid_contents('\0'), aws("InvalidMessageContents"), 400, allowed),
        (SqsError::message_too_long(1_048_576), parameter_value, 400, too_long),
        (SqsError::no_deduplication_id(), parameter_value, 400, deduplication),
    ]
}

/// Refusals about receipts, batches and requests as such.
fn of_requests() -> Vec<Row> {
    let entry_id = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at \
                    most 80 letters long.";
    let queue_type = "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is \
                      not valid for this queue type.";
    let expired = "Value h for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
    let unavailable = "Value h for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not \
                       available for visibility timeout change.";
    let range = "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.";
    let batch_too_long = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.";
    let parameter_value = ("InvalidParameterValueException", "InvalidParameterValue");
    let own = |name: &'static str, code: &'static str| (name, code);
    let aws = |code: &'static str| (code.trim_start_matches("AWS.SimpleQueueService."), code);
    vec![
        (
            SqsError::receipt_invalid("garbage"),
            aws("ReceiptHandleIsInvalid"),
            400,
            "The input receipt handle \"garbage\" is not a valid receipt handle.",
        ),
        (SqsError::receipt_expired("h"), parameter_value, 400, expired),
        (SqsError::message_not_available("h"), parameter_value, 400, unavailable),
        (
            SqsError::message_not_inflight(),
            aws("AWS.SimpleQueueService.MessageNotInflight"),
            400,
            "The specified message isn't in flight.",
        ),
        (
            SqsError::empty_batch("SendMessageBatchRequestEntry"),
            aws("AWS.SimpleQueueService.EmptyBatchRequest"),
            400,
            "There should be at least one SendMessageBatchRequestEntry in the request.",
        ),
        (
            SqsError::too_many_entries(20),
            aws("AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
            400,
            "Maximum number of entries per request are 10. You have sent 20.",
        ),
        (SqsError::id_repeated("X"), aws("AWS.SimpleQueueService.BatchEntryIdsNotDistinct"), 400, "Id X repeated."),
        (SqsError::invalid_entry_id(), aws("AWS.SimpleQueueService.InvalidBatchEntryId"), 400, entry_id),
        (
            SqsError::batch_too_long(1_048_576, 1_048_577),
            aws("AWS.SimpleQueueService.BatchRequestTooLong"),
            400,
            batch_too_long,
        ),
        (SqsError::out_of_range("MaxNumberOfMessages", 11, 1, 10), parameter_value, 400, range),
        (SqsError::not_for_this_queue("DelaySeconds", 2), parameter_value, 400, queue_type),
        (
            SqsError::missing("MessageGroupId"),
            own("MissingRequiredParameterException", "MissingParameter"),
            400,
            "The request must contain the parameter MessageGroupId.",
        ),
        (SqsError::serialization("No."), aws("SerializationException"), 400, "No."),
        (SqsError::malformed("No."), own("SerializationException", "MalformedInput"), 400, "No."),
        (
            SqsError::unknown_action("Fly"),
            own("UnknownOperationException", "InvalidAction"),
            400,
            "The action Fly is not valid for this endpoint.",
        ),
        (SqsError::no_action(), aws("MissingAction"), 400, "The request must contain the parameter Action."),
        (
            SqsError::access_denied("jobs"),
            own("AccessDeniedException", "AccessDenied"),
            403,
            "Access to the resource jobs is denied.",
        ),
        (
            SqsError::access_denied(""),
            own("AccessDeniedException", "AccessDenied"),
            403,
            "Access to the resource is denied.",
        ),
        (
            SqsError::invalid_token(),
            aws("InvalidClientTokenId"),
            403,
            "The security token included in the request is invalid.",
        ),
    ]
}

fn table() -> impl Iterator<Item = (SqsError, &'static str, &'static str, u16, &'static str)> {
    let all = of_queues().into_iter().chain(of_requests());
    all.map(|(error, (shape, code), status, message)| (error, shape, code, status, message))
}

/// Shapes of the framework under the service have its namespace.
fn namespace(shape: &str) -> &'static str {
    match shape {
        "InvalidParameterValueException"
        | "MissingRequiredParameterException"
        | "SerializationException"
        | "UnknownOperationException"
        | "AccessDeniedException" => "com.amazon.coral.service",
        _ => "com.amazonaws.sqs",
    }
}

async fn text(response: axum::response::Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a whole body");
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn every_refusal_has_its_form_in_both_protocols() {
    let id = CorrId::parse(b"id-1").expect("plain");
    for (error, shape, code, status, message) in table() {
        let fault = format!("{code};Sender");
        let answer = Protocol::Json.refusal(&error, &id, false);
        assert_eq!(answer.status(), status, "{shape}");
        assert_eq!(answer.headers()["x-amzn-query-error"], fault);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/x-amz-json-1.0");
        let body: serde_json::Value = serde_json::from_str(&text(answer).await).expect("json");
        let namespace = namespace(shape);
        assert_eq!(body, serde_json::json!({"__type": format!("{namespace}#{shape}"), "message": message}));

        let answer = Protocol::Query.refusal(&error, &id, false);
        assert_eq!(answer.status(), status, "{shape}");
        assert_eq!(answer.headers()["x-amzn-query-error"], fault);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/xml");
        let message = match shape {
            "QueueDoesNotExist" => "The specified queue does not exist for this wsdl version.",
            _ => message,
        };
        let expected = format!(
            "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error>\
             <Type>Sender</Type><Code>{code}</Code><Message>{}</Message><Detail/></Error>\
             <RequestId>id-1</RequestId></ErrorResponse>",
            message.replace('"', "&quot;")
        );
        assert_eq!(text(answer).await, expected);
    }
}

#[test]
fn what_the_node_says_of_itself_has_a_code_that_clients_act_on() {
    let second = Some(Duration::from_secs(1));
    for (kind, shape, status, retry_after) in [
        (Kind::Busy, "RequestThrottled", 429, second),
        (Kind::Backpressure, "RequestThrottled", 429, second),
        (Kind::Canceled, "ServiceUnavailable", 503, second),
        (Kind::Degraded, "ServiceUnavailable", 503, second),
        (Kind::Timeout, "RequestTimeout", 504, None),
        (Kind::BrokenPipe, "InternalFailure", 500, None),
        (Kind::Unauthenticated, "InvalidSecurity", 403, None),
        (Kind::Forbidden, "AccessDeniedException", 403, None),
        (Kind::NotFound, "QueueDoesNotExist", 400, None),
        (Kind::Schema, "InvalidParameterValueException", 400, None),
        (Kind::Conflict, "InvalidParameterValueException", 400, None),
        (Kind::FrameTooLarge, "InvalidParameterValueException", 400, None),
    ] {
        let error = SqsError::from(Error::new(kind, "x"));
        assert_eq!((error.shape, error.status.as_u16(), error.retry_after), (shape, status, retry_after), "{kind:?}");
        assert_eq!(error.is_senders(), status < 500, "{kind:?}");
    }
}

#[test]
fn what_is_repeated_of_a_request_is_short() {
    let long = "é".repeat(100_000);
    for error in [SqsError::receipt_invalid(&long), SqsError::unknown_action(&long), SqsError::receipt_expired(&long)] {
        assert!(error.message.len() < 1200, "{} bytes", error.message.len());
    }
}
