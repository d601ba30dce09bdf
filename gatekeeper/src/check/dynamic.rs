//! PT_DYNAMIC: what the dynamic loader reads from an ELF file.
//!
//! Takes segments and pages, gives names, versions, flags and symbol lookups. All offsets come from the file and may be
//! hostile, so each read is bounded, and what cannot be read counts as absent.

use super::files::Pages;
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::dynamic::{self, Dyn};
use goblin::elf::program_header::{PT_DYNAMIC, PT_LOAD, ProgramHeader};

/// Real dynamic sections have about 30 entries; 1024 entries take 16 KiB.
const MAX_DYNAMIC: usize = 1024;
const MAX_NAME: usize = 512;
const USUAL_NAME: usize = 64;
const MAX_NEEDED: usize = 256;
const MAX_VERSIONS: usize = 256;

/// A GLIBC_2.x version, comparable.
pub type Release = (u32, u32);

pub struct Dynamic<'a> {
    pages: &'a Pages<'a>,
    segments: &'a [ProgramHeader],
    entries: Vec<Dyn>,
    /// DT_STRTAB.
    strings: Option<u64>,
}

/// What the symbol versions of a file say about its C library.
#[derive(Debug, Default)]
pub struct Versions {
    pub count: usize,
    /// Whether GLIBC_PRIVATE is among them.
    pub private: bool,
    /// The newest GLIBC_2.x.
    pub newest: Option<Release>,
}

impl Versions {
    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        self.private |= name == b"GLIBC_PRIVATE";
        self.newest = self.newest.max(glibc_release(name));
    }
}

impl<'a> Dynamic<'a> {
    /// Like the loader, uses the address of the last PT_DYNAMIC, not its offset, and reads up to DT_NULL.
    pub fn read(pages: &'a Pages<'a>, segments: &'a [ProgramHeader]) -> Option<Dynamic<'a>> {
        let header = segments.iter().rfind(|segment| segment.p_type == PT_DYNAMIC)?;
        let mut dynamic = Dynamic { pages, segments, entries: Vec::new(), strings: None };
        let start = dynamic.offset(header.p_vaddr)?;
        let size = size_of::<goblin::elf64::dynamic::Dyn>();
        let claimed = (header.p_filesz as usize).clamp(size, MAX_DYNAMIC * size);
        dynamic.entries = entries(pages.up_to(start, claimed)?, header)?;
        if dynamic.entries.last().is_none_or(|last| last.d_tag != dynamic::DT_NULL) {
            dynamic.entries = entries(pages.up_to(start, MAX_DYNAMIC * size)?, header)?;
        }
        dynamic.strings = dynamic.value(dynamic::DT_STRTAB);
        Some(dynamic)
    }

    /// The loader uses the last entry of a tag.
    fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().rfind(|entry| entry.d_tag == tag).map(|entry| entry.d_val)
    }

    pub fn has(&self, tag: u64) -> bool {
        self.value(tag).is_some()
    }

    pub fn flags_1(&self) -> u64 {
        self.value(dynamic::DT_FLAGS_1).unwrap_or(0)
    }

