"""What every Python client shares: checks that run in order with one line each, fresh names, patience."""

import os
import sys
import time
import traceback
import uuid

CHECKS = []
PATIENCE_S = 20.0
# The runner says "off" where the node takes every caller for the operator.
SIGNED = os.environ.get("SQS_SIGNATURES", "on") != "off"


def check(function):
    """Registers a check; they run in the order in which they stand in the files."""
    CHECKS.append(function)
    return function


def run_checks():
    """Runs all checks, or those named on the command line; exits with 1 if one does not hold."""
    chosen = [c for c in CHECKS if not sys.argv[1:] or c.__name__ in sys.argv[1:]]
    failed = 0
    for function in chosen:
        name, started = function.__name__, time.monotonic()
        try:
            function()
        except Exception:
            failed += 1
            traceback.print_exc()
            say(f"fail {name}")
        else:
            say(f"pass {name} {time.monotonic() - started:.1f}s")
    sys.exit(1 if failed or not chosen else 0)


def say(line):
    """One line for the runner, at once."""
    print(line, flush=True)


def fresh(stem, suffix=""):
    """A queue name nobody has used."""
    return f"{stem}-{uuid.uuid4().hex[:12]}{suffix}"


def eventually(look, what, within_s=PATIENCE_S):
    """Calls `look` until it gives something true, and gives that."""
    end = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.05)


def same(found, expected, what=""):
    """Like an assertion of equality, but it says what was found."""
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"
