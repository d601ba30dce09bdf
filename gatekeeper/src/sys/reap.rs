//! The end of a whole tree: everything below this process is killed and waited for, also what forks as fast as it can.
//!
//! Runs after fork as well: raw syscalls, no allocation. Memory for the list of a tree is mapped when it is needed.

use std::ffi::CStr;

/// Rounds in which only children are killed, before the whole tree is stopped first.
const SIMPLE_ROUNDS: u32 = 1;

/// Kills every child, then the orphans that thereby become children, until there are none.
///
/// Whoever has a kill pending cannot fork any more, so mostly each round leaves fewer. A tree that forks as fast as its
/// top is killed is stopped as a whole first: who is stopped neither forks nor makes room for others to do so.
pub(crate) fn end_tree() {
    let mut rounds = 0;
    loop {
        let found = for_each_child(OWN_CHILDREN, &mut |pid| kill(pid, libc::SIGKILL)).unwrap_or_else(|| {
            let mut any = false;
            let me = own_pid();
            for_each_process(&mut |pid, parent| {
                if parent == me {
                    any = true;
                    kill(pid, libc::SIGKILL);
                }
            });
            any
        });
        if found && rounds >= SIMPLE_ROUNDS {
            freeze_and_kill();
        }
        rounds += 1;
        // SAFETY: no memory is passed but null, which is allowed.
        unsafe {
            // Wait for one if there are any; the others are dying as well.
            let answer = libc::waitpid(-1, std::ptr::null_mut(), if found { 0 } else { libc::WNOHANG });
            if answer < 0 {
                return;
            }
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            if !found && answer == 0 {
                // Children that /proc does not show: nothing more can be done than to look again.
                libc::poll(std::ptr::null_mut(), 0, 1);
            }
        }
    }
}

/// Stops the tree until a look at it finds nobody new, then kills all of it.
///
/// A process that is stopped is not reaped, so its number means it until it is killed here.
fn freeze_and_kill() {
    let Some(list) = List::new() else { return };
    let mut before = 0;
    for _ in 0..1000 {
        list.clear();
        list.walk(&|pid| kill(pid, libc::SIGSTOP));
        if list.len() == before {
            break;
        }
        before = list.len();
    }
    list.each(|pid| kill(pid, libc::SIGKILL));
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: kill passes no memory.
    unsafe { libc::kill(pid, signal) };
}

fn own_pid() -> i32 {
    // SAFETY: getpid passes no memory.
    unsafe { libc::getpid() }
}

/// The processes of a tree, in memory of its own that is touched only as far as it is used.
struct List {
    /// The count, then that many numbers.
    words: *mut i32,
}

/// As many as the kernel can have.
const MOST: usize = 1 << 22;
const BYTES: usize = (MOST + 1) * size_of::<i32>();

impl List {
    fn new() -> Option<List> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping, owned by the value and unmapped with it.
        let words =
            unsafe { libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        (words != libc::MAP_FAILED).then_some(List { words: words.cast() })
    }

    fn len(&self) -> usize {
        // SAFETY: the first word is the count, zero at first.
        unsafe { *self.words as usize }
    }

    fn clear(&self) {
        // SAFETY: as above.
        unsafe { *self.words = 0 };
    }

    fn push(&self, pid: i32) {
        let len = self.len();
        if len < MOST {
            // SAFETY: `len` is below the number of words mapped after the count.
            unsafe {
                *self.words.add(len + 1) = pid;
                *self.words = (len + 1) as i32;
            }
        }
    }

    fn get(&self, at: usize) -> Option<i32> {
        // SAFETY: what is below the count has been written.
        (at < self.len()).then(|| unsafe { *self.words.add(at + 1) })
    }

    fn each(&self, with: impl Fn(i32)) {
        let mut at = 0;
        while let Some(pid) = self.get(at) {
            with(pid);
            at += 1;
        }
    }

    fn has(&self, wanted: i32) -> bool {
        (0..self.len()).any(|at| self.get(at) == Some(wanted))
    }

    /// Lists everything below this process, parents before children, and calls `with` for each as it is found.
    fn walk(&self, with: &dyn Fn(i32)) {
        let mut add = |pid: i32| {
            with(pid);
            self.push(pid);
        };
        if for_each_child(OWN_CHILDREN, &mut add).is_none() {
            return self.walk_by_parents(with);
        }
        let mut at = 0;
        while let Some(pid) = self.get(at) {
            for_each_task(pid, &mut |task| {
                for_each_child(task, &mut add);
            });
            at += 1;
        }
    }

