//! What claims, Volumes and Plugins say of themselves, how often a driver was asked, and what it has.

use std::time::Instant;

use moor::api::Plugin;
use moor::api::claim::VolumeClaimStatus;
use moor::csi::Rpc;

use super::{Entry, Journal, LOOK, Outcome, PATIENCE, Rig, Write, condition};

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

    /// Waits until a process has patched an object that is not there, after `since`.
    pub async fn until_not_found(&self, actor: &str, (kind, name): (&str, &str), since: usize) {
        let is_it = |write: &Write| {
            write.verb == "PATCH" && (write.kind.as_str(), write.name.as_str()) == (kind, name)
        };
        let refused = |e: &Entry| {
            let is_refused = e.outcome() == Some(Outcome::Answered(404));
            e.actor == actor && is_refused && e.write().is_some_and(is_it)
        };
        let found = || (!self.journal.since(since, refused).is_empty()).then_some(());
        let shown = || Journal::text(&self.journal.since(since, |e| e.write().is_some()));
        self.cluster.until(&format!("{actor} patches what is not there of {kind}"), found, shown).await;
    }

    /// Waits until `look` finds something in a Plugin.
    pub async fn until_plugin<T>(&self, name: &str, what: &str, look: impl Fn(&Plugin) -> Option<T>) -> T {
        let plugins = self.plugin_api();
        let end = Instant::now() + PATIENCE;
        loop {
            let plugin = plugins.get(name).await.unwrap();
            if let Some(found) = look(&plugin) {
                return found;
            }
            assert!(Instant::now() < end, "Plugin {name} never {what}, but {:?}", plugin.status);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a condition of a Plugin has this reason, and these words in its message, which it returns.
    pub async fn until_plugin_says(&self, name: &str, type_: &str, reason: &str, words: &[&str]) -> String {
        let what = format!("says {reason} with {words:?}");
        let look = |plugin: &Plugin| {
            let said =
                plugin.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_ && c.reason == reason)?;
            words.iter().all(|word| said.message.contains(word)).then(|| said.message.clone())
        };
        self.until_plugin(name, &what, look).await
    }

    /// Waits until a Plugin that was deleted is there no more.
    pub async fn until_plugin_is_gone(&self, name: &str) {
        let plugins = self.plugin_api();
        self.poll("the Plugin is gone", || async { plugins.get_opt(name).await.unwrap().is_none() }).await;
    }

    /// Whether the driver has a volume that was made as `key`.
    pub fn has_storage(&self, key: &str) -> bool {
        self.fake.backend().volumes.contains_key(key)
    }

    /// How often this call was made about a volume.
    pub fn count(&self, key: &str, rpc: Rpc) -> usize {
        self.journal.trace_of(key).iter().filter(|name| **name == rpc.name()).count()
    }
}
