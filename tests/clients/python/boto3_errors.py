"""boto3's exception classes, each caught by its name, with the legacy code old programs look for."""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from boto3_words import queue, refused, same, sqs, take_one
from harness import SIGNED, check, fresh, say

PREFIX = "AWS.SimpleQueueService."


@check
def errors_are_caught_by_name():
    url = queue(DelaySeconds="0")
    name = url.rsplit("/", 1)[1]
    nowhere = url.rsplit("/", 1)[0] + "/" + fresh("nowhere")
    entry = {"Id": "one", "MessageBody": "x"}
    with refused("QueueDoesNotExist", PREFIX + "NonExistentQueue", message="The specified queue does not exist"):
        sqs.send_message(QueueUrl=nowhere, MessageBody="x")
    with refused("QueueNameExists", "QueueAlreadyExists", message="DelaySeconds"):
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "5"})
    with refused("InvalidAttributeName", "InvalidAttributeName"):
        sqs.create_queue(QueueName=fresh("x"), Attributes={"Colour": "red"})
    with refused("InvalidAttributeName", "InvalidAttributeName", message="Unknown Attribute FifoQueue."):
        sqs.create_queue(QueueName=fresh("x"), Attributes={"FifoQueue": "false"})
    with refused("InvalidAttributeValue", "InvalidAttributeValue"):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "43201"})
    with refused("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", message='"garbage" is not a valid receipt handle'):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="garbage")
    with refused("InvalidMessageContents", "InvalidMessageContents"):
        sqs.send_message(QueueUrl=url, MessageBody="zero \ufffe")
    with refused("TooManyEntriesInBatchRequest", PREFIX + "TooManyEntriesInBatchRequest", message="You have sent 11"):
        sqs.send_message_batch(QueueUrl=url, Entries=[{**entry, "Id": str(n)} for n in range(11)])
    with refused("EmptyBatchRequest", PREFIX + "EmptyBatchRequest"):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    with refused("BatchEntryIdsNotDistinct", PREFIX + "BatchEntryIdsNotDistinct", message="Id one repeated."):
        sqs.send_message_batch(QueueUrl=url, Entries=[entry, entry])
    with refused("InvalidBatchEntryId", PREFIX + "InvalidBatchEntryId"):
        sqs.send_message_batch(QueueUrl=url, Entries=[{**entry, "Id": "a b"}])
    with refused("ResourceNotFoundException", "ResourceNotFoundException", 404):
        sqs.list_message_move_tasks(SourceArn="arn:aws:sqs:us-east-1:000000000000:" + fresh("nowhere"))


@check
def errors_without_a_class_have_their_code():
    url = queue()
    with refused(None, "InvalidParameterValue", message="Must be between 1 and 10, if provided"):
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    with refused(None, "InvalidParameterValue"):
        sqs.create_queue(QueueName="x" * 81)
    with refused(None, "InvalidParameterValue"):
        sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)


@check
def sizes_go_to_one_mebibyte_and_no_further():
    url = queue()
    full = "x" * 1_048_576
    sqs.send_message(QueueUrl=url, MessageBody=full)
    same(take_one(url)["Body"], full)
    with refused(None, "InvalidParameterValue", message="1048576 bytes"):
        sqs.send_message(QueueUrl=url, MessageBody=full + "y")
    halves = [{"Id": name, "MessageBody": full[: 524_288 + more]} for name, more in (("a", 0), ("b", 1))]
    with refused("BatchRequestTooLong", PREFIX + "BatchRequestTooLong", message="1048577 bytes"):
        sqs.send_message_batch(QueueUrl=url, Entries=halves)


@check
def a_forged_signature_is_refused():
    if not SIGNED:
        say("note: signatures are off at this endpoint, nothing to forge")
        return
    own = boto3.Session().get_credentials()
    cases = (
        ((own.access_key, "not-the-secret"), "SignatureDoesNotMatch"),
        (("AKIANOBODYHASTHISID0", own.secret_key), "InvalidClientTokenId"),
    )
    once = Config(retries={"total_max_attempts": 1})
    for (access_key, secret_key), code in cases:
        forger = boto3.client("sqs", aws_access_key_id=access_key, aws_secret_access_key=secret_key, config=once)
        try:
            forger.list_queues()
            raise AssertionError(f"not refused with {code}")
        except ClientError as error:
            same(error.response["Error"]["Code"], code)
            same(error.response["ResponseMetadata"]["HTTPStatusCode"], 403)
