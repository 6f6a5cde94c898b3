"""boto3 on FIFO queues: order, blocking groups, deduplication, attempts, dead letters."""

import time

from boto3_words import (
    bodies,
    delete,
    drain,
    fifo_queue,
    number,
    redrive_to,
    refused,
    same,
    sqs,
    take,
    take_one,
)
from harness import check


def send(url, body, group="g", key=None):
    """Sends with a deduplication id unless the queue makes it of the content."""
    key = {} if key is None else {"MessageDeduplicationId": key}
    return sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **key)


@check
def fifo_order_holds_within_each_group():
    url = fifo_queue()
    sent = []
    for n in range(6):
        entries = [
            {"Id": group, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body}
            for group, body in ((group, f"{group}{n}") for group in "abc")
        ]
        sent += sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    numbers = [entry["SequenceNumber"] for entry in sent]
    same(numbers, sorted(numbers), "sequence numbers grow")
    same({len(number) for number in numbers}, {20})
    messages = drain(url, 18)
    for group in "abc":
        own = [m for m in messages if m["Attributes"]["MessageGroupId"] == group]
        same(bodies(own), [f"{group}{n}" for n in range(6)], f"group {group}")
        same([m["Attributes"]["MessageDeduplicationId"] for m in own], bodies(own))
    same(sorted(m["Attributes"]["SequenceNumber"] for m in messages), numbers)


@check
def a_group_in_flight_blocks_only_itself():
    url = fifo_queue()
    for body, group in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a")):
        send(url, body, group, body)
    first = take(url, 2)
    same(bodies(first), ["a1", "a2"], "filled from one group before the next")
    same(bodies(take(url, 10)), ["b1"], "group a is held")
    delete(url, first[0])
    same(take(url, 10), [], "deleting some does not free the group")
    delete(url, first[1])
    third = take_one(url, 2)
    same(third["Body"], "a3")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=0)
    same(take_one(url, 2)["Body"], "a3")


@check
def a_duplicate_is_accepted_and_not_delivered():
    url = fifo_queue()
    one = send(url, "first", key="k")
    two = send(url, "second words, same key", key="k")
    same((two["MessageId"], two["SequenceNumber"]), (one["MessageId"], one["SequenceNumber"]))
    same(bodies(drain(url, 1)), ["first"])
    send(url, "after its deletion", key="k")
    same(take(url, 10, 1), [], "remembered after the deletion")
    send(url, "another key", key="k2")
    same(take_one(url)["Body"], "another key")


@check
def content_and_scope_decide_what_is_a_duplicate():
    by_content = fifo_queue(ContentBasedDeduplication="true")
    send(by_content, "same", "a")
    send(by_content, "same", "b")
    send(by_content, "other", "b")
    same(sorted(bodies(drain(by_content, 2))), ["other", "same"])
    by_group = fifo_queue(
        ContentBasedDeduplication="true", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    for group in "aab":
        send(by_group, "same", group)
    same(sorted(m["Attributes"]["MessageGroupId"] for m in drain(by_group, 2)), ["a", "b"])
    for url in (by_content, by_group):
        same(take(url, 10, 1), [])


@check
def an_attempt_can_be_repeated():
    url = fifo_queue()
    for n in range(3):
        send(url, f"m{n}", key=str(n))
    first = take(url, 2, ReceiveRequestAttemptId="attempt-1")
    again = take(url, 2, ReceiveRequestAttemptId="attempt-1")
    same(bodies(again), ["m0", "m1"])
    same([m["ReceiptHandle"] for m in again], [m["ReceiptHandle"] for m in first])


@check
def an_expired_handle_is_refused_on_fifo():
    url = fifo_queue(VisibilityTimeout="1")
    send(url, "slow", key="s")
    old = take_one(url)
    time.sleep(1.2)
    with refused(None, "InvalidParameterValue", message="The receipt handle has expired"):
        delete(url, old)
    same(take_one(url)["Body"], "slow")


@check
def fifo_dead_letters_free_the_group():
    dead = fifo_queue()
    url = fifo_queue(RedrivePolicy=redrive_to(dead, 1))
    send(url, "poison", key="1")
    send(url, "healthy", key="2")
    same(take_one(url, VisibilityTimeout=0)["Body"], "poison")
    got = take_one(url, 5)
    same(got["Body"], "healthy")
    same(take_one(dead)["Body"], "poison")
    delete(url, got)
    same(number(url, "ApproximateNumberOfMessages"), 0)


@check
def fifo_rules_are_enforced():
    url = fifo_queue()
    with refused(None, "MissingParameter", message="MessageGroupId"):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageDeduplicationId="x")
    with refused(None, "InvalidParameterValue", message="ContentBasedDeduplication"):
        send(url, "x")
    entry = {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "x"}
    lacking = {"Id": "b", "MessageBody": "x", "MessageDeduplicationId": "y"}
    with refused(None, "MissingParameter", message="MessageGroupId"):
        sqs.send_message_batch(QueueUrl=url, Entries=[entry, lacking])
    same(number(url, "ApproximateNumberOfMessages"), 0)
    with refused(None, "InvalidParameterValue", message="DelaySeconds"):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="x", DelaySeconds=2)
