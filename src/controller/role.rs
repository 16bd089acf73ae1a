//! Runs the controller role: watches, election, workers, shutdown.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::{Api, Client};
use thiserror::Error;
use tokio::task::JoinSet;

use super::args::ControllerArgs;
use super::caches::{BY_CONTROLLER, BY_MACHINE, TOLD_OF_SILENCE, machine_of};
use super::concern;
use super::context::Context;
use super::counts;
use super::deregistration;
use super::key::Key;
use super::known::Known;
use super::persistent_volumes::PersistentVolumes;
use super::unreadable::{self, Told};
use super::{
    agent_leases, capacities, contents, copies, events, exports, forgotten, imports, missing, modify, nodes,
    pass, plugins, provision, reclaim, relief, resize, restarts, snapshot_events, snapshots, standby,
};
use crate::admin::{self, Admin, AdminError};
use crate::api::Volume;
use crate::api::caller::ControllerRef;
use crate::api::names::agent_lease_name;
use crate::heartbeat::{AgentOnNode, HeardAgent};
use crate::k8s::Watches;
use crate::k8s::cache::{Cache, Cached};
use crate::k8s::events::{Recorder, Role};
use crate::k8s::lease::election::Timing;
use crate::k8s::lease::{ApiLeases, Candidate, Election, ElectionEnd};
use crate::k8s::watch::WentBack;
use crate::k8s::{Next, Writer, queue};
use crate::metrics::{Metrics, PassLabels};
use crate::plugin::change::Change;
use crate::provision::{VolumeGroupSnapshotContent, VolumeSnapshotContent};
use crate::shutdown::Shutdown;

/// Why the controller ended.
#[derive(Debug, Error)]
pub enum Error {
    /// The admin endpoints cannot be served.
    #[error(transparent)]
    Admin(AdminError),
    /// Another process leads now. Ending is the only way to be sure that nothing is decided any more.
    #[error("the Lease was lost: it was not renewed in time, or another controller has taken it")]
    LeaseLost,
    /// A watch has shown that etcd was restored.
    #[error(transparent)]
    WentBack(WentBack),
    /// The leader's Lease is older than it was, or says something that only a new process can take into account.
    #[error("etcd was restored, as the Lease says: starting over")]
    StartAnew,
    /// A watch task died.
    #[error("a watch ended unexpectedly")]
    WatchEnded,
}

/// Runs the controller until `shutdown`, or until this process may not go on.
///
/// # Errors
/// When the admin address is taken, the Lease is lost or a watch can never be right again; the process
/// should end.
pub async fn run(client: Client, args: ControllerArgs, shutdown: Shutdown) -> Result<(), Error> {
    let bound = admin::bind(args.admin_address).await.map_err(Error::Admin)?;
    let (metrics, registry) = Metrics::new();
    let writer = Writer::new(client.clone(), metrics.clone());
    let lease_api = ApiLeases::new(Api::namespaced(client.clone(), &args.namespace), writer.clone());
    let identity = args.identity();
    let recorder = Recorder::new(client.clone(), Role::Controller, &identity);
    let lingers = Duration::from_secs(args.linger.into());
    let known = Arc::new(Known::new(args.site(), args.calls.deadlines().longest(), lingers));
    events::connect(&known);
    let candidate = Candidate { lease: args.lease_name.clone(), identity };
    let changed = standby::told_of(&known.lease_cache, &args.lease_name);
    let (election, leadership) =
        Election::new(lease_api.clone(), candidate, Timing::default(), known.caution.clone(), changed);
    let ctx = Arc::new(Context {
        known,
        persistent_volumes: PersistentVolumes::new(client.clone()),
        client,
        writer,
        lease_api,
        leadership,
        metrics,
        recorder,
        led_since: OnceLock::new(),
    });
    let mut watches = watches(&ctx, &args.namespace);

    let asked = Arc::clone(&ctx);
    let ready =
        move || asked.synced_now().then_some(()).ok_or_else(|| "caches are not filled yet".to_owned());
    // Nothing here can hang without the Lease being lost, which ends the process by itself.
    let admin = Admin { live: Box::new(|| Ok(())), ready: Box::new(ready), registry };
    let serving = bound.serve(admin, shutdown.clone());
    let mut unserved = std::pin::pin!(async {
        match serving.await {
            Err(error) => error,
            Ok(()) => std::future::pending().await,
        }
    });

    // The Lease is given up only after the last pass has ended.
    let (worked, work_done) = Shutdown::manual();
    let begun = shutdown.clone().begun();
    let work = async {
        work(&ctx, args.workers.get(), shutdown.begun()).await;
        worked.begin();
    };
    let mut both = std::pin::pin!(async {
        tokio::select! {
            () = begin(&ctx, &args.lease_name) => {}
            () = begun => {}
        }
        tokio::join!(election.run(work_done.begun()), work).0
    });
    tokio::select! {
        end = &mut both => match end {
            ElectionEnd::ShutDown => Ok(()),
            ElectionEnd::Lost => Err(Error::LeaseLost),
            ElectionEnd::StartAnew => Err(Error::StartAnew),
        },
        Some(ended) = watches.join_next() => Err(match ended {
            Ok(went_back) => Error::WentBack(went_back),
            Err(_) => Error::WatchEnded,
        }),
        error = &mut unserved => Err(Error::Admin(error)),
    }
}

