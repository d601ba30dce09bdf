//! The results of unconfined attacks on machines that lack the attacked feature. Each attack has its own errnos. Any
//! other result means that the attack is broken, and then its confined half proves nothing.

/// For each attack: the errnos without the feature, and those for a user whom a setting of the machine keeps out.
const ABSENT: &[(&str, &[&str], &[&str])] = &[
    // Calls that a kernel may be built without.
    ("int80", &["ENOSYS"], &[]),
    ("x32", &["ENOSYS"], &[]),
    ("io-uring-setup", &["ENOSYS"], &["EPERM"]),
    ("io-uring-sqpoll", &["ENOSYS"], &["EPERM"]),
    ("io-uring-disabled", &["ENOSYS"], &["EPERM"]),
    ("io-uring-enter", &["ENOSYS"], &[]),
    ("io-uring-register", &["ENOSYS"], &[]),
    ("io-uring-openat", &["ENOSYS"], &["EPERM"]),
    // kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor.
    ("clone3-new-user", &["ENOSYS"], &["EPERM", "ENOSPC", "EACCES"]),
    ("chmod-by-new-call", &["ENOSYS"], &[]),
    ("attribute", &["EOPNOTSUPP"], &[]),
    ("attribute-by-new-call", &["ENOSYS", "EOPNOTSUPP"], &[]),
    ("attribute-trusted", &["EOPNOTSUPP"], &[]),
    ("inode-flags", &["ENOTTY", "EOPNOTSUPP"], &[]),
    ("inode-flags-junk", &["ENOTTY", "EOPNOTSUPP"], &[]),
    ("inode-flags-by-new-call", &["ENOSYS", "EOPNOTSUPP"], &[]),
    // The errnos of other file systems count as open.
    ("ext4-migrate", &[], &[]),
    // If kernel.core_pattern pipes core files into a program.
    ("core-dump", &["unable"], &[]),
    ("open-tree-attr", &["ENOSYS"], &[]),
    ("unshare-time", &["EINVAL"], &[]),
    // If the limit is already at its maximum.
    ("raise-limit", &["unable"], &[]),
    ("add-key", &["ENOSYS"], &["EDQUOT"]),
    ("request-key", &["ENOSYS"], &[]),
    ("keyctl", &["ENOSYS"], &["EDQUOT"]),
    ("bpf", &["ENOSYS"], &[]),
    ("perf", &["ENOSYS", "ENOENT"], &[]),
    // vm.unprivileged_userfaultfd.
    ("userfaultfd", &["ENOSYS"], &["EPERM"]),
    ("userfaultfd-device", &["ENOENT"], &[]),
    ("fanotify", &["ENOSYS"], &[]),
    ("init-module", &["ENOSYS"], &[]),
    ("finit-module", &["ENOSYS"], &[]),
    ("delete-module", &["ENOSYS"], &[]),
    ("kexec", &["ENOSYS"], &[]),
    ("kexec-file", &["ENOSYS"], &[]),
    ("swapon", &["ENOSYS"], &[]),
    ("swapoff", &["ENOSYS"], &[]),
    ("quotactl", &["ENOSYS"], &[]),
    ("acct", &["ENOSYS"], &[]),
    ("iopl", &["ENOSYS"], &[]),
    ("ioperm", &["ENOSYS"], &[]),
    ("modify-ldt", &["ENOSYS"], &[]),
    ("memfd-secret", &["ENOSYS"], &[]),
    // Files that a kernel, or a container, may not have.
    ("sysctl-modprobe", &["ENOENT"], &[]),
    ("sysrq", &["ENOENT"], &[]),
    ("uevent-helper", &["ENOENT"], &[]),
    ("power-state", &["ENOENT"], &[]),
    ("kcore", &["ENOENT"], &[]),
    ("kallsyms", &["ENOENT"], &[]),
    ("dev-mem", &["ENOENT"], &[]),
    ("dev-kmsg", &["ENOENT"], &[]),
    ("dev-kmsg-write", &["ENOENT"], &[]),
    ("dev-vcs", &["ENOENT", "ENXIO"], &[]),
    ("dev-tty1", &["ENOENT", "ENXIO", "EIO"], &[]),
    ("disk", &["unable", "ENOENT"], &[]),
    ("loop-device", &["ENOENT", "ENODEV"], &[]),
    ("kvm", &["ENOENT", "ENODEV"], &[]),
    ("tun", &["ENOENT", "ENODEV"], &[]),
    ("fuse", &["ENOENT", "ENODEV"], &[]),
    ("release-agent", &["ENOENT", "ENODEV", "EINVAL"], &[]),
    ("cgroup-make", &["ENOENT", "ENODEV"], &[]),
    ("cgroup-leave", &["ENOENT", "ENODEV"], &[]),
    ("binfmt-misc", &["ENOENT", "ENODEV"], &[]),
    // Families and protocols.
    ("tcp6-socket", &["EAFNOSUPPORT"], &[]),
    ("mptcp-socket", &["EPROTONOSUPPORT"], &[]),
    ("sctp-socket", &["EPROTONOSUPPORT", "ESOCKTNOSUPPORT"], &[]),
    ("packet-socket", &["EAFNOSUPPORT"], &[]),
    ("vsock", &["EAFNOSUPPORT"], &[]),
    ("af-alg", &["EAFNOSUPPORT"], &[]),
    ("xdp-socket", &["EAFNOSUPPORT"], &[]),
    ("bluetooth", &["EAFNOSUPPORT"], &[]),
    ("can", &["EAFNOSUPPORT"], &[]),
    ("tipc", &["EAFNOSUPPORT"], &[]),
    ("rds", &["EAFNOSUPPORT"], &[]),
    ("netlink-audit", &["EPROTONOSUPPORT"], &[]),
    ("netlink-netfilter", &["EPROTONOSUPPORT"], &[]),
    ("port-mapped", &["EAFNOSUPPORT"], &[]),
    ("port-mptcp", &["EPROTONOSUPPORT"], &[]),
    ("port-fastopen-sendto", &["EOPNOTSUPP"], &[]),
    ("port-fastopen-sendmsg", &["EOPNOTSUPP"], &[]),
    ("port-fastopen-sendmmsg", &["EOPNOTSUPP"], &[]),
    ("port-fastopen-connect", &["EOPNOTSUPP"], &[]),
    ("port-udp-lite", &["EPROTONOSUPPORT"], &[]),
    // Other processes; kernel.yama.ptrace_scope keeps users out.
    ("proc-syscall", &["ENOENT"], &[]),
    ("pidfd-namespace", &["ENOTTY"], &["EPERM"]),
    ("kcmp", &["ENOSYS"], &["EPERM"]),
    ("kcmp-supervisor", &["ENOSYS"], &["EPERM"]),
    ("move-pages", &["ENOSYS"], &["EPERM"]),
    ("migrate-pages", &["ENOSYS"], &["EPERM"]),
    ("clear-refs", &["ENOENT"], &[]),
    // If the C library's loader cannot be started as a program.
    ("exec-loader", &["ENOENT", "unable"], &[]),
    ("exec-own-by-loader", &["ENOENT", "unable"], &[]),
];

/// Whether this result means that the machine lacks the feature for this user, and not that the attack is broken.
pub fn is_absent(attack: &str, result: &str, privileged: bool) -> bool {
    ABSENT
        .iter()
        .filter(|(name, ..)| *name == attack)
        .any(|(_, lacking, kept_out)| lacking.contains(&result) || !privileged && kept_out.contains(&result))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    ABSENT.iter().map(|(name, ..)| *name)
}
