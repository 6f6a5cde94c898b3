//! Which providers and addresses a caller of the routing API wants to see (IPIP-484).

use http::StatusCode;
use ron_store::Multiaddr;

use crate::problem::Problem;

/// Words of one filter.
const WORDS_MAX: usize = 64;
/// Word that stands for providers of which nothing is known.
const UNKNOWN: &str = "unknown";

/// Protocol of addresses that stand for those in a record of the DNS.
const DNSADDR: &str = "dnsaddr";

/// The filters of one request; nothing in a list means that nothing is filtered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters {
    /// Protocols of which an address must have one.
    with: Vec<String>,
    /// Protocols of which an address must have none.
    without: Vec<String>,
    /// Whether providers without addresses are shown though addresses are filtered.
    takes_unknown_addrs: bool,
    /// Transfer protocols of which a provider must have one.
    protocols: Vec<String>,
}

impl Filters {
    /// Reads the query string; what it says beside the filters is not ours.
    pub(super) fn read(pairs: &[(String, String)]) -> Result<Self, Problem> {
        let words = |name: &str| {
            let value = pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
            let words = value.split(',').map(|word| word.trim().to_ascii_lowercase()).filter(|word| !word.is_empty());
            let words: Vec<String> = words.take(WORDS_MAX + 1).collect();
            match words.len() > WORDS_MAX {
                true => Err(Problem::schema(StatusCode::BAD_REQUEST, format!("{name}: at most {WORDS_MAX} words"))),
                false => Ok(words),
            }
        };
        let mut filters = Filters { protocols: words("filter-protocols")?, ..Filters::default() };
        for word in words("filter-addrs")? {
            match word.strip_prefix('!') {
                Some(unwanted) => filters.without.push(unwanted.to_owned()),
                None => {
                    filters.takes_unknown_addrs |= word == UNKNOWN;
                    filters.with.push(word);
                }
            }
        }
        Ok(filters)
    }

    /// The addresses of a provider that are to be shown; none if the whole provider is not.
    pub(super) fn apply(&self, addrs: Vec<Multiaddr>, protocols: &[String]) -> Option<Vec<Multiaddr>> {
        if !self.wants_protocols(protocols) {
            return None;
        }
        if self.with.is_empty() && self.without.is_empty() {
            return Some(addrs);
        }
        if addrs.is_empty() {
            return self.takes_unknown_addrs.then_some(addrs);
        }
        let wanted: Vec<Multiaddr> = addrs.into_iter().filter(|addr| self.wants_addr(addr)).collect();
        (!wanted.is_empty()).then_some(wanted)
    }

    fn wants_protocols(&self, protocols: &[String]) -> bool {
        let is_named = |wanted: &String| protocols.iter().any(|protocol| protocol.eq_ignore_ascii_case(wanted));
        let is_wanted = |wanted: &String| is_named(wanted) || (wanted == UNKNOWN && protocols.is_empty());
        self.protocols.is_empty() || self.protocols.iter().any(is_wanted)
    }

