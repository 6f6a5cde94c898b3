"""OAP/1 from the page: the vectors, HELLO and its pin, the mailbox in batches, lanes, and what a node refuses."""

import json
import os
import pathlib
import struct
import subprocess
import urllib.request

import oap
from harness import check, fresh, run_checks, same

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "crates/oap/vectors"
DATA = pathlib.Path(os.environ["MACRO_DATA_DIR"])
ADDRESSES = json.loads((DATA / "addresses.json").read_text(encoding="utf-8"))


def macronode(*words):
    """Runs a command of the node's binary on the node's files; gives what it printed."""
    command = [os.environ["MACRONODE"], *words, "--data-dir", str(DATA)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.returncode} {ran.stdout}{ran.stderr}"
    return ran.stdout.strip()


def mint(*rights):
    """A token for these rights."""
    words = [word for right in rights for word in ("--allow", right)]
    return macronode("token", "mint", "--subject", "oap-job", *words)


NODE_ID = macronode("overlay", "id")
TOKEN = mint("mailbox:*:*", "overlay:*:*")


def session(token=TOKEN, **fields):
    """A session with the node."""
    return oap.connect(ADDRESSES["oap"], NODE_ID, token=token, **fields)


def refused(code, call, *args, **kwargs):
    """Whether a call is refused with this code."""
    try:
        call(*args, **kwargs)
    except (oap.Refused, oap.GoneAway) as error:
        same(error.code, code, error)
        return error
    raise AssertionError(f"not refused: {args} {kwargs}")


