//! A resource limit that a run reached.

use serde::{Deserialize, Serialize};

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exceeded {
    pub which: Which,
    pub value: u64,
    pub peak: u64,
    pub unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unit {
    Bytes,
    Processes,
    Ms,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Processes => "processes",
            Unit::Ms => "ms",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Which {
    Memory,
    Processes,
    Cpu,
    Time,
    Disk,
    Output,
}

impl Which {
    pub fn word(self) -> &'static str {
        match self {
            Which::Memory => "memory",
            Which::Processes => "processes",
            Which::Cpu => "cpu",
            Which::Time => "time",
            Which::Disk => "disk",
            Which::Output => "output",
        }
    }

    pub(crate) fn exceeded(self, value: u64, peak: u64) -> Exceeded {
        let unit = match self {
            Which::Memory | Which::Disk | Which::Output => Unit::Bytes,
            Which::Processes => Unit::Processes,
            Which::Cpu | Which::Time => Unit::Ms,
        };
        Exceeded { which: self, value, peak, unit }
    }
}
