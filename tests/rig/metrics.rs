//! What the processes of moor count, and the API server and etcd, as they say it at `/metrics`.

use std::collections::BTreeMap;
use std::fs;

use kube::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{CONTROLLER, Rig};

impl Rig {
    /// How many passes about objects of this kind the leader has begun.
    pub async fn passes(&self, kind: &str) -> u64 {
        let text = self.metrics(CONTROLLER).await;
        let counter = format!(r#"moor_passes_total{{about="{kind}"}} "#);
        let count = text.lines().find_map(|line| line.strip_prefix(&counter));
        count.unwrap_or_else(|| panic!("no pass about a {kind} is counted:\n{text}")).parse().unwrap()
    }

    /// Whether the leader says that there are so many of what this gauge counts.
    pub async fn gauge(&self, name: &str, so_many: u64) -> bool {
        let text = self.metrics(CONTROLLER).await;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("there is no {name}:\n{text}")) == so_many.to_string()
    }

    /// What a process says of a sample, which is named with its labels; None if it says nothing.
    pub async fn sample(&self, actor: &str, name: &str) -> Option<f64> {
        let text = self.metrics(actor).await;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// All that a process counts, as it says it.
    pub async fn metrics(&self, actor: &str) -> String {
        let mut stream = TcpStream::connect(self.admin_address(actor)).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: moor\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// It takes a free port and logs which. The last line is of the process that runs.
    fn admin_address(&self, actor: &str) -> String {
        let log = fs::read_to_string(self.logs().join(format!("{actor}.log"))).unwrap();
        let mut lines = log.lines().rev().filter(|line| line.contains("/metrics"));
        let (_, address) = lines.find_map(|line| line.split_once("address=")).unwrap();
        address.split_whitespace().next().unwrap().to_owned()
    }
}

/// All that a server counts.
pub async fn of_server(client: &Client) -> String {
    client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap()
}

/// The samples of one metric in the text of /metrics: their labels, and their values.
pub fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (BTreeMap<&'a str, &'a str>, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        // The values of the labels that are read here have no comma in them.
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        Some((labels.map(|(name, value)| (name, value.trim_matches('"'))).collect(), value.parse().ok()?))
    })
}
