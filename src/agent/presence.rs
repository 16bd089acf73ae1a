//! A connection by which the end of a driver's process is noticed at once.
//!
//! The kernel closes it when the process ends, however it ends. It carries no call, only what HTTP/2 asks of a client, so
//! that a driver that is told to end in order (GOAWAY) does not wait for us to hang up.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// How an HTTP/2 client begins (RFC 9113 section 3.4): the preface and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// Longest frame that a server may send without having been allowed more (RFC 9113 section 4.2), in bytes.
const LONGEST: usize = 1 << 14;

/// Returns when the process behind the socket has ended or is about to. A server that closes an idle connection only
/// causes a new fingerprint.
pub(super) async fn until_lost(path: &Path) {
    if let Ok(stream) = UnixStream::connect(path).await {
        // Whatever the end of it, the connection is gone.
        let _ = attend(stream).await;
    }
}

async fn attend(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(PREFACE).await?;
    let mut header = [0_u8; 9];
    let mut payload = vec![0_u8; LONGEST];
    loop {
        stream.read_exact(&mut header).await?;
        let [high, middle, low, kind, flags, ..] = header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let Some(content) = payload.get_mut(..length) else { return Ok(()) };
        stream.read_exact(content).await?;
        match kind {
            GOAWAY => return Ok(()),
            SETTINGS if flags & ACK == 0 => stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).await?,
            PING if flags & ACK == 0 => {
                let mut answer = vec![high, middle, low, PING, ACK, 0, 0, 0, 0];
                answer.extend_from_slice(content);
                stream.write_all(&answer).await?;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    async fn connected() -> (tempfile::TempDir, UnixStream, tokio::task::JoinHandle<()>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let waiting = tokio::spawn(async move { until_lost(&path).await });
        let (mut server, _) = listener.accept().await.unwrap();
        let mut preface = vec![0; PREFACE.len()];
        server.read_exact(&mut preface).await.unwrap();
        assert_eq!(preface, PREFACE);
        (dir, server, waiting)
    }

    #[tokio::test]
    async fn it_hangs_up_when_it_is_asked_to_go() {
        let (_dir, mut server, waiting) = connected().await;
        server.write_all(&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
        waiting.await.unwrap();
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn it_answers_settings_and_pings() {
        let (_dir, mut server, waiting) = connected().await;
        server.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
        server.write_all(&[0, 0, 8, PING, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        let mut answers = [0; 26];
        server.read_exact(&mut answers).await.unwrap();
        assert_eq!(answers[..9], [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
        assert_eq!(answers[9..], [0, 0, 8, PING, ACK, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(!waiting.is_finished());
        drop(server);
        waiting.await.unwrap();
    }
}
