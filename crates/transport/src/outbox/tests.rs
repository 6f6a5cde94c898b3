//! Tests of the outbox without a writer.

use super::*;
