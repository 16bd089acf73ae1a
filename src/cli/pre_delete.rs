//! `moor pre-delete`: what the chart asks before it is uninstalled.
//!
//! Without agents nothing is unmounted any more: Pods would keep their volumes, and nobody could delete a
//! claim. So uninstalling stops here while claims are granted. What they have just left is still attached for a while
//! (ADR 27), and without the controller would stay so: that is waited for.

use std::time::Duration;

use kube::{Api, Client, Resource, ResourceExt};
use thiserror::Error;

use super::PreDeleteArgs;
use crate::{
    api::{Attachment, VolumeClaim, conditions::first_few},
    k8s::{
        ApiError,
        read::{Readable, list_live},
    },
};

/// How many claims are named.
const NAMED: usize = 10;

/// How often it is looked again whether volumes are still attached, and the time between: less than the hook may take.
const LOOKS: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);

/// Why the chart must not be uninstalled.
#[derive(Debug, Error)]
pub enum PreDeleteError {
    /// The claims could not be listed.
    #[error("cannot tell whether volumes are mounted: {0}")]
    List(#[source] ApiError),
    /// No claim is granted, and volumes are attached.
    #[error("{0}")]
    Attached(String),
    /// Some claims are granted.
    #[error("{0}")]
    Granted(String),
}

/// Returns what is to be printed if the chart may be uninstalled.
pub async fn run(client: Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    for _ in 1..LOOKS {
        match look(&client, args).await {
            Err(PreDeleteError::Attached(_)) => tokio::time::sleep(PAUSE).await,
            judged => return judged,
        }
    }
    look(&client, args).await
}

async fn look(client: &Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    // The claims last: one that was granted meanwhile has an Attachment that the first list may not have.
    let attachments: Vec<Attachment> = list(client).await?;
    judge(&list(client).await?, &attachments, args.keep_mounts)
}

async fn list<K>(client: &Client) -> Result<Vec<K>, PreDeleteError>
where
    K: Readable + Resource<DynamicType = ()>,
{
    match list_live(&Api::<K>::all(client.clone()), None).await {
        Ok(all) => Ok(all),
        // Without the definition there are none.
        Err(ApiError::Other { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
            Ok(Vec::new())
        }
        Err(error) => Err(PreDeleteError::List(error)),
    }
}

fn judge(
    claims: &[VolumeClaim],
    attachments: &[Attachment],
    keep_mounts: bool,
) -> Result<String, PreDeleteError> {
    let mut granted: Vec<String> = claims.iter().filter_map(place).collect();
    granted.sort_unstable();
    let count = granted.len();
    if count == 0 && attachments.is_empty() {
        return Ok("no claims are granted".into());
    }
    if count == 0 {
        return attached(attachments, keep_mounts);
    }
    let verb = if count == 1 { "claim is" } else { "claims are" };
    let mut message = format!("{count} {verb} still granted: {}", first_few(granted, NAMED));
    if keep_mounts {
        return Ok(format!("{message}; their volumes stay mounted"));
    }
    message.push_str(
        "; delete them and uninstall again, or leave them mounted for a reinstall with \
         `helm uninstall --no-hooks` (Helm now believes that it is uninstalling: to go on using the release, \
         `helm rollback` it to its last revision)",
    );
    Err(PreDeleteError::Granted(message))
}

fn attached(attachments: &[Attachment], keep_mounts: bool) -> Result<String, PreDeleteError> {
    let place = |a: &Attachment| {
        let of = &a.spec.volume;
        format!("{}/{} on node {}", of.namespace, of.name, a.spec.node_name)
    };
    let count = attachments.len();
    let are = if count == 1 { "volume is" } else { "volumes are" };
    let named = first_few(attachments.iter().map(place), NAMED);
    let message = format!("no claims are granted, and {count} {are} still attached: {named}");
    if keep_mounts {
        return Ok(message);
    }
    Err(PreDeleteError::Attached(format!(
        "{message}; uninstall again when `kubectl get attachments` shows none, or leave them attached with \
         `helm uninstall --no-hooks` (after `helm rollback` to the last revision the release goes on)"
    )))
}

fn place(claim: &VolumeClaim) -> Option<String> {
    let assignment = claim.spec.assignment.as_ref()?;
    let namespace = claim.namespace().unwrap_or_default();
    Some(format!("{namespace}/{} on node {}", claim.name_any(), assignment.node_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{VolumeClaimSpec, claim::Assignment};

    fn claim(name: &str, node: Option<&str>) -> VolumeClaim {
        let assignment = node.map(|node| Assignment { node_name: node.into(), ..Assignment::default() });
        let mut claim = VolumeClaim::new(name, VolumeClaimSpec { assignment, ..VolumeClaimSpec::default() });
        claim.metadata.namespace = Some("shop".into());
        claim
    }

    #[test]
    fn claims_that_only_wait_do_not_matter() {
        assert!(judge(&[claim("a", None)], &[], false).is_ok());
        assert!(judge(&[], &[], false).is_ok());
    }

    #[test]
    fn the_first_ten_are_named_and_the_rest_counted() {
        let claims: Vec<_> = (0..12).rev().map(|n| claim(&format!("c{n:02}"), Some("n1"))).collect();
        let text = judge(&claims, &[], false).unwrap_err().to_string();
        assert!(
            text.starts_with("12 claims are still granted: shop/c00 on node n1, shop/c01 on node n1"),
            "{text}"
        );
        assert!(
            text.contains("shop/c09 on node n1 and 2 more; delete them and uninstall again, or leave"),
            "{text}"
        );
    }

    /// The last claim has left it a moment ago.
    #[test]
    fn what_lingers_is_waited_for() {
        let mut lingers = Attachment::new("a", crate::api::attachment::AttachmentSpec::default());
        lingers.spec.node_name = "n1".into();
        (lingers.spec.volume.namespace, lingers.spec.volume.name) = ("shop".into(), "data".into());
        let text = judge(&[], std::slice::from_ref(&lingers), false).unwrap_err().to_string();
        assert!(text.contains("1 volume is still attached: shop/data on node n1; uninstall again"), "{text}");
        assert!(judge(&[], &[lingers], true).is_ok());
    }

    #[test]
    fn mounts_may_be_kept_on_purpose() {
        let text = judge(&[claim("a", Some("n1")), claim("b", None)], &[], true).unwrap();
        assert_eq!(text, "1 claim is still granted: shop/a on node n1; their volumes stay mounted");
    }
}