def vectors(name):
    """The rows of a file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


@check
def the_vectors_are_what_they_say():
    """Frames decode to what the file says and back, broken ones are refused by name, HELLOs agree."""
    for row in vectors("frames"):
        data, maximum = bytes.fromhex(row["hex"]), row.get("max_frame", oap.FRAME_MAX)
        if "refused" in row:
            error = refused(row["code"], oap.decode, data, maximum)
            same(error.what, row["refused"], row["name"])
        elif row.get("incomplete"):
            same(oap.decode(data, maximum), None, row["name"])
        else:
            frame, length = oap.decode(data, maximum)
            said = row["frame"]
            names = [name for bit, name in enumerate("REQ RESP EVENT START END ACK_REQ COMP APP_E2E".split()) if frame.flags >> bit & 1]
            found = ("|".join(names), frame.code, frame.app, frame.tenant, frame.corr, frame.cap.hex(), frame.payload.hex())
            expected = (said["flags"], said["code"], said["app"], int(said["tenant"], 16), int(said["corr"], 16), said["cap"], said["payload"])
            same((found, length), (expected, len(data)), row["name"])
            same(oap.encode(frame.flags, frame.app, frame.corr, frame.payload, frame.cap, frame.code, frame.tenant), data)
    for row in vectors("hello"):
        if "agreed" in row:
            same(oap.agree(row["ours"], row["theirs"]), row["agreed"], row["name"])


@check
def a_session_begins_with_the_right_node_only():
    """HELLO tells who the node is; another pin gets no session; a client cannot pass for a node."""
    client = session(max_frame=65536)
    same(client.hello["node_id"], NODE_ID)
    same((client.agreed["version"], client.agreed["max_frame"]), (1, 65536))
    client.close()
    refused(401, oap.connect, ADDRESSES["oap"], "00" * 32)


@check
def broken_frames_end_the_session_with_a_reason():
    """Each broken vector gets GOAWAY with its code; streams that break the rules do, too."""
    for row in vectors("frames"):
        if "refused" in row:
            client = session(max_frame=row.get("max_frame", oap.FRAME_MAX))
            client.connection.sendall(bytes.fromhex(row["hex"]))
            refused(row["code"], client.listen)
    for row in vectors("control"):
        if "refused" in row:
            client = session()
            client.connection.sendall(oap.encode(oap.EVENT, oap.CONTROL, 0, bytes.fromhex(row["payload"])))
            refused(row["refused"], client.listen)
    for flags in (oap.REQ | oap.END, oap.RESP | oap.END):
        client = session()
        code = 200 if flags & oap.RESP else 0
        client.connection.sendall(oap.encode(flags, oap.MAILBOX, 1, b"", code=code))
        refused(400, client.listen)


@check
def strangers_and_narrow_tokens_are_refused():
    """401 without a token, 403 without the right, 404 for an application that is not there."""
    stranger = session(token=None)
    refused(401, stranger.told, stranger.mailbox(oap.SEND, {"what": "is this"}))
    refused(401, stranger.answer, stranger.ask(oap.LANES, b'{"publish":"l"}\nx'))
    told, _ = stranger.told(stranger.mailbox(oap.SEND, {"topic": "t", "messages": [{"len": 1}]}, [b"x"], cap=TOKEN.encode()))
    assert told["results"][0]["msg_id"], told
    narrow = session(token=mint("mailbox:send:mine"))
    refused(403, narrow.told, narrow.mailbox(oap.SEND, {"topic": "other", "messages": [{"len": 0}]}))
    refused(403, narrow.answer, narrow.ask(oap.LANES, b'{"publish":"l"}\nx'))
    refused(404, narrow.answer, narrow.ask(0x7777, b""))


@check
def the_mailbox_takes_batches_and_gives_them_back():
    """A pipeline of batches goes in; all of it comes out once, in order, with its hashes; leases are held and ended."""
    client, topic = session(), fresh("oap")
    batches = [[b"%d-%d" % (batch, number) for number in range(50)] for batch in range(20)]
    numbers = [client.send(topic, bodies) for bodies in batches]
    for number in numbers:
        told, _ = client.told(number)
        same(told["durability"], "fsynced")
        assert all("msg_id" in result for result in told["results"]), told
    bodies = []
    while len(bodies) < 1000:
        taken = client.recv(topic, max_messages=100, visibility_ms=60000, wait_ms=5000)
        bodies += [body for _, body in taken]
        receipts = [message["receipt"] for message, _ in taken]
        extended, _ = client.told(client.mailbox(oap.EXTEND, {"receipts": receipts, "visibility_ms": 30000}))
        assert all("until_ts" in result for result in extended["results"]), extended
        acked, _ = client.told(client.mailbox(oap.ACK, {"receipts": receipts}))
        assert all(result == {"ok": True} for result in acked["results"]), acked
    expected = [body for batch in batches for body in batch]
    wrong = [pair for pair in zip(bodies, expected, strict=True) if pair[0] != pair[1]]
    same(wrong[:3], [], f"{len(wrong)} are not in their place")
    same(client.recv(topic), [])


@check
def a_changed_body_is_refused_and_a_failed_one_comes_again():
    """422 for a wrong hash; nack gives a message back."""
    client, topic = session(), fresh("oap")
    head = {"topic": topic, "messages": [{"len": 1, "payload_hash": "b3:" + "00" * 32}]}
    refused(422, client.told, client.mailbox(oap.SEND, head, [b"x"]))
    client.told(client.send(topic, [b"once"], attrs={"a": "b"}, idem_key="k"))
    message, body = client.recv(topic)[0]
    same((body, message["attrs"], message["attempt"]), (b"once", {"a": "b"}, 1))
    nack = {"receipts": [message["receipt"]], "delay_ms": 0, "reason": "not now"}
    assert "due_ts" in client.told(client.mailbox(oap.NACK, nack))[0]["results"][0]
    same(client.recv(topic, wait_ms=5000)[0][0]["attempt"], 2)


@check
def what_is_published_is_heard_once_and_in_order():
    """A stream of messages, acknowledged and not, reaches a subscriber; `own` leaves out this node's."""
    publisher, subscriber, deaf, lane = session(), session(), session(), fresh("lane")
    heard, unheard = subscriber.subscribe(lane), deaf.subscribe(lane, own=False)
    stream = publisher.publishing(lane)
    for number in range(300):
        publisher.ask(oap.LANES, b"%d" % number, oap.REQ | (oap.ACK_REQ if number % 100 == 99 else 0), stream)
    outcomes = [json.loads(publisher.answer(stream)[1]) for _ in range(3)]
    same([outcome["seq"] for outcome in outcomes], [100, 200, 300])
    publisher.ask(oap.LANES, b"", oap.REQ | oap.END, stream)
    same(publisher.answer(stream)[0], 200)
    messages = []
    while len(messages) < 300:
        kind, message = subscriber.event(heard)
        messages += [message] if kind == "message" else []
    same([message["payload"] for message in messages], [b"%d" % number for number in range(300)])
    same([message["seq"] for message in messages], list(range(1, 301)))
    same({message["origin"] for message in messages}, {NODE_ID})
    single = json.loads(publisher.answer(publisher.ask(oap.LANES, json.dumps({"publish": lane}).encode() + b"\nlast"))[1])
    last = subscriber.event(heard)[1]
    same((last["payload"], single["seq"], single["msg_id"]), (b"last", 301, oap.msg_id(lane, last)))
    deaf.ask(oap.LANES, b"", oap.REQ | oap.END, unheard)
    same((deaf.answer(unheard)[0], len(deaf.events[unheard])), (200, 0))
    late = session()
    replayed = late.subscribe(lane, **{"from": [f"{NODE_ID}:300"]})
    found = []
    while len(found) < 2:
        kind, message = late.event(replayed)
        found += [message["seq"]] if kind == "message" else []
    same(found, [300, 301])