    /// The file offset of an address. The loader maps whole pages, and later segments over earlier ones.
    fn offset(&self, address: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let loads = self.segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_filesz > 0);
        let load = loads.rev().find(|segment| {
            let (start, end) = (segment.p_vaddr & !(PAGE - 1), segment.p_vaddr.saturating_add(segment.p_filesz));
            let end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            (start..end).contains(&address)
        })?;
        load.p_offset.checked_add(address)?.checked_sub(load.p_vaddr)
    }

    fn at(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        self.pages.exact(self.offset(address)?, length)
    }

    fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        self.pages.view(self.offset(address)?, N, |bytes| bytes.try_into().ok())?
    }

    fn u32_at(&self, address: u64) -> Option<u32> {
        self.array(address).map(u32::from_ne_bytes)
    }

    /// Calls `with` with a name of the string table.
    fn with_name<T>(&self, offset: u64, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let start = self.offset(self.strings?.checked_add(offset)?)?;
        let end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == 0);
        // Most names are short, and what is near has often been read already.
        let near = self.pages.view(start, USUAL_NAME, end)?;
        let length = match near {
            Some(length) => length,
            None => self.pages.view(start, MAX_NAME, end)??,
        };
        self.pages.view(start, length, with)
    }

    fn names(&self, tag: u64) -> Vec<String> {
        let offsets = self.entries.iter().filter(|entry| entry.d_tag == tag).take(MAX_NEEDED);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into();
        offsets.filter_map(|entry| self.with_name(entry.d_val, text)).collect()
    }

    pub fn needed(&self) -> Vec<String> {
        self.names(dynamic::DT_NEEDED)
    }

    pub fn soname(&self) -> Option<String> {
        self.names(dynamic::DT_SONAME).into_iter().next()
    }

    /// The symbol versions that this file defines.
    pub fn defined_versions(&self) -> Versions {
        let mut found = Versions::default();
        let (Some(mut at), Some(count)) = (self.value(dynamic::DT_VERDEF), self.value(dynamic::DT_VERDEFNUM)) else {
            return found;
        };
        for _ in 0..count.min(MAX_VERSIONS as u64) {
            let Some(entry) = self.array::<20>(at) else { break };
            let (aux, next) = (u32_of(&entry, 12).unwrap_or(0), u32_of(&entry, 16).unwrap_or(0));
            let name = at.checked_add(aux.into()).and_then(|aux| self.u32_at(aux));
            name.and_then(|name| self.with_name(name.into(), |name| found.add(name)));
            if next == 0 {
                break;
            }
            at = at.saturating_add(next.into());
        }
        found
    }

    /// The symbol versions that this file needs from its libraries.
    pub fn needed_versions(&self) -> Versions {
        let mut found = Versions::default();
        let (Some(mut at), Some(count)) = (self.value(dynamic::DT_VERNEED), self.value(dynamic::DT_VERNEEDNUM)) else {
            return found;
        };
        for _ in 0..count.min(MAX_VERSIONS as u64) {
            let Some(entry) = self.array::<16>(at) else { break };
            let names = u16_of(&entry, 2).unwrap_or(0);
            let (aux, next) = (u32_of(&entry, 8).unwrap_or(0), u32_of(&entry, 12).unwrap_or(0));
            let mut aux_at = at.saturating_add(aux.into());
            for _ in 0..names {
                let Some(aux) = self.array::<16>(aux_at).filter(|_| found.count < MAX_VERSIONS) else { break };
                self.with_name(u32_of(&aux, 8).unwrap_or(0).into(), |name| found.add(name));
                aux_at = aux_at.saturating_add(u32_of(&aux, 12).unwrap_or(0).into());
            }
            if next == 0 || found.count >= MAX_VERSIONS {
                break;
            }
            at = at.saturating_add(next.into());
        }
        found
    }

    /// Whether this file defines a symbol. Searches as the loader does, by DT_GNU_HASH or else DT_HASH. `None` if the
    /// tables cannot be read.
    pub fn defines(&self, name: &str) -> Option<bool> {
        match (self.value(dynamic::DT_GNU_HASH), self.value(dynamic::DT_HASH)) {
            (Some(table), _) => self.in_gnu_hash(table, name),
            (None, Some(table)) => self.in_sysv_hash(table, name),
            (None, None) => Some(false),
        }
    }

    /// Which of these symbols this file imports. Undefined symbols come before those in DT_GNU_HASH.
    pub fn imported<'n, const N: usize>(&self, names: [&'n str; N]) -> Vec<&'n str> {
        let first = self.value(dynamic::DT_GNU_HASH).and_then(|table| self.u32_at(table.checked_add(4)?)).unwrap_or(0);
        let mut imported = [false; N];
        for symbol in 1..first.min(MAX_CHAIN as u32) {
            let found = self.symbol(symbol, false, |name| names.iter().position(|wanted| wanted.as_bytes() == name));
            if let Some(found) = found.flatten().flatten().and_then(|at| imported.get_mut(at)) {
                *found = true;
            }
        }
        names.into_iter().zip(imported).filter(|(_, imported)| *imported).map(|(name, _)| name).collect()
    }

    fn in_gnu_hash(&self, table: u64, name: &str) -> Option<bool> {
        let header = self.array::<16>(table)?;
        let (buckets, first) = (u32_of(&header, 0)?, u32_of(&header, 4)?);
        let (blooms, shift) = (u32_of(&header, 8)?, u32_of(&header, 12)?);
        if buckets == 0 || blooms == 0 {
            return Some(false);
        }
        let hash = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let word_at = table.checked_add(16 + 8 * u64::from(hash / 64 % blooms))?;
        let word = u64::from_le_bytes(self.array(word_at)?);
        if word >> (hash % 64) & word >> (hash.checked_shr(shift).unwrap_or(0) % 64) & 1 == 0 {
            return Some(false);
        }
        let bucket_base = table.checked_add(16 + 8 * u64::from(blooms))?;
        let chain_base = bucket_base.checked_add(4 * u64::from(buckets))?;
        let mut symbol = self.u32_at(bucket_base.checked_add(4 * u64::from(hash % buckets))?)?;
        if symbol == 0 {
            return Some(false);
        }
        for _ in 0..MAX_CHAIN {
            let entry = self.u32_at(chain_base.checked_add(4 * u64::from(symbol.checked_sub(first)?))?)?;
            if entry | 1 == hash | 1 && self.is_symbol(symbol, name, true)? {
                return Some(true);
            }
            if entry & 1 == 1 {
                return Some(false);
            }
            symbol = symbol.checked_add(1)?;
        }
        None
    }

    fn in_sysv_hash(&self, table: u64, name: &str) -> Option<bool> {
        let header = self.array::<8>(table)?;
        let buckets = u32_of(&header, 0)?;
        if buckets == 0 {
            return Some(false);
        }
        let hash = name.bytes().fold(0u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(byte.into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        let mut symbol = self.u32_at(table.checked_add(8 + 4 * u64::from(hash % buckets))?)?;
        for _ in 0..MAX_CHAIN {
            if symbol == 0 {
                return Some(false);
            }
            if self.is_symbol(symbol, name, true)? {
                return Some(true);
            }
            symbol = self.u32_at(table.checked_add(8 + 4 * (u64::from(buckets) + u64::from(symbol)))?)?;
        }
        None
    }

    fn is_symbol(&self, symbol: u32, name: &str, defined: bool) -> Option<bool> {
        self.symbol(symbol, defined, |found| found == name.as_bytes()).map(|found| found.unwrap_or(false))
    }

    /// Calls `with` with the name of a symbol, if it is defined or undefined as asked for.
    fn symbol<T>(&self, symbol: u32, defined: bool, with: impl FnOnce(&[u8]) -> T) -> Option<Option<T>> {
        let at = self.value(dynamic::DT_SYMTAB)?.checked_add(24 * u64::from(symbol))?;
        let entry = self.array::<24>(at)?;
        if (u16_of(&entry, 6)? != 0) != defined {
            return Some(None);
        }
        self.with_name(u32_of(&entry, 0)?.into(), with).map(Some)
    }

    /// Whether relocations call functions of the file (IFUNC) before any constructor. Of a long table only the end is
    /// read, where linkers put these.
    pub fn has_ifunc_relocations(&self) -> bool {
        let irelative: u64 = if cfg!(target_arch = "aarch64") { 1032 } else { 37 };
        let tables = [(dynamic::DT_RELA, dynamic::DT_RELASZ), (dynamic::DT_JMPREL, dynamic::DT_PLTRELSZ)];
        tables.into_iter().any(|(table, size)| {
            let (Some(table), Some(size)) = (self.value(table), self.value(size)) else { return false };
            let read = size.min(MAX_RELOCATIONS) / 24 * 24;
            let bytes = table.checked_add(size / 24 * 24 - read).and_then(|start| self.at(start, read as usize));
            let mut infos = bytes.iter().flat_map(|bytes| bytes.chunks_exact(24)).filter_map(|entry| u32_of(entry, 8));
            infos.any(|info| u64::from(info) == irelative)
        })
    }
}

fn entries(bytes: Vec<u8>, header: &ProgramHeader) -> Option<Vec<Dyn>> {
    let size = size_of::<goblin::elf64::dynamic::Dyn>();
    let whole = ProgramHeader { p_offset: 0, p_filesz: (bytes.len() / size * size) as u64, ..header.clone() };
    let parsed = dynamic::Dynamic::parse(&bytes, &[whole], Ctx::new(Container::Big, Endian::default())).ok()??;
    Some(parsed.dyns)
}

/// Longer hash chains are corrupt or hostile.
const MAX_CHAIN: usize = 4096;
const MAX_RELOCATIONS: u64 = 64 << 10;

fn glibc_release(name: &[u8]) -> Option<Release> {
    let text = std::str::from_utf8(name.strip_prefix(b"GLIBC_")?).ok()?;
    let dot = |text: &str| text.bytes().position(|byte| byte == b'.');
    let (major, rest) = (text.get(..dot(text)?)?, text.get(dot(text)? + 1..)?);
    let minor = rest.get(..dot(rest).unwrap_or(rest.len()))?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn u16_of(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_of(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}
