//! Ends a whole tree: kills and reaps every process below this one, even if they fork as fast as they can.
//!
//! Also runs after fork: raw syscalls, no allocation. The list of the tree's processes is mapped when it is needed.

use super::proc::{OWN_CHILDREN, for_each_child, for_each_process, for_each_task, runs};

/// Rounds of killing children only. After these the whole tree is stopped first.
const SIMPLE_ROUNDS: u32 = 1;

/// Kills every child, then the orphans that are reparented to this process, until none are left.
///
/// A process with SIGKILL pending cannot fork, so usually each round leaves fewer. If a tree forks faster than that,
/// SIGSTOP all of it first: stopped processes cannot fork, and they still count against the limit of processes.
pub(crate) fn end_tree() {
    let mut rounds = 0;
    loop {
        let mut killed = 0u32;
        let mut end = |pid| {
            killed += 1;
            kill(pid, libc::SIGKILL);
        };
        let found = for_each_child(OWN_CHILDREN, &mut end).unwrap_or_else(|| {
            let mut any = false;
            let me = own_pid();
            for_each_process(&mut |pid, parent| {
                if parent == me {
                    any = true;
                    end(pid);
                }
            });
            any
        });
        if found && rounds >= SIMPLE_ROUNDS {
            freeze_and_kill(&[]);
        }
        rounds += 1;
        // SAFETY: waitpid takes a null status pointer, and poll a null set of length 0.
        unsafe {
            // Wait for as many as were killed: a look at the others meanwhile would only find them dying.
            let mut answer;
            loop {
                answer = libc::waitpid(-1, std::ptr::null_mut(), if killed > 0 { 0 } else { libc::WNOHANG });
                if answer <= 0 {
                    break;
                }
                killed = killed.saturating_sub(1);
            }
            if answer < 0 {
                return;
            }
            if !found && answer == 0 {
                // There are children that /proc does not show: all we can do is look again.
                libc::poll(std::ptr::null_mut(), 0, 1);
            }
        }
    }
}

/// Kills and reaps every child that is not `spared`, and what becomes a child of this process thereby. The spared ones, and
/// what is below them, are left alone.
pub(crate) fn end_all_but(spared: &[i32]) {
    let Some(children) = List::new() else { return };
    let mut rounds = 0;
    loop {
        children.clear();
        let add = |pid: i32| {
            if !spared.contains(&pid) {
                children.push(pid)
            }
        };
        if for_each_child(OWN_CHILDREN, &mut { add }).is_none() {
            let me = own_pid();
            for_each_process(&mut |pid, parent| {
                if parent == me {
                    add(pid)
                }
            });
        }
        if children.len() == 0 {
            return;
        }
        children.each(|pid| kill(pid, libc::SIGKILL));
        if rounds >= SIMPLE_ROUNDS {
            freeze_and_kill(spared);
        }
        rounds += 1;
        children.each(|pid| {
            // SAFETY: waitpid takes a null status pointer.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        });
    }
}

/// Stops the tree until a walk finds no new process, then kills all of it.
///
/// A stopped process is not reaped, so its process id cannot be reused before it is killed here.
fn freeze_and_kill(spared: &[i32]) {
    let Some(list) = List::new() else { return };
    let mut before = 0;
    for _ in 0..1000 {
        list.clear();
        list.walk(spared, &|pid| kill(pid, libc::SIGSTOP));
        if list.len() == before {
            break;
        }
        before = list.len();
    }
    list.each(|pid| kill(pid, libc::SIGKILL));
}

/// Whether a process below this one runs: is neither stopped nor dead.
pub(super) fn tree_runs() -> bool {
    let Some(list) = List::new() else { return true };
    list.walk(&[], &|_| ());
    (0..list.len()).any(|at| list.get(at).is_some_and(runs))
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(pid, signal) };
}

fn own_pid() -> i32 {
    // SAFETY: getpid takes no pointers.
    unsafe { libc::getpid() }
}

/// The processes of a tree, in a mapping whose pages the kernel provides only as they are written.
struct List {
    /// The count, followed by that many process ids.
    words: *mut i32,
}

/// PID_MAX_LIMIT of linux/threads.h.
const MOST: usize = 1 << 22;
const BYTES: usize = (MOST + 1) * size_of::<i32>();

impl List {
    fn new() -> Option<List> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice; `Drop` unmaps it.
        let words =
            unsafe { libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        (words != libc::MAP_FAILED).then_some(List { words: words.cast() })
    }

    fn len(&self) -> usize {
        // SAFETY: the mapping has at least one word, which is the count; the kernel zeroed it.
        unsafe { *self.words as usize }
    }

    fn clear(&self) {
        // SAFETY: as in `len`; a `List` stays on one thread, so nothing else reads or writes it.
        unsafe { *self.words = 0 };
    }

    fn push(&self, pid: i32) {
        let len = self.len();
        if len < MOST {
            // SAFETY: `len < MOST`, and `MOST` words are mapped after the count.
            unsafe {
                *self.words.add(len + 1) = pid;
                *self.words = (len + 1) as i32;
            }
        }
    }

    fn get(&self, at: usize) -> Option<i32> {
        // SAFETY: `push` has written every word below the count.
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

    /// Lists every process below this one but the spared children and what is below them, parents before children, and calls
    /// `with` for each as it is found.
    fn walk(&self, spared: &[i32], with: &dyn Fn(i32)) {
        let mut add = |pid: i32| {
            if !spared.contains(&pid) {
                with(pid);
                self.push(pid);
            }
        };
        if for_each_child(OWN_CHILDREN, &mut add).is_none() {
            return self.walk_by_parents(spared, with);
        }
        let mut at = 0;
        while let Some(pid) = self.get(at) {
            for_each_task(pid, "children", &mut |list| {
                for_each_child(list, &mut add);
            });
            at += 1;
        }
    }

    /// The same for kernels without /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
    fn walk_by_parents(&self, spared: &[i32], with: &dyn Fn(i32)) {
        let me = own_pid();
        loop {
            let before = self.len();
            for_each_process(&mut |pid, parent| {
                if (parent == me && !spared.contains(&pid) || self.has(parent)) && !self.has(pid) {
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
        // SAFETY: this value owns the mapping of `BYTES` bytes, and nothing borrows from it.
        unsafe { libc::munmap(self.words.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_walks_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is there");
        let pid = child.id() as i32;
        let list = List::new().expect("memory");
        list.walk_by_parents(&[], &|_| {});
        let found = list.has(pid);
        list.clear();
        list.walk_by_parents(&[pid], &|_| {});
        assert!(!list.has(pid), "a spared child");
        let mut listed = false;
        for_each_task(own_pid(), "children", &mut |list| {
            for_each_child(list, &mut |child| listed |= child == pid);
        });
        child.kill().expect("own child");
        child.wait().expect("own child");
        assert!(found && listed);
    }
}
