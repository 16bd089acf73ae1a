//! What kubelet has asked for and waits for: its calls in flight, and what it said when it had a volume staged.
//!
//! Nothing is made for a Pod's claim unless kubelet asks for it at this moment: only then is it known that kubelet will
//! also undo it, and only its call has the path and the Secrets (docs/adr/0028).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, RwLock, RwLockReadGuard, watch};

use super::super::host::paths::HostPath;
use crate::api::ClaimUid;
use crate::csi::Secrets;

/// kubelet's calls.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Calls to publish, by UID of the claim, which was seen to be there when the call came.
    calls: Mutex<HashMap<ClaimUid, Arc<Call>>>,
    /// Claims that kubelet has unpublished and that are not deleted yet, by name.
    released: Mutex<HashMap<String, Released>>,
    staged: Mutex<HashMap<Place, Secrets>>,
    /// Of calls for one target, by name of the claim.
    turns: Turns,
    /// Of calls to the driver for one volume, by name of the VolumeHandle.
    lanes: Turns,
    /// Shared by the calls to the driver that no worker makes.
    beside: RwLock<()>,
}

/// One at a time, by name.
#[derive(Debug, Default)]
struct Turns(Mutex<HashMap<String, Turn>>);

/// Turns of one name.
#[derive(Clone, Debug, Default)]
struct Turn {
    mutex: Arc<tokio::sync::Mutex<()>>,
    /// How many wait for it.
    waiting: Arc<watch::Sender<usize>>,
}

impl Turns {
    async fn of(&self, name: &str) -> OwnedMutexGuard<()> {
        let Turn { mutex, waiting } = self.0.lock().entry(name.to_owned()).or_default().clone();
        // Counted before it waits, so that whoever has a spare turn knows of it.
        let _waits = Waits::begin(waiting);
        let guard = mutex.lock_owned().await;
        self.tidy(name);
        guard
    }

    /// The turn, if nobody has it or waits for it.
    fn spare(&self, name: &str) -> Option<Spare> {
        let Turn { mutex, waiting } = self.0.lock().entry(name.to_owned()).or_default().clone();
        let wanted = waiting.subscribe();
        let turn = mutex.try_lock_owned().ok()?;
        self.tidy(name);
        Some(Spare { _turn: turn, wanted })
    }

    /// Forgets the other turns of which nobody has a share: who waits for one, or has it, has one.
    fn tidy(&self, name: &str) {
        self.0.lock().retain(|other, turn| other == name || Arc::strong_count(&turn.mutex) > 1);
    }
}

/// Somebody who waits for a turn, for as long as it does.
struct Waits(Arc<watch::Sender<usize>>);

impl Waits {
    fn begin(waiting: Arc<watch::Sender<usize>>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// A turn that was spare, and that is to be given back as soon as somebody else wants it.
#[derive(Debug)]
pub(crate) struct Spare {
    _turn: OwnedMutexGuard<()>,
    wanted: watch::Receiver<usize>,
}

impl Spare {
    /// Ends when somebody waits for the turn.
    pub async fn wanted(&self) {
        let mut wanted = self.wanted.clone();
        if wanted.wait_for(|count| *count > 0).await.is_err() {
            // Nobody can want it any more.
            std::future::pending::<()>().await;
        }
    }
}

/// A claim that kubelet has unpublished.
#[derive(Debug)]
pub(crate) struct Released {
    /// Name of the VolumeHandle, whose worker undoes it; empty of a claim that was never granted.
    pub handle: String,
    /// Nothing of it is on the node any more.
    undone: bool,
}

/// A volume as kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    driver: String,
    volume_id: String,
}

/// A NodePublishVolume of kubelet's that has not been answered.
pub(crate) struct Call {
    /// Name of the claim.
    pub claim_name: String,
    /// Where kubelet wants the volume.
    pub target: HostPath,
    /// Where kubelet wants it staged; nothing if kubelet does not stage.
    pub staging: Option<HostPath>,
    /// The Secret for NodePublishVolume, as kubelet read it; nothing where the Volume names it, and the agent reads it.
    pub publish_secrets: Option<Secrets>,
    /// The Secret for NodeStageVolume, as kubelet read it; nothing if the call came to another process of the agent.
    pub stage_secrets: Option<Secrets>,
    /// What goes into the driver's volume_context: tokens, and facts about the Pod where the Plugin passes them on.
    pub context: BTreeMap<String, String>,
    /// Told when the claim has changed.
    pub changed: Notify,
}

/// A call for as long as kubelet waits for it.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    asked: &'a Asked,
    claim: ClaimUid,
    pub call: Arc<Call>,
}

impl Asked {
    /// Takes in what kubelet said in NodeStageVolume.
    pub fn stage(&self, driver: &str, volume_id: &str, secrets: Secrets) {
        self.staged.lock().insert(Place::of(driver, volume_id), secrets);
    }

    /// The Secrets of kubelet's NodeStageVolume, if it came to this process.
    pub fn stage_secrets(&self, driver: &str, volume_id: &str) -> Option<Secrets> {
        self.staged.lock().get(&Place::of(driver, volume_id)).cloned()
    }

