//! A kubelet that runs nothing and answers as it is told, behind what looks like an API server.

use futures::SinkExt as _;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request as Asked, Response};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::*;
use crate::k8s::scripted_tests::{Answer, Scripted};

/// Streams and their numbers, as kubelet has them.
pub const OUT: u8 = 1;
pub const ERROR: u8 = 2;
pub const STATUS: u8 = 3;

/// The status of a command that went well.
pub const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

/// Serves one command, which says this, and returns what was asked for when it is over.
pub async fn kubelet(says: Vec<(u8, String)>) -> (Client, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut uri = String::new();
        #[allow(clippy::result_large_err)]
        let agree = |asked: &Asked, mut answer: Response| -> Result<Response, ErrorResponse> {
            uri = asked.uri().to_string();
            let protocol = "v5.channel.k8s.io".parse().unwrap();
            answer.headers_mut().insert("sec-websocket-protocol", protocol);
            Ok(answer)
        };
        let mut socket = accept_hdr_async(stream, agree).await.unwrap();
        for (number, text) in says {
            let message = [&[number], text.as_bytes()].concat();
            // Who has heard enough has gone.
            if socket.send(Message::Binary(Bytes::from(message))).await.is_err() {
                return uri;
            }
        }
        let _ = socket.close(None).await;
        uri
    });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    (Client::try_from(config).unwrap(), served)
}

async fn ran(says: Vec<(u8, &str)>, limit: u64) -> (Result<String, ExecError>, String) {
    let says = says.into_iter().map(|(number, text)| (number, text.to_owned())).collect();
    let (client, served) = kubelet(says).await;
    let pods = Api::<Pod>::namespaced(client, "moor");
    let words = vec!["moor".to_owned(), "trace".to_owned(), "a b".to_owned()];
    let done = exec(&pods, Command { pod: "p", container: "agent", words, limit }).await;
    (done.map(|printed| String::from_utf8(printed).unwrap()), served.await.unwrap())
}

#[tokio::test]
async fn what_a_command_prints_is_returned() {
    let (done, uri) = ran(vec![(OUT, "one "), (ERROR, "noise"), (OUT, "two"), (STATUS, SUCCESS)], 100).await;
    assert_eq!(done.unwrap(), "one two");
    assert!(uri.starts_with("/api/v1/namespaces/moor/pods/p/exec?"), "{uri}");
    for part in ["command=moor&command=trace&command=a+b", "container=agent"] {
        assert!(uri.contains(part), "{uri}");
    }
}

#[tokio::test]
async fn what_fails_says_why() {
    let failure = r#"{"status":"Failure","reason":"NonZeroExitCode","message":"exit code 2"}"#;
    let (done, _) = ran(vec![(ERROR, "moor: no\n"), (STATUS, failure)], 100).await;
    assert_eq!(done.unwrap_err().to_string(), "moor: no");
    let (done, _) = ran(vec![(STATUS, failure)], 100).await;
    assert_eq!(done.unwrap_err().to_string(), "exit code 2");
    let (done, _) = ran(vec![(OUT, "half")], 100).await;
    assert!(matches!(done, Err(ExecError::Lost)), "{done:?}");
    let (done, _) = ran(vec![(OUT, "four"), (STATUS, SUCCESS)], 3).await;
    assert!(matches!(done, Err(ExecError::TooLong(3))), "{done:?}");
}

#[tokio::test]
async fn who_may_not_is_told_what_was_refused() {
    let (server, client) = Scripted::start(vec![Answer::Error(403, "Forbidden")]).await;
    let pods = Api::<Pod>::namespaced(client, "moor");
    let command = Command { pod: "p", container: "agent", words: vec!["moor".into()], limit: 1 };
    let refused = exec(&pods, command).await.unwrap_err();
    assert!(matches!(refused, ExecError::Api(ApiError::Forbidden { .. })), "{refused}");
    assert!(refused.to_string().starts_with("create Pod/exec moor/p: forbidden"), "{refused}");
    assert_eq!(server.asked()[0].method, "GET");
}
