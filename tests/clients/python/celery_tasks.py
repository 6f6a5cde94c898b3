"""The Celery application of the job: the broker is the endpoint of the environment, results are lines in a file."""

import json
import os
import time
from urllib.parse import quote, urlsplit

import boto3
from celery import Celery

LEASE_S = 3

endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
access_key = quote(os.environ["AWS_ACCESS_KEY_ID"], safe="")
secret_key = quote(os.environ["AWS_SECRET_ACCESS_KEY"], safe="")
options = {
    "region": os.environ["AWS_DEFAULT_REGION"],
    "is_secure": endpoint.scheme == "https",
    "visibility_timeout": LEASE_S,
    "wait_time_seconds": 2,
    "polling_interval": 0.1,
}
# Queues that exist already come as JSON; without them Celery makes its own.
if "CELERY_QUEUES" in os.environ:
    options["predefined_queues"] = json.loads(os.environ["CELERY_QUEUES"])
    for settings in options["predefined_queues"].values():
        settings.update(access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
        settings.update(secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"])
        if "backoff_policy" in settings:
            settings["backoff_policy"] = {int(n): seconds for n, seconds in settings["backoff_policy"].items()}

app = Celery("job", broker=f"sqs://{access_key}:{secret_key}@{endpoint.hostname}:{endpoint.port}")
app.conf.update(
    broker_transport_options=options,
    broker_connection_retry_on_startup=True,
    task_default_queue=os.environ["CELERY_QUEUE"],
    task_ignore_result=True,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
)


def note(name, key):
    """Writes down that a task ran to this point; one line is one write, so writers do not mix."""
    with open(os.environ["CELERY_NOTES"], "ab", buffering=0) as file:
        file.write((json.dumps([name, key, time.time()]) + "\n").encode())


def receive_count(task):
    """How often the task's message has been received, as the queue tells."""
    message = task.request.properties["delivery_info"]["sqs_message"]
    return int(message["Attributes"]["ApproximateReceiveCount"])


@app.task
def add(key, left, right):
    note("add", f"{key}={left + right}")


@app.task(bind=True, acks_late=True, max_retries=5)
def flaky(self, key):
    note("flaky", key)
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    note("flaky done", key)


@app.task(bind=True, acks_late=True)
def patient(self, key, work_s):
    """Works for longer than the lease and says so to the queue as it goes on."""
    note("patient", key)
    delivery = self.request.properties["delivery_info"]
    queue = boto3.client("sqs")
    end = time.monotonic() + work_s
    while time.monotonic() < end:
        queue.change_message_visibility(
            QueueUrl=delivery["sqs_queue"],
            ReceiptHandle=delivery["sqs_message"]["ReceiptHandle"],
            VisibilityTimeout=LEASE_S,
        )
        time.sleep(LEASE_S / 3)
    note("patient done", key)


@app.task(bind=True, acks_late=True)
def silent(self, key, work_s):
    """Works for longer than the lease without a word the first time it runs, and only then."""
    note("silent", key)
    if receive_count(self) == 1:
        time.sleep(work_s)
    note("silent done", key)


@app.task(bind=True, acks_late=True, acks_on_failure_or_timeout=False)
def backing_off(self, key):
    """Fails twice and leaves its message in the queue; the broker's backoff policy decides when it comes back."""
    note("backing off", key)
    if receive_count(self) < 3:
        raise OSError("not yet")
    note("backing off done", key)


@app.task(acks_late=True, acks_on_failure_or_timeout=False)
def poison(key):
    note("poison", key)
    raise OSError("never")
