//! The call record: with `--record-calls`, a line of JSON in `calls.jsonl` when a call begins and one when it ends, over
//! all processes that share the state directory. Tests check the order of calls with it. What it holds is named here
//! field by field, so that no secret, context or mount flag can get into it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tonic::Code;

use super::ids::{GroupId, SnapshotId, VolumeId};
use super::lock::Lock;
use super::state::StateDir;
use crate::csi::proto::csi::v1 as wire;

/// How long a line waits for those of other processes.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the record says a call is about.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Facts {
    pub(super) rpc: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) volume: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    snapshot: String,
    /// A group of snapshots.
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    staging_path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    target_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    readonly: Option<bool>,
}

/// A request whose call is recorded.
pub(super) trait Recorded {
    /// What the record says of the call.
    fn facts(&self) -> Facts;
}

/// Says for each request of CSI which of its fields the record has, and as which facts.
macro_rules! recorded {
    ($($request:ident { $($field:ident => $fact:ident),* })+) => {$(
        impl Recorded for wire::$request {
            fn facts(&self) -> Facts {
                let rpc = stringify!($request).trim_end_matches("Request");
                Facts { rpc, $($fact: From::from(self.$field.to_owned()),)* ..Facts::default() }
            }
        }
    )+};
}

recorded! {
    GetPluginInfoRequest {}
    GetPluginCapabilitiesRequest {}
    ProbeRequest {}
    DeleteVolumeRequest { volume_id => volume }
    ControllerPublishVolumeRequest { volume_id => volume, node_id => node, readonly => readonly }
    ControllerUnpublishVolumeRequest { volume_id => volume, node_id => node }
    ValidateVolumeCapabilitiesRequest { volume_id => volume }
    ListVolumesRequest {}
    GetCapacityRequest {}
    ControllerExpandVolumeRequest { volume_id => volume }
    ControllerModifyVolumeRequest { volume_id => volume }
    DeleteSnapshotRequest { snapshot_id => snapshot }
    ListSnapshotsRequest { snapshot_id => snapshot, source_volume_id => volume }
    GetSnapshotRequest { snapshot_id => snapshot }
    ControllerGetCapabilitiesRequest {}
    GroupControllerGetCapabilitiesRequest {}
    DeleteVolumeGroupSnapshotRequest { group_snapshot_id => group }
    GetVolumeGroupSnapshotRequest { group_snapshot_id => group }
    NodeStageVolumeRequest { volume_id => volume, staging_target_path => staging_path }
    NodeUnstageVolumeRequest { volume_id => volume, staging_target_path => staging_path }
    NodePublishVolumeRequest {
        volume_id => volume, staging_target_path => staging_path, target_path => target_path, readonly => readonly
    }
    NodeUnpublishVolumeRequest { volume_id => volume, target_path => target_path }
    NodeExpandVolumeRequest {
        volume_id => volume, staging_target_path => staging_path, volume_path => target_path
    }
    NodeGetVolumeStatsRequest { volume_id => volume, volume_path => target_path }
    NodeGetCapabilitiesRequest {}
    NodeGetInfoRequest {}
}

impl Recorded for wire::CreateVolumeRequest {
    fn facts(&self) -> Facts {
        let volume = VolumeId::of_name(&self.name).as_str().to_owned();
        Facts { rpc: "CreateVolume", volume, name: self.name.clone(), ..Facts::default() }
    }
}

impl Recorded for wire::CreateSnapshotRequest {
    fn facts(&self) -> Facts {
        let snapshot = SnapshotId::of_name(&self.name).as_str().to_owned();
        let (volume, name) = (self.source_volume_id.clone(), self.name.clone());
        Facts { rpc: "CreateSnapshot", volume, snapshot, name, ..Facts::default() }
    }
}

impl Recorded for wire::CreateVolumeGroupSnapshotRequest {
    fn facts(&self) -> Facts {
        let group = GroupId::of_name(&self.name).as_str().to_owned();
        Facts { rpc: "CreateVolumeGroupSnapshot", group, name: self.name.clone(), ..Facts::default() }
    }
}

