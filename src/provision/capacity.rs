//! What the scheduler is told of a driver's room: which instance is asked for which StorageClass and place (CSI
//! GetCapacity), the CSIStorageCapacity objects that come of the answers, and when the CSIDriver object says that they
//! count.
//!
//! Only classes with late binding matter: the scheduler chooses nodes for no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::parameters::{for_driver, fs_type, too_many};
use crate::api::instance::{Capacity, CapacityRequest, MAX_CAPACITIES};
use crate::api::names::capacity_name;
use crate::api::plugin::Balancing;
use crate::api::quantity;
use crate::api::workload::PLUGIN;

/// The label by which people find the objects of a driver, by its name in StorageClasses.
const DRIVER_NAME: &str = "csi.storage.k8s.io/drivername";
/// The label that says who writes an object.
const MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
/// moor, in that label.
const MOOR: &str = "moor";
/// The selector of all objects that moor has made.
pub const OURS: &str = "csi.storage.k8s.io/managed-by=moor";
/// Longest name of a file system in a question, as a PluginInstance has room for.
const MAX_FS_TYPE: usize = 128;
/// Most bytes of all questions to one instance. With what the API server notes of each field, and all answers, that is still
/// far from what etcd takes for an object.
const MAX_BYTES: usize = 256 * 1024;

/// A place in the driver's own terms.
type Segments = BTreeMap<String, String>;

/// An instance as far as room is concerned.
#[derive(Clone, Debug)]
pub struct CapacitySource<'a> {
    /// Name of the PluginInstance.
    pub name: &'a str,
    /// Where its node is, as the driver says and the labels of the Node confirm. None of a node without the driver's Node
    /// service.
    pub place: Option<&'a Segments>,
    /// Its node has the driver, which does not say where that is.
    pub is_anywhere: bool,
    /// It serves the Controller service, and its Plugin wants that used.
    pub makes: bool,
    /// And that has GET_CAPACITY.
    pub answers: bool,
    /// It may be given new work.
    pub healthy: bool,
}

/// A driver that tells its volumes' places apart, and what there is of it.
#[derive(Clone, Debug)]
pub struct CapacityOf<'a> {
    /// Its name in StorageClasses.
    pub driver: &'a str,
    /// How its Plugin spreads controller calls.
    pub balancing: Balancing,
    /// Its instances.
    pub sources: &'a [CapacitySource<'a>],
}

/// A question after room, and who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityQuestion {
    /// Name of the CSIStorageCapacity object.
    pub name: String,
    /// Name of the PluginInstance that is asked.
    pub instance: String,
    /// Whether it can answer now.
    pub healthy: bool,
    /// What it is asked.
    pub request: CapacityRequest,
}

/// All that the scheduler is to be told of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityPlan {
    /// The driver's name in StorageClasses.
    driver: String,
    /// The classes with late binding.
    classes: BTreeSet<String>,
    questions: Vec<CapacityQuestion>,
    /// Some instance says how much room there is.
    answers: bool,
    /// Why something of it can never be known, in words: where a node is, who could say how much room there is in a place in
    /// which volumes can be made, or what there is for a class.
    unknown: Option<String>,
    /// Some instance would be asked more than it can be.
    pub is_too_much: bool,
}

/// What is to be done about one CSIStorageCapacity object.
#[derive(Clone, Debug, PartialEq)]
pub enum CapacityStep {
    /// Nothing: it says what is known, or nothing is known.
    Nothing,
    /// Create it.
    Create(Box<CSIStorageCapacity>),
    /// Write it as this.
    Correct(Box<CSIStorageCapacity>),
    /// Delete it, since it has what cannot be changed otherwise; the next look creates it anew.
    Delete,
}

/// Whether moor has made the object.
#[must_use]
pub fn is_ours(found: &CSIStorageCapacity) -> bool {
    label(found, MANAGED_BY) == Some(MOOR) && plugin_of(found).is_some()
}

/// The Plugin that the object was made for.
#[must_use]
pub fn plugin_of(found: &CSIStorageCapacity) -> Option<&str> {
    label(found, PLUGIN)
}

