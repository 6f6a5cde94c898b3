//! Proof that a node knows an operator token, without showing it: asked for before the token is sent to an address.

use std::net::SocketAddr;

use zeroize::Zeroizing;

/// Keeps this use of the token apart from every other.
const CONTEXT: &str = "macronode 2026 proof that a node knows its operator token";
/// Hex digits of a nonce: 32 bytes that the asker draws anew for each question.
const NONCE_DIGITS: usize = 64;

/// Answer of a node with this token to the nonce, asked at this address of its own; none if the nonce is not 64 hex
/// digits. Nothing about the token can be learned from it, because a token is 256 random bits.
pub fn prove(operator_token: &str, nonce: &str, at: SocketAddr) -> Option<String> {
    digest(operator_token, nonce, at).map(|digest| digest.to_hex().to_string())
}

/// Whether the answer to the nonce came from somebody who knows the token and was asked at this address. Whoever passes
/// the question on to the node gets a proof for the address where it reached the node, which is not where it was asked
/// itself. A peer on the way of the packets can still read what follows; against that there is TLS.
pub fn is_proof(operator_token: &str, nonce: &str, at: SocketAddr, answer: &str) -> bool {
    let answer = blake3::Hash::from_hex(answer.trim()).ok();
    // Compared in constant time by its type.
    answer.is_some() && digest(operator_token, nonce, at) == answer
}

fn digest(operator_token: &str, nonce: &str, at: SocketAddr) -> Option<blake3::Hash> {
    let is_nonce = nonce.len() == NONCE_DIGITS && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = Zeroizing::new(blake3::derive_key(CONTEXT, operator_token.trim().as_bytes()));
    // An IPv4 address is the same where a socket for both kinds accepted it.
    let at = SocketAddr::new(at.ip().to_canonical(), at.port());
    is_nonce.then(|| blake3::keyed_hash(&key, format!("{nonce} {at}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_token_answers_a_nonce() {
        let (nonce, other) = ("0".repeat(NONCE_DIGITS), "1".repeat(NONCE_DIGITS));
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let here = at("127.0.0.1:80");
        let answer = prove("secret\n", &nonce, here).expect("a nonce");
        assert!(is_proof("secret", &nonce, here, &answer) && !answer.contains("secret"));
        assert!(is_proof("secret", &nonce, at("[::ffff:127.0.0.1]:80"), &answer), "the same address");
        assert!(!is_proof("secret", &other, here, &answer), "an answer is good for one nonce");
        assert!(!is_proof("secret", &nonce, at("127.0.0.1:81"), &answer), "and for one address");
        assert!(!is_proof("another", &nonce, here, &answer));
        for bad in ["", "00", &"g".repeat(NONCE_DIGITS)] {
            assert_eq!(prove("secret", bad, here), None, "{bad:?}");
            assert!(!is_proof("secret", &nonce, here, bad) && !is_proof("secret", bad, here, ""), "{bad:?}");
        }
    }
}
