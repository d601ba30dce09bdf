//! Open files for a command, under the numbers that it expects.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives the command copies of open files: each pair is a descriptor of this process and its number in the command. The
/// descriptors must stay open until the command has started.
///
/// The numbers may be taken here: a test process opens files in many threads, and may have inherited some. So all
/// copies are made above the numbers before the first one is put into its place. A plain dup2(2) would close one that is
/// still to come, or, onto its own number, leave it to be closed by exec.
pub fn place<const N: usize>(command: &mut Command, pairs: [(RawFd, RawFd); N]) {
    let above = pairs.iter().map(|pair| pair.1).max().unwrap_or_default() + 1;
    // SAFETY: fcntl and dup2 are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            let copies = pairs.map(|(from, to)| (libc::fcntl(from, libc::F_DUPFD_CLOEXEC, above), to));
            for (copy, to) in copies {
                if copy < 0 || libc::dup2(copy, to) != to {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        })
    };
}

#[test]
fn descriptors_that_have_each_others_numbers_arrive_where_they_belong() {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    // Two files under numbers that nothing else uses: handed over as they are, and crosswise.
    let file = |number: RawFd, text: &str| {
        let path = super::fresh("descriptors").join("file");
        std::fs::write(&path, text).expect("writable");
        let file = std::fs::File::open(&path).expect("readable");
        // SAFETY: the new descriptor has no other owner.
        unsafe { OwnedFd::from_raw_fd(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number)) }
    };
    let (one, two) = (file(500, "one"), file(500, "two"));
    let (a, b) = (one.as_raw_fd(), two.as_raw_fd());
    for (pairs, expected) in [([(a, a), (b, b)], "onetwo"), ([(a, b), (b, a)], "twoone")] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cat /proc/self/fd/{a} /proc/self/fd/{b}")]);
        place(&mut command, pairs);
        assert_eq!(super::run(&mut command).exits(0).stdout(), expected);
    }
    drop((one, two));
}
