"""boto3 does a real job: every part of the interface that programs use, on the endpoint of the environment."""

import boto3_standard  # noqa: F401
import boto3_fifo  # noqa: F401
import boto3_errors  # noqa: F401
from harness import run_checks

run_checks()
