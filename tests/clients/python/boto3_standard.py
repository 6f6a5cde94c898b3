"""boto3 on standard queues: life of a queue, sending, receiving, visibility, dead letters, moves."""

import json
import threading
import time
import uuid

import boto3

from boto3_words import (
    arn,
    bodies,
    dead_letters,
    delete,
    drain,
    md5,
    md5_of_attributes,
    number,
    queue,
    redrive_to,
    refused,
    same,
    sqs,
    take,
    take_one,
)
from harness import check, eventually, fresh


@check
def queues_are_created_found_listed_and_deleted():
    stem = fresh("list")
    urls = [sqs.create_queue(QueueName=f"{stem}-{n}")["QueueUrl"] for n in range(5)]
    same(sqs.create_queue(QueueName=f"{stem}-0")["QueueUrl"], urls[0], "created again with the same attributes")
    same(sqs.get_queue_url(QueueName=f"{stem}-1")["QueueUrl"], urls[1])
    same(sqs.list_queues(QueueNamePrefix=stem)["QueueUrls"], urls)
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=stem, PaginationConfig={"PageSize": 2})
    pages = [page["QueueUrls"] for page in pages]
    same([len(page) for page in pages], [2, 2, 1], "pages")
    same(sorted(sum(pages, [])), urls)
    sqs.delete_queue(QueueUrl=urls[4])
    with refused("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"):
        sqs.get_queue_url(QueueName=f"{stem}-4")
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=fresh("nothing"))


