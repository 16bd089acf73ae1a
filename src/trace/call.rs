//! One call as it is kept and told, and which calls are about a volume.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};

/// A call of CSI. Everything in it is safe to show: secrets, contexts, parameters and mount flags are in none of its texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// When it began, by the clock of the agent's node.
    pub began: MicroTime,
    /// The method, as in the protocol.
    pub rpc: String,
    /// The driver, as GetPluginInfo names it.
    pub driver: String,
    /// Whom it is about: the driver's id of the volume or snapshot; of one that is to be made its name, behind the id of the
    /// volume that a snapshot is to be taken of.
    pub of: Vec<String>,
    /// The driver's id of what the call has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// The request, redacted and cut.
    pub request: String,
    /// How it ended. None while it is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
    /// The gRPC code: the driver's, or the one that stands for what happened to the connection. None where the agent has given
    /// the call up without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the driver said of a failure, redacted and cut; or what happened to the connection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The answer, redacted and cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer: String,
}

/// What an agent gives out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Name of the Node on which the agent runs.
    pub node: String,
    /// When the agent's process started: of calls before that it knows nothing.
    pub since: MicroTime,
    /// The calls, the oldest first.
    pub calls: Vec<Call>,
}

impl End {
    /// What came of the call: the code, or that nobody knows.
    #[must_use]
    pub fn outcome(&self) -> &str {
        self.code.as_deref().unwrap_or("given up by the agent")
    }
}

/// The calls about a volume or a snapshot that has one of these ids or names, of this driver if one is given. Those about what
/// such a call has made are among them: the snapshots of a volume, and its own CreateVolume by its id. No ids: all calls.
#[must_use]
pub fn of(calls: Vec<Call>, driver: Option<&str>, ids: &[String]) -> Vec<Call> {
    let mut calls = calls;
    calls.retain(|call| driver.is_none_or(|driver| call.driver == driver));
    if ids.is_empty() {
        return calls;
    }
    let mut ids: BTreeSet<String> = ids.iter().cloned().collect();
    let is_about =
        |call: &Call, ids: &BTreeSet<String>| call.of.iter().chain(&call.made).any(|id| ids.contains(id));
    let made: Vec<_> =
        calls.iter().filter(|call| is_about(call, &ids)).filter_map(|call| call.made.clone()).collect();
    ids.extend(made);
    calls.retain(|call| is_about(call, &ids));
    calls
}

/// The calls as lines of text.
#[must_use]
pub fn printed(calls: &[Call]) -> String {
    let mut text = String::new();
    for call in calls {
        // Writing into a String does not fail.
        let _ = write(&mut text, call);
    }
    text
}

fn write(text: &mut String, call: &Call) -> fmt::Result {
    let Call { began, rpc, driver, of, request, .. } = call;
    let of = of.join(" ");
    match &call.end {
        None => writeln!(text, "{} {rpc} {} {} is running", began.0, seen(driver), seen(&of))?,
        Some(end) => {
            let (took, outcome) = (end.milliseconds, seen(end.outcome()));
            writeln!(text, "{} {rpc} {} {} {took} ms {outcome}", began.0, seen(driver), seen(&of))?;
        }
    }
    writeln!(text, "  > {}", seen(request))?;
    for said in call.end.iter().flat_map(|end| [&end.answer, &end.message]).filter(|said| !said.is_empty()) {
        writeln!(text, "  < {}", seen(said))?;
    }
    Ok(())
}

/// The text with every character escaped that a terminal does not simply show: ids are written by drivers.
fn seen(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(rpc: &str, of: &[&str], made: Option<&str>) -> Call {
        Call {
            began: MicroTime("2026-01-01T00:00:01Z".parse().unwrap()),
            rpc: rpc.into(),
            driver: "d".into(),
            of: of.iter().map(|id| (*id).to_owned()).collect(),
            made: made.map(str::to_owned),
            request: format!("{rpc}Request"),
            end: None,
        }
    }

    fn names(calls: &[Call], ids: &[&str]) -> Vec<String> {
        let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        of(calls.to_vec(), Some("d"), &ids).into_iter().map(|call| call.rpc).collect()
    }

    #[test]
    fn calls_are_found_by_id_by_name_and_by_what_was_made() {
        let calls = [
            call("CreateVolume", &["moor-a"], Some("vol-a")),
            call("ControllerPublishVolume", &["vol-a"], None),
            call("CreateSnapshot", &["vol-a", "moor-s"], Some("snap-s")),
            call("CreateSnapshot", &["vol-a", "moor-t"], None),
            call("DeleteSnapshot", &["snap-s"], None),
            call("NodeStageVolume", &["vol-b"], None),
            Call { driver: "e".into(), ..call("NodeStageVolume", &["vol-a"], None) },
        ];
        let of_volume =
            ["CreateVolume", "ControllerPublishVolume", "CreateSnapshot", "CreateSnapshot", "DeleteSnapshot"];
        assert_eq!(names(&calls, &["vol-a"]), of_volume);
        // A snapshot's are not those of its volume.
        assert_eq!(names(&calls, &["moor-s"]), ["CreateSnapshot", "DeleteSnapshot"]);
        assert_eq!(names(&calls, &["snap-s"]), ["CreateSnapshot", "DeleteSnapshot"]);
        assert_eq!(
            names(&calls, &["moor-a"]),
            ["CreateVolume", "ControllerPublishVolume", "CreateSnapshot", "CreateSnapshot"]
        );
        assert_eq!(names(&calls, &["none"]), [""; 0]);
        assert_eq!((names(&calls, &[]).len(), of(calls.to_vec(), None, &[]).len()), (6, 7));
    }

    #[test]
    fn a_call_is_told_as_it_was_kept() {
        let mut ended = call("NodeStageVolume", &["vol-a"], None);
        ended.end = Some(End {
            milliseconds: 12,
            code: Some("Internal".into()),
            message: "no \"disk\"\u{202e}".into(),
            answer: String::new(),
        });
        let told = Told {
            node: "node-1".into(),
            since: MicroTime("2026-01-01T00:00:00Z".parse().unwrap()),
            calls: vec![ended.clone()],
        };
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<Told>(&text).unwrap(), told);
        let running = call("NodePublishVolume", &["vol\u{1b}"], None);
        let wanted = "2026-01-01T00:00:01Z NodeStageVolume d vol-a 12 ms Internal\n  > NodeStageVolumeRequest\n  \
                      < no \"disk\"\\u{202e}\n2026-01-01T00:00:01Z NodePublishVolume d vol\\u{1b} is running\n  \
                      > NodePublishVolumeRequest\n";
        assert_eq!(printed(&[ended, running]), wanted);
    }
}
