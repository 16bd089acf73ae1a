//! The parameter of a volume that may be changed.

use std::collections::BTreeMap;
use std::fs;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::{ControllerModifyVolumeRequest, CreateVolumeRequest};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::bench::{Bench, Driver};
use crate::volume::{MIB, Volume, block, create_request};

fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn modify(volume: &Volume, driver: &Driver, all: &[(&str, &str)]) -> Result<(), Status> {
    let request = ControllerModifyVolumeRequest {
        volume_id: volume.id.clone(),
        mutable_parameters: parameters(all),
        ..ControllerModifyVolumeRequest::default()
    };
    driver.controller().controller_modify_volume(request).await.map(drop)
}

/// The label in the volume's record.
fn label(bench: &Bench, volume: &Volume) -> Option<String> {
    let record = bench.state().join("volumes").join(&volume.id).join("volume.json");
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    record["label"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_label_is_recorded_and_nothing_else_is_known() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    assert_eq!(label(&bench, &volume), None);
    modify(&volume, &driver, &[("label", "a")]).await.unwrap();
    volume.bring_up(&driver).await;
    modify(&volume, &driver, &[("label", "b")]).await.unwrap();
    modify(&volume, &driver, &[("label", "b")]).await.unwrap();
    modify(&volume, &driver, &[]).await.unwrap();
    assert_eq!(label(&bench, &volume).as_deref(), Some("b"), "what is not named stays");
    for (bad, says) in [(("iops", "9"), "iops"), (("label", "a\u{7}b"), "label")] {
        let refused = modify(&volume, &driver, &[("label", "c"), bad]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    assert_eq!(label(&bench, &volume).as_deref(), Some("b"));
    volume.take_down(&driver).await;
    volume.delete(&driver).await.unwrap();
    assert_eq!(modify(&volume, &driver, &[("label", "c")]).await.unwrap_err().code(), Code::NotFound);
    bench.assert_clean();
}

#[tokio::test]
async fn a_volume_is_made_with_a_label_and_found_again_with_another() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let create = async |all: &[(&str, &str)]| {
        let plain = create_request("labelled", &volume.capability, 320 * MIB);
        let request = CreateVolumeRequest { mutable_parameters: parameters(all), ..plain };
        driver
            .controller()
            .create_volume(request)
            .await
            .map(|made| made.into_inner().volume.unwrap().volume_id)
    };
    assert_eq!(create(&[("iops", "9")]).await.unwrap_err().code(), Code::InvalidArgument);
    let labelled = Volume { id: create(&[("label", "a")]).await.unwrap(), ..volume.clone() };
    assert_eq!(label(&bench, &labelled).as_deref(), Some("a"));
    let fault = json!({"when": "labelled", "do": "fail", "code": "Unavailable", "times": 1});
    bench.fault("any", "ControllerModifyVolume", &fault);
    assert_eq!(modify(&labelled, &driver, &[("label", "b")]).await.unwrap_err().code(), Code::Unavailable);
    modify(&labelled, &driver, &[("label", "b")]).await.unwrap();
    assert_eq!(create(&[("label", "a")]).await.unwrap(), labelled.id, "it may have been modified since");
    assert_eq!(label(&bench, &labelled).as_deref(), Some("b"));
    for one in [&volume, &labelled] {
        one.delete(&driver).await.unwrap();
    }
    bench.assert_clean();
}