/// One line of the record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    /// The line's number, which grows with every line, over all processes.
    seq: u64,
    /// The `seq` of the line that began the call.
    call: u64,
    phase: &'a str,
    /// When the line was written, in milliseconds since 1970.
    at: u128,
    /// The node of the process that serves the call.
    server: &'a str,
    #[serde(flatten)]
    facts: &'a Facts,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    millis: Option<u128>,
}

/// The record of the calls that one process serves. Nothing is written when none was asked for.
#[derive(Debug)]
pub(super) struct CallRecord {
    /// The state directory, if a record was asked for.
    root: Option<PathBuf>,
    /// The node of the process.
    server: String,
}

/// A call that has begun, as its last line names it.
#[derive(Debug)]
pub(super) struct Begun {
    call: u64,
    at: Instant,
}

impl CallRecord {
    pub(super) fn new(state: &StateDir, server: &str, wanted: bool) -> Self {
        Self { root: wanted.then(|| state.root().to_owned()), server: server.to_owned() }
    }

    pub(super) fn begin(&self, facts: &Facts) -> Begun {
        Begun { call: self.write(facts, None), at: Instant::now() }
    }

    pub(super) fn end(&self, begun: &Begun, facts: &Facts, code: Code) {
        self.write(facts, Some((begun, code)));
    }

    /// Writes a line, and returns its number. A record that cannot be written is no reason to fail the call.
    fn write(&self, facts: &Facts, ended: Option<(&Begun, Code)>) -> u64 {
        let Some(root) = &self.root else { return 0 };
        let line = |seq| Line {
            seq,
            call: ended.map_or(seq, |(begun, _)| begun.call),
            phase: if ended.is_some() { "end" } else { "start" },
            at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
            server: &self.server,
            facts,
            code: ended.map(|(_, code)| format!("{code:?}")),
            millis: ended.map(|(begun, _)| begun.at.elapsed().as_millis()),
        };
        append(root, line).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot record a call");
            0
        })
    }
}

/// Appends the line that has the next number. The number is stored before the line is written: a crash between the two
/// leaves a gap, and never a number twice.
fn append<'a>(root: &Path, line: impl FnOnce(u64) -> Line<'a>) -> io::Result<u64> {
    let lock = root.join("locks").join("calls");
    let _held = Lock::take(&lock, PATIENCE)?.ok_or(io::ErrorKind::TimedOut)?;
    let last = root.join("calls.seq");
    let seq = read_number(&last)? + 1;
    let new = last.with_extension("new");
    fs::write(&new, seq.to_string())?;
    fs::rename(&new, &last)?;
    let mut text = serde_json::to_vec(&line(seq))?;
    text.push(b'\n');
    let lines = root.join("calls.jsonl");
    File::options().append(true).create(true).mode(0o600).open(lines)?.write_all(&text)?;
    Ok(seq)
}

/// The number in a file; 0 if there is no such file yet.
fn read_number(path: &Path) -> io::Result<u64> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_over_processes_and_ends_name_their_start() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let records = ["node-1", "node-2"].map(|node| CallRecord::new(&state, node, true));
        let facts = Facts { rpc: "NodeStageVolume", volume: "v".into(), ..Facts::default() };
        std::thread::scope(|scope| {
            for record in &records {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let begun = record.begin(&facts);
                        record.end(&begun, &facts, Code::Ok);
                    }
                });
            }
        });
        let text = fs::read_to_string(dir.path().join("calls.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 80);
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(line["seq"], at + 1);
            let call = usize::try_from(line["call"].as_u64().unwrap()).unwrap();
            assert_eq!(lines[call - 1]["phase"], "start");
            assert_eq!(lines[call - 1]["server"], line["server"]);
        }
    }

    #[test]
    fn nothing_is_written_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let record = CallRecord::new(&state, "node-1", false);
        let begun = record.begin(&Facts::default());
        record.end(&begun, &Facts::default(), Code::Ok);
        assert!(!dir.path().join("calls.jsonl").exists());
    }
}
