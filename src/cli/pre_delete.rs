//! `moor pre-delete`: what the chart asks before it is uninstalled.
//!
//! Without agents nothing is unmounted any more: Pods would keep their volumes, and nobody could delete a
//! claim. So uninstalling stops here while claims are granted.

use kube::{Api, Client, ResourceExt};
use thiserror::Error;

use super::PreDeleteArgs;
use crate::{
    api::{VolumeClaim, conditions::first_few},
    k8s::{ApiError, read::list_live},
};

/// How many claims are named.
const NAMED: usize = 10;

/// Why the chart must not be uninstalled.
#[derive(Debug, Error)]
pub enum PreDeleteError {
    /// The claims could not be listed.
    #[error("cannot tell whether volumes are mounted: {0}")]
    List(#[source] ApiError),
    /// Some claims are granted.
    #[error("{0}")]
    Granted(String),
}

/// Returns what is to be printed if the chart may be uninstalled.
pub async fn run(client: Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    let claims = match list_live(&Api::<VolumeClaim>::all(client), None).await {
        Ok(claims) => claims,
        // Without the definition there are no claims.
        Err(ApiError::Other { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
            Vec::new()
        }
        Err(error) => return Err(PreDeleteError::List(error)),
    };
    judge(&claims, args.keep_mounts)
}

fn judge(claims: &[VolumeClaim], keep_mounts: bool) -> Result<String, PreDeleteError> {
    let mut granted: Vec<String> = claims.iter().filter_map(place).collect();
    granted.sort_unstable();
    let count = granted.len();
    if count == 0 {
        return Ok("no claims are granted".into());
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
        assert!(judge(&[claim("a", None)], false).is_ok());
        assert!(judge(&[], false).is_ok());
    }

    #[test]
    fn the_first_ten_are_named_and_the_rest_counted() {
        let claims: Vec<_> = (0..12).rev().map(|n| claim(&format!("c{n:02}"), Some("n1"))).collect();
        let text = judge(&claims, false).unwrap_err().to_string();
        assert!(
            text.starts_with("12 claims are still granted: shop/c00 on node n1, shop/c01 on node n1"),
            "{text}"
        );
        assert!(
            text.contains("shop/c09 on node n1 and 2 more; delete them and uninstall again, or leave"),
            "{text}"
        );
    }

    #[test]
    fn mounts_may_be_kept_on_purpose() {
        let text = judge(&[claim("a", Some("n1")), claim("b", None)], true).unwrap();
        assert_eq!(text, "1 claim is still granted: shop/a on node n1; their volumes stay mounted");
    }
}
