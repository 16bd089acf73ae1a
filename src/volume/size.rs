//! The sizes of a Volume.

use crate::api::{Volume, quantity};

/// The size in bytes that is asked for; 0 where none is.
#[must_use]
pub fn asked(volume: &Volume) -> i64 {
    volume.spec.capacity.as_ref().and_then(|asked| quantity::bytes(asked).ok()).unwrap_or_default()
}

/// The size in bytes that the driver has said; 0 where none is known.
#[must_use]
pub fn made(volume: &Volume) -> i64 {
    volume.status.as_ref().and_then(|status| status.capacity_bytes).unwrap_or_default()
}
