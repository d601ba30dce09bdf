//! Edits x86_64 and aarch64 ELF files: fields that the kernel reads, and some that it does not.

pub const E_TYPE: usize = 16;
pub const E_MACHINE: usize = 18;
pub const E_PHOFF: usize = 32;
pub const E_SHOFF: usize = 40;
pub const E_PHENTSIZE: usize = 54;
pub const E_PHNUM: usize = 56;
pub const E_SHNUM: usize = 60;

pub const PT_NULL: u32 = 0;
pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_INTERP: u32 = 3;
pub const PT_NOTE: u32 = 4;

/// Fields of a program header.
pub const P_TYPE: usize = 0;
pub const P_OFFSET: usize = 8;
pub const P_VADDR: usize = 16;
pub const P_FILESZ: usize = 32;
pub const P_MEMSZ: usize = 40;
const PHDR: usize = 56;

#[derive(Clone)]
pub struct Image(pub Vec<u8>);

impl Image {
    pub fn u8(mut self, at: usize, value: u8) -> Image {
        self.0[at] = value;
        self
    }

    pub fn u16(mut self, at: usize, value: u16) -> Image {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, at: usize, value: u64) -> Image {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn cut(mut self, length: usize) -> Image {
        self.0.truncate(length);
        self
    }

    pub fn append(mut self, bytes: &[u8]) -> Image {
        self.0.extend_from_slice(bytes);
        self
    }

    fn get64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    fn headers(&self) -> Vec<usize> {
        let (start, count) = (self.get64(E_PHOFF) as usize, self.0[E_PHNUM] as usize);
        (0..count).map(|i| start + i * PHDR).collect()
    }

    /// The offset of the first program header of a type.
    pub fn header(&self, kind: u32) -> usize {
        let is = |at: &usize| self.0[*at..*at + 4] == kind.to_le_bytes();
        self.headers().into_iter().find(is).unwrap_or_else(|| panic!("no program header of type {kind}"))
    }

    /// Sets a field of the first program header of a type.
    pub fn segment(self, kind: u32, field: usize, value: u64) -> Image {
        let at = self.header(kind) + field;
        self.u64(at, value)
    }

    pub fn segment_field(&self, kind: u32, field: usize) -> u64 {
        self.get64(self.header(kind) + field)
    }

    /// Changes the type of the first program header of a type.
    pub fn retype(mut self, kind: u32, new: u32) -> Image {
        let at = self.header(kind) + P_TYPE;
        self.0[at..at + 4].copy_from_slice(&new.to_le_bytes());
        self
    }

    pub fn retype_all(mut self, kind: u32, new: u32) -> Image {
        for at in self.headers() {
            if self.0[at..at + 4] == kind.to_le_bytes() {
                self.0[at..at + 4].copy_from_slice(&new.to_le_bytes());
            }
        }
        self
    }

    /// Swaps two program headers.
    pub fn swap(mut self, one: usize, other: usize) -> Image {
        let (a, b) = (self.0[one..one + PHDR].to_vec(), self.0[other..other + PHDR].to_vec());
        self.0[one..one + PHDR].copy_from_slice(&b);
        self.0[other..other + PHDR].copy_from_slice(&a);
        self
    }

    pub fn last_header(&self) -> usize {
        *self.headers().last().expect("a program has headers")
    }

    /// Appends a name to the file and points PT_INTERP to it.
    pub fn interpreter(self, name: &[u8]) -> Image {
        let offset = self.0.len() as u64;
        self.append(name).segment(PT_INTERP, P_OFFSET, offset).segment(PT_INTERP, P_FILESZ, name.len() as u64)
    }
}
