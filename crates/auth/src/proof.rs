//! Proof that a node knows an operator token, without showing it: asked for before the token is sent to an address.

use zeroize::Zeroizing;

/// Keeps this use of the token apart from every other.
const CONTEXT: &str = "macronode 2026 proof that a node knows its operator token";
/// Hex digits of a nonce: 32 bytes that the asker draws anew for each question.
const NONCE_DIGITS: usize = 64;

/// Answer of a node with this token to the nonce; none if that is not 64 hex digits. Nothing about the token can be
/// learned from it, because a token is 256 random bits.
pub fn prove(operator_token: &str, nonce: &str) -> Option<String> {
    digest(operator_token, nonce).map(|digest| digest.to_hex().to_string())
}

/// Whether the answer to the nonce came from somebody who knows the token. That is the node, or somebody who asked it:
/// a proof keeps a token from strangers, not from a peer between the asker and the node, which is what TLS is for.
pub fn is_proof(operator_token: &str, nonce: &str, answer: &str) -> bool {
    let answer = blake3::Hash::from_hex(answer.trim()).ok();
    // Compared in constant time by its type.
    answer.is_some() && digest(operator_token, nonce) == answer
}

fn digest(operator_token: &str, nonce: &str) -> Option<blake3::Hash> {
    let is_nonce = nonce.len() == NONCE_DIGITS && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = Zeroizing::new(blake3::derive_key(CONTEXT, operator_token.trim().as_bytes()));
    is_nonce.then(|| blake3::keyed_hash(&key, nonce.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_token_answers_a_nonce() {
        let (nonce, other) = ("0".repeat(NONCE_DIGITS), "1".repeat(NONCE_DIGITS));
        let answer = prove("secret\n", &nonce).expect("a nonce");
        assert!(is_proof("secret", &nonce, &answer) && !answer.contains("secret"));
        assert!(!is_proof("secret", &other, &answer), "an answer is good for one nonce");
        assert!(!is_proof("another", &nonce, &answer));
        for bad in ["", "00", &"g".repeat(NONCE_DIGITS)] {
            assert_eq!(prove("secret", bad), None, "{bad:?}");
            assert!(!is_proof("secret", &nonce, bad) && !is_proof("secret", bad, ""), "{bad:?}");
        }
    }
}
