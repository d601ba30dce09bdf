//! Mounts and the file systems of the kernel: /proc, /dev/shm, files replaced under a mount.

use super::Hole;

pub const HOLES: &[Hole] = &[];
