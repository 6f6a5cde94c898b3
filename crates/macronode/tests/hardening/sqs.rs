//! Small holes of the SQS surface that are closed.
