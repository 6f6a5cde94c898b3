//! Each fuzz target as a test: over its committed seeds, and over inputs that a fixed generator makes from them.

mod generator;
mod seeds;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fuzz::Target;
use generator::Generator;

/// Inputs of each target beside its seeds.
const INPUTS: usize = 2000;
/// Longest input.
const INPUT_BYTES_MAX: usize = 4096;
/// Variable with an input in hexadecimal digits, or `#` and the number of a generated one, which is then run alone.
const ONE_INPUT: &str = "FUZZ_INPUT";

/// A test for each target, so that a failure names it.
macro_rules! tests {
    ($($target:ident)*) => {
        /// Targets that have a test.
        const TESTED: &[&str] = &[$(stringify!($target)),*];

        $(
            #[test]
            fn $target() {
                run(stringify!($target));
            }
        )*
    };
}

tests! {
    calculus_policy
    gossip_control
    index_dto
    mailbox_dto
    mailbox_envelope
    mailbox_receipt
    mailbox_record
    oap_header
    oap_hello
    oap_stream
    oap_zstd
    rewarder_envelope
    rewarder_manifest
    rewarder_paid
    store_ids
    store_ipns
    store_records
    store_wire
    transport_scheduler
    usage_csv
    usage_ndjson
    usage_parquet
}

fn run(name: &str) {
    let target = fuzz::targets().find(|target| target.name == name).expect("a target of the table");
    let one = std::env::var(ONE_INPUT).unwrap_or_default();
    let only = one.strip_prefix('#').map(|number| number.parse::<usize>().expect("the number of an input"));
    if only.is_none() && !one.is_empty() {
        return try_input(target, "the input", &from_hex(&one));
    }
    let seeds = seeds::committed(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for (file, bytes) in &seeds {
        assert!((target.is_read)(bytes), "{file} of {name} is refused at once: {}", seeds::WRITE_ANEW);
        try_input(target, file, bytes);
    }
    let mut generator = Generator::new(name, seeds.into_values().collect(), INPUT_BYTES_MAX);
    for number in 1..=INPUTS {
        let input = generator.input();
        if only.is_none_or(|only| only == number) {
            // The last word of a process that hangs or is killed: what it was at.
            println!("{name}, {ONE_INPUT}=#{number}");
            try_input(target, &format!("input {number}"), &input);
        }
    }
}

fn try_input(target: &Target, which: &str, bytes: &[u8]) {
    // The bodies keep nothing between inputs, so that what a panic left half done is never seen.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.body)(bytes))) {
        let (name, digits) = (target.name, to_hex(bytes));
        eprintln!("{which} of {name} fails. To run it alone:");
        eprintln!("{ONE_INPUT}={digits} cargo nextest run --workspace -E 'package(fuzz) & test(={name})'");
        resume_unwind(panic);
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Vec<u8> {
    assert!(digits.is_ascii() && digits.len().is_multiple_of(2), "{ONE_INPUT} holds two digits for each byte");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn an_input_survives_being_printed() {
    assert_eq!(to_hex(&[0, 0x7f, 0xff]), "007fff");
    assert_eq!(from_hex("007fff"), [0, 0x7f, 0xff]);
    assert_eq!(from_hex(""), Vec::<u8>::new());
}
