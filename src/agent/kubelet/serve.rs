//! Which drivers kubelet is served, and how that is said on the PluginInstance.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use tonic::transport::Server;

use super::driver::Driver;
use super::facts::{Facts, Registered, Told};
use super::inline::{self, Inline};
use super::registration::Registrar;
use super::served::Served;
use super::volume_data;
use crate::agent::context::Agent;
use crate::agent::host::paths::HostPath;
use crate::api::instance::KubeletStatus;
use crate::api::names::INLINE;
use crate::attachment::record::Done;
use crate::csi::Service;
use crate::csi::proto::csi::v1::NodeGetInfoResponse;
use crate::csi::proto::csi::v1::identity_server::IdentityServer;
use crate::csi::proto::csi::v1::node_server::NodeServer;
use crate::csi::proto::registration::v1::registration_server::RegistrationServer;
use crate::k8s::{Next, read};
use crate::plugin::{csi_driver, has_conflict, served_as};

/// Time between looks at what tells nobody when it changes: a CSIDriver object that is not as kubelet has to find it, the
/// volumes of Pods whose Plugin is gone, and kubelet's own folder after a link was taken away.
const LOOK: Duration = Duration::from_secs(2);

/// What kubelet is to be served of one driver.
struct Wanted {
    /// The name by which kubelet is to know it.
    name: String,
    /// Whether somebody else has the name.
    has_conflict: bool,
    /// Whether what kubelet asks at once is known: it takes a driver without a node id for broken.
    answers: bool,
    /// What kubelet is told of the node now, if that is known.
    info: Option<NodeGetInfoResponse>,
}

/// What is wanted of a driver: if its Plugin has its name at kubelets, of which of several with one name the oldest has it. The
/// volumes that Pods name themselves are served beside those of any Plugin.
fn wanted(agent: &Agent, driver: &str) -> Option<Wanted> {
    let all = agent.caches.plugins.all();
    if driver == INLINE {
        let is_wanted = agent.inline_volumes && all.iter().any(|plugin| plugin.kubelet_name().is_some());
        let (name, info) = (INLINE.to_owned(), Some(inline::node_info(agent)));
        return is_wanted.then_some(Wanted { name, has_conflict: false, answers: true, info });
    }
    let plugin = agent.caches.plugin_of(driver)?;
    let name = plugin.kubelet_name()?.to_owned();
    if served_as(&name, &all)?.metadata.name != plugin.metadata.name {
        return None;
    }
    let serving = agent.process_of(driver, Service::Node);
    let answers = serving.is_some();
    if !answers && !agent.is_registered(driver) {
        // It is not here, or not any more: nothing is to be scheduled here for its sake.
        return None;
    }
    let info = serving.and_then(|serving| serving.fingerprint.node_info.clone());
    Some(Wanted { name, has_conflict: has_conflict(&plugin), answers, info })
}

/// Serves kubelet what it is to be served of one driver, and ends what it is not.
pub(crate) async fn work(agent: Arc<Agent>, driver: String) -> Next {
    let wanted = wanted(&agent, &driver);
    let name = wanted.as_ref().map(|wanted| wanted.name.as_str());
    let mut looks_again = None;
    for facts in agent.served.of(&driver).into_iter().filter(|facts| Some(facts.name()) != name) {
        // Without its driver kubelet could not give up what Pods have (rule R12).
        let done = match is_held(&agent, &facts).await {
            Ok(true) => {
                looks_again = Some(LOOK);
                serve(&agent, &facts).await
            }
            Ok(false) => {
                let ended = at_disk(&agent, &facts, Served::end).await;
                // Its PluginInstance says so.
                agent.queues.instances.add(driver.clone());
                ended
            }
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            return failed(&facts, &error);
        }
    }
    if let Some(wanted) = wanted {
        // kubelet gives up by this name what Pods have of a driver that had it before.
        let before = agent.served.driver_of(&wanted.name);
        if before.is_some_and(|had| had != driver && has_pods(&agent, &had)) {
            return Next::After(LOOK);
        }
        let facts = agent.served.facts(&wanted.name, &driver);
        match serve_wanted(&agent, wanted, &facts).await {
            Ok(Settled::Yes) => {}
            Ok(Settled::NotYet(pause)) => looks_again = looks_again.min(Some(pause)).or(Some(pause)),
            Err(error) => return failed(&facts, &error),
        }
    }
    looks_again.map_or(Next::Done, Next::After)
}

/// Whether a driver name is served as it is to be, as far as nobody would tell when it can be.
enum Settled {
    Yes,
    /// It is looked at again after this time.
    NotYet(Duration),
}

