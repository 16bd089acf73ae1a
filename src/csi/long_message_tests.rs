//! Errors with long messages: they come as one HTTP/2 header, and a client says how long a header it takes.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

use super::dial::connect;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::node_server::{Node, NodeServer};
use super::*;

/// Does not find the volume, with as many words as the volume's id says.
struct Wordy;

#[tonic::async_trait]
impl Node for Wordy {
    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Result<Response<wire::NodeUnstageVolumeResponse>, Status> {
        Err(Status::not_found("m".repeat(request.get_ref().volume_id.parse().unwrap())))
    }
}

fn socket() -> (tempfile::TempDir, PathBuf, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (dir, path, listener)
}

async fn unstage(path: &Path, volume_id: &str) -> CallError {
    let plugin = connect(path, Deadlines::default()).await.unwrap();
    let request = wire::NodeUnstageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: "/staging".to_owned(),
    };
    plugin.node_unstage_volume(FollowUp { request, earlier_flags: vec![] }).await.unwrap_err()
}

#[tokio::test]
async fn a_long_message_keeps_its_code() {
    let (_dir, path, listener) = socket();
    let server = tonic::transport::Server::builder().add_service(NodeServer::new(Wordy));
    let task = tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    for bytes in ["1000", "20000", "900000"] {
        let error = unstage(&path, bytes).await;
        assert_eq!((error.origin, error.code), (Origin::Driver, Code::NotFound), "{bytes}: {error}");
        assert!(error.message.starts_with("mmm") && error.message.len() <= 1024, "{bytes}: {error}");
    }
    // Longer than what is read at all: nobody knows what the driver said.
    for bytes in ["2000000", "9000000"] {
        let error = unstage(&path, bytes).await;
        assert_eq!((error.origin, error.meaning()), (Origin::Connection, Meaning::StillRunning), "{error}");
    }
    task.abort();
}

const SETTINGS: u8 = 4;
const RESET: u8 = 3;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
/// `:status: 200` in HPACK.
const STATUS_200: u8 = 0x88;
const END_HEADERS: u8 = 4;
const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];

fn frame(kind: u8, flags: u8, stream: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags], stream, payload].concat()
}

/// Reads the request of the first call. The stream that it came on.
async fn request(connection: &mut UnixStream) -> [u8; 4] {
    connection.write_all(&frame(SETTINGS, 0, &[0; 4], &[])).await.unwrap();
    connection.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await.unwrap();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, _, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        connection.read_exact(&mut vec![0; length.try_into().unwrap()]).await.unwrap();
        if kind == DATA {
            return stream;
        }
    }
}

/// That is how gRPC-Go ends a call whose message is longer than the client takes.
#[tokio::test]
async fn a_stream_that_is_reset_leaves_the_outcome_unknown() {
    for after_headers in [false, true] {
        let (_dir, path, listener) = socket();
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let stream = request(&mut connection).await;
            if after_headers {
                let headers = frame(HEADERS, END_HEADERS, &stream, &[STATUS_200]);
                connection.write_all(&headers).await.unwrap();
            }
            connection.write_all(&frame(RESET, 0, &stream, &INTERNAL_ERROR)).await.unwrap();
            connection
        });
        let error = unstage(&path, "vol").await;
        let seen = (error.origin, error.meaning());
        assert_eq!(seen, (Origin::Connection, Meaning::StillRunning), "{after_headers}: {error}");
        server.await.unwrap();
    }
}
