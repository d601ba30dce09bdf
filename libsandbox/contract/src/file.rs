//! The file that `gatekeeper compile` writes and `SANDBOX_FILTER` names: a header and the program in the kernel's
//! layout.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `SBFILTER` |
//! | 8..40 | SHA-256 of all following bytes |
//! | 40..44 | format version, 1 |
//! | 44..48 | audit architecture |
//! | 48..52 | number of instructions |
//! | 52..56 | zero |
//! | 56.. | the instructions, 8 bytes each |
//!
//! Numbers are in the machine's byte order, because a filter is for one architecture. The hash detects damage, not
//! tampering: an attacker who can write the file can also write a matching hash.

use crate::bpf::{AUDIT_ARCH, Insn, MAX_LEN};
use crate::sha256::sha256;

pub const MAGIC: &[u8; 8] = b"SBFILTER";
pub const VERSION: u32 = 1;
pub const HEADER: usize = 56;
const HASHED_FROM: usize = 40;
/// The length of the longest valid file.
pub const MAX_FILE: usize = HEADER + MAX_LEN * 8;

/// Why a file is not a filter for this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    NotAFilter,
    Version(u32),
    Arch(u32),
    /// The file's length differs from the header's, or the program is empty or longer than the kernel accepts.
    Length,
    Hash,
}

impl FileError {
    /// The problem, as the end of a sentence that begins with the file's name.
    pub const fn text(self) -> &'static str {
        match self {
            FileError::NotAFilter => "is not a compiled filter",
            FileError::Version(_) => "has a format version that this library does not know; compile it again",
            FileError::Arch(_) => "was compiled for another architecture; compile it on this one",
            FileError::Length => "is truncated or over-long",
            FileError::Hash => "was altered: its hash does not match",
        }
    }
}

/// Writes a program as a file and returns the file's length; `None` if the program is empty or too long.
pub fn encode(program: &[Insn], out: &mut [u8; MAX_FILE]) -> Option<usize> {
    if program.is_empty() || program.len() > MAX_LEN {
        return None;
    }
    let fields = [VERSION, AUDIT_ARCH, program.len() as u32, 0];
    let instructions = program.iter().flat_map(|insn| {
        let [c0, c1] = insn.code.to_ne_bytes();
        let [k0, k1, k2, k3] = insn.k.to_ne_bytes();
        [c0, c1, insn.jt, insn.jf, k0, k1, k2, k3]
    });
    let hashed = fields.into_iter().flat_map(u32::to_ne_bytes).chain(instructions);
    out.iter_mut().skip(HASHED_FROM).zip(hashed).for_each(|(to, from)| *to = from);
    let len = HEADER + program.len() * 8;
    let hash = sha256(out.get(HASHED_FROM..len)?);
    out.iter_mut().zip(MAGIC.iter().chain(&hash)).for_each(|(to, from)| *to = *from);
    Some(len)
}

/// Checks a whole file and returns the number of instructions after its header.
pub fn verify(file: &[u8]) -> Result<usize, FileError> {
    let (header, body) = file.split_at_checked(HEADER).ok_or(FileError::NotAFilter)?;
    let field = |at: usize| -> u32 {
        let mut bytes = [0u8; 4];
        bytes.iter_mut().zip(header.iter().skip(at)).for_each(|(to, from)| *to = *from);
        u32::from_ne_bytes(bytes)
    };
    if !header.starts_with(MAGIC) {
        return Err(FileError::NotAFilter);
    }
    if field(40) != VERSION {
        return Err(FileError::Version(field(40)));
    }
    if field(44) != AUDIT_ARCH {
        return Err(FileError::Arch(field(44)));
    }
    let count = field(48) as usize;
    if field(52) != 0 || count == 0 || count > MAX_LEN || body.len() != count * 8 {
        return Err(FileError::Length);
    }
    let hash = sha256(file.get(HASHED_FROM..).unwrap_or_default());
    if !header.iter().skip(MAGIC.len()).take(hash.len()).eq(&hash) {
        return Err(FileError::Hash);
    }
    Ok(count)
}

/// Checks a whole file, reads it into `program` and returns the number of instructions.
pub fn decode(file: &[u8], program: &mut [Insn; MAX_LEN]) -> Result<usize, FileError> {
    let count = verify(file)?;
    let words = file.get(HEADER..).unwrap_or_default().as_chunks::<8>().0;
    program.iter_mut().zip(words).for_each(|(insn, [c0, c1, jt, jf, k0, k1, k2, k3])| {
        *insn = Insn {
            code: u16::from_ne_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes([*k0, *k1, *k2, *k3]),
        };
    });
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn sample() -> Vec<u8> {
        let program = [Insn { code: 0x20, jt: 0, jf: 0, k: 4 }, Insn { code: 0x06, jt: 1, jf: 2, k: 0x7fff_0000 }];
        let mut out = [0u8; MAX_FILE];
        let len = encode(&program, &mut out).expect("it fits");
        out[..len].to_vec()
    }

    fn read(file: &[u8]) -> Result<usize, FileError> {
        decode(file, &mut [Insn::default(); MAX_LEN])
    }

    #[test]
    fn what_is_written_is_read() {
        let mut program = [Insn::default(); MAX_LEN];
        assert_eq!(decode(&sample(), &mut program), Ok(2));
        assert_eq!(program[1], Insn { code: 0x06, jt: 1, jf: 2, k: 0x7fff_0000 });
    }

    #[test]
    fn every_cut_is_refused() {
        let file = sample();
        for len in 0..file.len() {
            let wanted = if len < HEADER { FileError::NotAFilter } else { FileError::Length };
            assert_eq!(read(&file[..len]), Err(wanted), "{len}");
        }
        let mut longer = file;
        longer.push(0);
        assert_eq!(read(&longer), Err(FileError::Length));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let file = sample();
        for at in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(read(&bad).is_err(), "bit {at}");
        }
    }

    #[test]
    fn a_foreign_architecture_and_version_are_named() {
        let mut file = sample();
        file[44] ^= 1;
        assert_eq!(read(&file), Err(FileError::Arch(AUDIT_ARCH ^ 1)));
        file[40] ^= 2;
        assert_eq!(read(&file), Err(FileError::Version(3)));
    }
}