    /// kubelet wants the volume no longer staged.
    pub fn unstage(&self, driver: &str, volume_id: &str) {
        self.staged.lock().remove(&Place::of(driver, volume_id));
    }

    /// The turn of one call for a target: of several for one path the next one waits.
    pub async fn turn(&self, claim: &str) -> OwnedMutexGuard<()> {
        self.turns.of(claim).await
    }

    /// The right to call the driver for a volume: of its worker, for a pass, or of one who undoes what no record speaks of.
    pub async fn lane(&self, handle: &str) -> OwnedMutexGuard<()> {
        self.lanes.of(handle).await
    }

    /// The right to call the driver for a volume, if nobody has it or waits for it: for a question that is given up as soon as
    /// somebody does.
    pub fn spare_lane(&self, handle: &str) -> Option<Spare> {
        self.lanes.spare(handle)
    }

    /// Held for as long as a call to the driver may run that no worker makes.
    pub async fn beside(&self) -> RwLockReadGuard<'_, ()> {
        self.beside.read().await
    }

    /// Waits until no call to the driver runs that no worker makes.
    pub async fn are_ended(&self) {
        drop(self.beside.write().await);
    }

    /// Puts a call in flight.
    pub fn begin(&self, claim: ClaimUid, call: Call) -> InFlight<'_> {
        let call = Arc::new(call);
        self.calls.lock().insert(claim.clone(), call.clone());
        InFlight { asked: self, claim, call }
    }

    /// The call for a claim, if kubelet waits for one.
    pub fn call(&self, claim: &ClaimUid) -> Option<Arc<Call>> {
        self.calls.lock().get(claim).cloned()
    }

    /// Takes in that kubelet wants a claim of this VolumeHandle undone.
    pub fn release(&self, claim_name: &str, handle: &str) {
        let released = Released { handle: handle.to_owned(), undone: false };
        self.released.lock().insert(claim_name.to_owned(), released);
        let calls = self.calls.lock();
        for call in calls.values().filter(|call| call.claim_name == claim_name) {
            call.changed.notify_one();
        }
    }

    /// Whether kubelet wants the claim of this name undone.
    pub fn is_released(&self, claim_name: &str) -> bool {
        self.released.lock().contains_key(claim_name)
    }

    /// Whether nothing is on the node of a claim that kubelet wants undone.
    pub fn is_undone(&self, claim_name: &str) -> bool {
        self.released.lock().get(claim_name).is_some_and(|released| released.undone)
    }

    /// Names of the claims of a VolumeHandle that kubelet wants undone.
    pub fn released_of(&self, handle: &str) -> BTreeSet<String> {
        let released = self.released.lock();
        released.iter().filter(|(_, one)| one.handle == handle).map(|(name, _)| name.clone()).collect()
    }

    /// The worker of the VolumeHandle has taken in that this claim is released, and has nothing of it.
    pub fn undone(&self, claim_name: &str) {
        if let Some(released) = self.released.lock().get_mut(claim_name) {
            released.undone = true;
        }
    }

    /// The claim of this name is deleted, so that the API server says it too.
    pub fn deleted(&self, claim_name: &str) -> Option<Released> {
        self.released.lock().remove(claim_name)
    }

    /// Tells a call that its claim has changed.
    pub fn wake(&self, claim: &ClaimUid) {
        if let Some(call) = self.call(claim) {
            call.changed.notify_one();
        }
    }
}

impl fmt::Debug for Call {
    /// Its context has tokens of the Pod.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim_name, target, .. } = self;
        f.debug_struct("Call").field("claim_name", claim_name).field("target", target).finish_non_exhaustive()
    }
}

impl Place {
    fn of(driver: &str, volume_id: &str) -> Self {
        Self { driver: driver.to_owned(), volume_id: volume_id.to_owned() }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.asked.calls.lock().remove(&self.claim);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_spare_lane_is_given_back_when_somebody_wants_it() {
        let asked = Asked::default();
        let spare = asked.spare_lane("h").unwrap();
        assert!(asked.spare_lane("h").is_none() && asked.spare_lane("other").is_some());
        assert!(spare.wanted().now_or_never().is_none());
        let mut waits = Box::pin(asked.lane("h"));
        assert!((&mut waits).now_or_never().is_none());
        spare.wanted().now_or_never().unwrap();
        drop(spare);
        let lane = waits.await;
        assert!(asked.spare_lane("h").is_none());
        drop(lane);
        let spare = asked.spare_lane("h").unwrap();
        assert!(spare.wanted().now_or_never().is_none(), "nobody waits any more");
    }

    #[tokio::test]
    async fn who_waits_already_is_before_a_spare_lane() {
        let asked = Asked::default();
        let lane = asked.lane("h").await;
        let mut waits = Box::pin(asked.lane("h"));
        assert!((&mut waits).now_or_never().is_none());
        drop(lane);
        assert!(asked.spare_lane("h").is_none());
        drop(waits);
        assert!(asked.spare_lane("h").is_some());
    }
}
