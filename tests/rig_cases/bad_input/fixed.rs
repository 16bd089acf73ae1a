//! What an Attachment stands for: nobody changes anything of it, or takes any of it away.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::Attachment;
use serde_json::{Value, json};

use super::edits::{mounted, undo};
use crate::campaign::patch::putting;
use crate::campaign::schema::{of_kind, properties};
use crate::campaign::values::candidates;
use crate::rig::{Cluster, Options, Rig};

/// The parts of its spec that stay.
const STAY: [&str; 5] = ["volume", "volumeHandle", "nodeName", "accessMode", "fixed"];

/// Every value that the schema lets through at every place of what stays, and none, is either there already or refused.
pub async fn what_an_attachment_stands_for_stays(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    mounted(&rig, "v", "c").await;
    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    let name = rig.read_attachment_of("c").await.metadata.name.unwrap();
    let stays = |object: &Value| STAY.map(|field| object["spec"][field].clone());
    let live = as_json(&all.get(&name).await.unwrap());
    let schema = of_kind("Attachment");
    let mut without_an_answer = BTreeSet::new();
    for property in properties("Attachment", "spec").iter().filter(|p| STAY.contains(&p.field())) {
        let mut is_refused = false;
        for candidate in candidates(&property.schema) {
            let patch = putting(&schema, &live, property, candidate.value.clone());
            match all.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(now) => assert_eq!(stays(&as_json(&now)), stays(&live), "{property}: {}", candidate.value),
                Err(kube::Error::Api(said)) => {
                    assert_eq!(said.code, 422, "{property}: {said}");
                    is_refused |=
                        said.message.contains("is fixed when it is created: delete it to have it undone");
                }
                Err(other) => panic!("{property}: {other}"),
            }
        }
        // Given as a whole, an object of fields may be refused for one that it lacks.
        if property.schema["properties"].is_null() && !is_refused {
            without_an_answer.insert(property.to_string());
        }
    }
    assert_eq!(without_an_answer, BTreeSet::new(), "nobody was told that it stays");
    undo(&rig, "v", "c").await;
}

fn as_json(attachment: &Attachment) -> Value {
    json!(attachment)
}
