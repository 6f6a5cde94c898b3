//! The vectors: files that this crate, the document and clients in other languages share.

use bytes::Bytes;
use oap::{
    AppId, Control, Decoder, FRAME_BYTES_MAX, Flags, Frame, HELLO_BYTES_MAX, Hello, HelloError, Streams, compress,
    negotiate,
};
use serde_json::Value;

use crate::{decoding, naive};

pub const FRAMES: &str = include_str!("../../vectors/frames.json");
const CONTROL: &str = include_str!("../../vectors/control.json");
const HELLO: &str = include_str!("../../vectors/hello.json");
const STREAMS: &str = include_str!("../../vectors/streams.json");
const ZSTD: &str = include_str!("../../vectors/zstd.json");

pub fn rows(json: &str) -> Vec<Value> {
    serde_json::from_str(json).expect("a file of vectors is a JSON list")
}

pub fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("`{field}` of {row} is text"))
}

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits")).collect()
}

fn max_frame(row: &Value) -> usize {
    row["max_frame"].as_u64().map_or(FRAME_BYTES_MAX, |max| max as usize)
}

fn flags(names: &str) -> Flags {
    let bits = (0..8).map(|bit| Flags::from_bits(1 << bit).expect("eight flags"));
    let named = |flag: &Flags| names.split('|').any(|name| name == flag.to_string());
    let flags = bits.filter(named).fold(Flags::default(), |all, flag| all | flag);
    assert_eq!(flags.to_string(), names);
    flags
}

fn frame(row: &Value) -> Frame {
    let number = |field: &str| u16::try_from(row[field].as_u64().expect("a number")).expect("16 bits");
    Frame {
        flags: flags(text(row, "flags")),
        code: number("code"),
        app: AppId(number("app")),
        tenant: u128::from_str_radix(text(row, "tenant"), 16).expect("hex digits"),
        corr: u64::from_str_radix(text(row, "corr"), 16).expect("hex digits"),
        cap: hex(text(row, "cap")).into(),
        payload: hex(text(row, "payload")).into(),
        tail: None,
    }
}

#[test]
fn frames_are_what_the_vectors_say() {
    let rows = rows(FRAMES);
    let refused = rows.iter().filter(|row| row.get("refused").is_some()).count();
    assert!(refused >= 15 && rows.len() - refused >= 15, "{refused} of {}", rows.len());
    for row in &rows {
        let (name, bytes, max) = (text(row, "name"), hex(text(row, "hex")), max_frame(row));
        let mut decoder = Decoder::new(max);
        decoding::read(&mut decoder, &bytes);
        let decoded = decoder.next();
        let naive = naive::decode(&bytes, max);
        if let Some(expected) = row.get("frame") {
            let expected = frame(expected);
            assert_eq!(decoded.as_ref(), Ok(&Some(expected.clone())), "{name}");
            assert_eq!(expected.to_bytes(), bytes, "{name}");
            assert_eq!((expected.check(max), expected.encoded_len()), (Ok(()), bytes.len()), "{name}");
            assert_eq!(naive, (vec![expected], Ok(0)), "{name}");
        } else if row.get("refused").is_some() {
            let error = decoded.expect_err(name);
            assert_eq!((error.name(), u64::from(error.code())), (text(row, "refused"), row["code"].as_u64().unwrap()));
            assert_eq!(naive, (vec![], Err(error.name())), "{name}");
        } else {
            assert_eq!(row["incomplete"], true, "{name}");
            assert_eq!((decoded, decoder.is_inside_frame()), (Ok(None), true), "{name}");
            assert_eq!(naive, (vec![], Ok(bytes.len())), "{name}");
        }
    }
}

#[test]
fn control_frames_are_what_the_vectors_say() {
    for row in rows(CONTROL) {
        let name = text(&row, "name");
        let frame = Frame::event(AppId::CONTROL, 0, hex(text(&row, "payload")));
        let parsed = Control::parse(&frame);
        let Some(expected) = row.get("control") else {
            let code = parsed.expect_err(name).code();
            assert_eq!(Some(u64::from(code)), row["refused"].as_u64(), "{name}");
            continue;
        };
        let number = |value: &Value| value.as_u64().expect("a number");
        let (kind, value) = expected.as_object().and_then(|object| object.iter().next()).expect("one kind");
        let expected = match kind.as_str() {
            "ping" => Control::Ping { nonce: number(value) },
            "pong" => Control::Pong { nonce: number(value) },
            "credit" => Control::Credit { flow: number(&value["flow"]), bytes: number(&value["bytes"]) },
            "goaway" => Control::GoAway {
                code: number(&value["code"]) as u16,
                last_corr: number(&value["last_corr"]),
                reason: text(value, "reason").to_owned(),
            },
            "hello" => Control::Hello(serde_json::from_value(value.clone()).expect("a HELLO")),
            other => panic!("{name}: {other}"),
        };
        assert_eq!(parsed.as_ref(), Ok(&expected), "{name}");
        assert_eq!(Control::parse(&expected.to_frame()), Ok(expected), "{name}");
    }
}

