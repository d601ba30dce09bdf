//! A launch as bytes and descriptors, for the guardian program: written in the process that embeds gatekeeper, read in a
//! guardian that the program has just forked. Both are the same build, so there is no version in it.
//!
//! Each part has one function that writes it and one beside it that reads it. The test below sends a launch with every part.

mod parts;
#[cfg(test)]
mod tests;

use super::child::{Arguments, Filter, Group, Joined, Launch};
use super::place::Stub;
use super::progress::{Board, Progress};
use crate::operation::Operation;
use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use sandbox_contract::bpf::Insn;
use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// As much as one message carries. The kernel takes at most 253 descriptors (SCM_MAX_FD).
const BYTES: usize = 32 << 10;
const RIGHTS: usize = 200;
/// How long a letter usually is at most, and how many descriptors it has.
const USUAL: usize = 8 << 10;
const USUAL_RIGHTS: usize = 16;
/// Length of the text and number of descriptors, in front of the first message.
const HEADER: usize = 16;

#[derive(Default)]
struct Letter<'a> {
    text: Vec<u8>,
    rights: Vec<BorrowedFd<'a>>,
}

/// Sends a launch, with the socket that the command's process uses until exec. Blocks until the guardian has read all but the
/// last messages of a long one.
pub fn send(to: BorrowedFd<'_>, launch: &Launch, setup: BorrowedFd<'_>) -> io::Result<()> {
    launch.must_be_consistent()?;
    let mut letter = Letter { text: vec![0; HEADER], rights: vec![setup] };
    letter.launch(launch)?;
    // Each message has at least one byte.
    let messages = letter.rights.len().div_ceil(RIGHTS);
    letter.text.resize(letter.text.len().max((messages - 1) * BYTES + 1), 0);
    let (length, rights) = (letter.text.len() as u64, letter.rights.len() as u64);
    letter.text.splice(..HEADER, length.to_ne_bytes().into_iter().chain(rights.to_ne_bytes()));
    let mut rights = letter.rights.chunks(RIGHTS);
    for part in letter.text.chunks(BYTES) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(rights) = rights.next() {
            control.push(SendAncillaryMessage::ScmRights(rights));
        }
        loop {
            match rustix::net::sendmsg(to, &[IoSlice::new(part)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => {
                    other?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// What a guardian starts with.
pub struct Received {
    pub launch: Launch,
    /// The socket to the front process.
    pub front: OwnedFd,
    /// The socket for the command's process.
    pub setup: OwnedFd,
}

/// Receives a launch. `None`: the other process has closed its end without sending one. The guardian program calls this in a forked
/// process, where nothing else runs. Needs the socket after a failure, too.
pub fn receive(from: &OwnedFd, board: Option<&Arc<Board>>) -> io::Result<Option<Received>> {
    let mut part = vec![0u8; BYTES];
    touch(&mut part);
    let mut text = Vec::with_capacity(USUAL);
    let mut rights: Vec<OwnedFd> = Vec::with_capacity(USUAL_RIGHTS);
    let mut expected = (HEADER, 1);
    while text.len() < expected.0 || rights.len() < expected.1 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut part)], &mut control, flags)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                rights.extend(received);
            }
        }
        if read == 0 {
            return if text.is_empty() { Ok(None) } else { Err(wrong()) };
        }
        text.extend_from_slice(part.get(..read).ok_or_else(wrong)?);
        if let (Some(length), Some(count)) = (text.get(..8), text.get(8..HEADER)) {
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes) as usize;
            expected = (number(length), number(count));
        }
    }
    let mut rights = rights.into_iter();
    let setup = rights.next().ok_or_else(wrong)?;
    let reader = Reader { text: &text, at: HEADER, rights: rights.map(Some).collect(), next: 0 };
    reader.launch(from.try_clone()?, setup, board).map(Some)
}

/// Writes to the memory that a usual letter needs, before it arrives. A forked process copies a page when it first writes to it, which
/// takes a microsecond each.
fn touch(part: &mut [u8]) {
    const PAGE: usize = 4096;
    let mut heap = vec![0u8; 2 * USUAL];
    for memory in [&mut heap[..], &mut part[..USUAL]] {
        memory.iter_mut().step_by(PAGE).for_each(|byte| {
            std::hint::black_box(&mut *byte);
            *byte = 1;
        });
    }
    std::hint::black_box((&heap, part));
}

/// A part is missing or malformed.
fn wrong() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    rights: Vec<Option<OwnedFd>>,
    next: usize,
}

