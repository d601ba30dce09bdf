//! Durations, sizes and counts, and how small or large each may be.

use crate::policy::error::ValueError;
use std::time::Duration;

/// Units of time in nanoseconds, from the longest, in the order of printing.
pub(in crate::policy) const DURATIONS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// About thirty years. Added to a clock's time it cannot overflow, unlike `Duration::MAX`.
pub const MAX_DURATION: Duration = Duration::from_secs(1_000_000_000);

/// Rejects durations above `MAX_DURATION`.
pub(in crate::policy) fn bounded(duration: Duration) -> Result<Duration, ValueError> {
    if duration <= MAX_DURATION {
        return Ok(duration);
    }
    Err(ValueError::OutOfRange { value: duration.as_secs().into(), least: 0, most: MAX_DURATION.as_secs() })
}

/// `30s`, `5m`, `1h30m`, `500ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = |why| ValueError::unusable("duration", text, why);
    let how = "write it like 30s, 5m or 1h30m";
    if let Ok(seconds) = text.parse::<u64>()
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        return bounded(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let (count, after) = rest.split_at(digits(rest));
        let (unit, next) = after.split_at(after.bytes().take_while(u8::is_ascii_alphabetic).count());
        let (_, nanos) = DURATIONS.iter().find(|(name, _)| *name == unit).ok_or_else(|| wrong(how))?;
        // Units must come in descending order, each once: "5m1h" and "1m1m" are mistakes, not sums.
        if count.is_empty() || *nanos >= last {
            return Err(wrong(how));
        }
        last = *nanos;
        let part = count.parse::<u64>().ok().and_then(|count| whole_duration(count, *nanos));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| wrong("too long"))?;
        rest = next;
    }
    if text.is_empty() { Err(wrong(how)) } else { bounded(total) }
}

/// A limit on CPU time.
pub(in crate::policy) fn cpu(limit: Duration) -> Result<(), ValueError> {
    if limit.is_zero() {
        return Err(ValueError::Conflict("a limit of 0 would stop every program; leave it out for no limit"));
    }
    bounded(limit).map(drop)
}

fn whole_duration(count: u64, nanos: u64) -> Option<Duration> {
    let total = u128::from(count) * u128::from(nanos);
    let seconds = u64::try_from(total / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, u32::try_from(total % 1_000_000_000).ok()?))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

pub(in crate::policy) const SIZES: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// `512M`, `2G`, `64KiB`; a bare number is bytes. K, M, G and T are powers of 1024.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let wrong = |why| ValueError::unusable("size", text, why);
    let how = "write it like 512M or 2G (powers of 1024), or as bytes";
    let (count, unit) = text.split_at(digits(text));
    let count = match count {
        "" => return Err(wrong(how)),
        _ => count.parse::<u64>().map_err(|_| wrong("too large"))?,
    };
    let scale = match unit {
        "" | "B" => 1,
        _ => {
            let short = unit.strip_suffix("iB").unwrap_or(unit);
            let found = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(short));
            found.ok_or_else(|| wrong(how))?.1
        }
    };
    count.checked_mul(scale).ok_or_else(|| wrong("too large"))
}

/// No program starts with less; a smaller value probably lacks its unit.
const LEAST_MEMORY: u64 = 64 << 10;

/// A limit on memory.
pub(in crate::policy) fn memory(bytes: u64) -> Result<u64, ValueError> {
    match bytes < LEAST_MEMORY {
        true => Err(ValueError::Bytes { bytes, least: LEAST_MEMORY }),
        false => Ok(bytes),
    }
}

/// A limit on a captured stream; 0 keeps nothing.
pub(in crate::policy) fn output(bytes: u64) -> Result<u64, ValueError> {
    some_bytes(bytes, "captured stream", 100)
}

/// A limit on the size of a file; 0 allows only empty files.
pub(in crate::policy) fn disk(bytes: u64) -> Result<u64, ValueError> {
    some_bytes(bytes, "written file", 1 << 10)
}

fn some_bytes(bytes: u64, what: &'static str, least: u64) -> Result<u64, ValueError> {
    match (1..least).contains(&bytes) {
        true => Err(ValueError::FewBytes { bytes, what, least }),
        false => Ok(bytes),
    }
}

/// Descriptors that gatekeeper itself opens before exec count too.
pub const LEAST_FILES: u64 = 16;

/// A count with a minimum and no maximum.
pub(in crate::policy) fn at_least(value: u64, least: u64) -> Result<u64, ValueError> {
    match value < least {
        true => Err(ValueError::OutOfRange { value: value.into(), least, most: u64::MAX }),
        false => Ok(value),
    }
}
