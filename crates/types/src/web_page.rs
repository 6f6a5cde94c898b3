//! Which requests a web page of somebody else sent: decided from what browsers say in three headers.
//!
//! A browser on the machine of a node reaches its loopback addresses, and lets every page send requests there. Pages
//! name themselves in `Origin` and `Sec-Fetch-Site`; one that had its own name resolved to the node's address (DNS
//! rebinding) is betrayed by `Host`. Programs other than browsers send neither of the first two, and a name they know
//! the node by in the third.

use std::net::IpAddr;

/// Names under which a node on loopback is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNames(Vec<String>);

/// The headers that tell, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageHeaders<'a> {
    /// `Host`, or the authority of the target.
    pub host: Option<&'a [u8]>,
    /// `Origin`.
    pub origin: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a [u8]>,
}

impl OwnNames {
    /// These names, beside `localhost` and every address of loopback.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        OwnNames(names.into_iter().collect())
    }

    /// Why a request is not taken, if a page of somebody else may have sent it.
    pub fn refuse(&self, headers: PageHeaders<'_>) -> Option<&'static str> {
        // Before HTTP/1.1 there was no `Host`, and no browser of today is without.
        if headers.host.is_some_and(|host| !self.covers(host)) {
            return Some("Host is not a name of this node; reach it as localhost or by its address");
        }
        if headers.fetch_site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
            return Some("requests of web pages are not taken, and Sec-Fetch-Site names one");
        }
        let is_own = |origin: &[u8]| headers.host.is_some_and(|host| authority_of(origin) == Some(host));
        match headers.origin {
            Some(origin) if !is_own(origin) => Some("requests of web pages are not taken, and Origin names one"),
            _ => None,
        }
    }

    fn covers(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let name = without_port(host);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_loopback = address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
        let is_named = |own: &String| own.eq_ignore_ascii_case(name);
        is_loopback || name.eq_ignore_ascii_case("localhost") || self.0.iter().any(is_named)
    }
}

/// The host and port of an origin, `scheme://host:port`; `null` has none.
fn authority_of(origin: &[u8]) -> Option<&[u8]> {
    let scheme_end = origin.windows(3).position(|window| window == b"://")?;
    Some(&origin[scheme_end + 3..])
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(host: &str, origin: Option<&str>, fetch_site: Option<&str>) -> bool {
        let own = OwnNames::new(["queues.example".to_owned()]);
        let headers = PageHeaders {
            host: (!host.is_empty()).then_some(host.as_bytes()),
            origin: origin.map(str::as_bytes),
            fetch_site: fetch_site.map(str::as_bytes),
        };
        own.refuse(headers).is_none()
    }

    #[test]
    fn the_node_is_reached_by_its_own_names_alone() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:8080", true),
            ("127.3.2.1", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]", true),
            ("queues.example:1", true),
            ("", true),
            ("evil.example", false),
            ("localhost.evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("192.0.2.1:8080", false),
            ("[2001:db8::1]:80", false),
            ("evil.example:localhost", false),
            (":8080", false),
        ] {
            assert_eq!(is_taken(host, None, None), expected, "{host}");
        }
        assert!(OwnNames::default().refuse(PageHeaders { host: Some(b"\xff"), ..PageHeaders::default() }).is_some());
    }

    #[test]
    fn only_the_nodes_own_pages_are_heard() {
        for (origin, fetch_site, expected) in [
            (None, None, true),
            (None, Some("none"), true),
            (None, Some("same-origin"), true),
            (Some("http://localhost:8080"), Some("same-origin"), true),
            (Some("http://localhost:8080"), None, true),
            (None, Some("cross-site"), false),
            (None, Some("same-site"), false),
            (None, Some("anything"), false),
            (Some("https://evil.example"), None, false),
            (Some("http://localhost:3000"), None, false),
            (Some("http://localhost"), None, false),
            (Some("null"), None, false),
            (Some(""), None, false),
            (Some("https://evil.example"), Some("same-origin"), false),
        ] {
            assert_eq!(is_taken("localhost:8080", origin, fetch_site), expected, "{origin:?} {fetch_site:?}");
        }
        assert!(!is_taken("", Some("http://localhost:8080"), None));
    }
}
