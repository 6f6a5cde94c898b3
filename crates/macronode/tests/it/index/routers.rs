//! Routers of other networks whose answers the test decides on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Says who provides the content of a path; none for a router that never answers.
type Answers = Arc<dyn Fn(String) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// A router that runs until it is dropped.
pub struct Router {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Router {
    /// Takes every question and never says a word.
    pub async fn silent() -> Router {
        Router::start(|_| std::future::ready(None).boxed()).await
    }

    /// Answers questions about providers with one peer, when the future says so.
    pub async fn start(
        answers: impl Fn(String) -> BoxFuture<'static, Option<String>> + Send + Sync + 'static,
    ) -> Router {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, asked) = (listener.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
        let (answers, counted): (Answers, _) = (Arc::new(answers), Arc::clone(&asked));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(answer(stream, Arc::clone(&answers), Arc::clone(&counted)));
            }
        });
        Router { address, asked, _serving: serving }
    }

    /// Questions that came to it so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The setting by which a node asks these routers.
pub fn upstreams(routers: &[Router]) -> String {
    let urls: Vec<String> = routers.iter().map(|router| format!("\"http://{}\"", router.address)).collect();
    format!("[index]\nupstreams = [{}]\n", urls.join(", "))
}

async fn answer(stream: TcpStream, answers: Answers, asked: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        if stream.read_line(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let path = request.split(' ').nth(1).expect("a path").to_owned();
    let Some(peer) = answers(path).await else {
        // Until the node has had enough and closes.
        let _ = stream.read_line(&mut request).await;
        return;
    };
    let body = format!("{{\"Providers\":[{{\"Schema\":\"peer\",\"ID\":\"{peer}\"}}]}}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // A node that no longer waits has closed.
    let _ = stream.write_all(answer.as_bytes()).await;
}