impl<'a> Letter<'a> {
    fn number(&mut self, number: u64) {
        self.text.extend_from_slice(&number.to_ne_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.text.extend_from_slice(bytes);
    }

    fn string(&mut self, text: &CStr) {
        self.bytes(text.to_bytes());
    }

    fn right(&mut self, right: BorrowedFd<'a>) {
        self.rights.push(right);
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        mut each: impl FnMut(&mut Self, T),
    ) {
        let items = items.into_iter();
        self.number(items.len() as u64);
        items.for_each(|item| each(self, item));
    }

    fn option<T>(&mut self, item: Option<T>, each: impl FnMut(&mut Self, T)) {
        self.list(item, each);
    }
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(length).ok_or_else(wrong)?;
        let bytes = self.text.get(self.at..end).ok_or_else(wrong)?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u64> {
        Ok(u64::from_ne_bytes(self.take(8)?.try_into().map_err(|_| wrong())?))
    }

    fn bytes(&mut self) -> io::Result<&[u8]> {
        let length = self.number()? as usize;
        self.take(length)
    }

    fn string(&mut self) -> io::Result<CString> {
        CString::new(self.bytes()?).map_err(|_| wrong())
    }

    fn right(&mut self) -> io::Result<OwnedFd> {
        let right = self.rights.get_mut(self.next).and_then(Option::take).ok_or_else(wrong)?;
        self.next += 1;
        Ok(right)
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        (0..self.number()?).map(|_| each(self)).collect()
    }

    fn option<T>(&mut self, each: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Option<T>> {
        Ok(self.list(each)?.pop())
    }
}

/// A descriptor of this process by its number, if it is open.
fn open(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: only asked whether it is open, and sent right after; this process's standard streams and the descriptors that
    // the caller names stay open during a run.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(descriptor).is_ok().then_some(descriptor)
}

impl<'a> Letter<'a> {
    fn launch(&mut self, launch: &'a Launch) -> io::Result<()> {
        // Every field is named: one that the letter left out would not be applied.
        let Launch {
            operations,
            program,
            directory,
            streams,
            limits,
            group,
            mask,
            mounts,
            stage,
            lock,
            watched,
            ruleset,
            filter,
            arguments,
            progress,
            place,
            stubs,
            cgroup,
            kept,
            numbers,
            waits,
            backstop,
        } = launch;
        if *group != Group::Session {
            return Err(io::Error::other(
                "only a command with a session of its own can be started by the guardian program",
            ));
        }
        let kept = kept.iter().map(|fd| (fd.as_raw_fd(), Some(fd.as_fd())));
        let kept: Vec<_> = kept.chain(numbers.iter().map(|number| (*number, open(*number)))).collect();
        // First, because the reader moves every other descriptor out of their way.
        self.number(kept.len() as u64);
        for (number, descriptor) in kept {
            self.number(number as u64);
            self.right(descriptor.ok_or(Errno::BADF)?);
        }
        self.list(operations, |letter, operation| letter.number(*operation as u64));
        self.right(program.as_fd());
        self.string(directory);
        for (number, stream) in (0..).zip(streams) {
            // The guardian program has none of this process's streams.
            self.option(stream.as_ref().map(AsFd::as_fd).or_else(|| open(number)), Letter::right);
        }
        self.list(limits, |letter, (resource, limit)| {
            letter.number(*resource as u64);
            letter.number(limit.rlim_cur);
            letter.number(limit.rlim_max);
        });
        // SAFETY: a signal set is plain bytes, all of them initialised; the slice borrows the launch.
        self.bytes(unsafe { std::slice::from_raw_parts((&raw const *mask).cast(), size_of_val(mask)) });
        self.option(mounts.as_ref(), Letter::mounts);
        self.option(stage.as_ref(), Letter::stage);
        self.option(lock.as_ref(), |letter, lock| letter.right(lock.as_fd()));
        self.option(watched.as_ref(), Letter::watched);
        self.option(ruleset.as_ref(), |letter, ruleset| letter.right(ruleset.as_fd()));
        self.option(filter.as_ref(), |letter, filter| {
            letter.number(filter.listener.into());
            letter.list(&filter.program, |letter, insn| {
                let Insn { code, jt, jf, k } = *insn;
                letter.number(u64::from(k) << 32 | u64::from(jf) << 24 | u64::from(jt) << 16 | u64::from(code));
            });
        });
        let (argv, envp, addresses, flags) = arguments.parts();
        self.list(argv, |letter, word| letter.string(word));
        self.list(envp, |letter, word| letter.string(word));
        self.list(addresses, Letter::number);
        self.list(flags, Letter::number);
        let (number, file) = progress.place();
        self.option(number, |letter, number| letter.number(number as u64));
        if number.is_none() {
            self.right(file.ok_or(Errno::INVAL)?);
        }
        self.option(place.as_ref(), Letter::place);
        self.list(stubs, |letter, stub| {
            letter.right(stub.parent.as_fd());
            letter.string(&stub.name);
        });
        self.option(cgroup.as_ref(), |letter, joined| {
            letter.right(joined.procs.as_fd());
            letter.string(&joined.directory);
        });
        self.number((*waits).into());
        self.option(*backstop, Letter::backstop);
        Ok(())
    }
}

impl Reader<'_> {
    fn launch(mut self, front: OwnedFd, setup: OwnedFd, board: Option<&Arc<Board>>) -> io::Result<Received> {
        let numbers = self.list(|letter| Ok((letter.number()? as RawFd, letter.right()?)))?;
        let (kept, [front, setup]) = self.put(numbers, [front, setup])?;
        let launch = Launch {
            operations: self.list(|letter| Ok(Operation::from_number(letter.number()? as i32)))?,
            program: self.right()?,
            directory: self.string()?,
            streams: [self.option(Reader::right)?, self.option(Reader::right)?, self.option(Reader::right)?],
            limits: self.list(|letter| {
                let resource = letter.number()? as i32;
                Ok((resource, libc::rlimit { rlim_cur: letter.number()?, rlim_max: letter.number()? }))
            })?,
            group: Group::Session,
            mask: self.mask()?,
            mounts: self.option(Reader::mounts)?,
            stage: self.option(Reader::stage)?,
            lock: self.option(Reader::right)?,
            watched: self.option(Reader::watched)?,
            ruleset: self.option(Reader::right)?,
            filter: self.option(Reader::filter)?,
            arguments: self.arguments()?,
            progress: match (self.option(Reader::number)?, board) {
                (Some(number), Some(board)) => Progress::at(board, number as usize)?,
                (Some(_), None) => return Err(wrong()),
                (None, _) => Progress::of_file(self.right()?)?,
            },
            place: self.option(Reader::place)?,
            stubs: self.list(|letter| Ok(Stub { parent: Arc::new(letter.right()?), name: letter.string()? }))?,
            cgroup: self.option(|letter| Ok(Joined { procs: letter.right()?, directory: letter.string()? }))?,
            kept,
            numbers: Vec::new(),
            waits: self.number()? != 0,
            backstop: self.option(Reader::backstop)?,
        };
        launch.must_be_consistent()?;
        Ok(Received { launch, front, setup })
    }

    /// Puts the kept descriptors on the numbers that they have in the other process, because the command's arguments contain
    /// those numbers. All other descriptors of the letter are moved above them first.
    fn put(&mut self, kept: Vec<(RawFd, OwnedFd)>, own: [OwnedFd; 2]) -> io::Result<(Vec<OwnedFd>, [OwnedFd; 2])> {
        let Some(most) = kept.iter().map(|(number, _)| *number).max() else { return Ok((Vec::new(), own)) };
        let above = |fd: OwnedFd| fcntl_dupfd_cloexec(&fd, most + 1);
        let [front, setup] = own;
        let own = [above(front)?, above(setup)?];
        for right in &mut self.rights {
            *right = right.take().map(above).transpose()?;
        }
        let kept: Vec<_> = kept.into_iter().map(|(number, fd)| Ok((number, above(fd)?))).collect::<io::Result<_>>()?;
        kept.into_iter()
            .map(|(number, fd)| {
                // SAFETY: dup3 passes no memory. Of what this process uses, nothing is below `most`, except the socket that
                // the letter came through, which has been copied. The new descriptor has no other owner.
                unsafe {
                    super::check(libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC).into())?;
                    Ok(OwnedFd::from_raw_fd(number))
                }
            })
            .collect::<io::Result<_>>()
            .map(|kept| (kept, own))
    }

    fn mask(&mut self) -> io::Result<libc::sigset_t> {
        let bytes = self.bytes()?;
        // SAFETY: all zeroes is a valid signal set, and any bytes are; exactly its size is written.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            if bytes.len() != size_of_val(&mask) {
                return Err(wrong());
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut mask).cast(), bytes.len());
            Ok(mask)
        }
    }

    fn filter(&mut self) -> io::Result<Filter> {
        let listener = self.number()? != 0;
        let program = self.list(|letter| {
            let word = letter.number()?;
            Ok(Insn { code: word as u16, jt: (word >> 16) as u8, jf: (word >> 24) as u8, k: (word >> 32) as u32 })
        })?;
        Ok(Filter { program, listener })
    }

    fn arguments(&mut self) -> io::Result<Arguments> {
        let (argv, envp) = (self.list(Reader::string)?, self.list(Reader::string)?);
        let addresses = self.list(Reader::number)?.try_into().map_err(|_| wrong())?;
        let flags = self.list(Reader::number)?.try_into().map_err(|_| wrong())?;
        Arguments::at(argv, envp, addresses, flags)
    }
}
