//! Import and export of the seccomp profiles of container engines (OCI runtime specification, Docker, podman).
//!
//! `import` turns such a file into a policy, `export` a table of decisions into such a file. Neither result may allow more
//! than its input: what cannot be expressed is an error.

pub(crate) mod capability;
mod cubes;
mod export;
mod import;

pub use export::{ExportError, export, missing_for_start};
pub(crate) use import::parsed as kernel_version;
pub use import::{ImportError, Imported, Surroundings, import};

use sandbox_contract::bpf::Op;
use serde::{Deserialize, Serialize};

/// A seccomp profile as engines write it. An unknown key is an error: a misspelt `args` would allow a call with any
/// arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    pub default_action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u16>,
    /// podman: the name of the errno, for human readers.
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

/// Syscalls, the action for them, and its conditions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// A single syscall, in files from before Docker 1.12.
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

/// A test of one argument. With `SCMP_CMP_MASKED_EQ`, `value` is the mask and `value_two` the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arg {
    pub index: u8,
    pub value: u64,
    #[serde(default)]
    pub value_two: u64,
    pub op: String,
}

/// The conditions under which Docker and podman use an entry.
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

/// The comparisons without a mask.
const OPS: [(&str, Op); 6] = [
    ("SCMP_CMP_EQ", Op::Eq),
    ("SCMP_CMP_NE", Op::Ne),
    ("SCMP_CMP_LT", Op::Lt),
    ("SCMP_CMP_LE", Op::Le),
    ("SCMP_CMP_GE", Op::Ge),
    ("SCMP_CMP_GT", Op::Gt),
];

/// The names of this architecture in `architectures` and, as Go calls it, in `arches`.
const ARCH: (&str, &str) = if cfg!(target_arch = "x86_64") {
    ("SCMP_ARCH_X86_64", "amd64")
} else if cfg!(target_arch = "aarch64") {
    ("SCMP_ARCH_AARCH64", "arm64")
} else {
    ("SCMP_ARCH_RISCV64", "riscv64")
};
