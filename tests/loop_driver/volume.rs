//! One volume and the calls on it, as an orchestrator makes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use moor::csi::proto::csi::v1::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
};
use tonic::{Code, Status};

use crate::bench::{Bench, Driver};

pub type Answer = Result<(), Status>;
pub type Context = BTreeMap<String, String>;

pub const MIB: i64 = 1 << 20;

pub fn mount(mode: Mode, fs_type: &str) -> VolumeCapability {
    let volume = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(volume)),
    }
}

pub fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

pub fn code(answer: Answer) -> Code {
    answer.map_or_else(|status| status.code(), |()| Code::Ok)
}

/// A volume in use on one node.
#[derive(Clone)]
pub struct Volume {
    pub id: String,
    pub context: Context,
    pub capability: VolumeCapability,
    pub readonly: bool,
    pub node: String,
    pub dir: PathBuf,
    pub publish_context: Context,
}

pub fn create_request(name: &str, capability: &VolumeCapability, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![capability.clone()],
        ..CreateVolumeRequest::default()
    }
}

impl Volume {
    /// Creates the volume, for use on `node`.
    pub async fn create(bench: &Bench, driver: &Driver, node: &str, capability: VolumeCapability) -> Self {
        let request = create_request("a volume", &capability, 320 * MIB);
        let made = driver.controller().create_volume(request).await.unwrap().into_inner().volume.unwrap();
        assert!(made.capacity_bytes >= 320 * MIB);
        Self {
            id: made.volume_id,
            context: made.volume_context,
            capability,
            readonly: false,
            node: node.to_owned(),
            dir: bench.node_dir(node),
            publish_context: Context::new(),
        }
    }

    /// The same volume for another node.
    pub fn on(&self, bench: &Bench, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            dir: bench.node_dir(node),
            publish_context: Context::new(),
            ..self.clone()
        }
    }

    pub fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    pub fn target(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub async fn attach(&mut self, driver: &Driver) -> Answer {
        let request = ControllerPublishVolumeRequest {
            volume_id: self.id.clone(),
            node_id: self.node.clone(),
            volume_capability: Some(self.capability.clone()),
            readonly: self.readonly,
            volume_context: self.context.clone(),
            secrets: Context::from([("password".to_owned(), "hunter2".to_owned())]).into(),
        };
        let answer = driver.controller().controller_publish_volume(request).await?.into_inner();
        self.publish_context = answer.publish_context;
        Ok(())
    }

    pub async fn detach(&self, driver: &Driver) -> Answer {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: self.id.clone(),
            node_id: self.node.clone(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        driver.controller().controller_unpublish_volume(request).await.map(|_| ())
    }

    pub async fn stage(&self, driver: &Driver) -> Answer {
        let request = NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: text(&self.staging()),
            volume_capability: Some(self.capability.clone()),
            secrets: Context::from([("password".to_owned(), "hunter2".to_owned())]).into(),
            volume_context: self.context.clone(),
        };
        driver.node().node_stage_volume(request).await.map(|_| ())
    }

    pub async fn unstage(&self, driver: &Driver) -> Answer {
        let request = NodeUnstageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: text(&self.staging()),
        };
        driver.node().node_unstage_volume(request).await.map(|_| ())
    }

    pub async fn publish(&self, driver: &Driver, target: &str, readonly: bool) -> Answer {
        let request = NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: text(&self.staging()),
            target_path: text(&self.target(target)),
            volume_capability: Some(self.capability.clone()),
            readonly,
            volume_context: self.context.clone(),
            ..NodePublishVolumeRequest::default()
        };
        driver.node().node_publish_volume(request).await.map(|_| ())
    }

    pub async fn unpublish(&self, driver: &Driver, target: &str) -> Answer {
        let request = NodeUnpublishVolumeRequest {
            volume_id: self.id.clone(),
            target_path: text(&self.target(target)),
        };
        driver.node().node_unpublish_volume(request).await.map(|_| ())
    }

    pub async fn delete(&self, driver: &Driver) -> Answer {
        let request = DeleteVolumeRequest { volume_id: self.id.clone(), ..DeleteVolumeRequest::default() };
        driver.controller().delete_volume(request).await.map(|_| ())
    }

    /// Attach, stage, publish at `a`.
    pub async fn bring_up(&mut self, driver: &Driver) {
        self.attach(driver).await.unwrap();
        self.stage(driver).await.unwrap();
        self.publish(driver, "a", false).await.unwrap();
    }

    /// Undoes [`Self::bring_up`].
    pub async fn take_down(&self, driver: &Driver) {
        self.unpublish(driver, "a").await.unwrap();
        assert!(!self.target("a").exists(), "the target is the driver's to remove");
        self.unstage(driver).await.unwrap();
        self.detach(driver).await.unwrap();
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
