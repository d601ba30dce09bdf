//! The flags that most command lines of `run` consist of, parsed without clap: making its parser takes longer than confining a
//! process. Takes the words after `run`. Gives nothing for a word that it does not know, for a value that is not valid, and for
//! a flag that is given too often; clap then parses the whole line, and words every error.

use super::{PolicyArgs, RunArgs, list, profiles};
use crate::policy::values;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub(super) fn parse(words: &[OsString]) -> Option<RunArgs> {
    let mut args = RunArgs::default();
    let mut rest = words.iter();
    loop {
        let word = rest.next()?;
        if word == "--" {
            args.command = rest.cloned().collect();
            return (!args.command.is_empty()).then_some(args);
        }
        match word.to_str()? {
            "--quiet" | "-q" => set(&mut args.reporting.quiet)?,
            "--json" => set(&mut args.json)?,
            flag => take(&mut args, flag, rest.next()?)?,
        }
    }
}

/// Takes a flag that has a value, which is the next word.
fn take(args: &mut RunArgs, flag: &str, value: &OsStr) -> Option<()> {
    // clap takes no value that looks like a flag, and an empty one only for some types.
    let bytes = value.as_encoded_bytes();
    if bytes.is_empty() || bytes.starts_with(b"-") {
        return None;
    }
    let PolicyArgs { syscalls, launch, deny_path, env, cwd, .. } = &mut args.policy;
    let path = || PathBuf::from(value);
    match flag {
        "--read" => launch.read.push(path()),
        "--write" => launch.write.push(path()),
        "--deny-path" => deny_path.push(path()),
        "--cwd" => once(cwd, path())?,
        "--config" => once(&mut syscalls.config, path())?,
        "--report" => once(&mut args.reporting.report, path())?,
        flag => {
            let value = value.to_str()?;
            match flag {
                "--profile" | "-p" => syscalls.profile.push(profiles(value).ok()?),
                "--allow" => syscalls.allow.push(list(value).ok()?),
                "--deny" => syscalls.deny.push(list(value).ok()?),
                "--env" => env.push(value.to_owned()),
                // The last one wins.
                "--net" => launch.net = Some(value.parse().ok()?),
                "--timeout" => once(&mut launch.timeout, values::duration(value).ok()?)?,
                "--memory" => once(&mut launch.memory, values::size(value).ok()?)?,
                _ => return None,
            }
        }
    }
    Some(())
}

/// Sets a flag that may be given once.
fn set(flag: &mut bool) -> Option<()> {
    (!std::mem::replace(flag, true)).then_some(())
}

/// Sets a value that may be given once.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use super::super::RunOnly;
    use super::*;
    use clap::Parser;
    use proptest::prelude::*;

    fn with_clap(words: &[OsString]) -> Option<RunArgs> {
        let words = std::iter::once(OsString::from("run")).chain(words.iter().cloned());
        RunOnly::try_parse_from(words).ok().map(|only| only.args)
    }

    /// What is parsed here, clap parses as well, and to the same result.
    fn agrees(words: &[OsString]) -> Result<(), TestCaseError> {
        if let Some(args) = parse(words) {
            prop_assert_eq!(Some(format!("{args:?}")), with_clap(words).map(|args| format!("{args:?}")));
        }
        Ok(())
    }

    const WORDS: [&str; 40] = [
        "--quiet",
        "-q",
        "--json",
        "--read",
        "--write",
        "--deny-path",
        "--cwd",
        "--config",
        "--report",
        "--profile",
        "-p",
        "--allow",
        "--deny",
        "--env",
        "--net",
        "--timeout",
        "--memory",
        "--explain",
        "--",
        "-",
        "-c",
        "",
        "x",
        "/",
        "a=b",
        "minimal",
        "write+network",
        "none",
        "hosts=a:1,b",
        "full",
        "30s",
        "0",
        "512M",
        "read",
        "@network",
        "open:read",
        "--read=/",
        "-qq",
        "-pread",
        "--env=A",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn what_is_parsed_here_is_what_clap_parses(picked in proptest::collection::vec(0..WORDS.len(), 0..7), ends in any::<bool>()) {
            let mut words: Vec<OsString> = picked.into_iter().map(|at| WORDS[at].into()).collect();
            if ends {
                words.extend(["--".into(), "true".into()]);
            }
            agrees(&words)?;
        }
    }

    #[test]
    fn every_flag_that_is_known_here_is_parsed_here() {
        let values = [
            "--profile minimal",
            "-p write+network",
            "--allow open:@network",
            "--deny read",
            "--read /",
            "--write .",
            "--deny-path **/.env",
            "--cwd /tmp",
            "--config p.toml",
            "--report r.json",
            "--env A=b",
            "--net none",
            "--timeout 30s",
            "--memory 512M",
            "--quiet",
            "-q",
            "--json",
        ];
        for flag in values {
            let words: Vec<OsString> = flag.split(' ').chain(["--", "cmd", "--quiet"]).map(OsString::from).collect();
            let args = parse(&words).unwrap_or_else(|| panic!("{flag} is not parsed"));
            assert_eq!(args.command, ["cmd", "--quiet"]);
            agrees(&words).unwrap_or_else(|error| panic!("{flag}: {error}"));
        }
    }

    #[test]
    fn the_rest_is_left_to_clap() {
        for line in
            ["", "true", "--", "--quiet", "--read", "--read -x -- true", "--nett none -- true", "--json --json -- true"]
        {
            let words: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
            assert!(parse(&words).is_none(), "{line}");
        }
    }
}
