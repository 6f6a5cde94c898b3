"""Requests made up from the node's own description: no answer may be a 500, and each must be as described."""

import os
import pathlib
import subprocess
import sys

from harness import check, run_checks

# A stream ends only when its reader leaves. What SQS takes and answers is described by its own reference; the real
# clients beside this one hold the node to it, and to IPNS records, which cannot be made up from a description. The old
# way to publish providers is refused with 501, as the specification of delegated routing has it. Joining the DHT dials
# whomever a request names, and answers 503, as described, where nobody is there.
EXCLUDED = (
    r"^/v1/recv/stream|^/v1/events$|^/$|^/\{account\}/|^/routing/v1/ipns/|^/routing/v1/providers/$|^/dht/bootstrap$"
)
SECONDS = os.environ.get("SCHEMATHESIS_SECONDS", "45")
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"


@check
def every_answer_is_as_described():
    """Examples, edge cases of every field, then random bodies, for as long as there is time."""
    token = pathlib.Path(os.environ["MACRO_DATA_DIR"], "operator.token").read_text(encoding="utf-8").strip()
    program = pathlib.Path(sys.executable).parent / "schemathesis"
    command = [str(program), "run", os.environ["AWS_ENDPOINT_URL"] + "/openapi.json", "--no-color", "--seed", "1"]
    # A deadline keeps long polls short.
    command += ["-H", f"Authorization: Bearer {token}", "-H", "X-Request-Deadline-Ms: 500"]
    command += ["--exclude-path-regex", EXCLUDED, "--phases", "examples,coverage,fuzzing", "--checks", CHECKS]
    command += ["--max-time", SECONDS, "--max-examples", "50", "--generation-database", "none", "--warnings", "off"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(ran.stdout.replace(token, "(token)"), file=sys.stderr)
    assert ran.returncode == 0, "schemathesis found something; see the log"


if __name__ == "__main__":
    run_checks()
