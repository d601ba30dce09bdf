//! Explains E2BIG: which argument or variable exec does not take, or how much all of them together need.

use crate::plan::Plan;
use std::ffi::{OsStr, OsString};

/// MAX_ARG_STRLEN of the kernel (include/uapi/linux/binfmts.h): 32 pages of 4 KiB, for one string and the NUL at its end.
const ONE: usize = 32 * 4096;
/// All strings and the pointers to them: a quarter of the stack limit, but never less than ARG_MAX and never more than three
/// quarters of the default stack limit of 8 MiB (bprm_stack_limits in fs/exec.c).
const LEAST: u64 = 128 << 10;
const MOST: u64 = 6 << 20;

/// The hint behind "Argument list too long".
pub fn explained(plan: &Plan) -> String {
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current.unwrap_or(u64::MAX);
    explain(&plan.command, &plan.argv, &plan.environment, stack)
}

fn explain(command: &[OsString], argv: &[OsString], environment: &[(OsString, OsString)], stack: u64) -> String {
    const INSTEAD: &str = "pass long text on standard input or in a file";
    let most = ONE - 1;
    let is_long = |word: &OsStr| word.len() > most;
    if let Some(at) = command.iter().position(|word| is_long(word)) {
        let (name, len) = (named(command, at), command[at].len());
        return format!("; {name} has {len} bytes, and the kernel takes at most {most} in one argument; {INSTEAD}");
    }
    // The name, the equals sign, the value.
    let size = |(name, value): &(OsString, OsString)| name.len() + 1 + value.len();
    if let Some(variable) = environment.iter().find(|variable| size(variable) > most) {
        let (name, len) = (variable.0.to_string_lossy(), size(variable));
        return format!("; the variable {name} has {len} bytes, and the kernel takes at most {most} in one; {INSTEAD}");
    }
    let strings = argv.iter().map(|word| word.len() + 1).chain(environment.iter().map(|variable| size(variable) + 1));
    let pointers = (argv.len() + environment.len()) * size_of::<usize>();
    let all = strings.sum::<usize>() + pointers;
    let limit = (stack / 4).clamp(LEAST, MOST);
    format!(
        "; the {} arguments and {} variables have {all} bytes, and the kernel takes at most {limit} in all, a quarter of the \
         stack limit (ulimit -s) up to {MOST}; {INSTEAD}",
        argv.len(),
        environment.len()
    )
}

fn named(command: &[OsString], at: usize) -> String {
    match (at, command) {
        (0, _) => "the command's name".to_owned(),
        (2, [shell, flag, _]) if shell == "sh" && flag == "-c" => "the shell line".to_owned(),
        _ => format!("argument {at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_that_the_kernel_takes_is_not_blamed() {
        let told = |words: &[&str], variable: &str| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            explain(&words, &words, &[("NAME".into(), variable.into())], 8 << 20)
        };
        let (fits, long) = ("a".repeat(ONE - 1), "a".repeat(ONE));
        assert!(
            told(&["true", "x", &long], "")
                .starts_with("; argument 2 has 131072 bytes, and the kernel takes at most 131071")
        );
        assert!(told(&["sh", "-c", &long], "").starts_with("; the shell line has 131072 bytes"));
        assert!(told(&["true"], &fits).starts_with("; the variable NAME has 131076 bytes"));
        // 5 + 131072 + 6 bytes, and three pointers.
        let all = told(&["true", &fits], "");
        assert!(
            all.starts_with(
                "; the 2 arguments and 1 variables have 131107 bytes, and the kernel takes at most 2097152"
            ),
            "{all}"
        );
    }
}
