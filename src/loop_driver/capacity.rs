//! How large a volume becomes.

use super::error::Error;
use crate::csi::proto::csi::v1::CapacityRange;

/// The size of a volume for which the call gives none. The volume is sparse, so it costs nothing until it is written.
const DEFAULT_BYTES: i64 = 1 << 30;
/// The smallest volume. A raw device needs less, but the same floor keeps a volume usable in either way.
pub(super) const LEAST_BYTES: i64 = 8 << 20;
/// The largest volume: below the largest file of ext4 (16 TiB), as the state directory may be on another file system.
pub(super) const MOST_BYTES: i64 = 8 << 40;
/// The unit of sizes, in bytes, as storage has one: a size that is asked for is rounded up to it. A loop device drops what
/// does not fill a sector, of which this is a multiple.
const UNIT: i64 = 1 << 20;

/// The size for a new volume: what is required, or the default, raised to `least` and to whole units.
pub(super) fn choose(range: Option<&CapacityRange>, least: i64) -> Result<i64, Error> {
    let (required, limit) = bounds(range)?;
    let most = limit.map_or(MOST_BYTES, |limit| limit.min(MOST_BYTES));
    let wanted = required.unwrap_or_else(|| DEFAULT_BYTES.min(most)).max(least);
    // The sizes are compared first, so that rounding up cannot overflow.
    let size = if wanted > most { wanted } else { (wanted + UNIT - 1) / UNIT * UNIT };
    if size > most {
        return Err(Error::OutOfRange(format!(
            "needs {size} bytes (whole MiB, at least {least}), and at most {most} are allowed"
        )));
    }
    Ok(size)
}

/// Whether an existing volume satisfies the call.
pub(super) fn fits(range: Option<&CapacityRange>, size: i64) -> Result<bool, Error> {
    let (required, limit) = bounds(range)?;
    Ok(required.is_none_or(|required| size >= required) && limit.is_none_or(|limit| size <= limit))
}

/// Checks that a volume of the size that the call requires has room for a snapshot's content. A larger one is never made
/// instead: who restores into less than there is has the wrong snapshot or the wrong size in mind.
pub(super) fn check_holds(range: Option<&CapacityRange>, content: i64) -> Result<(), Error> {
    match bounds(range)? {
        (Some(required), _) if required < content => Err(Error::OutOfRange(format!(
            "required_bytes is {required}, and the snapshot has {content} bytes"
        ))),
        _ => Ok(()),
    }
}

/// The bounds that a call gives, of which zero stands for none.
fn bounds(range: Option<&CapacityRange>) -> Result<(Option<i64>, Option<i64>), Error> {
    let Some(range) = range else { return Ok((None, None)) };
    let (required, limit) = (range.required_bytes, range.limit_bytes);
    if required < 0 || limit < 0 {
        return Err(Error::invalid("capacity_range", "must not be negative"));
    }
    if limit != 0 && required > limit {
        return Err(Error::invalid("capacity_range", "required_bytes is above limit_bytes"));
    }
    Ok((Some(required).filter(|bytes| *bytes != 0), Some(limit).filter(|bytes| *bytes != 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn range(required_bytes: i64, limit_bytes: i64) -> CapacityRange {
        CapacityRange { required_bytes, limit_bytes }
    }

    #[test]
    fn sizes() {
        let size = |required, limit| choose(Some(&range(required, limit)), LEAST_BYTES);
        assert_eq!(choose(None, LEAST_BYTES).unwrap(), DEFAULT_BYTES);
        assert_eq!(size(64 << 20, 0).unwrap(), 64 << 20);
        assert_eq!(size((64 << 20) + 1, 0).unwrap(), (64 << 20) + UNIT);
        assert_eq!(size(1, 0).unwrap(), LEAST_BYTES);
        assert_eq!(size(0, 20 << 20).unwrap(), 20 << 20);
        assert_eq!(size(MOST_BYTES, 0).unwrap(), MOST_BYTES);
        for (required, limit) in
            [(1, 1000), (i64::MAX, 0), (MOST_BYTES + 1, 0), ((8 << 20) + 1, (8 << 20) + 2)]
        {
            assert_eq!(size(required, limit).unwrap_err().code(), Code::OutOfRange, "{required} {limit}");
        }
        for (required, limit) in [(-1, 0), (0, -1), (2, 1)] {
            assert_eq!(size(required, limit).unwrap_err().code(), Code::InvalidArgument);
        }
    }

    #[test]
    fn repeats() {
        assert!(fits(None, 5).unwrap());
        assert!(fits(Some(&range(5, 5)), 5).unwrap());
        assert!(!fits(Some(&range(6, 0)), 5).unwrap());
        assert!(!fits(Some(&range(0, 4)), 5).unwrap());
    }

    #[test]
    fn snapshots_need_their_size() {
        assert!(check_holds(None, 5).is_ok() && check_holds(Some(&range(5, 0)), 5).is_ok());
        assert_eq!(check_holds(Some(&range(4, 0)), 5).unwrap_err().code(), Code::OutOfRange);
    }
}
