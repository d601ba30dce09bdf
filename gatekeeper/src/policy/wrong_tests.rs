//! Every wrong thing in a policy once, with its exact words.

use super::schema_tests::toml;
use super::*;
use std::time::Duration;

#[test]
fn what_is_wrong_is_said_with_line_value_and_nearest() {
    for (text, message) in [
        // Keys.
        ("\n\nproflie = 'minimal'", "policy.toml:3: unknown key 'proflie'; did you mean 'profile'?"),
        ("[syscalls]\nalow = []", "policy.toml:2: unknown key 'syscalls.alow'; did you mean 'syscalls.allow'?"),
        ("[syscals]\nallow = []", "policy.toml:1: unknown key 'syscals'; did you mean 'syscalls'?"),
        ("[paths]\nprofile = 'write'", "policy.toml:2: unknown key 'paths.profile'; did you mean 'profile'?"),
        ("memory = '1G'", "policy.toml:1: unknown key 'memory'; did you mean 'limits.memory'?"),
        ("[path]\nread = []", "policy.toml:1: unknown key 'path'; did you mean 'paths'?"),
        ("timeout = 1\n[sandbox]\nenabled = true", "policy.toml:2: unknown key 'sandbox'; did you mean 'bubblewrap'?"),
        (
            "[bubblewrap]\nextra_ro_paths = []",
            "policy.toml:2: unknown key 'bubblewrap.extra_ro_paths'; did you mean 'bubblewrap.read'?",
        ),
        ("[env]\nzzzzzzzz = 1", "policy.toml:2: unknown key 'env.zzzzzzzz'; expected one of pass, set"),
        (
            "[[syscalls.rule]]\nsyscal = 'read'",
            "policy.toml:2: unknown key 'syscalls.rule.syscal'; did you mean 'syscalls.rule.syscall'?",
        ),
        (
            "\"a\\u001b.b\" = 1",
            "policy.toml:1: unknown key 'a\\u{1b}.b'; expected one of extends, profile, on_violation, static_binaries, require_sandbox, timeout, libsandbox, syscalls, paths, network, limits, env, commands, bubblewrap, box",
        ),
        // Types.
        (
            "profile = 3",
            "policy.toml:1: profile must be a profile such as \"write+network\", or a list of them, not a whole number",
        ),
        ("require_sandbox = 'yes'", "policy.toml:1: require_sandbox must be true or false, not a string"),
        (
            "timeout = 1.5",
            "policy.toml:1: timeout must be a duration such as \"30s\", or whole seconds, not a number with a fraction",
        ),
        ("paths = []", "policy.toml:1: paths must be a table, not a list"),
        ("[paths]\nread = '/usr'", "policy.toml:2: paths.read must be a list of paths, not a string"),
        ("[paths]\nread = ['/usr',\n3]", "policy.toml:3: paths.read must be a string, not a whole number"),
        ("[syscalls]\nrule = {}", "policy.toml:2: syscalls.rule must be a list of tables, not a table"),
        ("[env.set]\nN = 1", "policy.toml:2: env.set.N must be a string, not a whole number"),
        // Words.
        ("profile = 'minimla'", "policy.toml:1: profile: unknown profile 'minimla'; did you mean 'minimal'?"),
        (
            "profile = 'xyz'",
            "policy.toml:1: profile: unknown profile 'xyz'; expected one of minimal, read, network, write, unrestricted, browser, custom",
        ),
        (
            "profile = ''",
            "policy.toml:1: profile: unknown profile ''; expected one of minimal, read, network, write, unrestricted, browser, custom",
        ),
        ("profile = []", "policy.toml:1: profile: no profile is named; 'minimal' grants least"),
        (
            "profile = 'write+unrestricted'",
            "policy.toml:1: profile: 'unrestricted' confines nothing, so it cannot be combined with another profile",
        ),
        (
            "profile = ['custom', 'write']",
            "policy.toml:1: profile: 'custom' is exactly its own lists, so it cannot be combined with another profile",
        ),
        (
            "on_violation = 'kil'",
            "policy.toml:1: on_violation: unknown action on a violation 'kil'; did you mean 'kill'?",
        ),
        (
            "static_binaries = 'deny'",
            "policy.toml:1: static_binaries: unknown action for static binaries 'deny'; expected one of enforce, block, warn, allow",
        ),
        (
            "[bubblewrap]\nmode = 'require'",
            "policy.toml:2: bubblewrap.mode: unknown mode 'require'; did you mean 'required'?",
        ),
        ("[network]\nmode = 'hots'", "policy.toml:2: network.mode: unknown network mode 'hots'; did you mean 'hosts'?"),
        (
            "[network]\nmode = 'hosts=a'",
            "policy.toml:2: network.mode: unknown network mode 'hosts=a'; did you mean 'hosts'?",
        ),
        // Syscalls.
        (
            "[syscalls]\nallow = ['read',\n'opne']",
            "policy.toml:3: syscalls.allow: unknown syscall 'opne'; did you mean 'open'?",
        ),
        (
            "[syscalls]\ndeny = 'read:exceve'",
            "policy.toml:2: syscalls.deny: unknown syscall 'exceve'; did you mean 'execve'?",
        ),
        (
            "[syscalls]\ndeny = '@netwrok'",
            "policy.toml:2: syscalls.deny: unknown group '@netwrok'; did you mean '@network'?",
        ),
        ("[syscalls]\ndeny = ' read'", "policy.toml:2: syscalls.deny: unknown syscall ' read'; did you mean 'read'?"),
        // Rules.
        ("[[syscalls.rule]]\naction = 'deny'", "policy.toml:1: syscalls.rule needs 'syscall'"),
        ("[[syscalls.rule]]\nsyscall = 'read'", "policy.toml:1: syscalls.rule needs 'action'"),
        (
            "[[syscalls.rule]]\nsyscall = '@network'",
            "policy.toml:2: syscalls.rule.syscall: syscall '@network': a rule is about one syscall, by its name",
        ),
        (
            "[[syscalls.rule]]\naction = 'alow'",
            "policy.toml:2: syscalls.rule.action: unknown action 'alow'; did you mean 'allow'?",
        ),
        (
            "[[syscalls.rule]]\naction = 'errno:EACCESS'",
            "policy.toml:2: syscalls.rule.action: unknown errno 'EACCESS'; did you mean 'EACCES'?",
        ),
        (
            "[[syscalls.rule]]\naction = 'trap'",
            "policy.toml:2: syscalls.rule.action: action 'trap': only libsandbox.so without gatekeeper can do that; 'kill' is the closest",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ index = 6 }]",
            "policy.toml:2: syscalls.rule.args.index: 6 is not between 0 and 5",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'equal' }]",
            "policy.toml:2: syscalls.rule.args.op: unknown comparison 'equal'; expected one of eq, ne, lt, le, gt, ge, masked_eq",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'masked_eq', index = 0, value = 1 }]",
            "policy.toml:2: syscalls.rule.args needs 'mask'",
        ),
        ("[[syscalls.rule]]\nargs = [{ op = 'eq', value = 1 }]", "policy.toml:2: syscalls.rule.args needs 'index'"),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'eq', index = 0, value = 3, mask = 1 }]",
            "policy.toml:2: syscalls.rule.args: the value has bits outside the mask, so the two are never equal",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ value = -100 }]",
            "policy.toml:2: syscalls.rule.args.value: number '-100': write the bits without a sign, and mask = 0xffffffff if the argument is an int",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ value = '0x1ffffffffffffffff' }]",
            "policy.toml:2: syscalls.rule.args.value: number '0x1ffffffffffffffff': not 64 bits, in decimal or after 0x",
        ),
        // Paths.
        ("[paths]\nwrite = ['']", "policy.toml:2: paths.write: path '': empty; '.' is the working directory"),
        (
            "[paths]\nread = ['**/.env']",
            "policy.toml:2: paths.read: path '**/.env': there are no wildcards in paths; name the directory",
        ),
        ("[paths]\ndeny = ['**/[a.env']", "policy.toml:2: paths.deny: pattern '**/[a.env': a '[' is not closed"),
        (
            "[paths]\ndeny = ['*/../.env']",
            "policy.toml:2: paths.deny: pattern '*/../.env': '..' cannot follow a wildcard",
        ),
        (
            "[paths]\ndeny = ['~bob/.ssh']",
            "policy.toml:2: paths.deny: path '~bob/.ssh': other users' homes are not looked up; write the full path, or prefix it with './'",
        ),
        ("[paths]\ndeny = [\"a\\u0000b\"]", "policy.toml:2: paths.deny: path 'a\\u{0}b': no path holds a NUL"),
        // Network.
        (
            "[network]\nhosts = ['https://a.org']",
            "policy.toml:2: network.hosts: host 'https://a.org': a URL; write only the host, and the port after a colon",
        ),
        (
            "[network]\nmode = 'full'\nhosts = ['a.org']",
            "policy.toml:3: network.hosts: a list of hosts needs mode = \"hosts\"",
        ),
        ("[network]\nports = [0]", "policy.toml:2: network.ports: 0 is not between 1 and 65535"),
        ("[network]\nports = [65536]", "policy.toml:2: network.ports: 65536 is not between 1 and 65535"),
        // Limits.
        ("timeout = 'soon'", "policy.toml:1: timeout: duration 'soon': write it like 30s, 5m or 1h30m"),
        ("timeout = -1", "policy.toml:1: timeout: -1 is not between 0 and 1000000000"),
        (
            "[limits]\nmemory = '512MB'",
            "policy.toml:2: limits.memory: size '512MB': write it like 512M or 2G (powers of 1024), or as bytes",
        ),
        ("[limits]\nmemory = '99999999999T'", "policy.toml:2: limits.memory: size '99999999999T': too large"),
        (
            "[limits]\nmemory = 0",
            "policy.toml:2: limits.memory: 0 bytes is too small for any program; the least is 65536; for no limit, leave it out",
        ),
        ("timeout = 1000000001", "policy.toml:1: timeout: 1000000001 is not between 0 and 1000000000"),
        ("timeout = '99999d'", "policy.toml:1: timeout: 8639913600 is not between 0 and 1000000000"),
        (
            "[limits]\nmemory = 10",
            "policy.toml:2: limits.memory: 10 bytes is too small for any program; the least is 65536; did you mean 10M?",
        ),
        (
            "[limits]\noutput = 10",
            "policy.toml:2: limits.output: 10 bytes is too small for a captured stream; the least is 100, or 0 for none; did you mean 10M?",
        ),
        (
            "[limits]\ndisk = '10'",
            "policy.toml:2: limits.disk: 10 bytes is too small for a written file; the least is 1024, or 0 for none; did you mean 10M?",
        ),
        ("[limits]\nfiles = 1", "policy.toml:2: limits.files: 1 is too small; the least is 16"),
        (
            "[commands]\nblock = ['curl -X POST']",
            "policy.toml:2: commands.block: command 'curl -X POST': it matches nothing: a command is one name or path, without arguments; name the program alone",
        ),
        (
            "[commands]\nallow = ['/usr/bin/curl -s']",
            "policy.toml:2: commands.allow: command '/usr/bin/curl -s': it matches nothing: a command is one name or path, without arguments; name the program alone",
        ),
        (
            "[env]\npass = ['A B']",
            "policy.toml:2: env.pass: variable 'A B': a name has no blanks; use a separate flag for each variable, as NAME or NAME=VALUE",
        ),
        ("[limits]\nprocesses = 0", "policy.toml:2: limits.processes: 0 is too small; the least is 1"),
        (
            "[limits]\ncpu = 0",
            "policy.toml:2: limits.cpu: a limit of 0 would stop every program; leave it out for no limit",
        ),
        // Environment.
        ("[env]\npass = ['A=B']", "policy.toml:2: env.pass: variable 'A=B': not a name that a variable can have"),
        ("[env]\npass = ['LC_*']", "policy.toml:2: env.pass: variable 'LC_*': names are exact, there are no wildcards"),
        (
            "[env]\npass = ['LD_LIBRARY_PATH']",
            "policy.toml:2: env.pass: variable 'LD_LIBRARY_PATH': it controls the loader; of LD_* only LD_PRELOAD may be passed, and none may be set",
        ),
        (
            "[env.set]\nLD_PRELOAD = '/x.so'",
            "policy.toml:2: env.set.LD_PRELOAD: variable 'LD_PRELOAD': it controls the loader; of LD_* only LD_PRELOAD may be passed, and none may be set",
        ),
        (
            "[env.set]\nSECCOMP_SYSCALL_ALLOW = ''",
            "policy.toml:2: env.set.SECCOMP_SYSCALL_ALLOW: variable 'SECCOMP_SYSCALL_ALLOW': gatekeeper sets it itself",
        ),
        ("[env.set]\nA = \"x\\u0000\"", "policy.toml:2: env.set.A: variable 'x\\u{0}': a NUL would end it"),
        ("[commands]\nblock = ['']", "policy.toml:2: commands.block: command '': not the name of a program"),
        // Syntax.
        ("profile = ", "policy.toml:1:11: string values must be quoted, expected literal string"),
        ("a = 1\na = 2", "policy.toml:2:1: duplicate key"),
    ] {
        assert_eq!(toml(text), Err(message.to_owned()), "{text}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_syscall_of_another_machine_is_refused() {
    let error = toml("[syscalls]\nallow = 'read:send'").unwrap_err();
    assert_eq!(error, "policy.toml:2: syscalls.allow: x86_64 has no syscall 'send'; did you mean 'sendto'?");
}

#[test]
fn durations_and_sizes() {
    let duration = |text| values::duration(text).ok();
    assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
    assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
    assert_eq!(duration("2d1ms"), Some(Duration::from_millis(2 * 86_400_000 + 1)));
    assert_eq!(duration("300"), Some(Duration::from_secs(300)));
    for wrong in [
        "",
        "s",
        "5m1h",
        "1m1m",
        "-5s",
        "+5",
        "5 s",
        "5S",
        "1.5s",
        "5mins",
        "99999999999999999999",
        "999999999999999999d",
    ] {
        assert_eq!(duration(wrong), None, "{wrong}");
    }
    let size = |text| values::size(text).ok();
    assert_eq!(size("0"), Some(0));
    assert_eq!(size("512M"), Some(512 << 20));
    assert_eq!(size("64k"), Some(64 << 10));
    assert_eq!(size("2GiB"), Some(2 << 30));
    assert_eq!(size("7B"), Some(7));
    for wrong in ["", "M", "-1", "1.5G", "1 G", "1MB", "1P", "1iB", "18446744073709551616", "16777216T"] {
        assert_eq!(size(wrong), None, "{wrong}");
    }
}

#[test]
fn the_flag_for_the_network() {
    let hosts = |hosts: &[&str]| NetworkMode::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
    assert_eq!("none".parse(), Ok(NetworkMode::None));
    assert_eq!("loopback".parse(), Ok(NetworkMode::Loopback));
    assert_eq!("full".parse(), Ok(NetworkMode::Full));
    assert_eq!("hosts=A.org,*.b.org:443".parse(), Ok(hosts(&["a.org", "*.b.org:443"])));
    for none in ["hosts", "hosts=", "hosts=,"] {
        let error = none.parse::<NetworkMode>().unwrap_err().to_string();
        assert!(error.contains("name at least one host, as in hosts=example.org"), "{error}");
    }
    assert!("hosts=a b".parse::<NetworkMode>().is_err());
    assert!("Full".parse::<NetworkMode>().is_err());
}
