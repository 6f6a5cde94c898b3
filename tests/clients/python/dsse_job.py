"""Signed policies in a library that is not ours: it believes what we signed, we believe what it signed, and neither
believes what was changed afterwards."""

import base64
import json
import os
import pathlib
import subprocess
import tempfile

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from harness import check, run_checks, same
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

TYPE = "application/vnd.macronode.reward-policy+json"
POLICY = {"id": "démo", "ruleset": 1, "assets": [{"asset": "RON", "pool": "1000000", "weights": {"usage": "1"}}]}
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="dsse-"))


def reward(*words, fails=False):
    """Runs `macronode reward policy …` in the scratch folder; gives what it printed."""
    command = [os.environ["MACRONODE"], "reward", "policy", *words]
    ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (ran.returncode != 0) == fails, f"{command}: {ran.returncode} {ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def key(name):
    """A key of ours, as the library sees its public half."""
    told = json.loads(reward("key", f"{name}.pem", "--trust", "keys.json", "--json"))
    raw = base64.b64decode(told["public"].removeprefix("ed25519:"), validate=True)
    return SSlibKey(told["keyid"], "ed25519", "ed25519", {"public": raw.hex()})


def envelope(name):
    """An envelope from a file."""
    return Envelope.from_dict(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def refused(found, keys, threshold):
    """Whether the library does not believe it."""
    try:
        found.verify(keys, threshold)
    except VerificationError:
        return True
    return False


@check
def the_library_believes_what_we_signed():
    """Two keys sign; the library finds both, and the policy inside."""
    (FOLDER / "policy.json").write_text(json.dumps(POLICY, ensure_ascii=False), encoding="utf-8")
    keys = [key("ann"), key("bob")]
    reward("sign", "policy.json", "--key", "ann.pem", "--out", "one.json")
    reward("sign", "one.json", "--key", "bob.pem", "--out", "two.json")
    same(envelope("two.json").payload_type, TYPE)
    same(json.loads(envelope("two.json").payload), POLICY)
    same(set(envelope("two.json").verify(keys, 2)), {one.keyid for one in keys})
    assert refused(envelope("one.json"), keys, 2), "one signature is not two"


@check
def nobody_believes_what_was_changed():
    """A changed policy, type or signature fails in the library and with us."""
    keys = [key("ann"), key("bob")]
    text = json.loads((FOLDER / "two.json").read_text(encoding="utf-8"))
    policy = base64.b64decode(text["payload"]).replace(b"1000000", b"9000000")
    signatures = [dict(one, sig=base64.b64encode(bytes(64)).decode()) for one in text["signatures"]]
    changes = [
        dict(text, payload=base64.b64encode(policy).decode()),
        dict(text, payloadType="text/plain"),
        dict(text, signatures=signatures),
    ]
    for number, change in enumerate(changes):
        (FOLDER / "changed.json").write_text(json.dumps(change), encoding="utf-8")
        assert refused(envelope("changed.json"), keys, 1), f"change {number}"
        told = reward("check", "changed.json", "--keys", "keys.json", fails=True)
        assert "MN0025" in told, told
    reward("check", "two.json", "--keys", "keys.json")


@check
def we_believe_what_the_library_signed():
    """The library reads our key file and signs; we find the signature, and miss it after a change."""
    private = load_pem_private_key((FOLDER / "ann.pem").read_bytes(), password=None)
    signer = CryptoSigner(private)
    made = Envelope(json.dumps(POLICY).encode(), TYPE, {})
    made.sign(signer)
    (FOLDER / "theirs.json").write_text(json.dumps(made.to_dict()), encoding="utf-8")
    told = reward("check", "theirs.json", "--keys", "keys.json")
    assert "1 trusted keys" in told, told
    made.payload = made.payload.replace(b"RON", b"XRP")
    (FOLDER / "theirs.json").write_text(json.dumps(made.to_dict()), encoding="utf-8")
    told = reward("check", "theirs.json", "--keys", "keys.json", fails=True)
    assert "0 of the trusted keys" in told, told


if __name__ == "__main__":
    run_checks()
