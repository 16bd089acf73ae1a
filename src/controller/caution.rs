//! Caution after a time without a leader: etcd may have been set back to a backup meanwhile (rule R7, trap N15).
//!
//! A controller keeps nothing on disk, so a new process cannot tell. Agents can, and an agent that has found it out renews
//! its Lease only after it has reported what it has mounted. So nothing is granted beside a node before its agent was
//! heard, or has been silent for as long as its Lease lasts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};

use crate::k8s::ApiError;
use crate::k8s::lease::{AGENTS, Handover};
use crate::k8s::read::list_live;

/// A leader renews every two seconds, and a new one takes over from it within seconds. etcd is not restored in that time.
const GAP: Duration = Duration::from_secs(5);

/// Annotation on the leader's Lease: whoever leads next is as cautious.
const CAUTIOUS: &str = "moor.dev/cautious";

/// Versions that the agents' Leases had at the start, by name; nothing if there is no need for caution.
#[derive(Debug, Default)]
pub(crate) struct Caution(Mutex<Option<HashMap<String, String>>>);

/// Caution outlives its leader: the next one finds a Lease that was renewed a moment ago.
impl Handover for Caution {
    fn tell(&self, lease: &mut Lease) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        if self.is_on() {
            annotations.insert(CAUTIOUS.into(), "etcd may have been restored".into());
        } else {
            annotations.remove(CAUTIOUS);
        }
    }

    fn knows(&self, lease: &Lease) -> bool {
        self.is_on() || !is_cautious(lease)
    }
}

impl Caution {
    /// Looks at the Leases, before the leader's is taken.
    pub(crate) async fn begin(&self, leases: &Api<Lease>, leader: &str) -> Result<(), ApiError> {
        let all = list_live(leases, None).await?.items;
        let led = all.iter().find(|lease| lease.name_any() == leader);
        // Without a Lease nobody has ever led, in a backup neither, so it has no grants.
        let needed = |lease: &Lease| {
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
            is_cautious(lease) || renewed.is_none_or(|time| is_gap(time.0, Timestamp::now()))
        };
        if led.is_some_and(needed) {
            let versions = all.iter().map(|l| (l.name_any(), l.resource_version().unwrap_or_default()));
            *self.versions() = Some(versions.collect());
            tracing::info!("nobody led for a while; grants wait until the agents were heard");
        }
        Ok(())
    }

    /// Whether the agent with this Lease, which has this version now, has yet to be heard.
    pub(crate) fn awaits(&self, lease: &str, version: Option<&str>) -> bool {
        self.versions().as_ref().is_some_and(|at_start| at_start.get(lease).map(String::as_str) == version)
    }

    /// Those of these Leases whose agents have yet to be heard, whatever PluginInstances a backup has of them: one that was
    /// made after it is missing there, and what its node has mounted since is not.
    pub(crate) fn awaited(&self, mut leases: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
        leases.retain(|lease| {
            let (name, version) = (lease.name_any(), lease.resource_version());
            name.starts_with(AGENTS) && self.awaits(&name, version.as_deref())
        });
        leases
    }

    /// Whether there is caution.
    pub(crate) fn is_on(&self) -> bool {
        self.versions().is_some()
    }

    /// Everybody was heard.
    pub(crate) fn end(&self) {
        *self.versions() = None;
    }

    fn versions(&self) -> MutexGuard<'_, Option<HashMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_cautious(lease: &Lease) -> bool {
    lease.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CAUTIOUS))
}

/// A time in the future is one of a clock that jumped, and says nothing.
fn is_gap(renewed: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(renewed)).map_or(true, |age| age > GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::lease::agent_lease_name;

    #[test]
    fn only_a_gap_in_leadership_asks_for_caution() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let now = at(1_700_000_000);
        assert!(!is_gap(at(1_699_999_997), now));
        assert!(is_gap(at(1_699_999_990), now));
        assert!(is_gap(at(1_700_000_060), now), "a clock that jumped");
    }

    #[test]
    fn caution_is_handed_on_while_it_lasts() {
        let (cautious, calm) = (Caution::default(), Caution::default());
        *cautious.versions() = Some(HashMap::new());
        let mut lease = Lease::default();
        cautious.tell(&mut lease);
        assert!(is_cautious(&lease) && cautious.knows(&lease) && !calm.knows(&lease));
        cautious.end();
        cautious.tell(&mut lease);
        assert!(!is_cautious(&lease) && calm.knows(&lease));
    }

    #[test]
    fn every_agent_with_a_lease_is_waited_for() {
        let lease = |name: &str, version: &str| {
            let mut lease = Lease::default();
            lease.metadata.name = Some(name.to_owned());
            lease.metadata.resource_version = Some(version.to_owned());
            Arc::new(lease)
        };
        let (a, b) = (agent_lease_name("a"), agent_lease_name("b"));
        let caution = Caution::default();
        let awaited = |leases: &[&Arc<Lease>]| -> Vec<String> {
            let leases = leases.iter().map(|lease| Arc::clone(lease)).collect();
            caution.awaited(leases).iter().map(|lease| lease.name_any()).collect()
        };
        let all = [&lease(&a, "5"), &lease(&b, "6"), &lease("moor-controller", "7")];
        assert!(awaited(&all).is_empty(), "there is no need");
        let at_start = all.map(|lease| (lease.name_any(), lease.resource_version().unwrap_or_default()));
        *caution.versions() = Some(at_start.into());
        assert_eq!(awaited(&all), [a.clone(), b.clone()]);
        assert_eq!(awaited(&[&lease(&a, "8"), all[1]]), [b], "the other one was heard");
        assert!(awaited(&[&lease(&agent_lease_name("c"), "9")]).is_empty(), "it came since");
    }

    #[test]
    fn an_agent_is_heard_when_its_lease_changes() {
        let caution = Caution::default();
        assert!(!caution.is_on() && !caution.awaits("a", Some("5")));
        *caution.versions() = Some(HashMap::from([("a".to_owned(), "5".to_owned())]));
        assert!(caution.awaits("a", Some("5")) && !caution.awaits("a", Some("6")));
        // Younger than the backup: heard when it has a Lease at all.
        assert!(caution.awaits("b", None) && !caution.awaits("b", Some("7")));
        caution.end();
        assert!(!caution.awaits("a", Some("5")));
    }
}
