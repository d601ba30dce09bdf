//! Interprets a program as the kernel does.

use super::*;

/// The answer of a program to a call, or `None` if the kernel would not accept the program.
pub fn simulate(program: &[Insn], arch: u32, number: u32, args: &[u64; 6]) -> Option<u32> {
    let load = |offset: u32| match offset {
        NR => Some(number),
        ARCH => Some(arch),
        16..64 if offset.is_multiple_of(4) => {
            let (low, high) = halves(*args.get((offset as usize - 16) / 8)?);
            Some(if offset.is_multiple_of(8) { low } else { high })
        }
        // The instruction pointer, which no filter of ours reads.
        8 | 12 => Some(0),
        _ => None,
    };
    let mut accumulator = 0;
    let mut at = 0usize;
    loop {
        let insn = program.get(at)?;
        at += 1;
        let jump = |taken: bool| usize::from(if taken { insn.jt } else { insn.jf });
        match insn.code {
            LD_ABS => accumulator = load(insn.k)?,
            AND => accumulator &= insn.k,
            JA => at = at.checked_add(insn.k as usize)?,
            JEQ => at += jump(accumulator == insn.k),
            JGT => at += jump(accumulator > insn.k),
            JGE => at += jump(accumulator >= insn.k),
            JSET => at += jump(accumulator & insn.k != 0),
            RET => return Some(insn.k),
            _ => return None,
        }
    }
}