fn label<'a>(found: &'a CSIStorageCapacity, key: &str) -> Option<&'a str> {
    found.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

impl CapacityPlan {
    /// Plans the questions of a driver, for those of these classes that are its own.
    #[must_use]
    pub fn new(of: &CapacityOf<'_>, classes: &[Arc<StorageClass>]) -> Self {
        let answers = of.sources.iter().any(|source| source.answers);
        let is_late = |class: &&Arc<StorageClass>| {
            class.provisioner == of.driver
                && class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
        };
        let late: Vec<_> = classes.iter().filter(is_late).collect();
        let name = |class: &Arc<StorageClass>| class.metadata.name.clone().unwrap_or_default();
        let whom = Whom::of(of);
        let mut questions = Vec::new();
        for (class, asks) in late.iter().filter_map(|class| Some((class, request(class)?))) {
            let uid = class.metadata.uid.as_deref().unwrap_or_default();
            for (place, source) in whom.places() {
                questions.push(CapacityQuestion {
                    name: capacity_name(of.driver, uid, place),
                    instance: source.name.to_owned(),
                    healthy: source.healthy,
                    request: CapacityRequest { segments: place.clone(), ..asks.clone() },
                });
            }
        }
        // In an order in which an instance's are together.
        questions.sort_by(|a, b| (&a.instance, &a.name).cmp(&(&b.instance, &b.name)));
        let is_too_much = questions.chunk_by(|a, b| a.instance == b.instance).any(is_too_much);
        if is_too_much {
            questions.clear();
        }
        // Of an instance that tells no places apart, as while a version of the driver that does is rolled out, nobody can say
        // how much room it finds.
        let anywhere = of.sources.iter().find(|source| source.is_anywhere);
        let anywhere =
            anywhere.map(|source| format!("PluginInstance {} does not say where its node is", source.name));
        let odd = late.iter().find(|class| request(class).is_none()).map(|class| name(class));
        let odd = odd
            .map(|class| format!("StorageClass {class} has more parameters than a driver can be asked with"));
        let unknown = anywhere.or_else(|| whom.unknown()).or(odd);
        let classes = late.into_iter().map(name).collect();
        Self { driver: of.driver.to_owned(), classes, questions, answers, unknown, is_too_much }
    }

    /// Plans for a driver that does not tell places apart: the scheduler is told nothing. `answers` is whether some instance
    /// says how much room there is.
    #[must_use]
    pub fn without_places(answers: bool) -> Self {
        let why = "the driver does not say where its nodes are (VOLUME_ACCESSIBILITY_CONSTRAINTS)";
        Self { answers, unknown: Some(why.to_owned()), ..Self::default() }
    }

    /// The driver's name in StorageClasses.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Every question, with the object that tells its answer.
    #[must_use]
    pub fn questions(&self) -> &[CapacityQuestion] {
        &self.questions
    }