async fn serve_wanted(agent: &Arc<Agent>, wanted: Wanted, facts: &Facts) -> io::Result<Settled> {
    let is_linked = at_disk(agent, facts, |served, name| Ok(served.is_linked(name))).await?;
    if !is_linked {
        // The controller makes the object, or says on the Plugin why not. Before that kubelet would wait for
        // VolumeAttachments. When it says otherwise, that is an event.
        if !wanted.answers || wanted.has_conflict {
            return Ok(Settled::Yes);
        }
        if !is_announced(agent, facts.name()).await {
            return Ok(Settled::NotYet(LOOK));
        }
    }
    serve(agent, facts).await?;
    // A refusal may be over: another socket had the name, the driver began after kubelet, kubelet reached no API server.
    if is_linked
        && wanted.answers
        && let Some(left) = facts.refused_for()
    {
        if !left.is_zero() {
            return Ok(Settled::NotYet(left));
        }
        facts.asked_again();
        at_disk(agent, facts, Served::unlink).await?;
        return Ok(Settled::NotYet(LOOK));
    }
    let outdated = wanted.info.zip(facts.told()).is_some_and(|(info, told)| Told::of(&info) != told);
    if is_linked && outdated {
        // What kubelet has written into the CSINode object can only be replaced by another registration.
        tracing::info!(
            name = facts.name(),
            "the driver says something else of the node; kubelet is to ask again"
        );
        at_disk(agent, facts, Served::unlink).await?;
        facts.forgotten().await?;
        agent.queues.instances.add(facts.driver().to_owned());
        return Ok(Settled::NotYet(LOOK));
    }
    facts.keep().await?;
    at_disk(agent, facts, Served::link).await?;
    Ok(Settled::Yes)
}

/// Answers at the socket of a driver name.
async fn serve(agent: &Arc<Agent>, facts: &Facts) -> io::Result<()> {
    if agent.served.is_running(facts.name()) {
        return Ok(());
    }
    let registrar = Registrar::new(agent.clone(), facts.clone());
    let router = Server::builder().add_service(RegistrationServer::new(registrar));
    let router = if facts.driver() == INLINE {
        let all = Arc::new(Inline::new(agent.clone(), facts.clone()));
        router.add_service(IdentityServer::from_arc(all.clone())).add_service(NodeServer::from_arc(all))
    } else {
        let driver = Driver {
            agent: agent.clone(),
            kubelet_name: facts.name().to_owned(),
            name: facts.driver().to_owned(),
            facts: facts.clone(),
        };
        router.add_service(IdentityServer::new(driver.clone())).add_service(NodeServer::new(driver))
    };
    at_disk(agent, facts, move |served, name| served.serve(name, router)).await
}

/// Works at kubelet's folders, whose disk may be slow.
async fn at_disk<T: Send + 'static>(
    agent: &Arc<Agent>,
    facts: &Facts,
    work: impl FnOnce(&Served, &str) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (agent, name) = (agent.clone(), facts.name().to_owned());
    let done = tokio::task::spawn_blocking(move || work(&agent.served, &name));
    done.await.unwrap_or_else(|ended| Err(ended.into()))
}

fn failed(facts: &Facts, error: &io::Error) -> Next {
    tracing::warn!(name = facts.name(), "what kubelet is served cannot be changed: {error}");
    Next::Retry
}

/// Whether kubelet has calls to make for what Pods have, or had: by this node's records, or by its own.
async fn is_held(agent: &Arc<Agent>, facts: &Facts) -> io::Result<bool> {
    if has_pods(agent, facts.driver()) {
        return Ok(true);
    }
    let (agent, name) = (agent.clone(), facts.name().to_owned());
    let look = move || volume_data::speaks_of(agent.paths.kubelet().as_path(), &name);
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|ended| Err(ended.into()))
}

/// Whether kubelet has, or may have, volumes of a driver mounted for Pods.
fn has_pods(agent: &Agent, driver: &str) -> bool {
    let mut found = false;
    let is_kubelets = |path: &str| !agent.paths.owns(&HostPath::recorded(path));
    agent.records.visit(driver, |stored| {
        let record = &stored.record;
        found |= record.targets.values().any(|target| is_kubelets(&target.path))
            || record.staged != Done::No && is_kubelets(&record.staging_path);
    });
    found
}

/// Whether the CSIDriver object is moor's or its chart's, and lets kubelet mount without a VolumeAttachment.
async fn is_announced(agent: &Agent, name: &str) -> bool {
    let found = read::get_live(&Api::<CSIDriver>::all(agent.client.clone()), name).await;
    let serves = if name == INLINE { csi_driver::serves_inline } else { csi_driver::serves };
    match found {
        Ok(found) => found.is_some_and(|found| serves(&found)),
        Err(error) => {
            tracing::warn!("{error}");
            false
        }
    }
}

/// What a PluginInstance says of kubelet; nothing where kubelet is not served.
pub(crate) fn status(agent: &Agent, driver: &str) -> Option<KubeletStatus> {
    let plugin = agent.caches.plugin_of(driver);
    let wanted = plugin.as_ref().and_then(|plugin| plugin.kubelet_name());
    let all = agent.served.of(driver);
    let facts = all.iter().find(|facts| Some(facts.name()) == wanted).or(all.first())?;
    let (registered, message) = match facts.registered() {
        Registered::Yes => (true, None),
        Registered::NotYet => (false, None),
        Registered::Refused(why) => (false, Some(why)),
    };
    Some(KubeletStatus { driver_name: facts.name().to_owned(), registered, message })
}
