//! Verdict: what is this file really, down the whole exec chain to an ELF.