    /// The names of all objects that are to be there.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        self.questions.iter().map(|question| question.name.as_str()).collect()
    }

    /// What an instance is to be asked.
    #[must_use]
    pub fn requests_of(&self, instance: &str) -> BTreeMap<String, CapacityRequest> {
        let begin = self.questions.partition_point(|question| question.instance.as_str() < instance);
        let own = self.questions.iter().skip(begin).take_while(|question| question.instance == instance);
        own.map(|question| (question.name.clone(), question.request.clone())).collect()
    }

    /// Plans for the object of one question, which the Plugin's instance has answered with `said`. Without an answer the
    /// object stays as it was.
    #[must_use]
    pub fn object(
        &self,
        question: &CapacityQuestion,
        at: MadeFor<'_>,
        said: Option<&Capacity>,
        found: Option<&CSIStorageCapacity>,
    ) -> CapacityStep {
        let wanted = said.and_then(|said| self.wanted(question, at, said));
        match (wanted, found) {
            (_, Some(found)) if found.metadata.deletion_timestamp.is_some() => CapacityStep::Nothing,
            (_, Some(found)) if !is_of(question, found) => CapacityStep::Delete,
            (None, _) => CapacityStep::Nothing,
            (Some(wanted), None) => CapacityStep::Create(Box::new(wanted)),
            (Some(wanted), Some(found)) => correct(wanted, found),
        }
    }

    fn wanted(
        &self,
        question: &CapacityQuestion,
        at: MadeFor<'_>,
        said: &Capacity,
    ) -> Option<CSIStorageCapacity> {
        let size = |bytes: i64| Quantity(quantity::human(bytes));
        let labels = [(DRIVER_NAME, self.driver.as_str()), (MANAGED_BY, MOOR), (PLUGIN, at.plugin)];
        Some(CSIStorageCapacity {
            metadata: ObjectMeta {
                name: Some(question.name.clone()),
                namespace: Some(at.namespace.to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            capacity: Some(size(said.available_capacity?)),
            maximum_volume_size: said.maximum_volume_size.map(size),
            node_topology: Some(topology(question)),
            storage_class_name: question.request.storage_class_name.clone(),
        })
    }

    /// Whether the CSIDriver object is to say that the scheduler goes by these objects. From then on no Pod goes where there is
    /// none. `has` is whether there is one of this name, and `said` what the CSIDriver says now. It begins when every
    /// instance that can answer has, and ends when there is nothing of some class: a node that comes, or answers nothing for
    /// a while, changes it for no other. It ends too when volumes can be made where nobody says how much room there is, as
    /// while a version of the driver that does is rolled out: else no Pod would go there.
    #[must_use]
    pub fn counts(&self, has: impl Fn(&str) -> bool, said: bool) -> bool {
        self.lack(has, said).is_none()
    }

    /// Why the scheduler does not go by the room of a driver that says how much there is, in words for people; None where it
    /// does, or the driver does not say it. The arguments are those of [`Self::counts`].
    #[must_use]
    pub fn why_untold(&self, has: impl Fn(&str) -> bool, said: bool) -> Option<String> {
        self.lack(has, said).filter(|_| self.answers)
    }

    fn lack(&self, has: impl Fn(&str) -> bool, said: bool) -> Option<String> {
        if let Some(unknown) = &self.unknown {
            return Some(unknown.clone());
        }
        if self.classes.is_empty() {
            return Some("no StorageClass of the driver has WaitForFirstConsumer".into());
        }
        if self.is_too_much {
            return Some("an instance would be asked more than it can be".into());
        }
        let (told, untold): (Vec<_>, Vec<_>) =
            self.questions.iter().partition(|question| has(&question.name));
        let of = |questions: &[&CapacityQuestion], class: &str| {
            questions.iter().any(|question| question.request.storage_class_name == class)
        };
        if let Some(class) = self.classes.iter().find(|class| !of(&told, class)) {
            return Some(if of(&untold, class) {
                format!("nothing is known of StorageClass {class} yet, see status.capacities of instances")
            } else {
                "no Node's labels confirm where an instance says that its node is".into()
            });
        }
        let waits = untold.into_iter().find(|question| question.healthy && !said)?;
        Some(format!("PluginInstance {} has not answered yet", waits.instance))
    }
}

/// For whom an object is made, and where.
#[derive(Clone, Copy, Debug)]
pub struct MadeFor<'a> {
    /// Name of the Plugin.
    pub plugin: &'a str,
    /// moor's own namespace.
    pub namespace: &'a str,
}

/// What every instance is asked about a class, without the place. None of a class whose parameters no driver can be given:
/// nothing is made of it either.
fn request(class: &StorageClass) -> Option<CapacityRequest> {
    let all = class.parameters.clone().unwrap_or_default();
    let (parameters, fs_type) = (for_driver(&all), fs_type(&all));
    let is_short = fs_type.as_ref().is_none_or(|fs_type| fs_type.chars().count() <= MAX_FS_TYPE);
    (too_many(&parameters).is_none() && is_short).then(|| CapacityRequest {
        storage_class_name: class.metadata.name.clone().unwrap_or_default(),
        fs_type,
        parameters,
        segments: Segments::new(),
    })
}

