//! The first line is on the wire before the second provider is known.

use std::collections::HashSet;
use std::io::Write as _;

use flate2::write::GzDecoder;
use futures_util::FutureExt as _;
use ron_store::{ContentId, PublicKey};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::index::node::{PEER, SERVICES};
use crate::index::routers::{Router, upstreams};
use crate::member::Member;

/// A body as it comes over a socket, read as far as it has come.
struct Wire {
    stream: BufReader<TcpStream>,
    /// Unpacks what comes, if it is packed.
    unpacked: Option<GzDecoder<Vec<u8>>>,
    plain: Vec<u8>,
}

impl Wire {
    /// Asks for lines; returns once the head of the answer has come.
    async fn ask(node: &Member, path: &str, is_gzip: bool) -> Wire {
        let mut stream = BufReader::new(TcpStream::connect(node.api()).await.expect("the node listens"));
        let coding = if is_gzip { "gzip" } else { "identity" };
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\naccept: application/x-ndjson\r\naccept-encoding: {coding}\r\n\r\n",
            node.api()
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).await.expect("a head"), 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ") && head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(head.contains("content-encoding: gzip"), is_gzip, "{head}");
        Wire { stream, unpacked: is_gzip.then(|| GzDecoder::new(Vec::new())), plain: Vec::new() }
    }

    /// Reads one chunk; false at the end.
    async fn read(&mut self) -> bool {
        let mut size = String::new();
        self.stream.read_line(&mut size).await.expect("a chunk");
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).await.expect("a whole chunk");
        chunk.truncate(size);
        match &mut self.unpacked {
            Some(decoder) => decoder.write_all(&chunk).and_then(|()| decoder.flush()).expect("gzip"),
            None => self.plain.extend(chunk),
        }
        size > 0
    }

    /// Whole lines that have come.
    fn lines(&self) -> Vec<String> {
        let bytes = self.unpacked.as_ref().map_or(&self.plain, GzDecoder::get_ref);
        let text = String::from_utf8(bytes.clone()).expect("text");
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn the_first_line_is_on_the_wire_before_the_second_provider_is_known() {
    let other = PublicKey([7; 32]).peer_id().to_string();
    let (release, released) = watch::channel(HashSet::<String>::new());
    let prompt = Router::start(|_| std::future::ready(Some(PEER.to_owned())).boxed()).await;
    let late = other.clone();
    let held = Router::start(move |path| {
        let (mut released, late) = (released.clone(), late.clone());
        async move {
            let is_ours = |paths: &HashSet<String>| paths.contains(&path);
            released.wait_for(is_ours).await.ok().map(|_| late)
        }
        .boxed()
    })
    .await;
    let mut node = Member::running(SERVICES);
    let routers = [prompt, held];
    node.configure(&upstreams(&routers));
    node.start().await;
    let mut ids = (0_u64..).map(|number| ContentId::of_bytes(&number.to_le_bytes()));
    for (route, is_gzip) in
        [("/providers", false), ("/providers", true), ("/routing/v1/providers", false), ("/routing/v1/providers", true)]
    {
        // On a busy machine the node may have given the second router up before it was released; then another id is
        // asked for.
        let mut attempts = 0..20;
        loop {
            assert!(attempts.next().is_some(), "{route}, gzip {is_gzip}: the second line never came");
            let id = ids.next().expect("endless").cid_text();
            let mut wire = Wire::ask(&node, &format!("{route}/{id}"), is_gzip).await;
            while wire.lines().is_empty() {
                assert!(wire.read().await, "{route}, gzip {is_gzip}: it ended without a line");
            }
            // Nobody but the test can let the second router speak, and it has not yet.
            let lines = wire.lines();
            assert!(lines.len() == 1 && lines[0].contains(PEER), "{lines:?}");
            release.send_modify(|paths| paths.extend([format!("/routing/v1/providers/{id}")]));
            while wire.read().await {}
            let lines = wire.lines();
            assert!(lines.len() <= 2, "{lines:?}");
            if lines.get(1).is_some_and(|line| line.contains(&other)) {
                break;
            }
        }
    }
}
