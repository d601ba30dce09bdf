//! The names of capabilities, as container engines write them.

use crate::policy::ValueError;

/// All of linux/capability.h, in the order of their numbers.
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// Fails with the nearest name if there is no such capability. A misspelt one would match no entry of a profile, and every
/// entry that excludes it.
pub(crate) fn known(name: &str) -> Result<(), ValueError> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    let nearest = |name: &str| crate::policy::nearest(name, &NAMES).filter(|_| name != "CAP_");
    let nearest = nearest(name).or_else(|| nearest(&format!("CAP_{name}")));
    Err(ValueError::Unknown { what: "capability", word: name.to_owned(), nearest, known: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_capability_is_answered_with_the_nearest() {
        assert_eq!(known("CAP_SYS_ADMIN"), Ok(()));
        for (word, wanted) in [
            ("CAP_SYS_ADMN", "CAP_SYS_ADMIN"),
            ("cap_net_raw", "CAP_NET_RAW"),
            ("SYS_ADMIN", "CAP_SYS_ADMIN"),
            ("CAP_CHECKPOINT", "CAP_CHECKPOINT_RESTORE"),
            ("kill", "CAP_KILL"),
        ] {
            let error = known(word).expect_err(word).to_string();
            assert_eq!(error, format!("unknown capability '{word}'; did you mean '{wanted}'?"));
        }
        assert_eq!(known("").map_err(|error| error.to_string()), Err("unknown capability ''".to_owned()));
        assert!(known("ALL").is_err() && known("CAP_BOGUS").is_err());
    }
}
