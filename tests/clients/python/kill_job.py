"""boto3 while the node is killed: what was acknowledged is there afterwards, in order, once.

A line `@kill` asks the runner to kill the node with SIGKILL and to start it again on the same files and ports; it
answers `up` when the node is ready.
"""

import itertools
import os
import random
import sys
import threading
import time
from collections import defaultdict

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from boto3_words import bodies, dead_letters, delete, drain, fifo_queue, number, queue, same, sqs, take, take_one
from boto3_words import arn as arn_of
from harness import check, eventually, run_checks, say

ROUNDS = int(os.environ.get("KILL_ROUNDS", "5"))
GROUPS = ("red", "green", "blue")
LEASE_S = 2
BACKLOG_MAX = 500
DRAIN_WITHIN_S = 60
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")


def kill_node():
    """Returns when the node is up again."""
    say("@kill")
    answer = sys.stdin.readline().strip()
    assert answer == "up", f"the runner says {answer!r}"


class Load:
    """Senders and receivers on two queues that go on whatever happens to the node."""

    def __init__(self):
        self.standard = queue("kill", VisibilityTimeout=str(LEASE_S))
        self.fifo = fifo_queue(VisibilityTimeout=str(LEASE_S))
        self.acknowledged = set()
        self.sent = {}
        self.seen = defaultdict(dict)
        self.deleted = set()
        self.faults = []
        self.unanswered = 0
        self.sending, self.receiving = threading.Event(), threading.Event()
        self.sending.set()
        self.receiving.set()
        work = [(self.send_standard, n) for n in range(3)] + [(self.send_fifo, group) for group in GROUPS]
        work += [(self.receive, url) for url in (self.standard, self.fifo)]
        self.threads = [threading.Thread(target=self.guarded, args=job, daemon=True) for job in work]
        for thread in self.threads:
            thread.start()

    def guarded(self, job, argument):
        once = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=30)
        client = boto3.session.Session().client("sqs", config=once)
        try:
            job(client, argument)
        except Exception as error:
            self.faults.append(f"{job.__name__}: {error!r}")

    def answered(self, call, **arguments):
        """The answer, or None when the node was not there to give one; a refusal is a fault."""
        try:
            return call(**arguments)
        except BotoCoreError:
            pass
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise
        self.unanswered += 1
        time.sleep(0.02)
        return None

    def send_standard(self, client, sender):
        for n in itertools.count():
            while self.sending.is_set() and len(self.acknowledged) - len(self.deleted) > BACKLOG_MAX:
                time.sleep(0.01)
            if not self.sending.is_set():
                return
            # Unanswered sends may or may not have happened: they are never repeated and never counted on.
            names = [f"{sender}-{n}-{entry}" for entry in range(1 + n % 4)]
            entries = [{"Id": name, "MessageBody": name} for name in names]
            answer = self.answered(client.send_message_batch, QueueUrl=self.standard, Entries=entries)
            if answer:
                assert not answer.get("Failed"), answer
                self.acknowledged.update(entry["Id"] for entry in answer["Successful"])

    def send_fifo(self, client, group):
        for n in itertools.count():
            answer = None
            while answer is None:
                if not self.sending.is_set():
                    return
                # Repeated until it is answered: the deduplication id makes one message of all the tries.
                body = f"{group}:{n}"
                ids = {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{n}"}
                answer = self.answered(client.send_message, QueueUrl=self.fifo, MessageBody=body, **ids)
            self.sent[group] = n + 1

    def receive(self, client, url):
        while self.receiving.is_set():
            answer = self.answered(client.receive_message, QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            messages = (answer or {}).get("Messages", [])
            for message in messages:
                self.received(url, message["Body"])
            if messages:
                self.settle(client, url, messages)

    def received(self, url, body):
        if (url, body) in self.deleted:
            self.faults.append(f"{body} came back after its deletion was acknowledged")
        seen = self.seen[url if url == self.standard else body.split(":")[0]]
        # A dictionary keeps the order in which its keys came.
        seen.setdefault(body)

    def settle(self, client, url, messages):
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        answer = self.answered(client.delete_message_batch, QueueUrl=url, Entries=entries) or {}
        self.deleted.update((url, messages[int(entry["Id"])]["Body"]) for entry in answer.get("Successful", []))
        # A lease may run out while the node is away; the message comes again.
        faults = [entry for entry in answer.get("Failed", []) if "expired" not in entry["Message"]]
        assert not faults, faults

    def finish(self):
        """Stops sending, lets the receivers empty both queues, and stops them."""
        self.sending.clear()

        def empty():
            counts = [number(url, name) for url in (self.standard, self.fifo) for name in COUNTS]
            if not any(counts):
                return True
            assert time.monotonic() < end and not self.faults, f"left in the queues: {counts}; {self.faults}"

        end = time.monotonic() + DRAIN_WITHIN_S
        eventually(empty, "both queues are empty", DRAIN_WITHIN_S * 2)
        self.receiving.clear()
        for thread in self.threads:
            thread.join(30)
        same(self.faults, [], "faults")


@check
def acknowledged_messages_survive_kills_under_load():
    load = Load()
    for _ in range(ROUNDS):
        time.sleep(random.uniform(0.5, 1.5))
        kill_node()
    time.sleep(0.5)
    load.finish()
    lost = load.acknowledged - set(load.seen[load.standard])
    same(sorted(lost), [], "acknowledged and lost")
    for group in GROUPS:
        expected = [f"{group}:{n}" for n in range(load.sent[group])]
        # The last one may have been sent without an answer.
        assert list(load.seen[group])[: len(expected)] == expected, f"group {group} is out of order or has holes"
        assert len(load.seen[group]) <= len(expected) + 1, f"group {group} has more than was sent"
    assert load.unanswered > 0, "no kill was felt: the load was too light"
    sent = sum(load.sent.values())
    counts = f"{len(load.acknowledged)} messages and {sent} of FIFO queues"
    say(f"note: {counts} over {ROUNDS} kills, {load.unanswered} calls unanswered")


@check
def duplicates_are_known_after_kills():
    url = fifo_queue()
    ids = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "k"}
    first = sqs.send_message(MessageBody="once", **ids)
    kill_node()
    again = sqs.send_message(MessageBody="once", **ids)
    same((again["MessageId"], again["SequenceNumber"]), (first["MessageId"], first["SequenceNumber"]))
    same(bodies(drain(url, 1)), ["once"])
    kill_node()
    sqs.send_message(MessageBody="once", **ids)
    same(take(url, 10, 1), [], "known after its deletion and a kill")


@check
def leases_and_handles_survive_a_kill():
    url = fifo_queue(VisibilityTimeout="60")
    for n in range(2):
        sqs.send_message(QueueUrl=url, MessageBody=f"m{n}", MessageGroupId="g", MessageDeduplicationId=str(n))
    head = take_one(url)
    kill_node()
    same(take(url, 10), [], "the group is still in flight")
    delete(url, head)
    same(take_one(url)["Body"], "m1")


@check
def a_move_goes_on_after_a_kill():
    home, dead = dead_letters(120)
    sqs.tag_queue(QueueUrl=home, Tags={"stage": "live"})
    sqs.start_message_move_task(SourceArn=arn_of(dead), MaxNumberOfMessagesPerSecond=40)
    eventually(lambda: number(home, COUNTS[0]) > 10, "the move is under way")
    kill_node()
    same(number(home, COUNTS[0]) + number(dead, COUNTS[0]), 120, "none lost, none twice")

    def finished():
        task = sqs.list_message_move_tasks(SourceArn=arn_of(dead))["Results"][0]
        assert task["Status"] in ("RUNNING", "COMPLETED"), task
        return task["Status"] == "COMPLETED"

    eventually(finished, "the move completes after the kill")
    same((number(home, COUNTS[0]), number(dead, COUNTS[0])), (120, 0))
    same(sqs.list_queue_tags(QueueUrl=home)["Tags"], {"stage": "live"})


run_checks()