fn is_too_much(questions: &[CapacityQuestion]) -> bool {
    let length = |map: &Segments| map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let bytes = |asked: &CapacityRequest| {
        asked.storage_class_name.len() + length(&asked.parameters) + length(&asked.segments)
    };
    questions.len() > MAX_CAPACITIES
        || questions.iter().map(|question| bytes(&question.request)).sum::<usize>() > MAX_BYTES
}

/// Who is asked about which place.
struct Whom<'a> {
    places: BTreeSet<&'a Segments>,
    /// Places in which an instance makes volumes.
    used: BTreeSet<&'a Segments>,
    there: BTreeMap<&'a Segments, &'a CapacitySource<'a>>,
    elsewhere: Option<&'a CapacitySource<'a>>,
}

impl<'a> Whom<'a> {
    /// An instance in the place itself is asked, a healthy one before others. About a place that has none that could answer,
    /// well or not, any is, where controller calls are not bound to places.
    fn of(of: &CapacityOf<'a>) -> Self {
        fn rank<'s>(source: &CapacitySource<'s>) -> (bool, &'s str) {
            (!source.healthy, source.name)
        }
        let able = || of.sources.iter().filter(|source| source.answers);
        let mut there: BTreeMap<&Segments, &CapacitySource<'_>> = BTreeMap::new();
        for (place, source) in able().filter_map(|source| Some((source.place?, source))) {
            let first = there.entry(place).or_insert(source);
            if rank(source) < rank(first) {
                *first = source;
            }
        }
        let elsewhere = match of.balancing {
            Balancing::PerTopology => None,
            Balancing::Spread | Balancing::SingleActive => able().min_by_key(|source| rank(source)),
        };
        let places = of.sources.iter().filter_map(|source| source.place).collect();
        let used =
            of.sources.iter().filter(|source| source.makes).filter_map(|source| source.place).collect();
        Self { places, used, there, elsewhere }
    }

    fn asked(&self, place: &'a Segments) -> Option<&'a CapacitySource<'a>> {
        self.there.get(place).copied().or(self.elsewhere)
    }

    /// A place in which volumes can be made and about which nobody can be asked, in words.
    fn unknown(&self) -> Option<String> {
        let place = self.used.iter().find(|place| self.asked(place).is_none())?;
        let said: Vec<_> = place.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Some(format!("nobody says how much room there is in {}, where volumes can be made", said.join(",")))
    }

    /// Every place that somebody can be asked about.
    fn places(&self) -> impl Iterator<Item = (&'a Segments, &'a CapacitySource<'a>)> {
        self.places.iter().filter_map(|place| Some((*place, self.asked(place)?)))
    }
}

fn topology(question: &CapacityQuestion) -> LabelSelector {
    LabelSelector { match_labels: Some(question.request.segments.clone()), match_expressions: None }
}

/// Whether what cannot be changed in an object is the question's.
fn is_of(question: &CapacityQuestion, found: &CSIStorageCapacity) -> bool {
    found.storage_class_name == question.request.storage_class_name
        && found.node_topology.as_ref() == Some(&topology(question))
}

/// The API server writes sizes in a way of its own, so they are compared as numbers.
fn correct(wanted: CSIStorageCapacity, found: &CSIStorageCapacity) -> CapacityStep {
    let bytes = |size: Option<&Quantity>| size.and_then(|size| quantity::bytes(size).ok());
    let mut corrected = found.clone();
    if bytes(found.capacity.as_ref()) != bytes(wanted.capacity.as_ref()) {
        corrected.capacity = wanted.capacity;
    }
    if bytes(found.maximum_volume_size.as_ref()) != bytes(wanted.maximum_volume_size.as_ref()) {
        corrected.maximum_volume_size = wanted.maximum_volume_size;
    }
    let labels = wanted.metadata.labels.unwrap_or_default();
    corrected.metadata.labels.get_or_insert_default().extend(labels);
    if corrected == *found { CapacityStep::Nothing } else { CapacityStep::Correct(Box::new(corrected)) }
}

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;