#[test]
fn a_control_frame_has_one_shape() {
    let ping = Control::Ping { nonce: 1 }.to_frame();
    assert!(Control::parse(&ping).is_ok());
    let with_cap = Frame { flags: Flags::EVENT | Flags::START, cap: Bytes::from_static(b"c"), ..ping.clone() };
    for broken in [
        Frame { app: AppId::ECHO, ..ping.clone() },
        Frame { corr: 1, ..ping.clone() },
        Frame { flags: Flags::REQ, ..ping.clone() },
        Frame { flags: Flags::EVENT | Flags::COMP, ..ping },
        with_cap,
    ] {
        assert_eq!(Control::parse(&broken).map_err(|error| error.code()), Err(400), "{broken:?}");
    }
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let goaway = Control::GoAway { code: 503, last_corr: 1, reason: "ä".repeat(200) };
    let Ok(Control::GoAway { reason, .. }) = Control::parse(&goaway.to_frame()) else { panic!("a GOAWAY") };
    assert_eq!(reason, "ä".repeat(128));
}

#[test]
fn hellos_agree_as_the_vectors_say() {
    for row in rows(HELLO) {
        let name = text(&row, "name");
        let parse = |side: &str| Hello::parse(row[side].to_string().as_bytes());
        let ours = parse("ours").expect("ours is good");
        let agreed = parse("theirs").and_then(|theirs| {
            let agreed = negotiate(&ours, &theirs);
            assert_eq!(agreed, negotiate(&theirs, &ours), "{name}: both sides come to the same result");
            assert_eq!(Hello::parse(&theirs.to_json()).as_ref(), Ok(&theirs), "{name}");
            agreed
        });
        match row.get("agreed") {
            None => assert_eq!(Some(u64::from(agreed.expect_err(name).code())), row["refused"].as_u64(), "{name}"),
            Some(expected) => {
                let agreed = agreed.expect(name);
                assert_eq!(u64::from(agreed.version), expected["version"], "{name}");
                assert_eq!(agreed.max_frame as u64, expected["max_frame"], "{name}");
                assert_eq!(agreed.max_inflight as u64, expected["max_inflight"], "{name}");
                assert_eq!(Value::from(agreed.features), expected["features"], "{name}");
            }
        }
    }
}

#[test]
fn a_hello_is_bounded_and_keeps_its_token_to_itself() {
    let len = HELLO_BYTES_MAX + 1;
    let refused = Hello::parse(&vec![b' '; len]);
    assert_eq!(refused, Err(HelloError::TooLarge { len }));
    assert_eq!(refused.map_err(|error| error.code()), Err(413));
    let deep = format!("{{\"later\":{}", "[".repeat(8_000));
    assert_eq!(Hello::parse(deep.as_bytes()).map_err(|error| error.code()), Err(400), "nesting is bounded too");
    let hello = Hello { cap: Some("secret".to_owned()), ..Hello::new(4096, 1) };
    assert!(!format!("{hello:?}").contains("secret"));
    let frame = Frame::request(AppId::ECHO, 1, "private").with_cap("secret");
    assert!(!format!("{frame:?}").contains("secret") && !format!("{frame:?}").contains("private"));
}

/// Plays lines such as `REQ|START 1 app 2 -> opens` and `done 1`.
#[test]
fn streams_go_as_the_vectors_say() {
    for row in rows(STREAMS) {
        let name = text(&row, "name");
        let mut streams = Streams::new(row["max_inflight"].as_u64().expect("a number") as usize);
        for line in row["steps"].as_array().expect("a list") {
            let line = line.as_str().expect("text");
            if let Some(corr) = line.strip_prefix("done ") {
                streams.finished(corr.parse().expect("a number"));
                continue;
            }
            let (frame, expected) = line.split_once(" -> ").expect("a frame and what it is");
            let mut words = frame.split(' ');
            let flags = flags(words.next().expect("flags"));
            let corr = words.next().expect("a number").parse().expect("a number");
            let app = AppId(words.nth(1).map_or(1, |app| app.parse().expect("a number")));
            let code = if flags.contains(Flags::RESP) { 200 } else { 0 };
            let accepted = streams.accept(&Frame { flags, code, corr, ..Frame::event(app, corr, "") });
            let told = match accepted {
                Ok(step) => format!("{step:?}").to_lowercase(),
                Err(error) if error.closes() => format!("{} close", error.code()),
                Err(error) => error.code().to_string(),
            };
            assert_eq!(told, expected, "{name}: {line}");
        }
    }
}

#[test]
fn payloads_inflate_as_the_vectors_say() {
    for row in rows(ZSTD) {
        let name = text(&row, "name");
        let inflated = compress::inflate(&hex(text(&row, "hex")), max_frame(&row));
        match row.get("refused") {
            Some(code) => assert_eq!(inflated.map_err(|error| u64::from(error.code())), Err(code.as_u64().unwrap())),
            None => assert_eq!(inflated.expect(name), hex(text(&row, "inflated")), "{name}"),
        }
    }
}
