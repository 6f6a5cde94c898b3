//! Tests of whole sessions: each scenario for each carrier, in memory or over sockets, and sides that do not keep the
//! rules. What only QUIC has is tried in `quic/tests`.

/// Makes a test of each scenario for each carrier: `tcp::NAME` and `quic::NAME`. A scenario that is in no list is dead
/// code, which the compiler names.
macro_rules! for_each_carrier {
    ($(#[$test:meta] { $($scenario:ident),+ $(,)? })+) => {
        mod tcp {
            $($(
                #[$test]
                async fn $scenario() {
                    super::$scenario(crate::Carrier::Tcp).await;
                }
            )+)+
        }
        mod quic {
            $($(
                #[$test]
                async fn $scenario() {
                    super::$scenario(crate::Carrier::Quic).await;
                }
            )+)+
        }
    };
}

mod closing;
mod deadlines;
pub(crate) mod harness;
mod hello;
mod identity;
mod pressure;
mod talking;
mod tcp;
