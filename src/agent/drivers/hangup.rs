//! A connection by which the end of a driver's process is noticed at once.
//!
//! The kernel closes it when the process ends, however it ends. It carries no call, only what HTTP/2 asks of a client, so
//! that a driver that is told to end in order (GOAWAY) does not wait for us to hang up.

use std::path::Path;

use tokio::net::UnixStream;

/// Returns when the process behind the socket has ended or is about to. A server that closes an idle connection only
/// causes a new fingerprint.
pub(crate) async fn until_lost(path: &Path) {
    let Ok(stream) = UnixStream::connect(path).await else { return };
    let Ok((calls, connection)) = h2::client::handshake(stream).await else { return };
    // Whatever the end of it, the connection is gone.
    let _ = connection.await;
    // A connection over which nobody can call any more ends by itself, so this one is kept until then.
    drop(calls);
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use h2::server::{self, Connection};
    use tokio::net::UnixListener;

    use super::*;

    async fn connected()
    -> (tempfile::TempDir, Connection<UnixStream, prost::bytes::Bytes>, tokio::task::JoinHandle<()>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let waiting = tokio::spawn(async move { until_lost(&path).await });
        let (stream, _) = listener.accept().await.unwrap();
        (dir, server::handshake(stream).await.unwrap(), waiting)
    }

    #[tokio::test]
    async fn it_hangs_up_when_it_is_asked_to_go() {
        let (_dir, mut driver, waiting) = connected().await;
        driver.graceful_shutdown();
        // A server that ends in order is through only when its clients have hung up, in whatever moment that finds it.
        let _ = poll_fn(|context| driver.poll_closed(context)).await;
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn it_answers_pings_and_stays_until_the_process_ends() {
        let (_dir, mut driver, waiting) = connected().await;
        let mut pings = driver.ping_pong().unwrap();
        tokio::select! {
            answer = pings.ping(h2::Ping::opaque()) => drop(answer.unwrap()),
            call = driver.accept() => panic!("there should be no call and no end: {}", call.is_some()),
        }
        assert!(!waiting.is_finished());
        drop((pings, driver));
        waiting.await.unwrap();
    }
}
