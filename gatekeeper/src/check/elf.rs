//! The ELF headers, interpreted as in fs/binfmt_elf.c.
//!
//! Takes the pages of a file with the ELF magic, gives what the kernel would make of it. The kernel ignores EI_CLASS,
//! EI_DATA and the section headers, so for the native machine this does too. goblin decodes the structures in the layout
//! that the kernel uses.

use super::files::Pages;
use super::verdict::{Linkage, Reason, ReasonCode};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{self, header32, header64};
use goblin::elf::program_header::program_header32::SIZEOF_PHDR as PHDR32;
use goblin::elf::program_header::program_header64::SIZEOF_PHDR as PHDR64;
use goblin::elf::program_header::{PT_INTERP, PT_LOAD, ProgramHeader};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The machine that this gatekeeper was built for. It can confine only programs of this machine.
pub const NATIVE: u16 = if cfg!(target_arch = "aarch64") { header::EM_AARCH64 } else { header::EM_X86_64 };

const PATH_MAX: u64 = 4096;
/// The largest program header table that the kernel accepts.
const TABLE_MAX: usize = 65536;
/// TASK_SIZE: on x86_64 with four-level page tables, on aarch64 with 48-bit addresses.
const TASK_SIZE: u64 = if cfg!(target_arch = "aarch64") { 1 << 48 } else { (1 << 47) - 4096 };

#[derive(Debug)]
pub struct Elf {
    pub machine: u16,
    pub class: Option<u8>,
    pub linkage: Option<Linkage>,
    /// The first PT_INTERP; the kernel ignores others.
    pub interpreter: Option<OsString>,
    pub segments: Vec<ProgramHeader>,
    /// Why the kernel or gatekeeper would not start it.
    pub problem: Option<Reason>,
}

pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(header::ELFMAG)
}

pub fn read(pages: &Pages, native: u16) -> Elf {
    // The kernel's buffer is zero-filled after the end of the file.
    let mut bytes = [0; header64::SIZEOF_EHDR];
    bytes.iter_mut().zip(pages.head()).for_each(|(to, from)| *to = *from);
    let ident = (bytes[header::EI_CLASS], bytes[header::EI_DATA]);
    let seen = as_kernel(&mut bytes);
    if seen.e_machine == native {
        let as_32 = bytes.get(..header32::SIZEOF_EHDR).and_then(|bytes| header32::Header::parse(bytes).ok());
        let phentsize_32 = as_32.map_or(0, |header| usize::from(header.e_phentsize));
        if ident.0 == header::ELFCLASS32 && seen.e_phentsize as usize != PHDR64 && phentsize_32 == PHDR32 {
            return rejected(
                native,
                Some(32),
                ReasonCode::WrongClass,
                "an x32 program, and the filter kills the x32 ABI",
            );
        }
        return read_native(pages, &seen, native);
    }
    if compat(native).contains(&seen.e_machine) {
        let elf = rejected(
            seen.e_machine,
            Some(32),
            ReasonCode::WrongClass,
            format!("a 32-bit {} program; the filter kills 32-bit system calls", machine_name(seen.e_machine)),
        );
        return Elf { linkage: foreign_linkage(pages, &bytes, ident), ..elf };
    }
    read_foreign(pages, &mut bytes, ident, native)
}

/// The header in the host's byte order, ignoring EI_DATA.
fn as_kernel(bytes: &mut [u8; header64::SIZEOF_EHDR]) -> header64::Header {
    bytes[header::EI_DATA] = if cfg!(target_endian = "little") { header::ELFDATA2LSB } else { header::ELFDATA2MSB };
    header64::Header::parse(&bytes[..]).unwrap_or_default()
}

fn read_native(pages: &Pages, seen: &header64::Header, native: u16) -> Elf {
    let elf =
        Elf { machine: native, class: Some(64), linkage: None, interpreter: None, segments: Vec::new(), problem: None };
    let broken = |code, text: &str| Elf { problem: Some(Reason::new(code, text)), ..blank(native) };
    match seen.e_type {
        header::ET_EXEC | header::ET_DYN => {}
        header::ET_REL => return broken(ReasonCode::NotExecutable, "an object file, not yet linked into a program"),
        header::ET_CORE => return broken(ReasonCode::NotExecutable, "a core dump, not a program"),
        other => return broken(ReasonCode::Corrupt, &format!("ELF type {other} is not a program")),
    }
    let corrupt = |text: &str| broken(ReasonCode::Corrupt, text);
    let size = PHDR64;
    let count = seen.e_phnum as usize;
    if seen.e_phentsize as usize != size {
        return corrupt("program headers of the wrong size");
    }
    if count == 0 || count * size > TABLE_MAX {
        return corrupt(&format!("{count} program headers; the kernel takes 1 to {}", TABLE_MAX / size));
    }
    let Some(table) = pages.exact(seen.e_phoff, count * size) else {
        return corrupt("the program headers lie outside the file");
    };
    let Ok(segments) = ProgramHeader::parse(&table, 0, count, Ctx::new(Container::Big, Endian::default())) else {
        return corrupt("the program headers cannot be read");
    };
    let interpreter = match segments.iter().find(|segment| segment.p_type == PT_INTERP) {
        None => None,
        Some(segment) if !(2..=PATH_MAX).contains(&segment.p_filesz) => {
            return corrupt("the loader's name is empty or too long");
        }
        Some(segment) => match pages.exact(segment.p_offset, segment.p_filesz as usize) {
            None => return corrupt("the loader's name lies outside the file"),
            Some(name) if name.last() != Some(&0) => return corrupt("the loader's name has no terminating NUL"),
            Some(name) => Some(OsString::from_vec(name.into_iter().take_while(|byte| *byte != 0).collect())),
        },
    };
    let linkage = linkage(seen.e_type, interpreter.is_some());
    let problem = unmappable(&segments, pages.size()).map(|text| Reason::new(ReasonCode::Corrupt, text));
    Elf { linkage: Some(linkage), interpreter, segments, problem, ..elf }
}

