"""A client of OAP/1, written from docs/oap-1.md: frames, HELLO, the mailbox, lanes. One thread, one connection."""

import collections
import itertools
import json
import socket
import ssl
import struct

from blake3 import blake3

REQ, RESP, EVENT, START, END, ACK_REQ, COMP, APP_E2E = (1 << bit for bit in range(8))
CONTROL, MAILBOX, LANES = 0, 0x0100, 0x0201
HELLO, PING, PONG, CREDIT, GOAWAY = 1, 2, 3, 4, 5
SEND, RECV, ACK, NACK, EXTEND = 1, 2, 3, 4, 5
HEADER = struct.Struct(">IHHHH16sHQ")
ED25519_KEY = bytes.fromhex("06032b6570032100")
FRAME_MAX = 1 << 20

Frame = collections.namedtuple("Frame", "flags code app tenant corr cap payload")


class Refused(Exception):
    """Bytes that are no frame, or an answer that is a problem."""

    def __init__(self, code, what):
        super().__init__(f"{code}: {what}")
        self.code, self.what = code, what


class GoneAway(Exception):
    """The other side said GOAWAY."""

    def __init__(self, code, last_corr, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.last_corr, self.reason = code, last_corr, reason


def msg_id(lane, message):
    """The id of a message of a lane, as the node shows it over HTTP; `message` is what `Client.event` gives."""
    key, said, name = b"macronode overlay 1, whole   msg", message["payload"], lane.encode()
    if len(said) > 65536:
        chunks = (said[at : at + 65536] for at in range(0, len(said), 65536))
        key, said = b"macronode overlay 1, chunked msg", blake3(b"".join(blake3(chunk).digest() for chunk in chunks)).digest()
    head = bytes.fromhex(message["origin"]) + struct.pack(">QB", message["epoch"], len(name)) + name
    return blake3(head + struct.pack(">QI", message["seq"], len(said)) + said, key=key).hexdigest(16)


def encode(flags, app, corr, payload=b"", cap=b"", code=0, tenant=0):
    """The bytes of a frame."""
    length = HEADER.size + len(cap) + len(payload)
    head = HEADER.pack(length, 1, flags, code, app, tenant.to_bytes(16, "big"), len(cap), corr)
    return head + cap + payload


def decode(data, max_frame=FRAME_MAX):
    """The first frame of some bytes and how long it is; None if more are needed."""
    if len(data) < 4:
        return None
    length = int.from_bytes(data[:4], "big")
    if length < HEADER.size:
        raise Refused(400, "too_small")
    if length > max_frame:
        raise Refused(413, "too_large")
    if len(data) < HEADER.size:
        return None
    _, version, flags, code, app, tenant, cap_len, corr = HEADER.unpack_from(data)
    if version != 1:
        raise Refused(505, "version")
    if flags > 255:
        raise Refused(400, "unknown_flags")
    if flags & (REQ | RESP | EVENT) not in (REQ, RESP, EVENT):
        raise Refused(400, "direction")
    if flags & RESP and not 100 <= code < 600:
        raise Refused(400, "response_code")
    if not flags & RESP and code:
        raise Refused(400, "code_without_response")
    if cap_len and not flags & START:
        raise Refused(400, "cap_without_start")
    if HEADER.size + cap_len > length:
        raise Refused(400, "cap_beyond_frame")
    if len(data) < length:
        return None
    cap_end = HEADER.size + cap_len
    cap, payload = bytes(data[HEADER.size : cap_end]), bytes(data[cap_end:length])
    return Frame(flags, code, app, int.from_bytes(tenant, "big"), corr, cap, payload), length


def agree(ours, theirs):
    """What two HELLOs agree on."""
    versions = set(ours["versions"]) & set(theirs["versions"])
    if not versions:
        raise Refused(505, "no version in common")
    return {
        "version": max(versions),
        "max_frame": min(ours["max_frame"], theirs["max_frame"], FRAME_MAX),
        "max_inflight": min(ours["max_inflight"], theirs["max_inflight"], 65536),
        "features": sorted(set(ours.get("features", [])) & set(theirs.get("features", []))),
    }


def chain_after(chain, bodies):
    """The hash chain after a batch of messages."""
    batch = blake3(b"".join(blake3(body).digest() for body in bodies)).digest()
    return blake3(chain + batch).digest()


def hash_chain(topic, message, body):
    """The hash over everything that makes a message what it is."""
    key, attrs = message.get("idem_key"), message.get("attrs", {})
    fields = [topic.encode(), struct.pack("<Q", message["ts"]), bytes([key is not None]), (key or "").encode()]
    fields += [blake3(body).digest(), struct.pack("<Q", len(attrs))]
    fields += [text.encode() for pair in attrs.items() for text in pair]
    return "b3:" + blake3(b"".join(struct.pack("<Q", len(field)) + field for field in fields)).hexdigest()


def connect(address, node_id, **kwargs):
    """A session with the node of this id, or none at all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["oap/1"])
    host, port = address.rsplit(":", 1)
    raw = socket.create_connection((host.strip("[]"), int(port)), timeout=20)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = context.wrap_socket(raw)
    der = connection.getpeercert(binary_form=True)
    at = der.find(ED25519_KEY) + len(ED25519_KEY)
    if der.find(ED25519_KEY) < 0 or der[at : at + 32].hex() != node_id or connection.selected_alpn_protocol() != "oap/1":
        connection.close()
        raise Refused(401, "this is another node")
    return Client(connection, **kwargs)


class Client:
    """A session: requests by number, answers in any order, events by stream."""

    def __init__(self, connection, token=None, max_frame=FRAME_MAX):
        self.connection, self.buffer, self.numbers = connection, bytearray(), itertools.count(1)
        self.answers, self.done, self.events, self.parts = {}, {}, collections.defaultdict(collections.deque), {}
        self.chain_out, self.chain_in, self.pongs = bytes(32), bytes(32), []
        self.agreed = {"max_frame": FRAME_MAX}
        hello = {"versions": [1], "max_frame": max_frame, "max_inflight": 64, "features": ["zstd"]}
        hello.update({"cap": token} if token else {})
        self.control(HELLO, json.dumps(hello).encode())
        kind, body = self.read_frame().payload[:1], self.last.payload[1:]
        if kind[0] == GOAWAY:
            self.goaway(body)
        self.hello = json.loads(body)
        self.agreed = agree(hello, self.hello)

    def control(self, kind, body):
        """Sends a control frame."""
        self.connection.sendall(encode(EVENT, CONTROL, 0, bytes([kind]) + body))

    def read_frame(self):
        """The next frame, whatever it is."""
        while not (found := decode(self.buffer, self.agreed["max_frame"])):
            read = self.connection.recv(1 << 16)
            if not read:
                raise EOFError("the node closed the connection")
            self.buffer += read
        self.last, length = found
        del self.buffer[:length]
        return self.last

    def goaway(self, body):
        """The other side leaves."""
        code, last_corr = struct.unpack_from(">HQ", body)
        raise GoneAway(code, last_corr, body[10:].decode())

    def step(self):
        """Reads one frame and puts it where it belongs."""
        frame = self.read_frame()
        if frame.app == CONTROL and frame.payload[0] == PING:
            self.control(PONG, frame.payload[1:])
        elif frame.app == CONTROL and frame.payload[0] == PONG:
            self.pongs.append(frame.payload[1:])
        elif frame.app == CONTROL and frame.payload[0] == GOAWAY:
            self.goaway(frame.payload[1:])
        elif frame.flags & EVENT and frame.app != CONTROL:
            if frame.flags & (START | END) or frame.corr in self.parts:
                whole = self.parts.setdefault(frame.corr, bytearray())
                whole += frame.payload
                if frame.flags & END:
                    self.events[frame.corr].append(bytes(self.parts.pop(frame.corr)))
            else:
                self.events[frame.corr].append(frame.payload)
        elif frame.flags & RESP:
            self.answers[frame.corr] = self.answers.get(frame.corr, b"") + frame.payload
            if frame.flags & END or frame.app == LANES:
                self.done.setdefault(frame.corr, collections.deque()).append(
                    (frame.code, self.answers.pop(frame.corr), bool(frame.flags & END))
                )

    def listen(self):
        """Reads until the other side leaves."""
        while True:
            self.step()

    def ask(self, app, payload, flags=REQ | START | END, corr=None, cap=b""):
        """Sends a request or a part of a stream; its number."""
        corr = next(self.numbers) if corr is None else corr
        self.connection.sendall(encode(flags, app, corr, payload, cap))
        return corr

    def answer(self, corr):
        """Waits for the (next) answer to a number: its code and payload."""
        while not self.done.get(corr):
            self.step()
        code, payload, is_last = self.done[corr].popleft()
        if is_last:
            del self.done[corr]
        if code >= 300:
            raise Refused(code, json.loads(payload))
        return code, payload

    # The mailbox.

    def mailbox(self, op, head, bodies=(), cap=b""):
        """Begins an operation of the mailbox; its number."""
        text = json.dumps(head).encode()
        return self.ask(MAILBOX, struct.pack(">BI", op, len(text)) + text + b"".join(bodies), cap=cap)

    def told(self, corr):
        """The head and the bodies of the mailbox's answer."""
        _, payload = self.answer(corr)
        _, length = struct.unpack_from(">BI", payload)
        return json.loads(payload[5 : 5 + length]), payload[5 + length :]

    def send(self, topic, bodies, **fields):
        """Begins to send messages as one batch, with their hashes and the session's chain; its number."""
        messages = [dict(fields, len=len(body), payload_hash="b3:" + blake3(body).hexdigest()) for body in bodies]
        self.chain_out = chain_after(self.chain_out, bodies)
        head = {"topic": topic, "messages": messages, "batch_chain": "b3:" + self.chain_out.hex()}
        return self.mailbox(SEND, head, bodies)

    def recv(self, topic, **fields):
        """Takes messages out: pairs of a head and a body, their hashes and the session's chain checked."""
        head, rest = self.told(self.mailbox(RECV, dict(fields, topic=topic)))
        taken = []
        for message in head["messages"]:
            body, rest = rest[: message["len"]], rest[message["len"] :]
            hashes = ("b3:" + blake3(body).hexdigest(), hash_chain(topic, message, body))
            if (message["payload_hash"], message["hash_chain"]) != hashes:
                raise Refused(422, "a message that is not what was sent")
            taken.append((message, body))
        self.chain_in = chain_after(self.chain_in, [body for _, body in taken])
        if head["batch_chain"] != "b3:" + self.chain_in.hex():
            raise Refused(422, "a batch is missing")
        return taken

    # Lanes.

    def subscribe(self, lane, **fields):
        """Opens a subscription and waits until everything is heard; its number."""
        corr = self.ask(LANES, json.dumps(dict(fields, subscribe=lane)).encode(), REQ | START)
        kind, _ = self.event(corr)
        assert kind == "ready", kind
        return corr

    def event(self, corr):
        """Waits for the next event of a subscription: its kind and what it says."""
        while not self.events[corr]:
            if self.done.get(corr):
                self.answer(corr)
            self.step()
        payload = self.events[corr].popleft()
        kind, rest = ("ready", "message", "gap", "lagged", "epoch")[payload[0]], payload[1:]
        if kind != "message":
            return kind, rest
        origin, epoch, seq, hops = struct.unpack_from(">32sQQB", rest)
        return kind, {"origin": origin.hex(), "epoch": epoch, "seq": seq, "hops": hops, "payload": rest[49:]}

    def publishing(self, lane):
        """Opens a stream of messages; its number. Parts of it are sent by `ask` with this number."""
        return self.ask(LANES, json.dumps({"publish": lane}).encode(), REQ | START)

    def close(self):
        """Leaves in order."""
        self.control(GOAWAY, struct.pack(">HQ", 200, 0) + b"done")
        self.connection.close()
