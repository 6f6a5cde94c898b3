//! What form an answer is to have: JSON or a line for each record, compressed or not.

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::problem::Problem;

/// Media type of one JSON document.
pub(super) const JSON: &str = "application/json";
/// Media type of one JSON document a line.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// The form of an answer with many records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One document, once everything is known.
    Json,
    /// A line for each record as soon as it is known.
    Ndjson,
}

/// What the caller can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub form: Form,
    pub is_gzip: bool,
}

impl Negotiated {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Negotiated { form: Form::of(headers)?, is_gzip: takes_gzip(headers) })
    }
}

impl Form {
    /// Lines only for those who name them: a caller that takes anything gets one document.
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        if !headers.contains_key(header::ACCEPT) {
            return Ok(Form::Json);
        }
        let takes = |names: &[&str]| wanted(headers, header::ACCEPT, names);
        match () {
            () if takes(&[NDJSON]) => Ok(Form::Ndjson),
            () if takes(&[JSON, "application/*", "*/*"]) => Ok(Form::Json),
            () => {
                let detail = format!("Accept must have {JSON}, {NDJSON} or */*");
                Err(Problem::schema(StatusCode::BAD_REQUEST, detail))
            }
        }
    }

    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Form::Json => JSON,
            Form::Ndjson => NDJSON,
        }
    }
}

/// Whether the caller can read answers compressed with gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    wanted(headers, header::ACCEPT_ENCODING, &["gzip", "x-gzip"])
}

/// Whether a caller that says what it accepts accepts this media type; one that says nothing accepts anything.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    !headers.contains_key(header::ACCEPT) || wanted(headers, header::ACCEPT, &[media_type, "application/*", "*/*"])
}

/// Whether one of the names stands in a list of the header, with a weight other than 0.
fn wanted(headers: &HeaderMap, name: HeaderName, names: &[&str]) -> bool {
    let values = headers.get_all(name);
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|range| is_one_of(range, names))
}

fn is_one_of(range: &str, names: &[&str]) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let named = parts.next().unwrap_or_default();
    let is_refused = |part: &str| {
        let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
        weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
    };
    names.iter().any(|name| named.eq_ignore_ascii_case(name)) && !parts.any(is_refused)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn lines_are_sent_to_those_who_name_them() {
        for (values, expected) in [
            (&[][..], Ok(Form::Json)),
            (&["*/*"], Ok(Form::Json)),
            (&["application/json"], Ok(Form::Json)),
            (&["application/*;q=0.5"], Ok(Form::Json)),
            (&["application/x-ndjson"], Ok(Form::Ndjson)),
            (&["application/x-ndjson, application/json;q=0.8"], Ok(Form::Ndjson)),
            (&["application/json, application/x-ndjson;q=0.1"], Ok(Form::Ndjson)),
            (&["application/json", "Application/X-NDJSON"], Ok(Form::Ndjson)),
            (&["application/json, application/x-ndjson;q=0"], Ok(Form::Json)),
            (&["text/html"], Err(400)),
            (&["application/x-ndjsonx"], Err(400)),
            (&[""], Err(400)),
        ] {
            let form = Form::of(&headers(header::ACCEPT, values)).map_err(|problem| problem.status.as_u16());
            assert_eq!(form, expected, "{values:?}");
        }
    }

    #[test]
    fn compression_is_for_those_who_ask() {
        for (values, expected) in [
            (&[][..], false),
            (&["gzip, deflate, br"], true),
            (&["br", "gzip;q=0.2"], true),
            (&["identity"], false),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.0, br"], false),
        ] {
            assert_eq!(takes_gzip(&headers(header::ACCEPT_ENCODING, values)), expected, "{values:?}");
        }
    }

    #[test]
    fn a_caller_that_accepts_something_else_is_told_apart() {
        let ipns = "application/vnd.ipfs.ipns-record";
        for (values, expected) in
            [(&[][..], true), (&["*/*"], true), (&[ipns], true), (&["application/json"], false), (&["text/*"], false)]
        {
            let values: Vec<&'static str> = values.to_vec();
            assert_eq!(accepts(&headers(header::ACCEPT, &values), ipns), expected, "{values:?}");
        }
    }
}
