//! What /proc says of processes, read after fork: raw syscalls, no allocation.

use crate::trust::text::StackText;
use std::ffi::CStr;

pub(super) const OWN_CHILDREN: &CStr = c"/proc/thread-self/children";

/// Calls `with` for each process in a `children` file of /proc. Returns whether there was one, `None` without the file.
pub(super) fn for_each_child(list: &CStr, with: &mut dyn FnMut(i32)) -> Option<bool> {
    let mut any = false;
    let mut buffer = [0u8; 4096];
    let mut pid = 0i32;
    // SAFETY: a CStr is NUL-terminated; read gets the buffer's own length; the descriptor is closed once, after the loop.
    unsafe {
        let fd = libc::open(list.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        loop {
            let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            let Some(bytes) = usize::try_from(read).ok().filter(|read| *read > 0).and_then(|read| buffer.get(..read))
            else {
                break;
            };
            for byte in bytes {
                if byte.is_ascii_digit() {
                    pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                } else if pid > 0 {
                    any = true;
                    with(pid);
                    pid = 0;
                }
            }
        }
        libc::close(fd);
    }
    Some(any)
}

/// Calls `with` with the path of this file of each thread of a process.
pub(super) fn for_each_task(pid: i32, file: &str, with: &mut dyn FnMut(&CStr)) {
    for_each_number(StackText::new(format_args!("/proc/{pid}/task")).as_c_str(), &mut |task| {
        with(StackText::new(format_args!("/proc/{pid}/task/{task}/{file}")).as_c_str());
    });
}

/// Whether a thread of a process is neither stopped nor dead. One in state D does not run either: it waits for a disk, or in a call
/// that the stopped front process holds, and stops before it returns to its program. If it runs on, the next look finds it.
pub(super) fn runs(pid: i32) -> bool {
    let mut any = false;
    for_each_task(pid, "stat", &mut |stat| {
        any |= state_and_parent(stat).is_some_and(|(state, _)| !b"TtZXxD".contains(&state));
    });
    any
}

/// Whether job control or SIGSTOP has stopped a process.
pub(super) fn is_stopped(pid: i32) -> bool {
    let stat = StackText::new(format_args!("/proc/{pid}/stat"));
    state_and_parent(stat.as_c_str()).is_some_and(|(state, _)| state == b'T')
}

/// Calls `with` for each process in /proc and its parent.
pub(super) fn for_each_process(with: &mut dyn FnMut(i32, i32)) {
    for_each_number(c"/proc", &mut |pid| {
        let stat = StackText::new(format_args!("/proc/{pid}/stat"));
        if let Some((_, parent)) = state_and_parent(stat.as_c_str()) {
            with(pid, parent);
        }
    });
}

/// Calls `with` for each entry of a directory whose name is a number.
fn for_each_number(directory: &CStr, with: &mut dyn FnMut(i32)) {
    // SAFETY: getdents64 fills at most the buffer's size with whole records (u64 inode, u64 offset, u16 length, u8 type,
    // NUL-terminated name), and the loop steps from record to record by their lengths.
    unsafe {
        let fd = libc::open(directory.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let mut buffer = [0u64; 1024];
        loop {
            let read = libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), size_of_val(&buffer));
            if read <= 0 {
                break;
            }
            let base = buffer.as_ptr().cast::<u8>();
            let mut at = 0usize;
            while at < read as usize {
                let record = base.add(at);
                let length = record.add(16).cast::<u16>().read_unaligned();
                let name = CStr::from_ptr(record.add(19).cast());
                if let Some(number) = number(name.to_bytes()) {
                    with(number);
                }
                at += usize::from(length).max(1);
            }
        }
        libc::close(fd);
    }
}

fn number(text: &[u8]) -> Option<i32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0i32, |n, byte| n.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'))))
}

/// The state of a process or thread and the parent of its process, from stat.
fn state_and_parent(stat: &CStr) -> Option<(u8, i32)> {
    let mut buffer = [0u8; 512];
    // SAFETY: a CStr is NUL-terminated; read gets the buffer's own length; the descriptor is closed once.
    let read = unsafe {
        let fd = libc::open(stat.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(fd);
        read
    };
    let bytes = buffer.get(..usize::try_from(read).ok()?)?;
    // "pid (comm) state ppid ...": comm may contain parentheses, so it ends at the last one.
    let after = bytes.get(bytes.iter().rposition(|byte| *byte == b')')? + 2..)?;
    let mut fields = after.split(|byte| *byte == b' ');
    Some((*fields.next()?.first()?, number(fields.next()?)?))
}
