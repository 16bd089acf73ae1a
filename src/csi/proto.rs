//! The compiled protocols. Nothing here is in git: `build.rs` makes it from `proto/`.
//!
//! Names and fields are the protocol's own, so their documentation is the protocol's too. Messages that carry secrets,
//! contexts, parameters or mount flags print only how many entries these have.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

/// Everything of `proto/`, imports included, as an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// `google.protobuf.Timestamp`: a moment in UTC. Written here because it is all that we need of the well-known types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00Z, negative before.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after `seconds`, 0 to 999,999,999.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// The Container Storage Interface.
pub mod csi {
    /// Version 1 of the interface; 1.12 with its alpha parts.
    pub mod v1 {
        tonic::include_proto!("csi.v1");
        include!(concat!(env!("OUT_DIR"), "/redacted.rs"));
    }
}

/// How a plugin registers with a kubelet, `pluginregistration` version 1.
pub mod registration {
    /// The messages and the service.
    pub mod v1 {
        tonic::include_proto!("pluginregistration");
    }
}
