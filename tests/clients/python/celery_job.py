"""Celery does a real job with SQS as its broker: retries, late acknowledgement, longer leases, backoff."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import boto3

from harness import check, eventually, fresh, run_checks, same

NOTES = tempfile.NamedTemporaryFile(prefix="celery-notes-").name
LEASE_S = 3
os.environ["CELERY_NOTES"] = NOTES
os.environ["CELERY_QUEUE"] = fresh("celery")
sqs = boto3.client("sqs")
open(NOTES, "w").close()

import celery_tasks  # noqa: E402  (it reads the environment set above)


def times(name, key):
    """When a task noted this."""
    with open(NOTES) as file:
        lines = [json.loads(line) for line in file]
    return [at for noted, of, at in lines if (noted, of) == (name, key)]


def awaited(name, key, count=1, within_s=30):
    """The times of the note, once it stands there often enough."""
    eventually(lambda: len(times(name, key)) >= count, f"{name} {key} {count} times", within_s)
    return times(name, key)


class Worker:
    """A worker on one queue; ended with a warm shutdown."""

    def __init__(self, queue, processes=2):
        line = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--queues", queue]
        line += ["--concurrency", str(processes), "--loglevel", "info", "--without-gossip", "--without-mingle"]
        line += ["--without-heartbeat", "--hostname", f"{queue}@localhost"]
        self.process = subprocess.Popen(line, env={**os.environ, "C_FORCE_ROOT": "1"}, stdout=2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        same(self.process.returncode, 0, "exit code of the worker")


@check
def celery_makes_its_queue_and_runs_tasks():
    queue = os.environ["CELERY_QUEUE"]
    with Worker(queue):
        for n in range(30):
            celery_tasks.add.delay("sum", n, 1000)
        for n in range(30):
            awaited("add", f"sum={n + 1000}", within_s=60)
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
        same(found, {"VisibilityTimeout": str(LEASE_S)})
        asked = time.time()
        celery_tasks.add.apply_async(("late", 1, 2), countdown=3)
        celery_tasks.flaky.delay("f")
        celery_tasks.patient.delay("p", LEASE_S * 2.5)
        assert awaited("add", "late=3")[0] - asked >= 2.9, "a countdown is kept"
        attempts = awaited("flaky", "f", 3)
        awaited("flaky done", "f")
        assert attempts[2] - attempts[0] >= 1.9, "retries wait for their countdown"
        awaited("patient done", "p")
        celery_tasks.silent.delay("s", LEASE_S * 1.7)
        awaited("silent", "s", 2)
        awaited("silent done", "s", 2)
        same(len(times("silent", "s")), 2, "runs of the task that let its lease pass")
        same(len(times("patient", "p")), 1, "runs of the task that extended its lease")
        same(len(times("flaky done", "f")), 1)

    def empty():
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return set(found.values()) == {"0"}

    eventually(empty, "every task is acknowledged")


@check
def celery_keeps_the_order_of_a_fifo_queue():
    queue = fresh("celery", ".fifo")
    for n in range(12):
        celery_tasks.add.apply_async((f"fifo {n}", n, 0), queue=queue)
    with Worker(queue, processes=1):
        ran = [awaited("add", f"fifo {n}={n}")[0] for n in range(12)]
    same(ran, sorted(ran), "order of the runs")


@check
def celery_backs_off_and_gives_up():
    dead = sqs.create_queue(QueueName=fresh("celery-dead"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    queue = fresh("celery-own")
    # The lease of the queue is far longer than the test: only the backoff policy can bring a message back.
    attributes = {"VisibilityTimeout": "600", "RedrivePolicy": policy}
    url = sqs.create_queue(QueueName=queue, Attributes=attributes)["QueueUrl"]
    tasks = ["celery_tasks.backing_off", "celery_tasks.poison"]
    settings = {queue: {"url": url, "backoff_policy": {1: 1, 2: 2, 3: 1}, "backoff_tasks": tasks}}
    for variable, value in (("CELERY_QUEUES", json.dumps(settings)), ("CELERY_QUEUE", queue)):
        os.environ[variable] = value
    with Worker(queue):
        celery_tasks.backing_off.apply_async(("b",), queue=queue)
        runs = awaited("backing off", "b", 3)
        awaited("backing off done", "b")
        assert runs[1] - runs[0] >= 0.9 and runs[2] - runs[1] >= 1.9, runs
        celery_tasks.poison.apply_async(("x",), queue=queue)
        awaited("poison", "x", 3)
        answer = {}

        def died():
            answer.update(sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=2))
            return answer.get("Messages")

        eventually(died, "the poison is a dead letter")
        same(len(times("poison", "x")), 3, "runs before it was given up")
        same(len(times("backing off", "b")), 3)


try:
    run_checks()
finally:
    os.remove(NOTES)