    /// The same for kernels that keep no lists of children.
    fn walk_by_parents(&self, with: &dyn Fn(i32)) {
        let me = own_pid();
        loop {
            let before = self.len();
            for_each_process(&mut |pid, parent| {
                if (parent == me || self.has(parent)) && !self.has(pid) {
                    with(pid);
                    self.push(pid);
                }
            });
            if self.len() == before {
                return;
            }
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.words.cast(), BYTES) };
    }
}

const OWN_CHILDREN: &CStr = c"/proc/thread-self/children";

/// Calls `with` for each process in one of the kernel's lists of children; whether there was any, `None` without a list.
fn for_each_child(list: &CStr, with: &mut dyn FnMut(i32)) -> Option<bool> {
    let mut any = false;
    let mut buffer = [0u8; 4096];
    let mut pid = 0i32;
    // SAFETY: the path is NUL-terminated; reads go into a local buffer of the size given; the descriptor is closed once.
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

/// Calls `with` with the path of the list of children of each thread of a process.
fn for_each_task(pid: i32, with: &mut dyn FnMut(&CStr)) {
    let directory = Path::new(&[b"/proc/", Number::new(pid).text(), b"/task"]);
    for_each_number(directory.as_c_str(), &mut |_, task| {
        let list = Path::new(&[b"/proc/", Number::new(pid).text(), b"/task/", task.to_bytes(), b"/children"]);
        with(list.as_c_str());
    });
}

/// Calls `with` for each process of the machine and its parent.
fn for_each_process(with: &mut dyn FnMut(i32, i32)) {
    for_each_number(c"/proc", &mut |pid, name| {
        let stat = Path::new(&[b"/proc/", name.to_bytes(), b"/stat"]);
        if let Some(parent) = parent_in(stat.as_c_str()) {
            with(pid, parent);
        }
    });
}

/// Calls `with` for each entry of a directory whose name is a number.
fn for_each_number(directory: &CStr, with: &mut dyn FnMut(i32, &CStr)) {
    // SAFETY: getdents64 fills a local buffer with records whose length field is used to step through it.
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
                    with(number, name);
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

fn parent_in(stat: &CStr) -> Option<i32> {
    let mut buffer = [0u8; 512];
    // SAFETY: the path is NUL-terminated; the read goes into a local buffer of that size; the descriptor is closed once.
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
    // The name may hold anything, also a parenthesis: the last one ends it. Then state, then the parent.
    let after = bytes.get(bytes.iter().rposition(|byte| *byte == b')')? + 2..)?;
    number(after.split(|byte| *byte == b' ').nth(1)?)
}

/// A short path put together on the stack, always NUL-terminated.
struct Path([u8; 64]);

impl Path {
    fn new(parts: &[&[u8]]) -> Path {
        let mut path = Path([0; 64]);
        let bytes = parts.iter().flat_map(|part| part.iter());
        path.0[..63].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        path
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// A number in decimal, on the stack.
struct Number {
    digits: [u8; 10],
    start: usize,
}

impl Number {
    fn new(number: i32) -> Number {
        let mut digits = [b'0'; 10];
        let (mut rest, mut start) = (number.unsigned_abs(), 10);
        while start > 0 && (rest > 0 || start == 10) {
            start -= 1;
            if let Some(digit) = digits.get_mut(start) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
        }
        Number { digits, start }
    }

    fn text(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_paths_are_spelled() {
        for pid in [0, 7, 10, 32768, i32::MAX] {
            assert_eq!(Number::new(pid).text(), pid.to_string().as_bytes());
            assert_eq!(number(Number::new(pid).text()), Some(pid));
        }
        assert_eq!(Path::new(&[b"/proc/", b"12", b"/stat"]).as_c_str(), c"/proc/12/stat");
        assert_eq!(Path::new(&[&[b'x'; 100]]).as_c_str().count_bytes(), 63);
    }

    #[test]
    fn both_walks_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is there");
        let pid = child.id() as i32;
        let list = List::new().expect("memory");
        list.walk_by_parents(&|_| {});
        let found = list.has(pid);
        let mut listed = false;
        for_each_task(own_pid(), &mut |task| {
            for_each_child(task, &mut |child| listed |= child == pid);
        });
        child.kill().expect("own child");
        child.wait().expect("own child");
        assert!(found && listed);
    }
}
