//! Reads fields of /proc/PID/status (proc_pid_status(5)).

use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

pub struct Status(String);

impl Status {
    /// Read at once: this is on the way of every call that is carried out for a program.
    pub fn of(pid: i32) -> io::Result<Status> {
        let mut file = File::open(format!("/proc/{pid}/status"))?;
        let mut bytes = [0u8; 8192];
        let mut length = 0;
        loop {
            let rest = bytes.get_mut(length..).unwrap_or_default();
            let (room, count) = (rest.len(), file.read(rest)?);
            length += count;
            // The kernel makes the whole text for the first read, so one that does not fill the rest is the last.
            if count < room || room == 0 {
                return Ok(Status::parse(bytes.get(..length).unwrap_or_default()));
            }
        }
    }

    /// The name of a process may be any bytes (PR_SET_NAME), so the text may be invalid UTF-8.
    fn parse(bytes: &[u8]) -> Status {
        Status(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The words of a field.
    pub fn words(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        let mut values = self.0.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        values.next().map(str::split_whitespace)
    }

    /// The first word of a field, as a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.words(name)?.next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = Status::parse(b"Name:\t\xff y\nPid:\t7\nPPid:\t3\nVmHWM:\t   12 kB\n");
        assert_eq!((status.number("Pid"), status.number("PPid"), status.number("VmHWM")), (Some(7), Some(3), Some(12)));
        assert_eq!(status.words("Name").map(Iterator::count), Some(2));
        assert_eq!(status.number::<i32>("Vm"), None);
        assert_eq!(Status::of(std::process::id() as i32).expect("/proc").number("Tgid"), Some(std::process::id()));
    }
}