@check
def a_large_message_comes_in_parts():
    """2.5 MiB published over HTTP arrive over frames of 64 KiB."""
    client, lane = session(max_frame=65536), fresh("large")
    heard, body = client.subscribe(lane), os.urandom(2_621_440)
    url = f"http://{ADDRESSES['api']}/overlay/lanes/{lane}/publish"
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/octet-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
        same(answer.status, 202)
        published = json.load(answer)
    kind, message = client.event(heard)
    while kind != "message":
        kind, message = client.event(heard)
    assert message["payload"] == body, f"{len(message['payload'])} bytes"
    same(oap.msg_id(lane, message), published["msg_id"])


@check
def compressed_requests_are_inflated_within_bounds():
    """A compressed request is done; bombs and what is no zstd end the session with their code."""
    client, topic = session(), fresh("oap")
    same(client.agreed["features"], ["zstd"])
    head = json.dumps({"topic": topic, "messages": [{"len": 1000}]}).encode()
    payload = struct.pack(">BI", oap.SEND, len(head)) + head + b"x" * 1000
    # By hand, because Python has no zstd before 3.14: a block as it is, and one that repeats a byte.
    plain, repeated = payload[:-900], b"x"
    blocks = [(len(plain) << 3).to_bytes(3, "little"), plain, (900 << 3 | 3).to_bytes(3, "little"), repeated]
    number = client.ask(oap.MAILBOX, b"\x28\xb5\x2f\xfd\0\x08" + b"".join(blocks), oap.REQ | oap.START | oap.END | oap.COMP)
    assert "msg_id" in client.told(number)[0]["results"][0]
    same(client.recv(topic)[0][1], b"x" * 1000)
    for row in vectors("zstd"):
        if "refused" in row:
            client = session(max_frame=row.get("max_frame", oap.FRAME_MAX))
            client.ask(oap.MAILBOX, bytes.fromhex(row["hex"]), oap.REQ | oap.START | oap.END | oap.COMP)
            refused(row["refused"], client.listen)


@check
def ping_is_answered():
    """PONG has the nonce of its PING."""
    client = session()
    client.control(oap.PING, struct.pack(">Q", 77))
    while not client.pongs:
        client.step()
    same(client.pongs, [struct.pack(">Q", 77)])


if __name__ == "__main__":
    run_checks()
