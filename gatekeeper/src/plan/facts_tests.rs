use super::*;
use crate::plan::record::Record;
use std::os::fd::AsFd;

#[test]
fn a_time_in_whole_seconds_may_be_a_second_later() {
    let mut stat = statx(CWD, "/", AtFlags::empty(), WANTED).expect("a root");
    (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) = (0, 1);
    (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec) = (100, 5);
    assert_eq!(since(&stat), Duration::new(100, 5));
    stat.stx_ctime.tv_nsec = 0;
    assert_eq!(since(&stat), Duration::from_secs(101));
}

#[test]
fn a_rule_is_for_what_was_there() {
    let (bin, lib) = (Path::new("/usr/bin"), Path::new("/usr/lib"));
    // Something may be installed just now.
    let settled = || {
        std::thread::sleep(Duration::from_millis(50));
        Record::begin().and_then(|record| record.facts(vec![bin.to_owned()]))
    };
    let facts = (0..100).find_map(|_| settled()).expect("a system that is not being changed");
    let [bin_place, lib_place] = [bin, lib].map(|path| std::fs::File::open(path).expect("readable"));
    assert!(facts.is_granted(bin, bin_place.as_fd()));
    assert!(!facts.is_granted(bin, lib_place.as_fd()), "another directory in its place");
    assert!(!facts.is_granted(lib, lib_place.as_fd()), "not among the grants");
}
