//! What gatekeeper adds to bubblewrap: interleaved medians of the same mounts with and without it.
//! Runs as the user nobody if started by root. `cargo bench --bench isolate [ROUNDS]`.

#[allow(dead_code)]
mod interleaved;

use gatekeeper::isolate::SandboxConfig;
use interleaved::{command, medians, millis, open_to_all, place, rounds};
use std::ffi::OsString;
use std::process::Command;

fn main() {
    let (dir, gatekeeper) = place();
    // Not where gatekeeper is: it executes itself again, and so not from a tree that the command may write.
    let cwd = dir.path().canonicalize().expect("real").join("work");
    std::fs::create_dir(&cwd).expect("own directory");
    open_to_all(&cwd, 0o777);
    let gatekeeper = |flags: &[&str]| {
        let before = [gatekeeper.to_str().expect("text"), "run", "-q", "--profile", "write"];
        let words = before.iter().chain(flags).chain(&["--", "/bin/true"]);
        command(&words.map(|word| (*word).to_owned()).collect::<Vec<_>>(), &cwd)
    };
    let mut config = SandboxConfig::for_working_dir(&cwd);
    config.new_session = false;
    let words = config.program_args(&["/bin/true".into()]);
    let bwrap: Vec<String> = std::iter::once(OsString::from("/usr/bin/bwrap"))
        .chain(words)
        .map(|word| word.into_string().expect("text"))
        .collect();
    let all: [(&str, Command); 5] = [
        ("plain", command(&["/bin/true".to_owned()], &cwd)),
        ("gatekeeper", gatekeeper(&[])),
        ("with a proxy", gatekeeper(&["--net", "hosts=a.test"])),
        ("bwrap", command(&bwrap, &cwd)),
        ("isolated", gatekeeper(&["--isolate", "required"])),
    ];
    let (names, mut commands): (Vec<&str>, Vec<Command>) = all.into_iter().unzip();
    let medians = medians(&mut commands, rounds(100));
    println!("one /bin/true     median ms");
    for (name, median) in names.iter().zip(&medians) {
        println!("{name:16} {:9.2}", millis(*median));
    }
    println!(
        "gatekeeper's own part above bwrap with the same mounts: {:.2} ms",
        millis(medians[4]) - millis(medians[3])
    );
    println!("without isolation it adds to plain: {:.2} ms", millis(medians[1]) - millis(medians[0]));
}
