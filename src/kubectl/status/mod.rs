//! The pages of `kubectl moor status`.

mod claim;
mod node;
pub(super) mod origin;
mod overview;
mod plugin;
mod rows;
mod snapshot;
mod volume;

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod overview_tests;
#[cfg(test)]
mod pages_tests;

use kube::Resource;

use super::args::StatusOf;
use super::error::KubectlError;
use super::page::Page;
use super::scene::{Scene, Scope};

/// The page of everything, or of one object. In all namespaces several may have its name.
pub(super) fn page(scene: &Scene, of: Option<&StatusOf>, scope: &Scope) -> Result<Page, KubectlError> {
    let mut page = Page::default();
    match of {
        None => overview::add(&mut page, scene, scope),
        Some(StatusOf::Volume(named)) => {
            for volume in all_named(&scene.volumes, "Volume", &named.name, scope)? {
                volume::add(&mut page, scene, volume);
            }
        }
        Some(StatusOf::Snapshot(named)) => {
            for snapshot in all_named(&scene.snapshots, "Snapshot", &named.name, scope)? {
                snapshot::add(&mut page, scene, snapshot);
            }
        }
        Some(StatusOf::Claim(named)) => {
            for claim in all_named(&scene.claims, "VolumeClaim", &named.name, scope)? {
                claim::add(&mut page, scene, claim);
            }
        }
        Some(StatusOf::Plugin(named)) => {
            let plugin = scene.plugin(&named.name).ok_or_else(|| KubectlError::NotThere {
                kind: "Plugin",
                name: named.name.clone(),
                place: "the cluster, or it may not be read".into(),
            })?;
            plugin::add(&mut page, scene, plugin, scope);
        }
        Some(StatusOf::Node(named)) => {
            if !node::add(&mut page, scene, &named.name, scope) {
                let seen = [String::new()].into_iter().chain(scene.unseen.iter().cloned());
                let unseen = seen.collect::<Vec<_>>().join("; not seen: ");
                let (node, place) = (named.name.clone(), scope.place());
                return Err(KubectlError::NothingOnNode { node, place, unseen });
            }
        }
    }
    page.not_seen(&scene.unseen);
    Ok(page)
}

/// The objects of this name; there is at least one.
fn all_named<'a, K: Resource<DynamicType = ()>>(
    all: &'a [K],
    kind: &'static str,
    name: &str,
    scope: &Scope,
) -> Result<Vec<&'a K>, KubectlError> {
    let found: Vec<&K> = all.iter().filter(|object| object.meta().name.as_deref() == Some(name)).collect();
    if found.is_empty() {
        return Err(KubectlError::NotThere { kind, name: name.to_owned(), place: scope.place() });
    }
    Ok(found)
}
