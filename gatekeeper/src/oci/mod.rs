//! The seccomp profiles of container engines (OCI runtime specification, Docker, podman), both ways.
//!
//! `import` takes such a file and gives the policy that it stands for; `export` takes a table of decisions and gives
//! the file. Neither may ever give something wider than what it was given: what cannot be said is an error.

pub mod cubes;
mod export;
mod import;

pub use export::{ExportError, export, missing_for_start};
pub(crate) use import::parsed as kernel_version;
pub use import::{ImportError, Imported, Surroundings, import};

use sandbox_contract::bpf::Op;
use serde::{Deserialize, Serialize};

/// A profile as engines write it. A key that nobody knows is an error: a misspelt `args` would allow a call whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    pub default_action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u16>,
    /// podman's: the same by name, for readers.
    #[serde(skip_serializing)]
    default_errno: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing)]
    arch_map: Vec<serde_json::Value>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing)]
    flags: Vec<String>,
    #[serde(skip_serializing)]
    listener_path: Option<String>,
    #[serde(skip_serializing)]
    listener_metadata: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub syscalls: Vec<Entry>,
}

/// Some calls, what happens to them, and when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// How files before Docker 1.12 name the one call.
    #[serde(skip_serializing)]
    name: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub names: Vec<String>,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u16>,
    #[serde(skip_serializing)]
    errno: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Arg>,
    #[serde(skip_serializing)]
    comment: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing)]
    includes: Conditions,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing)]
    excludes: Conditions,
}

/// A test of one argument. Of `SCMP_CMP_MASKED_EQ`, `value` is the mask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arg {
    pub index: u8,
    pub value: u64,
    #[serde(default)]
    pub value_two: u64,
    pub op: String,
}

/// When an entry of Docker's or podman's counts.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Conditions {
    #[serde(default, deserialize_with = "null_is_empty")]
    arches: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    caps: Vec<String>,
    min_kernel: Option<String>,
}

/// Go writes an empty list as null.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

const MASKED_EQ: &str = "SCMP_CMP_MASKED_EQ";

/// The comparisons of whole words.
const OPS: [(&str, Op); 6] = [
    ("SCMP_CMP_EQ", Op::Eq),
    ("SCMP_CMP_NE", Op::Ne),
    ("SCMP_CMP_LT", Op::Lt),
    ("SCMP_CMP_LE", Op::Le),
    ("SCMP_CMP_GE", Op::Ge),
    ("SCMP_CMP_GT", Op::Gt),
];

/// This architecture, as the files name it and as Go does.
const ARCH: (&str, &str) = if cfg!(target_arch = "x86_64") {
    ("SCMP_ARCH_X86_64", "amd64")
} else if cfg!(target_arch = "aarch64") {
    ("SCMP_ARCH_AARCH64", "arm64")
} else {
    ("SCMP_ARCH_RISCV64", "riscv64")
};
