//! Kubernetes quantities as bytes, and bytes as quantities for people. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A size that is no quantity, or more than CSI's 63 bits of bytes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the size {text:?}: {why}")]
pub struct QuantityError {
    text: String,
    why: &'static str,
}

/// Bytes of a quantity, rounded up as apimachinery's `Value()` does.
pub fn bytes(quantity: &Quantity) -> Result<i64, QuantityError> {
    let text = quantity.0.trim();
    let fail = |why| QuantityError { text: quantity.0.clone(), why };
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.starts_with('-') {
        return Err(fail("a size is not negative"));
    }
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(fail("it does not begin with a number"));
    }
    let (times, over) =
        scale(suffix).ok_or_else(|| fail("its unit is none of Ki…Ei, m, k, M…E or an exponent"))?;
    // Finer than 15 digits after the point cannot matter to a whole number of bytes below 2^63 but for rounding up.
    let kept = fraction.get(..15).unwrap_or(fraction);
    let cut = fraction.len() > kept.len() && fraction.bytes().skip(kept.len()).any(|b| b != b'0');
    let joined: i128 = format!("{whole}{kept}").parse().map_err(|_| fail("it is too large"))?;
    let decimals = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    let too_large = || fail("it is too large");
    let numerator = joined.checked_mul(times).ok_or_else(too_large)?;
    let divisor = 10_i128.checked_pow(decimals).and_then(|d| d.checked_mul(over)).ok_or_else(too_large)?;
    let rounded = numerator / divisor + i128::from(numerator % divisor != 0 || cut);
    i64::try_from(rounded).map_err(|_| too_large())
}

/// What the suffix of a quantity multiplies its number by: numerator and divisor.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    /// Which of the letters this is, the first being 1.
    fn place(letters: &str, letter: &str) -> Option<u32> {
        let at = letters.find(letter).filter(|_| letter.len() == 1)?;
        u32::try_from(at + 1).ok()
    }
    if let Some(power) = suffix.strip_suffix('i').and_then(|letter| place("KMGTPE", letter)) {
        return Some((1024_i128.pow(power), 1));
    }
    if let Some(power) = place("kMGTPE", suffix) {
        return Some((1000_i128.pow(power), 1));
    }
    if let Some(power) = place("mun", suffix) {
        return Some((1, 1000_i128.pow(power)));
    }
    if suffix.is_empty() {
        return Some((1, 1));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Every power above this one is too large alike, also for a number with 15 digits after its point.
    let power = 10_i128.checked_pow(exponent.min(38).unsigned_abs()).filter(|_| exponent >= -18)?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// Bytes in the largest binary unit that loses nothing.
#[must_use]
pub fn human(bytes: i64) -> String {
    const UNITS: [(&str, i64); 6] = [
        ("Ei", 1 << 60),
        ("Pi", 1 << 50),
        ("Ti", 1 << 40),
        ("Gi", 1 << 30),
        ("Mi", 1 << 20),
        ("Ki", 1 << 10),
    ];
    UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes % unit == 0)
        .map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<i64, QuantityError> {
        bytes(&Quantity(text.into()))
    }

    #[test]
    fn suffixes_are_read_as_kubernetes_does() {
        for (text, expected) in [
            ("0", 0),
            ("123", 123),
            ("1Ki", 1024),
            ("1k", 1000),
            ("64Mi", 64 << 20),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("1G", 1_000_000_000),
            ("10e6", 10_000_000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("7Ei", 7 << 60),
            ("+5", 5),
            (".5Ki", 512),
            ("5.", 5),
        ] {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parts_of_a_byte_are_rounded_up() {
        for (text, expected) in
            [("100m", 1), ("1001m", 2), ("1000m", 1), ("0.0000000000000000001", 1), ("1n", 1), ("15e-1", 2)]
        {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "-1",
            "Gi",
            "1gi",
            "1.2.3",
            "1 Gi",
            "8Ei",
            "9e18Ki",
            "1e40",
            "999999999999999999999",
            "1e",
            "0x10",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_called_so() {
        for text in ["8Ei", "1e19", "1e30", "1e400", "0.000000000000001e34"] {
            assert_eq!(of(text).unwrap_err().why, "it is too large", "{text}");
        }
    }

    #[test]
    fn people_see_the_largest_unit_that_loses_nothing() {
        for (bytes, expected) in [
            (0, "0"),
            (1000, "1000"),
            (1024, "1Ki"),
            (1 << 30, "1Gi"),
            (3 << 29, "1536Mi"),
            ((1 << 30) + 1, "1073741825"),
        ] {
            assert_eq!(human(bytes), expected);
        }
    }
}
