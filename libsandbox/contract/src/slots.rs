//! The hash table of syscall names: what its generator in build.rs and the lookup have to agree on.

/// The number of slots. Each has the index of a name in its lower bits and the upper bits of the name's hash above, or `FREE`.
pub const COUNT: u16 = 1024;

/// A slot without a name. As the last index is never used, no name has this value.
pub const FREE: u16 = u16::MAX;

/// FNV-1a, folded to 16 bits. The table never changes, so nobody can fill it with names that collide.
#[inline]
pub fn hash(name: &[u8]) -> u16 {
    let whole = name.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    (whole ^ whole >> 16) as u16
}