@check
def attributes_have_defaults_and_can_be_set():
    url = queue(VisibilityTimeout="7")
    all_of_them = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    for name, value in {
        "VisibilityTimeout": "7",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "ApproximateNumberOfMessages": "0",
    }.items():
        same(all_of_them.get(name), value, name)
    assert abs(int(all_of_them["CreatedTimestamp"]) - time.time()) < 60, all_of_them["CreatedTimestamp"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60", "DelaySeconds": "45"})
    names = ["MessageRetentionPeriod", "DelaySeconds"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    same(found, {"MessageRetentionPeriod": "60", "DelaySeconds": "45"})


@check
def tags_are_kept():
    url = sqs.create_queue(QueueName=fresh("tags"), tags={"team": "blue", "stage": "test"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "live", "größe": "über"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    same(sqs.list_queue_tags(QueueUrl=url)["Tags"], {"stage": "live", "größe": "über"})
    assert not sqs.list_queue_tags(QueueUrl=queue()).get("Tags")


@check
def permissions_are_kept():
    url = queue()
    sqs.add_permission(QueueUrl=url, Label="friends", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    same([statement["Sid"] for statement in json.loads(policy)["Statement"]], ["friends"])
    sqs.remove_permission(QueueUrl=url, Label="friends")


@check
def a_message_arrives_as_it_was_sent():
    url = queue()
    body = 'a body with "quotes", <tags>, a\ttab, lines\r\n, ümläute and 🦀'
    attributes = {
        "Text": {"DataType": "String", "StringValue": "grün"},
        "Count": {"DataType": "Number.int", "StringValue": "42"},
        "Blob": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageAttributes=attributes, MessageSystemAttributes=trace
    )
    same(sent["MD5OfMessageBody"], md5(body))
    same(sent["MD5OfMessageAttributes"], md5_of_attributes(attributes))
    same(sent["MD5OfMessageSystemAttributes"], md5_of_attributes(trace))
    got = take_one(url)
    same(got["Body"], body)
    same(got["MessageId"], sent["MessageId"])
    same(str(uuid.UUID(sent["MessageId"])), sent["MessageId"])
    same(got["MessageAttributes"], attributes)
    same((got["MD5OfBody"], got["MD5OfMessageAttributes"]), (md5(body), md5_of_attributes(attributes)))
    same(got["Attributes"]["ApproximateReceiveCount"], "1")
    same(got["Attributes"]["AWSTraceHeader"], trace["AWSTraceHeader"]["StringValue"])
    for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
        assert abs(int(got["Attributes"][name]) / 1000 - time.time()) < 60, name
    assert got["Attributes"]["SenderId"]
    delete(url, got)
    delete(url, got)
    same(number(url, "ApproximateNumberOfMessages") + number(url, "ApproximateNumberOfMessagesNotVisible"), 0)


@check
def only_attributes_asked_for_are_returned():
    url = queue()
    text = {name: {"DataType": "String", "StringValue": name} for name in ("one", "two.a", "two.b")}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=text)

    def ask(**names):
        answer = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=5, **names)
        return answer["Messages"][0]

    plain = ask()
    assert "Attributes" not in plain and "MessageAttributes" not in plain, plain
    some = ask(MessageAttributeNames=["two.*"], AttributeNames=["ApproximateReceiveCount"])
    same(sorted(some["MessageAttributes"]), ["two.a", "two.b"])
    same(some["MD5OfMessageAttributes"], md5_of_attributes({n: text[n] for n in ("two.a", "two.b")}))
    same(list(some["Attributes"]), ["ApproximateReceiveCount"])


@check
def batches_work_and_fail_entry_by_entry():
    url = queue()
    entries = [{"Id": f"e{n}", "MessageBody": f"body {n}"} for n in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    same(sorted(entry["Id"] for entry in sent["Successful"]), sorted(entry["Id"] for entry in entries))
    same([e["MD5OfMessageBody"] for e in sent["Successful"]], [md5(f"body {e['Id'][1:]}") for e in sent["Successful"]])
    assert not sent.get("Failed")
    received = []
    eventually(lambda: received.extend(take(url, 10, 1)) or len(received) == 10, "all ten")
    same(sorted(bodies(received)), sorted(f"body {n}" for n in range(10)))
    change = [
        {"Id": f"c{n}", "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 60} for n, m in enumerate(received)
    ]
    same(len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=change)["Successful"]), 10)
    gone = [{"Id": f"d{n}", "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received[:9])]
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=gone + [{"Id": "bad", "ReceiptHandle": "garbage"}])
    same(len(answer["Successful"]), 9)
    same([(f["Id"], f["Code"], f["SenderFault"]) for f in answer["Failed"]], [("bad", "ReceiptHandleIsInvalid", True)])
    mixed = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", "MessageBody": "x", "DelaySeconds": 901}]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=mixed)
    same([e["Id"] for e in answer["Successful"]], ["good"])
    same([(f["Id"], f["Code"]) for f in answer["Failed"]], [("bad", "InvalidParameterValue")])


@check
def a_long_poll_waits_and_is_woken():
    url = queue()
    started = time.monotonic()
    same(take(url, 1, 2), [])
    waited_s = time.monotonic() - started
    assert 1.9 <= waited_s < 5, f"an empty poll of 2 s took {waited_s:.2f} s"
    woken = {}

    def poll():
        woken["messages"] = take(url, 1, 20)
        woken["after_s"] = time.monotonic() - sent_at

    poller = threading.Thread(target=poll)
    sent_at = time.monotonic() + 0.5
    poller.start()
    time.sleep(0.5)
    sqs.send_message(QueueUrl=url, MessageBody="wake")
    poller.join(30)
    same(bodies(woken["messages"]), ["wake"])
    assert woken["after_s"] < 3, f"woken {woken['after_s']:.2f} s after the send"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ReceiveMessageWaitTimeSeconds": "1"})
    started = time.monotonic()
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert time.monotonic() - started >= 0.9, "the queue's own wait is the default"


@check
def a_delayed_message_comes_later():
    url = queue()
    started = time.monotonic()
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=2)
    same(take(url), [])
    same(number(url, "ApproximateNumberOfMessagesDelayed"), 1)
    same(take_one(url, 10)["Body"], "later")
    assert time.monotonic() - started >= 1.9


@check
def visibility_hides_extends_and_releases():
    url = queue(VisibilityTimeout="2")
    sqs.send_message(QueueUrl=url, MessageBody="work")
    first = take_one(url)
    same(take(url), [])
    same(number(url, "ApproximateNumberOfMessagesNotVisible"), 1)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=5)
    same(take(url, 1, 3), [], "past the first timeout, within the extended one")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    second = take_one(url)
    same(second["MessageId"], first["MessageId"])
    same(second["Attributes"]["ApproximateReceiveCount"], "2")
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    third = take_one(url, 10)
    same(third["Attributes"]["ApproximateReceiveCount"], "3", "visible again by itself")
    delete(url, third)
    with refused(None, "InvalidParameterValue"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=43_201)


@check
def a_message_received_too_often_goes_to_the_dead_letter_queue():
    dead = queue("dead")
    url = queue(RedrivePolicy=redrive_to(dead, 2))
    attributes = {"a": {"DataType": "String", "StringValue": "b"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=attributes)
    for _ in range(2):
        take_one(url, 5, VisibilityTimeout=0)
    same(take(url), [], "the third receive moves it")
    got = take_one(dead)
    same((got["MessageId"], got["Body"], got["MessageAttributes"]), (sent["MessageId"], "poison", attributes))
    same(got["Attributes"]["DeadLetterQueueSourceArn"], arn(url))
    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(QueueUrl=dead)
    same([u for page in pages for u in page["queueUrls"]], [url])
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]


@check
def a_move_task_brings_dead_letters_home():
    url, dead = dead_letters(12)
    handle = sqs.start_message_move_task(SourceArn=arn(dead))["TaskHandle"]
    assert handle

    def finished():
        task = sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"][0]
        return task if task["Status"] == "COMPLETED" else None

    task = eventually(finished, "the move completes")
    same(task["ApproximateNumberOfMessagesMoved"], 12)
    same(task["SourceArn"], arn(dead))
    assert "TaskHandle" not in task, "a handle is shown only while it runs"
    same(number(dead, "ApproximateNumberOfMessages"), 0)
    same(sorted(bodies(drain(url, 12))), sorted(f"m{n}" for n in range(12)))
    with refused("ResourceNotFoundException", "ResourceNotFoundException", 404):
        sqs.start_message_move_task(SourceArn=arn(url).rsplit(":", 1)[0] + ":" + fresh("nowhere"))
    with refused(None, "InvalidParameterValue", message="must be configured as a Dead Letter Queue"):
        sqs.start_message_move_task(SourceArn=arn(queue()))


@check
def a_slow_move_task_can_be_cancelled():
    _, dead = dead_letters(20)
    elsewhere = queue("elsewhere")
    start = {"SourceArn": arn(dead), "DestinationArn": arn(elsewhere), "MaxNumberOfMessagesPerSecond": 1}
    handle = sqs.start_message_move_task(**start)["TaskHandle"]
    running = sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"][0]
    same((running["Status"], running["DestinationArn"]), ("RUNNING", arn(elsewhere)))
    same(running["MaxNumberOfMessagesPerSecond"], 1)
    same(running["TaskHandle"], handle)
    try:
        sqs.start_message_move_task(**start)
        raise AssertionError("a second task was started")
    except sqs.exceptions.ClientError as error:
        assert "There is already a task running" in str(error), error
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert moved < 20, moved

    def cancelled():
        return sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"][0]["Status"] == "CANCELLED"

    eventually(cancelled, "the move is cancelled")
    total = number(dead, "ApproximateNumberOfMessages") + number(elsewhere, "ApproximateNumberOfMessages")
    same(total, 20, "none lost, none twice")


@check
def a_purge_empties_the_queue():
    url = queue()
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(5)])
    sqs.purge_queue(QueueUrl=url)
    eventually(lambda: number(url, "ApproximateNumberOfMessages") == 0, "empty")
    same(take(url), [])
    with refused("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", 403):
        sqs.purge_queue(QueueUrl=url)


@check
def the_resource_interface_works():
    resource = boto3.resource("sqs")
    handle = resource.create_queue(QueueName=fresh("resource"))
    handle.send_message(MessageBody="hello", MessageGroupId="tenant-1")
    found = resource.get_queue_by_name(QueueName=handle.url.rsplit("/", 1)[1])
    (message,) = found.receive_messages(WaitTimeSeconds=5, AttributeNames=["All"])
    same((message.body, message.md5_of_body), ("hello", md5("hello")))
    message.change_visibility(VisibilityTimeout=30)
    message.delete()
    found.delete()
