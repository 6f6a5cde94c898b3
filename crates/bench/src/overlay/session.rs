//! Sessions in this process: bytes over one, and how fast they begin.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame, Hello};
use ron_kernel::clock;
use ron_transport::{
    Heard, NodeKey, Outbox, PeerAddress, PostQuantum, Session, SessionLimits, Tls, accept, dial_as_client,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const PAYLOAD_BYTES: usize = 64 * 1024;

struct Side {
    tls: Tls,
    listener: TcpListener,
    address: PeerAddress,
    limits: SessionLimits,
}

impl Side {
    async fn new(post_quantum: PostQuantum) -> anyhow::Result<Side> {
        let tls = Tls::new(&NodeKey::generate()?, post_quantum)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = PeerAddress::new(tls.node_id(), &listener.local_addr()?.to_string())?;
        Ok(Side { tls, listener, address, limits: SessionLimits::default() })
    }

    async fn pair(&self) -> anyhow::Result<(Session, Session)> {
        let accepting = async {
            let (tcp, _) = self.listener.accept().await?;
            anyhow::Ok(accept(tcp, &self.tls, hello(), &self.limits).await?)
        };
        let dialling = dial_as_client(&self.address, self.tls.post_quantum(), hello(), &self.limits);
        let (dialled, accepted) = tokio::join!(dialling, accepting);
        Ok((dialled?, accepted?))
    }
}

fn hello() -> Hello {
    Hello::new(oap::FRAME_BYTES_MAX as u32, 64)
}

/// Bytes a second of frames with 64 KiB over one session, header included.
pub async fn bytes_per_second(time: Duration) -> anyhow::Result<f64> {
    let (from, to) = Side::new(PostQuantum::Hybrid).await?.pair().await?;
    let Session { reader: _kept, writer, outbox, .. } = from;
    let Session { mut reader, writer: _kept_too, .. } = to;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(writer.run().await) });
    tasks.spawn(push_until_closed(outbox));
    let (mut heard, mut bytes) = (Vec::new(), 0);
    let warm = clock::now() + time / 4;
    let mut began = clock::now();
    loop {
        reader.next_batch(&mut heard).await?;
        let now = clock::now();
        if now < warm {
            heard.clear();
            began = now;
            continue;
        }
        let len = |heard| if let Heard::Frame(frame) = heard { Frame::encoded_len(&frame) } else { 0 };
        bytes += heard.drain(..).map(len).sum::<usize>();
        if now - began >= time {
            return Ok(bytes as f64 / (now - began).as_secs_f64());
        }
    }
}

async fn push_until_closed(outbox: Outbox) {
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    loop {
        let mut frames: VecDeque<Frame> =
            (0..16).map(|corr| Frame::event(AppId::GOSSIP, corr, payload.clone())).collect();
        if outbox.send_all(1, &mut frames).await.is_err() {
            return;
        }
    }
}

/// Sessions a second that begin one after the other, both sides of each in this process.
pub async fn handshakes_per_second(time: Duration, is_hybrid: bool) -> anyhow::Result<f64> {
    let side = Side::new(if is_hybrid { PostQuantum::Hybrid } else { PostQuantum::Off }).await?;
    let began = clock::now();
    let mut count = 0;
    while began.elapsed() < time {
        side.pair().await?;
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sessions_begin_and_carry_bytes() {
        let time = Duration::from_millis(50);
        assert!(bytes_per_second(time).await.expect("a session") > 0.0);
        for is_hybrid in [true, false] {
            assert!(handshakes_per_second(time, is_hybrid).await.expect("sessions") > 0.0);
        }
    }
}