    fn wants_addr(&self, addr: &Multiaddr) -> bool {
        let has = |names: &[String]| addr.protocol_stack().any(|protocol| names.iter().any(|name| name == protocol));
        // What stands behind such a name is in the DNS, which is not asked: it is unknown here, and said to be.
        let is_unknown = || self.takes_unknown_addrs && addr.protocol_stack().any(|protocol| protocol == DNSADDR);
        !has(&self.without) && (self.with.is_empty() || has(&self.with) || is_unknown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "/ip4/10.0.0.1/tcp/4001";
    const TCP6: &str = "/ip6/2001:db8::1/tcp/4001";
    const QUIC: &str = "/ip4/10.0.0.1/udp/4001/quic-v1";
    const TRANSPORT: &str = "/ip4/10.0.0.1/udp/4001/quic-v1/webtransport";

    fn filters(addrs: &str, protocols: &str) -> Filters {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Filters::read(&[pair("filter-addrs", addrs), pair("filter-protocols", protocols), pair("other", "x")])
            .unwrap_or_else(|problem| panic!("{}", problem.detail))
    }

    fn shown(filters: &Filters, addrs: &[&str], protocols: &[&str]) -> Option<Vec<String>> {
        let addrs = addrs.iter().map(|addr| addr.parse().expect("a multiaddr")).collect();
        let protocols: Vec<String> = protocols.iter().map(|name| (*name).to_owned()).collect();
        let shown = filters.apply(addrs, &protocols)?;
        Some(shown.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_are_chosen_by_their_protocols() {
        let all = [TCP, TCP6, QUIC, TRANSPORT];
        for (words, expected) in [
            ("", Some(&all[..])),
            ("tcp", Some(&[TCP, TCP6])),
            ("TCP,!ip6", Some(&[TCP])),
            ("!ip6", Some(&[TCP, QUIC, TRANSPORT])),
            ("webtransport", Some(&[TRANSPORT])),
            ("quic-v1,!webtransport", Some(&[QUIC])),
            // Protocols are compared, not parts of words.
            ("quic", None),
            ("ip", None),
            ("unknown", None),
            ("unknown,tcp", Some(&[TCP, TCP6])),
            (" , ,", Some(&all)),
        ] {
            let expected = expected.map(|addrs| addrs.iter().map(|addr| (*addr).to_owned()).collect::<Vec<_>>());
            assert_eq!(shown(&filters(words, ""), &all, &[]), expected, "{words}");
        }
    }

    #[test]
    fn a_name_of_the_dns_is_itself_and_unknown_and_nothing_else() {
        const NAMED: &str = "/dnsaddr/bootstrap.libp2p.io";
        for (words, expected) in [
            ("", true),
            ("dnsaddr", true),
            ("unknown", true),
            ("tcp,unknown", true),
            ("tcp", false),
            ("!ip6", true),
            ("!dnsaddr", false),
            ("unknown,!dnsaddr", false),
        ] {
            assert_eq!(shown(&filters(words, ""), &[NAMED], &[]).is_some(), expected, "{words}");
        }
    }

    #[test]
    fn a_provider_without_addresses_is_shown_to_those_who_ask_for_the_unknown() {
        for (words, expected) in
            [("", true), ("unknown", true), ("unknown,!tcp", true), ("tcp", false), ("!tcp", false)]
        {
            assert_eq!(shown(&filters(words, ""), &[], &[]).is_some(), expected, "{words}");
        }
    }

    #[test]
    fn providers_are_chosen_by_their_transfer_protocols() {
        for (words, protocols, expected) in [
            ("", &["transport-bitswap"][..], true),
            ("transport-bitswap", &["transport-bitswap"], true),
            ("Transport-Bitswap", &["transport-bitswap"], true),
            ("transport-ipfs-gateway-http", &["transport-bitswap"], false),
            ("unknown", &["transport-bitswap"], false),
            ("unknown", &[], true),
            ("transport-bitswap", &[], false),
            ("transport-bitswap,unknown", &[], true),
        ] {
            assert_eq!(shown(&filters("", words), &[TCP], protocols).is_some(), expected, "{words} {protocols:?}");
        }
        // Both filters must let it pass.
        let both = filters("tcp", "transport-bitswap");
        assert!(shown(&both, &[TCP], &["transport-bitswap"]).is_some());
        assert!(shown(&both, &[QUIC], &["transport-bitswap"]).is_none());
        assert!(shown(&both, &[TCP], &["other"]).is_none());
    }

    #[test]
    fn a_filter_has_an_end() {
        let words = |count: usize| vec![("filter-addrs".to_owned(), vec!["tcp"; count].join(","))];
        assert!(Filters::read(&words(WORDS_MAX)).is_ok());
        assert!(Filters::read(&words(WORDS_MAX + 1)).is_err());
    }
}
