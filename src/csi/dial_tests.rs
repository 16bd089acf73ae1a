//! The end of a connection, against a server of which every frame is ours.

use std::future::poll_fn;

use h2::server::{self, Connection};
use prost::bytes::Bytes;
use tokio::net::UnixListener;

use super::super::error::Origin;
use super::*;

type Server = Connection<UnixStream, Bytes>;

async fn connected() -> (tempfile::TempDir, Server, Plugin, JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut dial = Dial::of(&path);
    let accepted = async { server::handshake(listener.accept().await.unwrap().0).await.unwrap() };
    let (server, connected) = tokio::join!(accepted, dial.connect(Deadlines::default()));
    let (plugin, ended) = connected.unwrap();
    (dir, server, plugin, tokio::spawn(ended))
}

/// As where kubelet's own directory is a long way down.
#[tokio::test]
async fn a_socket_is_reached_whose_path_is_longer_than_an_address() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a".repeat(100)).join("b".repeat(100));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("csi.sock");
    assert!(UnixListener::bind(&path).is_err(), "it is no address");
    let descriptor = open(&folder, OFlags::PATH, Mode::empty()).unwrap();
    let short = format!("/proc/self/fd/{}/csi.sock", descriptor.as_raw_fd());
    let listener = UnixListener::bind(short).unwrap();
    let mut dial = Dial::of(&path);
    let accepted = async { server::handshake(listener.accept().await.unwrap().0).await.unwrap() };
    let (_server, connected) = tokio::join!(accepted, dial.connect(Deadlines::default()));
    drop(connected.unwrap());
    drop(listener);
    let ended = dial.connect(Deadlines::default()).await.unwrap_err();
    assert!(ended.gone, "{ended}");
}

#[tokio::test]
async fn it_hangs_up_when_it_is_asked_to_go() {
    let (_dir, mut driver, _plugin, ended) = connected().await;
    driver.graceful_shutdown();
    // A server that ends in order is through only when its clients have hung up, in whatever moment that finds it.
    let _ = poll_fn(|context| driver.poll_closed(context)).await;
    ended.await.unwrap();
}

#[tokio::test]
async fn it_answers_pings_and_stays_until_the_process_ends() {
    let (_dir, mut driver, _plugin, ended) = connected().await;
    let mut pings = driver.ping_pong().unwrap();
    tokio::select! {
        answer = pings.ping(h2::Ping::opaque()) => drop(answer.unwrap()),
        call = driver.accept() => panic!("there should be no call and no end: {}", call.is_some()),
    }
    assert!(!ended.is_finished());
    drop((pings, driver));
    ended.await.unwrap();
}

#[tokio::test]
async fn it_ends_when_nobody_has_the_plugin_any_more() {
    let (_dir, mut driver, plugin, ended) = connected().await;
    drop(plugin);
    let _ = poll_fn(|context| driver.poll_closed(context)).await;
    ended.await.unwrap();
}

#[tokio::test]
async fn the_process_that_listens_is_known() {
    let (_dir, _driver, plugin, _ended) = connected().await;
    assert_eq!(plugin.process().map(|p| p.id()), i32::try_from(std::process::id()).ok());
}

/// As a path in a dead file system, which gives no answer until somebody unmounts it.
#[tokio::test]
async fn an_attempt_that_hangs_is_waited_for_again_and_no_second_one_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let deadlines = Deadlines { identity: std::time::Duration::from_millis(20), ..Deadlines::default() };
    let (answer, asked) = std::sync::mpsc::channel::<StdStream>();
    let mut dial = Dial::of(&path);
    dial.hanging = Some(spawn_blocking(move || asked.recv().map_err(io::Error::other)));
    for _ in 0..2 {
        let error = dial.connect(deadlines.clone()).await.unwrap_err();
        assert!(!error.gone && error.to_string().contains("not accepted within"), "{error}");
    }
    let (ours, _theirs) = StdStream::pair().unwrap();
    answer.send(ours).unwrap();
    dial.connect(Deadlines::default()).await.unwrap();
    assert!(dial.hanging.is_none());
}

/// Whoever reads it has nothing else to go by.
#[tokio::test]
async fn what_speaks_something_else_is_told() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".as_slice();
    for (bytes, words) in
        [([].as_slice(), ""), (http, "frame with invalid size"), (&[0xfe; 4096], "frame with invalid size")]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            while !is_asked(&heard) {
                connection.read_buf(&mut heard).await.unwrap();
            }
            let _ = connection.write_all(bytes).await;
        });
        let plugin = connect(&path, Deadlines::default()).await.unwrap();
        let error = plugin.get_plugin_info().await.unwrap_err();
        assert_eq!(error.origin, Origin::Connection);
        assert!(
            error.message.starts_with("the connection broke: ") && error.message.contains(words),
            "{error}"
        );
        server.await.unwrap();
    }
}

/// Whether a request has begun: after the preface of HTTP/2, with its 24 bytes, there is a frame of headers.
fn is_asked(heard: &[u8]) -> bool {
    let mut rest = heard.get(24..).unwrap_or_default();
    while let &[high, middle, low, kind, _, _, _, _, _, ..] = rest {
        if kind == 1 {
            return true;
        }
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}
