"""The short words in which the boto3 checks are written: a client, a queue, taking and draining, errors by name."""

import hashlib
import json
import struct
from contextlib import contextmanager

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from harness import eventually, fresh, same

sqs = boto3.client("sqs", config=Config(retries={"total_max_attempts": 1}))

# Versions that speak the Query protocol do not know every class.
UNKNOWN = ["InvalidAttributeValue"] if sqs.meta.service_model.protocol == "query" else []


def queue(stem="boto3", **attributes):
    """A new queue; its URL."""
    fifo = attributes.get("FifoQueue") == "true"
    name = fresh(stem, ".fifo" if fifo else "")
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def fifo_queue(**attributes):
    """A new FIFO queue; its URL."""
    return queue(FifoQueue="true", **attributes)


def arn(url):
    """The queue's ARN."""
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def redrive_to(dead_url, count):
    """A redrive policy as the attribute's text."""
    return json.dumps({"deadLetterTargetArn": arn(dead_url), "maxReceiveCount": count})


def take(url, count=1, wait_s=0, **more):
    """One receive with every attribute; a list, empty when there is nothing."""
    answer = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=count,
        WaitTimeSeconds=wait_s,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
        **more,
    )
    return answer.get("Messages", [])


def take_one(url, wait_s=10, **more):
    """One message, waited for."""
    messages = take(url, 1, wait_s, **more)
    same(len(messages), 1, "messages received")
    return messages[0]


def delete(url, message):
    """Deletes by the message's receipt handle."""
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def drain(url, count):
    """Receives and deletes until `count` messages came; the messages."""
    messages = []

    def look():
        for message in take(url, 10, 1):
            messages.append(message)
            delete(url, message)
        return len(messages) >= count

    eventually(look, f"{count} messages from {url}")
    return messages


def bodies(messages):
    """The bodies, in order."""
    return [message["Body"] for message in messages]


def number(url, attribute):
    """A counting attribute of the queue."""
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[attribute])["Attributes"][attribute])


def dead_letters(count):
    """A queue and its dead letter queue holding `count` messages that came from it."""
    dead = queue("dead")
    url = queue(RedrivePolicy=redrive_to(dead, 1))
    for n in range(0, count, 10):
        entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(n, min(n + 10, count))]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)

    def all_dead():
        take(url, 10, VisibilityTimeout=0)
        return number(dead, "ApproximateNumberOfMessages") == count

    eventually(all_dead, "all are dead letters")
    return url, dead


def md5(text):
    """Hex MD5 of the text in UTF-8."""
    return hashlib.md5(text.encode()).hexdigest()


def md5_of_attributes(attributes):
    """The digest of message attributes as the service defines it."""
    digest = hashlib.md5()
    for name in sorted(attributes):
        value = attributes[name]
        for word in (name.encode(), value["DataType"].encode()):
            digest.update(struct.pack("!I", len(word)) + word)
        is_binary = value["DataType"].startswith("Binary")
        content = value["BinaryValue"] if is_binary else value["StringValue"].encode()
        digest.update(b"\x02" if is_binary else b"\x01")
        digest.update(struct.pack("!I", len(content)) + content)
    return digest.hexdigest()


@contextmanager
def refused(exception, code, status=400, message=None):
    """The block must raise the modelled class (None: not modelled) with the legacy code in `Error.Code`."""
    kind = getattr(sqs.exceptions, exception) if exception and exception not in UNKNOWN else ClientError
    try:
        yield
    except kind as error:
        same(error.response["Error"]["Code"], code, "legacy code")
        same(error.response["ResponseMetadata"]["HTTPStatusCode"], status, "status")
        if message is not None:
            assert message in error.response["Error"]["Message"], error.response["Error"]["Message"]
    else:
        raise AssertionError(f"not refused with {code}")
