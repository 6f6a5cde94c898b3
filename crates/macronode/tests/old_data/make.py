#!/usr/bin/env python3
"""Makes a data directory with the binary of some version, and writes down what that version says is in it.

    make.py BINARY FOLDER

BINARY runs twice on a new data directory: the first life is drained, so that its log is sealed, the second is killed.
FOLDER gets data/, every file of the directory compressed by itself, and held.json. Python's own library is enough.
"""

import base64
import gzip
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Shorter than any test waits: at a later start nothing is leased or delayed any more, and where the clock is behind
# that of the machine that made it, it lasts that long again.
WAIT_MS = 2000
# Longest that is allowed: keys and messages are still there whenever the directory is opened, because time in which
# no node ran is held back.
LONG_MS = 14 * 24 * 3600 * 1000


class Node:
    """One life of the binary."""

    def __init__(self, binary, data):
        arguments = [binary, "run", "--data-dir", str(data)]
        for plane in ("--api", "--admin", "--oap"):
            arguments += [plane, "127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MACRO_")}
        # The smallest there are, so that there are several.
        environment |= {"MACRO_MAILBOX__SEGMENT_BYTES": "2MiB", "NO_COLOR": "1"}
        said = open(data.parent / "said", "ab")
        self.process = subprocess.Popen(arguments, env=environment, stdout=said, stderr=said, cwd=data.parent)
        self.data = data
        self.addresses = wait_for(self.read_addresses)
        self.token = (data / "operator.token").read_text().strip()
        wait_for(lambda: self.admin_status("/readyz") == 200)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()

    def read_addresses(self):
        assert self.process.poll() is None, "the node ended"
        try:
            addresses = json.loads((self.data / "addresses.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        there = (self.data / "operator.token").exists()
        return addresses if there and addresses["pid"] == self.process.pid else None

    def admin_status(self, path):
        connection = http.client.HTTPConnection(self.addresses["admin"], timeout=10)
        connection.request("GET", path)
        return connection.getresponse().status

    def call(self, method, path, body=None):
        """An answer that must be a good one."""
        connection = http.client.HTTPConnection(self.addresses["api"], timeout=30)
        headers = {"authorization": f"Bearer {self.token}"}
        text = None
        if body is not None:
            headers["content-type"] = "application/json"
            text = json.dumps(body)
        connection.request(method, path, text, headers)
        reply = connection.getresponse()
        said = reply.read()
        assert 200 <= reply.status < 300, f"{method} {path}: {reply.status} {said}"
        return json.loads(said) if said else None

    def topic(self, name, **settings):
        self.call("PUT", f"/v1/topics/{name}", {"retention_ms": LONG_MS, **settings})

    def send(self, topic, text, **more):
        payload = base64.b64encode(text.encode()).decode()
        return self.call("POST", "/v1/send", {"topic": topic, "payload_b64": payload, **more})

    def recv(self, topic, count, visibility_ms=60_000):
        body = {"topic": topic, "max_messages": count, "visibility_ms": visibility_ms, "max_bytes": 4 << 20}
        messages = self.call("POST", "/v1/recv", body)["messages"]
        assert len(messages) == count, f"{len(messages)} of {count} from {topic}"
        return messages

    def ack(self, messages):
        results = self.call("POST", "/v1/ack", {"receipts": [one["receipt"] for one in messages]})["results"]
        assert all(result["ok"] for result in results), results

    def nack(self, messages, reason, **more):
        receipts = [one["receipt"] for one in messages]
        results = self.call("POST", "/v1/nack", {"receipts": receipts, "reason": reason, **more})["results"]
        assert all(result["ok"] for result in results), results

    def kill_messages(self, topic, texts, reason):
        """Sends messages to a topic that allows one delivery, and fails them."""
        for text in texts:
            self.send(topic, text, attrs={"kind": text})
        self.nack(self.recv(topic, len(texts)), reason)

    def redrive(self, topic, **order):
        task = self.call("POST", f"/v1/dlq/{topic}/reprocess", order)["task"]
        wait_for(lambda: self.call("GET", f"/v1/dlq/tasks/{task['id']}")["task"]["state"] == "done")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(30)


def wait_for(look):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in 30 seconds")


def first_life(node):
    """Topics of every kind, and most of what can happen to messages."""
    node.topic("plain", labels={"team": "blue"}, visibility_ms=1234)
    for number in range(10):
        node.send("plain", f"plain {number}", attrs={"number": str(number), "kind": "plain"})
    node.ack(node.recv("plain", 4))
    node.nack(node.recv("plain", 2), "not yet", delay_ms=0)

    node.topic("lines", groups="fifo")
    for number in range(4):
        for group in ("a", "b"):
            node.send("lines", f"{group}{number}", group=group)

    node.topic("keyed", replay_window_ms=LONG_MS)
    keys = {"settled": node.send("keyed", "settled", idem_key="settled")["msg_id"]}
    node.ack(node.recv("keyed", 1))
    keys["waiting"] = node.send("keyed", "waiting", idem_key="waiting")["msg_id"]

    node.topic("wide", partitions=3)
    for number in range(9):
        node.send("wide", f"wide {number}", group=f"group-{number}")

    node.topic("mortal", max_attempts=1)
    node.kill_messages("mortal", ["first", "second", "third", "fourth"], "cannot be parsed")
    node.redrive("mortal", filter={"attrs": {"kind": "second"}})
    node.topic("graves")
    node.topic("source", max_attempts=1, dlq="graves")
    node.kill_messages("source", ["buried", "raised"], "upstream is down")
    node.redrive("source", filter={"attrs": {"kind": "raised"}})

    node.topic("paused", paused=True, breaker={"failing_percent": 50, "pause_ms": 30_000})
    node.send("paused", "nobody gets it")
    node.topic("purged")
    node.send("purged", "gone")
    node.call("POST", "/v1/topics/purged/purge")
    node.topic("removed", max_attempts=1)
    node.kill_messages("removed", ["gone, too"], "no")
    node.call("DELETE", "/v1/topics/removed")

    node.topic("changed")
    edited = node.send("changed", "before")["msg_id"]
    payload = base64.b64encode(b"after").decode()
    node.call("PATCH", f"/v1/messages/{edited}", {"payload_b64": payload, "attrs": {"is": "edited"}})
    taken_back = node.send("changed", "taken back")["msg_id"]
    node.call("DELETE", f"/v1/messages/{taken_back}")
    node.call("POST", "/v1/sqs/keys", {"note": "billing", "rights": ["mailbox:*:plain", "mailbox:send:jobs-*"]})

    # Several files of the log, of which the first ones go: what they hold is written again in the last one.
    node.topic("large")
    for number in range(160):
        node.send("large", f"large {number} " + "x" * 65_000)
    before = files_of_log(node)
    for _ in range(10):
        node.ack(node.recv("large", 15))
    wait_for(lambda: before[0] not in files_of_log(node))
    return keys


def files_of_log(node):
    return sorted(path.name for path in (node.data / "mailbox").iterdir() if path.suffix == ".log")


def second_life(node):
    """What is in the log behind a start, and not sealed."""
    node.recv("lines", 1, WAIT_MS)
    node.send("plain", "delayed", delay_ms=WAIT_MS)
    node.nack(node.recv("wide", 1), "later", delay_ms=0)
    node.redrive("mortal", limit=1)


def messages(node, topic):
    found = node.call("POST", f"/v1/topics/{topic}/browse", {"limit": 100})["messages"]
    for message in found:
        # The hash stands for it.
        if len(message["payload_b64"]) > 100:
            del message["payload_b64"]
    return found


def held_by(node):
    """What the node says that it holds; its own dead letters are those of a topic that allows one delivery."""
    topics = node.call("GET", "/v1/topics?limit=100")["topics"]
    names = [topic["name"] for topic in topics] + ["mortal.dlq"]
    held = {name: messages(node, name) for name in names}
    access_keys, tasks = node.call("GET", "/v1/sqs/keys"), node.call("GET", "/v1/dlq/tasks")
    return {"topics": topics, "messages": held, "access_keys": access_keys, "tasks": tasks}


def pack(data, folder):
    shutil.rmtree(folder / "data", ignore_errors=True)
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        packed = folder / "data" / f"{path.relative_to(data)}.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def main():
    binary, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "data"
        with Node(binary, data) as node:
            keys = first_life(node)
            node.end(signal.SIGTERM)
        with Node(binary, data) as node:
            second_life(node)
            held = held_by(node) | {"idempotency_keys": keys}
            node.end(signal.SIGKILL)
        pack(data, folder)
        (folder / "held.json").write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
