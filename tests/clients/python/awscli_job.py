"""The AWS command line does a real job: each step is one `aws sqs …` as a person would type it."""

import json
import os
import re
import subprocess
import sys
import time

from harness import check, eventually, fresh, run_checks, same


# Version 1 of the command line has its own table of SQS hosts, which only this option overrules.
ENDPOINT = ["--endpoint-url", os.environ["AWS_ENDPOINT_URL"]]


def call(action, *arguments, **named):
    """Runs `aws sqs ACTION`; the finished process. Named arguments become options, structures become JSON."""
    line = [sys.executable, "-m", "awscli", "sqs", action, *arguments, *ENDPOINT, "--output", "json"]
    for name, value in named.items():
        text = value if isinstance(value, str) else json.dumps(value)
        line += ["--" + name.replace("_", "-"), text]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def aws(action, *arguments, **named):
    """The answer of a command that must succeed."""
    done = call(action, *arguments, **named)
    assert done.returncode == 0, f"aws sqs {action}: {done.stderr}"
    return json.loads(done.stdout) if done.stdout.strip() else {}


def refused(code, action, *arguments, **named):
    """The command must fail, and its message must name the legacy code."""
    done = call(action, *arguments, **named)
    assert done.returncode != 0, f"aws sqs {action} was not refused with {code}"
    found = re.search(r"An error occurred \(([^)]+)\)", done.stderr)
    assert found and found[1] == code, f"expected {code}: {done.stderr}"


def queue(stem="cli", suffix="", **attributes):
    """A new queue; its URL."""
    return aws("create-queue", queue_name=fresh(stem, suffix), attributes=attributes)["QueueUrl"]


def arn(url):
    """The queue's ARN."""
    return aws("get-queue-attributes", queue_url=url, attribute_names="QueueArn")["Attributes"]["QueueArn"]


def take(url, *arguments, **named):
    """One receive; a list."""
    answer = aws("receive-message", *arguments, queue_url=url, message_system_attribute_names="All", **named)
    return answer.get("Messages", [])


@check
def queues_and_tags():
    name = fresh("cli")
    url = aws("create-queue", queue_name=name, attributes={"VisibilityTimeout": "5"}, tags={"team": "blue"})["QueueUrl"]
    same(aws("get-queue-url", queue_name=name)["QueueUrl"], url)
    same(aws("list-queues", queue_name_prefix=name)["QueueUrls"], [url])
    aws("tag-queue", queue_url=url, tags={"stage": "live"})
    aws("untag-queue", queue_url=url, tag_keys="team")
    same(aws("list-queue-tags", queue_url=url)["Tags"], {"stage": "live"})
    aws("set-queue-attributes", queue_url=url, attributes={"DelaySeconds": "1"})
    found = aws("get-queue-attributes", queue_url=url, attribute_names="All")["Attributes"]
    same((found["VisibilityTimeout"], found["DelaySeconds"]), ("5", "1"))
    aws("delete-queue", queue_url=url)
    refused("AWS.SimpleQueueService.NonExistentQueue", "get-queue-url", queue_name=name)


@check
def send_receive_delete():
    url = queue()
    attributes = {"Count": {"DataType": "Number", "StringValue": "7"}}
    sent = aws("send-message", queue_url=url, message_body="hällo", message_attributes=attributes)
    same(sent["MD5OfMessageBody"], "38bbce5fb3d0aec801f9eab39182fa7a")
    (got,) = take(url, wait_time_seconds="5", message_attribute_names="All")
    same((got["Body"], got["MessageAttributes"], got["MessageId"]), ("hällo", attributes, sent["MessageId"]))
    aws("change-message-visibility", queue_url=url, receipt_handle=got["ReceiptHandle"], visibility_timeout="0")
    (again,) = take(url, wait_time_seconds="5")
    same(again["Attributes"]["ApproximateReceiveCount"], "2")
    aws("delete-message", queue_url=url, receipt_handle=again["ReceiptHandle"])
    started = time.monotonic()
    same(take(url, wait_time_seconds="2"), [])
    assert time.monotonic() - started >= 1.9, "the long poll waits"


@check
def batches():
    url = queue()
    entries = [{"Id": str(n), "MessageBody": f"body {n}"} for n in range(10)]
    same(len(aws("send-message-batch", queue_url=url, entries=entries)["Successful"]), 10)
    received = []
    eventually(lambda: received.extend(take(url, max_number_of_messages="10")) or len(received) == 10, "all ten")
    gone = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received)]
    same(len(aws("delete-message-batch", queue_url=url, entries=gone)["Successful"]), 10)


@check
def fifo_order_and_duplicates():
    url = queue(suffix=".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    for body in ("one", "two", "one", "three"):
        aws("send-message", queue_url=url, message_body=body, message_group_id="g")
    same([m["Body"] for m in take(url, max_number_of_messages="10")], ["one", "two", "three"])
    refused("MissingParameter", "send-message", queue_url=url, message_body="x")


@check
def dead_letters_and_their_move_home():
    dead = queue("dead")
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": "1"})
    url = queue(RedrivePolicy=policy)
    aws("send-message", queue_url=url, message_body="poison")
    same(len(take(url, wait_time_seconds="5", visibility_timeout="0")), 1)
    same(take(url), [])
    same(aws("list-dead-letter-source-queues", queue_url=dead)["queueUrls"], [url])
    (got,) = take(dead, wait_time_seconds="5", visibility_timeout="0")
    same(got["Attributes"]["DeadLetterQueueSourceArn"], arn(url))
    aws("start-message-move-task", source_arn=arn(dead))

    def finished():
        return aws("list-message-move-tasks", source_arn=arn(dead))["Results"][0]["Status"] == "COMPLETED"

    eventually(finished, "the move completes")
    same([m["Body"] for m in take(url, wait_time_seconds="5")], ["poison"])


@check
def errors_have_their_codes():
    url = queue()
    refused("ReceiptHandleIsInvalid", "delete-message", queue_url=url, receipt_handle="garbage")
    refused("AWS.SimpleQueueService.NonExistentQueue", "receive-message", queue_url=url + "-gone")
    refused("InvalidParameterValue", "receive-message", queue_url=url, max_number_of_messages="11")
    aws("purge-queue", queue_url=url)
    refused("AWS.SimpleQueueService.PurgeQueueInProgress", "purge-queue", queue_url=url)


run_checks()