/// Why the kernel would kill the process while mapping the segments, or soon after.
fn unmappable(segments: &[ProgramHeader], size: u64) -> Option<&'static str> {
    let mut loads = segments.iter().filter(|segment| segment.p_type == PT_LOAD).peekable();
    if loads.peek().is_none() {
        return Some("no segment is loaded");
    }
    loads.find_map(|load| {
        if load.p_filesz > load.p_memsz {
            Some("a segment is larger in the file than in memory")
        } else if load.p_vaddr >= TASK_SIZE || load.p_memsz > TASK_SIZE - load.p_vaddr {
            Some("a segment lies outside the address space")
        } else if load.p_filesz > 0 && load.p_offset % 4096 != load.p_vaddr % 4096 {
            Some("a segment cannot be mapped: its offset and address do not agree")
        } else if load.p_filesz > 0 && load.p_offset.checked_add(load.p_filesz).is_none_or(|end| end > size) {
            // The kernel maps it anyway, and the program gets SIGBUS after the end of the file.
            Some("truncated: a segment extends past the end of the file")
        } else {
            None
        }
    })
}

fn linkage(e_type: u16, has_interpreter: bool) -> Linkage {
    match (has_interpreter, e_type) {
        (true, _) => Linkage::Dynamic,
        (false, header::ET_DYN) => Linkage::StaticPie,
        (false, _) => Linkage::Static,
    }
}

fn blank(machine: u16) -> Elf {
    Elf { machine, class: Some(64), linkage: None, interpreter: None, segments: Vec::new(), problem: None }
}

fn rejected(machine: u16, class: Option<u8>, code: ReasonCode, text: impl Into<String>) -> Elf {
    Elf { class, problem: Some(Reason::new(code, text)), ..blank(machine) }
}

/// A file for another machine. The kernel returns ENOEXEC; the details are for the message.
fn read_foreign(pages: &Pages, bytes: &mut [u8; header64::SIZEOF_EHDR], ident: (u8, u8), native: u16) -> Elf {
    let class = match ident.0 {
        header::ELFCLASS32 => Some(32),
        header::ELFCLASS64 => Some(64),
        _ => None,
    };
    bytes[header::EI_DATA] = ident.1;
    let parsed = header64::Header::parse(&bytes[..]).ok();
    let machine = parsed.map_or(0, |header| header.e_machine);
    if machine == 0 || machine == native || class.is_none() || machine_name(machine) == "unknown" {
        return rejected(machine, class, ReasonCode::Corrupt, "the ELF header names no known machine");
    }
    let text = format!("made for {}, and this machine runs {} programs", machine_name(machine), machine_name(native));
    let elf = rejected(machine, class, ReasonCode::WrongMachine, text);
    Elf { linkage: foreign_linkage(pages, bytes, ident), ..elf }
}

fn foreign_linkage(pages: &Pages, bytes: &[u8; header64::SIZEOF_EHDR], ident: (u8, u8)) -> Option<Linkage> {
    let endian = if ident.1 == header::ELFDATA2MSB { Endian::Big } else { Endian::Little };
    let (container, e_type, offset, count, size) = if ident.0 == header::ELFCLASS32 {
        let header = header32::Header::parse(bytes.get(..header32::SIZEOF_EHDR)?).ok()?;
        (Container::Little, header.e_type, header.e_phoff as u64, header.e_phnum as usize, PHDR32)
    } else {
        let header = header64::Header::parse(&bytes[..]).ok()?;
        (Container::Big, header.e_type, header.e_phoff, header.e_phnum as usize, PHDR64)
    };
    if count * size > TABLE_MAX {
        return None;
    }
    let table = pages.exact(offset, count * size)?;
    let segments = ProgramHeader::parse(&table, 0, count, Ctx::new(container, endian)).ok()?;
    Some(linkage(e_type, segments.iter().any(|segment| segment.p_type == PT_INTERP)))
}

/// The 32-bit machines whose programs a kernel of this machine may run.
fn compat(native: u16) -> &'static [u16] {
    const EM_486: u16 = 6;
    match native {
        header::EM_X86_64 => &[header::EM_386, EM_486],
        header::EM_AARCH64 => &[header::EM_ARM],
        _ => &[],
    }
}

/// The machine as `uname -m` prints it.
pub fn machine_name(machine: u16) -> String {
    match machine {
        header::EM_386 | 6 => "i386".into(),
        header::EM_PPC64 => "ppc64".into(),
        header::EM_S390 => "s390x".into(),
        header::EM_RISCV => "riscv64".into(),
        other => match header::machine_to_str(other).to_lowercase().as_str() {
            name if name.contains("unknown") => "unknown".into(),
            name => name.into(),
        },
    }
}
