//! Fuzzes the decoding of a denied call: any number, any arguments, and memory that changes while it is read.

use gatekeeper::supervise::decode;
use gatekeeper::supervise::target::Memory;
use gatekeeper::sys::notify::Call;
use sandbox_contract::bpf::LIMIT;
use sandbox_contract::syscalls::with_name;
use std::cell::Cell;
use std::io;

/// The address of the memory. Arguments with these upper bits are made to point into it, or just past its end.
const BASE: u64 = 0x7f00_0000_0000;
const ROOM: u64 = 0x2000;
/// The longest argument in a report, so that a program cannot make its report grow.
const LONGEST: usize = 600;

struct Hostile {
    bytes: Vec<u8>,
    reads: Cell<u8>,
}

impl Memory for Hostile {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        let fault = || io::Error::from_raw_os_error(14);
        let start = address.checked_sub(BASE).and_then(|at| usize::try_from(at).ok()).ok_or_else(fault)?;
        let there = self.bytes.get(start..).filter(|rest| !rest.is_empty()).ok_or_else(fault)?;
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        // Pretend that another thread writes at the same time.
        let reads = self.reads.get();
        self.reads.set(reads.wrapping_add(1));
        if reads % 2 == 1 && count > 0 {
            let at = usize::from(reads) % count;
            into[at] = into[at].wrapping_add(reads);
        }
        Ok(count)
    }
}

/// The input is a syscall number (2 bytes), six arguments (8 bytes each), and memory.
pub fn decode(bytes: &[u8]) {
    let Some((number, rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((words, memory)) = rest.split_at_checked(48) else { return };
    let number = u16::from_le_bytes(*number) % LIMIT;
    let Some(name) = with_name(number, |name| String::from_utf8_lossy(name).into_owned()) else { return };
    let mut args = [0u64; 6];
    for (arg, word) in args.iter_mut().zip(words.as_chunks::<8>().0) {
        *arg = u64::from_le_bytes(*word);
        if *arg >> 40 == BASE >> 40 {
            *arg = BASE + *arg % ROOM;
        }
    }
    let hostile = Hostile { bytes: memory.to_vec(), reads: Cell::new(0) };
    let call = Call { id: 0, tid: 1, number: number.into(), args };
    let shown = decode::arguments(&name, &call, &hostile);
    assert!(shown.len() <= 6, "{name} has {} arguments", shown.len());
    assert!(shown.iter().all(|text| text.len() <= LONGEST), "{name}: {shown:?}");
    if let Some(peer) = decode::peer(&name, &call, &hostile) {
        let _ = (peer.host(), peer.path());
        assert!(peer.to_string().len() <= LONGEST);
    }
}