/// Begins caution from the Leases as they were left, before this process takes part in the election.
async fn begin(ctx: &Context, lease: &str) {
    let leases = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    while let Err(error) = ctx.caution.begin(&leases, lease).await {
        tracing::warn!("{error}");
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads what has to be known as it is before anything is decided.
async fn take_over(ctx: &Context) {
    while let Err(error) = plugins::take_in_all(ctx).await {
        tracing::warn!("{error}");
        tokio::time::sleep(RETRY).await;
    }
}

fn watches(ctx: &Context, namespace: &str) -> JoinSet<WentBack> {
    let mut watches = Watches::new(ctx.client.clone(), ctx.metrics.watch_restarts.clone());
    watches.all(&ctx.plugins);
    watches.all(&ctx.instances);
    watches.all(&ctx.volumes);
    watches.all(&ctx.snapshots);
    watches.all(&ctx.claims);
    watches.all(&ctx.handles);
    watches.all(&ctx.attachments);
    watches.all(&ctx.nodes);
    watches.all(&ctx.namespaces);
    watches.all(&ctx.csi_drivers);
    watches.in_namespace(namespace, &ctx.csi_capacities);
    watches.all(&ctx.pvcs);
    watches.all(&ctx.pvs);
    watches.all(&ctx.classes);
    watches.if_defined(&ctx.contents);
    watches.if_defined(&ctx.group_contents);
    watches.in_namespace(namespace, &ctx.lease_cache);
    watches.in_namespace(namespace, &ctx.workloads.deployments);
    watches.in_namespace(namespace, &ctx.workloads.daemon_sets);
    watches.in_namespace(namespace, &ctx.workloads.pods);
    watches.running()
}

/// Waits until this process leads. Returns false if the election ended without that.
async fn stand_by(ctx: &Context) -> bool {
    loop {
        match tokio::time::timeout(standby::PAUSE, ctx.leadership.acquired()).await {
            Ok(leading) => return leading,
            Err(_) => standby::forget_gone(ctx),
        }
    }
}

/// Works while this process leads.
async fn work(ctx: &Arc<Context>, workers: usize, stop: impl Future<Output = ()>) {
    let mut stop = std::pin::pin!(stop.fuse());
    tokio::select! {
        () = &mut stop => return,
        () = ctx.synced() => {}
    }
    tokio::select! {
        () = &mut stop => return,
        leading = stand_by(ctx) => if !leading { return },
    }
    tokio::select! {
        () = &mut stop => return,
        () = ctx.leadership.lost() => return,
        () = take_over(ctx) => {}
    }
    tracing::info!("leading");
    ctx.led_since.get_or_init(Timestamp::now);
    // What was heard while caution began.
    ctx.lease_cache.all().iter().for_each(|lease| ctx.caution.changed(None, Some(lease)));
    ctx.metrics.leading.set(1);
    let worker = {
        let ctx = Arc::clone(ctx);
        move |key: Key| {
            ctx.metrics.passes.get_or_create(&PassLabels { about: key.about() }).inc();
            one(Arc::clone(&ctx), key)
        }
    };
    let leadership = ctx.leadership.clone();
    let ended = async {
        tokio::select! { () = &mut stop => {}, () = leadership.lost() => {} }
    };
    // Ended with the term, wherever they are.
    let mut beside = JoinSet::new();
    beside.spawn(listen(Arc::clone(ctx)));
    beside.spawn(agent_leases::remove(Arc::clone(ctx)));
    beside.spawn(missing::look(Arc::clone(ctx)));
    queue::run(Arc::clone(&ctx.queue), workers, worker, ctx.metrics.panics.clone(), ended).await;
    // Whoever leads next begins when the Lease is given up.
    beside.shutdown().await;
    ctx.metrics.leading.set(0);
}

async fn one(ctx: Arc<Context>, key: Key) -> Next {
    match &key {
        Key::Volume(volume) => pass::run(&ctx, volume).await,
        Key::Snapshot(snapshot) => snapshots::run(&ctx, snapshot).await,
        Key::Plugin(name) => plugins::run(&ctx, name).await,
        Key::Capacities(plugin) => capacities::run(&ctx, plugin).await,
        Key::Provision(claim) => provision::run(&ctx, claim).await,
        Key::Copied(claim) => copies::run(&ctx, claim).await,
        Key::Resize(claim) => resize::run(&ctx, claim).await,
        Key::Modify(claim) => modify::run(&ctx, claim).await,
        Key::Content(name) => contents::run::<VolumeSnapshotContent>(&ctx, name).await,
        Key::GroupContent(name) => contents::run::<VolumeGroupSnapshotContent>(&ctx, name).await,
        Key::PersistentVolume(name) => reclaim::run(&ctx, name).await,
        Key::Import(name) => imports::run(&ctx, name).await,
        Key::Export(volume) => exports::run(&ctx, volume).await,
    }
}

/// How silent an agent is, in the steps of [`nodes::degree`], and how many of its silences have ended: one that began and
/// ended since this was last asked leaves only that behind, and somebody may have looked meanwhile.
type Degree = (u8, u64);

/// How silent the agent of a Node is, and who is heard under the Node's name from others: it may be the same machine,
/// registered anew, and its silence is looked for too.
type NodeDegree = (Degree, Vec<HeardAgent>);

type Degrees = HashMap<AgentOnNode, NodeDegree>;

/// Time between attempts to read what has to be known at the start.
const RETRY: Duration = Duration::from_secs(1);

/// How often silence is looked for. Time passing is no event, so somebody has to ask.
const TICK: Duration = Duration::from_secs(2);

/// Asks for passes when an agent falls silent, when its silence has outlasted the longest call, and when
/// it speaks again.
async fn listen(ctx: Arc<Context>) {
    let mut before = HashMap::new();
    let mut nodes_before = Degrees::new();
    let mut ghosts_before = HashMap::new();
    let mut reporters_before = HashMap::new();
    let mut awaited = BTreeSet::new();
    let mut told = Told::new();
    let mut silent = BTreeSet::new();
    let (mut illnesses, mut counted) = (restarts::Illnesses::default(), counts::Counted::default());
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        let mut now = HashMap::new();
        for instance in ctx.instances.all() {
            let silent = ctx.silent_for(&instance);
            let name = instance.metadata.name.clone().unwrap_or_default();
            let lease = agent_lease_name(&instance.spec.agent);
            let degree = degree(&ctx, &lease, silent);
            // Also the first time: it may have fallen silent after the passes with which the leadership began.
            if before.get(&name).copied().unwrap_or_default() != degree {
                concern::wake(&ctx, &instance, Change::HEARD);
                ctx.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
                capacities::changed(&ctx, &instance.spec.plugin_name);
            }
            now.insert(name, degree);
        }
        awaited = forgotten::settle(&ctx, &awaited).await;
        before = now;
        nodes_before = listen_to_nodes(&ctx, &nodes_before);
        ghosts_before = listen_to_ghosts(&ctx, &ghosts_before);
        reporters_before = forgotten::listen(&ctx, &reporters_before);
        told = unreadable::tell(&ctx, &told);
        let silent_before = std::mem::replace(&mut silent, plugins::silent_agents(&ctx));
        if silent != silent_before {
            plugins::sockets_changed(&ctx);
        }
        counts::count(&ctx, &silent, &mut counted);
        relief::relieve(&ctx).await;
        deregistration::deregister(&ctx).await;
        restarts::restart(&ctx, &mut illnesses).await;
    }
}

fn degree(ctx: &Context, lease: &str, silent: Option<Duration>) -> Degree {
    (nodes::degree(silent, ctx.longest_call), ctx.leases.silences(lease))
}

/// As [`listen`], for controller instances that were removed with their Node, and are known only from the objects
/// that name them.
fn listen_to_ghosts(ctx: &Context, before: &HashMap<String, Degree>) -> HashMap<String, Degree> {
    let mut now = HashMap::new();
    let mut ask = |controller: Option<&ControllerRef>, key: Key| {
        let Some(c) = controller.filter(|c| ctx.instances.get(&c.instance).is_none()) else { return };
        let degree = *now.entry(c.agent.clone()).or_insert_with(|| {
            let lease = agent_lease_name(&c.agent);
            self::degree(ctx, &lease, ctx.leases.expired_for(&lease))
        });
        if before.get(&c.agent).copied().unwrap_or_default() != degree {
            ctx.queue.sweep(key);
        }
    };
    for handle in of_missing(ctx, &ctx.handles, |handle| handle.spec.controller.as_ref()) {
        ask(handle.spec.controller.as_ref(), Key::of_owner(&handle.spec.volume));
    }
    for attachment in of_missing(ctx, &ctx.attachments, |attachment| attachment.spec.controller.as_ref()) {
        ask(attachment.spec.controller.as_ref(), Key::of_owner(&attachment.spec.volume));
    }
    for volume in of_missing(ctx, &ctx.volumes, Volume::caller) {
        ask(volume.caller(), Key::of(&volume));
    }
    for snapshot in snapshot_events::unsettled(ctx) {
        ask(snapshot.caller(), Key::of_snapshot(&snapshot));
    }
    now
}

/// The objects of which the controller instance is not there. Of all that have the same instance one is looked at, since there may
/// be very many, and this is asked every few seconds.
fn of_missing<K: Cached>(
    ctx: &Context,
    cache: &Cache<K>,
    controller: impl Fn(&K) -> Option<&ControllerRef>,
) -> Vec<Arc<K>> {
    let all = cache.one_of_each(BY_CONTROLLER);
    let named = all.iter().filter_map(|one| controller(one));
    let missing = named.filter(|c| ctx.instances.get(&c.instance).is_none());
    missing.flat_map(|c| cache.by_index(BY_CONTROLLER, &c.instance)).collect()
}

/// As [`listen`], for the nodes of Attachments, whose instances may be gone with their Node.
fn listen_to_nodes(ctx: &Context, before: &Degrees) -> Degrees {
    let mut now = Degrees::new();
    let unheard = NodeDegree::default();
    for one in ctx.attachments.one_of_each(BY_MACHINE) {
        let agent = AgentOnNode::of_attachment(&one);
        let own = self::degree(ctx, &agent.lease, ctx.leases.silent_for(&agent));
        let degree = (own, ctx.leases.heard_beside(&agent));
        if before.get(&agent).unwrap_or(&unheard) != &degree {
            for attachment in ctx.attachments.by_index(BY_MACHINE, &machine_of(&one)) {
                ctx.queue.sweep(Key::of_owner(&attachment.spec.volume));
            }
        }
        now.insert(agent, degree);
    }
    // Who was told of a silence by an earlier leader is told of its end by this one.
    for claim in ctx.claims.by_index(TOLD_OF_SILENCE, TOLD_OF_SILENCE.0) {
        let bound = claim.spec.assignment.as_ref().map(AgentOnNode::of_assignment);
        if bound.and_then(|agent| now.get(&agent)).is_none_or(|((degree, _), _)| *degree == 0) {
            ctx.queue.sweep(Key::of_claim(&claim));
        }
    }
    now
}
