//! A consumer in a mount namespace of its own, as a container is one: what the node unmounts stays mounted there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::Cluster;

/// Takes everything of moor out of the namespace that the shell is in, but what is below the path `$own` if that is set.
const ALONE: &str = "awk -v own=\"${own:-none}\" '$5 ~ /csi\\/moor.dev/ && index($5, own) != 1 {print $5}' \
    /proc/self/mountinfo | tac | xargs -r -n1 umount -l";

/// A process that uses a volume. Dropped it ends.
pub struct Consumer {
    child: Child,
    log: PathBuf,
}

impl Consumer {
    /// As a container that has mounted the directory `part` of `target` and nothing else of moor; writes into it until it
    /// ends.
    pub async fn writing(cluster: &Cluster, target: &str, part: &str) -> Self {
        let own = Path::new(target).join(part);
        fs::create_dir_all(&own).unwrap();
        let script = format!(
            "mount --bind \"$1/{part}\" /mnt && {ALONE}; while :; do echo word >> /mnt/log; sleep 0.05; done"
        );
        let consumer = Self::start(&script, target, own.join("log"));
        consumer.until(cluster, "the consumer writes", Self::written).await;
        consumer
    }

    /// As a container that has mounted `target`, and does nothing.
    pub async fn sleeping(cluster: &Cluster, target: &str) -> Self {
        let script = format!("mount --bind \"$1\" /mnt && {ALONE}; exec sleep infinity");
        let consumer = Self::start(&script, target, PathBuf::new());
        consumer.until(cluster, "the consumer has it mounted", Self::sleeps).await;
        consumer
    }

    /// Has the file or device `path` open, and nothing of moor mounted any more.
    pub async fn holding(cluster: &Cluster, path: &str) -> Self {
        let script = format!("exec 3<\"$1\"; {ALONE}; exec sleep infinity");
        let consumer = Self::start(&script, path, PathBuf::new());
        consumer.until(cluster, "the consumer holds it open", Self::sleeps).await;
        consumer
    }

    /// As a container that has got the node's tree, and in it what was mounted below `own` then, without what becomes of
    /// that later. Has the file `path` open in it.
    pub async fn in_the_nodes_tree(cluster: &Cluster, own: &str, path: &str) -> Self {
        let script = format!("own={own}; {ALONE}; exec 3<>\"$1\" && exec sleep infinity");
        let consumer = Self::start(&script, path, PathBuf::new());
        consumer.until(cluster, "the consumer has it open", Self::sleeps).await;
        consumer
    }

    /// Has something mounted on the directory `path`, and nobody else sees that.
    pub async fn mounting_at(cluster: &Cluster, path: &str) -> Self {
        let script = "mount -t tmpfs none \"$1\" && exec sleep infinity";
        let consumer = Self::start(script, path, PathBuf::new());
        consumer.until(cluster, "something is mounted for it alone", Self::sleeps).await;
        consumer
    }

    fn start(script: &str, about: &str, log: PathBuf) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "consumer", about]);
        Self { child: command.spawn().expect("unshare (util-linux) has to be installed"), log }
    }

    async fn until(&self, cluster: &Cluster, what: &str, look: impl Fn(&Self) -> bool) {
        cluster.until(what, || look(self).then_some(()), String::new).await;
    }

    fn written(&self) -> bool {
        fs::metadata(&self.log).is_ok_and(|log| log.len() > 0)
    }

    fn sleeps(&self) -> bool {
        let program = fs::read_to_string(format!("/proc/{}/comm", self.pid())).unwrap_or_default();
        program.trim() == "sleep"
    }

    /// As everybody sees it: its namespaces of processes is the test's own.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits until there is more in `log` than now.
    pub async fn until_it_writes_on(&self, cluster: &Cluster, log: &Path) {
        let size = || fs::metadata(log).map_or(0, |log| log.len());
        let before = size();
        self.until(cluster, "the consumer writes on", |_| size() > before).await;
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
