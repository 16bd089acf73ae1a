//! What claims and Volumes say of themselves, and how often a driver was asked.

use moor::api::claim::VolumeClaimStatus;
use moor::csi::Rpc;

use super::{Rig, condition};

impl Rig {
    /// Waits until a claim's Ready condition has this reason, whatever its status. Returns its message.
    pub async fn until_claim_says(&self, claim: &str, reason: &str) -> String {
        let look = || {
            let status = self.cluster.claim(claim)?.status.clone()?;
            let ready = condition(&status.conditions)?;
            (ready.reason == reason).then(|| ready.message.clone())
        };
        self.cluster.until(&format!("claim {claim} says {reason}"), look, || self.story(claim)).await
    }

    /// Waits until a claim is not Ready for this reason, with all these words. Returns what it says.
    pub async fn until_says(&self, claim: &str, reason: &str, words: &[&str]) -> VolumeClaimStatus {
        let look = || {
            let status = self.cluster.claim(claim)?.status.clone()?;
            let ready = condition(&status.conditions)?;
            let told = ready.status == "False" && ready.reason == reason;
            (told && words.iter().all(|word| ready.message.contains(word))).then_some(status)
        };
        let what = format!("claim {claim} says {reason} with {words:?}");
        self.cluster.until(&what, look, || self.story(claim)).await
    }

    /// As [`Self::until_says`], of a Volume. Returns the message.
    pub async fn until_volume_says(&self, volume: &str, reason: &str, words: &[&str]) -> String {
        let look = || {
            let status = self.cluster.volume(volume)?.status.clone()?;
            let ready = condition(&status.conditions)?;
            let told = ready.status == "False" && ready.reason == reason;
            (told && words.iter().all(|word| ready.message.contains(word))).then(|| ready.message.clone())
        };
        let what = format!("Volume {volume} says {reason} with {words:?}");
        self.cluster.until(&what, look, || self.story(volume)).await
    }

    /// How often this call was made about a volume.
    pub fn count(&self, key: &str, rpc: Rpc) -> usize {
        self.journal.trace_of(key).iter().filter(|name| **name == rpc.name()).count()
    }
}
