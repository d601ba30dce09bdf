//! Every reason not to start the program, and the one line on stderr that states it.

use crate::line::Line;
use sandbox_contract::action;
use sandbox_contract::file::FileError;
use sandbox_contract::grammar::ItemError;
use sandbox_contract::nearest;
use sandbox_contract::vars;

pub enum Failure<'a> {
    /// The variable (or argument), and the item of its list that cannot be used.
    Item(&'static str, ItemError<'a>),
    UnknownAction(&'a [u8]),
    /// SANDBOX_REQUIRED is set, but there is nothing to enforce.
    NothingAsked,
    /// Both a compiled filter and a list were given.
    FilterAndList,
    Privileged,
    /// Code that ran before us changed this variable.
    Changed(&'static str),
    FilterNotAbsolute(&'a [u8]),
    /// The file cannot be read: path, failed step, errno.
    FilterUnreadable(&'a [u8], &'static str, i32),
    FilterNotRegular(&'a [u8]),
    FilterBad(&'a [u8], FileError),
    FilterTooLong,
    /// A path in SANDBOX_FS_READ or SANDBOX_FS_WRITE: variable, path, failed step, errno.
    Path(&'static str, &'a [u8], &'static str, i32),
    PathTooLong(&'static str, &'a [u8]),
    NoLandlock(i32),
    /// The kernel's Landlock ABI version.
    OldLandlock(usize),
    /// Landlock restricts only the calling thread.
    ThreadsBeforeLandlock,
    ThreadsUncounted(i32),
    /// The kernel refused this step: what was asked for, errno.
    Kernel(&'static str, i32),
    /// TSYNC failed: this thread (its id) has another filter.
    Thread(usize),
}

impl Failure<'_> {
    pub fn line(&self) -> Line {
        let line = Line::new();
        match *self {
            Failure::Item(variable, error) => item(line.text(variable).text(": "), error),
            Failure::UnknownAction(text) => {
                let line = line.text(vars::ACTION).text(": unknown action ").quoted(text);
                let line = match text.strip_prefix(b"errno:") {
                    Some(name) => did_you_mean(line, "errno:", nearest::errno(name)),
                    None => did_you_mean(line, "", nearest::nearest_of(text, action::WORDS)),
                };
                line.text(" (kill, log, errno, errno:NAME or trap)")
            }
            Failure::NothingAsked => line
                .text("SANDBOX_REQUIRED is set but there is nothing to enforce; set ")
                .text(vars::ALLOW)
                .text(", ")
                .text(vars::DENY)
                .text(", ")
                .text(vars::FILTER)
                .text(", ")
                .text(vars::FS_READ)
                .text(" or ")
                .text(vars::FS_WRITE),
            Failure::FilterAndList => line
                .text(vars::FILTER)
                .text(" is already a whole list; unset ")
                .text(vars::ALLOW)
                .text(" and ")
                .text(vars::DENY),
            Failure::Privileged => {
                line.text("refusing to obey the environment in a setuid or otherwise privileged program")
            }
            Failure::Changed(variable) => line
                .text(variable)
                .text(" was changed before main, by one of the program's libraries or by another preload"),
            Failure::FilterNotAbsolute(path) => {
                line.text(vars::FILTER).text(": ").quoted(path).text(" is not an absolute path")
            }
            Failure::FilterUnreadable(path, step, errno) => {
                line.text(vars::FILTER).text(": cannot ").text(step).text(" ").quoted(path).text(": ").errno(errno)
            }
            Failure::FilterNotRegular(path) => {
                line.text(vars::FILTER).text(": ").quoted(path).text(" is not a regular file")
            }
            Failure::FilterBad(path, error) => {
                line.text(vars::FILTER).text(": ").quoted(path).text(" ").text(error.text())
            }
            Failure::FilterTooLong => line.text("the list needs a longer filter than the kernel accepts"),
            Failure::Path(variable, path, step, errno) => {
                line.text(variable).text(": cannot ").text(step).text(" ").quoted(path).text(": ").errno(errno)
            }
            Failure::PathTooLong(variable, path) => line.text(variable).text(": path is too long: ").quoted(path),
            Failure::NoLandlock(errno) => line.text("Landlock is not available in this kernel: ").errno(errno),
            Failure::OldLandlock(version) => line
                .text("Landlock in this kernel (ABI ")
                .number(version)
                .text(") cannot stop a file from being truncated; ABI 3 (Linux 6.2) can"),
            Failure::ThreadsUncounted(errno) => {
                line.text("cannot tell whether the program already has threads: ").errno(errno)
            }
            Failure::ThreadsBeforeLandlock => {
                line.text("the program already has threads, and Landlock would confine only one of them")
            }
            Failure::Kernel(step, errno) => line.text("the kernel refused ").text(step).text(": ").errno(errno),
            Failure::Thread(thread) => {
                line.text("thread ").number(thread).text(" has its own seccomp filter, so ours cannot be applied to it")
            }
        }
    }
}

fn item(line: Line, error: ItemError<'_>) -> Line {
    match error {
        ItemError::Unknown(name) => {
            did_you_mean(line.text("unknown syscall ").quoted(name), "", nearest::syscall(name))
        }
        ItemError::NoNumber(name) => {
            did_you_mean(line.quoted(name).text(" has no number on this architecture"), "", nearest::syscall(name))
        }
        ItemError::UnknownGroup(name) => {
            did_you_mean(line.text("unknown group '@").shown(name).text("'"), "@", nearest::group(name))
        }
        ItemError::TooLong(name) => {
            line.text("an item of ").number(name.len()).text(" bytes is not a syscall: ").quoted(name)
        }
    }
}

/// The hint that ends a line: the nearest word, after what comes before it in its variable.
fn did_you_mean(line: Line, before: &str, word: Option<nearest::Word>) -> Line {
    match word {
        Some(word) => line.text("; did you mean '").text(before).shown(word.as_bytes()).text("'?"),
        None => line,
    }
}
