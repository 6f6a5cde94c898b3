//! What an open subscription does between two events, over whichever protocol: waits, looks at its token again, ends.

use std::sync::Arc;
use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::clock;
use ron_kernel::shutdown::Stopping;
use ron_transport::NodeId;
use ron_types::Error;
use svc_overlay::capabilities::SUBSCRIBE;
use svc_overlay::words::Item;
use svc_overlay::{LaneName, Subscription};
use tokio::sync::watch;
use tokio::time::Instant;

use super::App;
use crate::admission::Waiting;
use crate::auth::Bearer;
use crate::call::Call;

/// Pause between two signs of life, so that both sides notice a connection that is gone.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(15);
/// Pause between two checks of the token, which may expire or be revoked while the subscription is open.
pub(super) const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// Origins that one subscription may name a number of: a query string is short.
const ORIGINS_MAX: usize = 64;

/// The query string of a subscription, read and checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Numbers to begin with, by origin.
    pub from: Vec<(NodeId, u64)>,
    /// Whether publications of this node itself are heard.
    pub own: bool,
}

impl Asked {
    pub(super) fn read(pairs: Vec<(String, String)>) -> Result<Self, Error> {
        let mut asked = Asked { from: Vec::new(), own: true };
        for (name, value) in pairs {
            match (name.as_str(), value.as_str()) {
                ("from", value) => asked.add(value)?,
                ("own", "true") => asked.own = true,
                ("own", "false") => asked.own = false,
                ("own", _) => return Err(Error::schema("own: true or false is expected")),
                _ => return Err(Error::schema("the query may have from and own")),
            }
        }
        Ok(asked)
    }

    fn add(&mut self, value: &str) -> Result<(), Error> {
        let read = |(origin, seq): (&str, &str)| {
            let seq = seq.bytes().all(|byte| byte.is_ascii_digit()).then(|| seq.parse().ok())?;
            Some((origin.parse::<NodeId>().ok()?, seq?))
        };
        let (origin, seq) = value.split_once(':').and_then(read).ok_or_else(|| {
            Error::schema("from: ORIGIN:SEQ is expected, the id of a node (64 lower-case hex digits) and a number")
        })?;
        if self.from.iter().any(|(known, _)| *known == origin) {
            return Err(Error::schema("from: each origin may be named once"));
        }
        if self.from.len() == ORIGINS_MAX {
            return Err(Error::schema(format!("from: at most {ORIGINS_MAX} origins may be named")));
        }
        self.from.push((origin, seq));
        Ok(())
    }
}

/// Reason why the node ends a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedEnd {
    /// The node is draining.
    Draining,
    /// The token expired or was revoked.
    Revoked,
    /// The lane's engine was restarted, and begins without subscribers: another subscription is heard.
    Restarted,
}

impl FeedEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            FeedEnd::Draining => "draining",
            FeedEnd::Revoked => "revoked",
            FeedEnd::Restarted => "restarted",
        }
    }
}

/// What an open subscription has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedStep {
    /// Hand this on.
    Item(Item),
    /// Show that it is alive.
    Beat,
    /// Say why, and end.
    End(FeedEnd),
}

/// An open subscription with what it needs to know when to end.
pub(super) struct Feed {
    pub app: Arc<App>,
    pub bearer: Bearer,
    pub lane: LaneName,
    subscription: Subscription,
    stopping: watch::Receiver<Stopping>,
    beat: Instant,
    recheck: Instant,
    /// Bounds the subscriptions open at once, and those of each caller.
    _waiting: Waiting,
}

impl Feed {
    /// Subscribes for a bearer whose right was checked.
    pub(super) async fn open(
        app: Arc<App>,
        call: &Call,
        (bearer, subject): (Bearer, &Subject),
        lane: LaneName,
        asked: Asked,
    ) -> Result<Self, Error> {
        let waiting = call.wait()?;
        let subscription = app.overlay.subscribe(subject, lane, asked.from, asked.own).await?;
        let (stopping, now) = (app.kernel.watch_stopping(), clock::now());
        let (beat, recheck) = (now + BEAT_EVERY, now + RECHECK_EVERY);
        Ok(Feed { app, bearer, lane, subscription, stopping, beat, recheck, _waiting: waiting })
    }

    /// What is to be done next. Cancel-safe.
    pub(super) async fn next(&mut self) -> FeedStep {
        loop {
            let now = clock::now();
            if self.stopping.borrow().draining {
                return FeedStep::End(FeedEnd::Draining);
            }
            if now >= self.recheck {
                self.recheck = now + RECHECK_EVERY;
                if self.app.allow(&self.bearer, SUBSCRIBE, &self.lane).is_err() {
                    return FeedStep::End(FeedEnd::Revoked);
                }
            }
            if now >= self.beat {
                self.beat = now + BEAT_EVERY;
                return FeedStep::Beat;
            }
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| stopping.draining) => {}
                // In a drain this subscription ends before its engine does: the branch above is looked at first.
                item = self.subscription.next() => {
                    return item.map_or(FeedStep::End(FeedEnd::Restarted), FeedStep::Item);
                }
                () = tokio::time::sleep_until(self.beat.min(self.recheck)) => {}
            }
        }
    }

    /// The next item that is there already.
    pub(super) fn try_next(&mut self) -> Option<Item> {
        self.subscription.try_next()
    }

    /// Waits until the node drains.
    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.clone();
        async move {
            // An error means that the node is gone, which is the same.
            let _ = stopping.wait_for(|stopping| stopping.draining).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Result<Asked, Error> {
        Asked::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn the_query_is_read_strictly() {
        let (first, second) = ("0a".repeat(32), "0b".repeat(32));
        let read = asked(&[("from", &format!("{first}:3")), ("own", "false"), ("from", &format!("{second}:0"))]);
        let node = |byte| NodeId::from_bytes([byte; 32]);
        assert_eq!(read, Ok(Asked { from: vec![(node(10), 3), (node(11), 0)], own: false }));
        assert_eq!(asked(&[]), Ok(Asked { from: Vec::new(), own: true }));
        for wrong in [
            ("own", "no"),
            ("form", "x"),
            ("from", ""),
            ("from", &first),
            ("from", &format!("{first}:")),
            ("from", &format!("{first}:-1")),
            ("from", &format!("{first}:+1")),
            ("from", &format!("{first}:99999999999999999999")),
            ("from", &format!("{}:1", "0A".repeat(32))),
        ] {
            assert!(asked(&[wrong]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn origins_are_named_once_each_and_not_without_end() {
        let origin = |number: u8| format!("{}:1", format!("{number:02x}").repeat(32));
        let pairs: Vec<(String, String)> = (0..=64).map(|number| ("from".to_owned(), origin(number))).collect();
        assert!(Asked::read(pairs[..64].to_vec()).is_ok());
        assert!(Asked::read(pairs).is_err());
        assert!(asked(&[("from", &origin(1)), ("from", &origin(1))]).is_err());
    }
}
