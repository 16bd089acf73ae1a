//! kubelet's plugin registration: who we are, and whether kubelet has taken us.

use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};

use super::facts::{Facts, Registered};
use crate::agent::context::Agent;
use crate::csi::proto::registration::v1::registration_server::Registration;
use crate::csi::proto::registration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// What kubelet looks for; another type it leaves to others.
const CSI_PLUGIN: &str = "CSIPlugin";
/// The versions of CSI that kubelet knows by this name: 1.x, whichever x.
const VERSIONS: [&str; 1] = ["1.0.0"];
/// Bytes of kubelet's words that a PluginInstance has room for.
const WORDS: usize = 1024;

/// Registers a driver name at kubelet.
pub(super) struct Registrar {
    agent: Arc<Agent>,
    /// What is known of the name at kubelet.
    facts: Facts,
}

impl Registrar {
    pub fn new(agent: Arc<Agent>, facts: Facts) -> Self {
        Self { agent, facts }
    }
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: self.facts.name().to_owned(),
            // The same socket serves both.
            endpoint: String::new(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        let registered = if plugin_registered {
            Registered::Yes
        } else {
            tracing::warn!(name = self.facts.name(), "kubelet refuses the driver: {error}");
            Registered::Refused(error.chars().take(WORDS).collect())
        };
        let kept = self.facts.decided(registered).await;
        kept.map_err(|error| Status::unavailable(format!("keep what kubelet has decided: {error}")))?;
        self.agent.queues.instances.add(self.facts.driver().to_owned());
        self.agent.queues.kubelet.add(self.facts.driver().to_owned());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
