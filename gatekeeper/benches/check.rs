//! Compares `gatekeeper check` with `file` and `readelf -l` over the programs of /usr/bin, /usr/sbin and /usr/lib, and
//! `check -r`, which finds the programs itself, with the same search by `find`. Runs are interleaved.
//! Prints medians, times per file, ratios, and how many bytes of the files a check reads.

#[allow(dead_code)]
mod interleaved;

use gatekeeper::check::walk::{self, Asked};
use gatekeeper::check::{Context, Disk, Preload, check};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/lib"];
const ROUNDS: usize = 7;

fn main() {
    let asked: Vec<Asked> = DIRECTORIES.iter().map(|name| Asked::Command(name.into())).collect();
    let disk = Disk::new();
    let context = Context::of_this_process(Preload::embedded());
    let done = walk::check_all(&asked, true, &context, &disk, None);
    let mut list = Vec::new();
    for verdict in &done.verdicts {
        use std::os::unix::ffi::OsStrExt;
        list.extend_from_slice(verdict.path.as_os_str().as_bytes());
        list.push(b'\n');
    }
    let files = done.verdicts.len();
    let sizes: u64 =
        done.verdicts.iter().filter_map(|verdict| verdict.path.metadata().ok()).map(|file| file.len()).sum();
    println!(
        "{files} programs of {} MiB in {}; {} other files left out",
        sizes >> 20,
        DIRECTORIES.join(" "),
        done.skipped
    );
    println!(
        "bytes read: {} KiB, {} for each file\n",
        disk.bytes_read() >> 10,
        disk.bytes_read() / files.max(1) as u64
    );

    let mut single: Vec<Duration> = (0..1001)
        .map(|_| {
            let start = Instant::now();
            let checked = check("true".as_ref(), &context, &disk);
            let took = start.elapsed();
            assert!(checked.target.is_some());
            took
        })
        .collect();
    println!("one command in process: {} us\n", median(&mut single).unwrap_or_default().as_micros());

    let gatekeeper = interleaved::program();
    let gatekeeper = gatekeeper.to_str().expect("text");
    let each = ["xargs", "-d", "\\n", "-n", "5000"];
    let contenders: [(&str, Vec<&str>, bool); 6] = [
        ("gatekeeper check", [&each[..], &[gatekeeper, "check"]].concat(), true),
        ("the same, one core", [&["taskset", "-c", "0"], &each[..], &[gatekeeper, "check"]].concat(), true),
        ("readelf -lW", [&each[..], &["readelf", "-lW"]].concat(), true),
        ("file", [&each[..], &["file"]].concat(), true),
        ("gatekeeper check -r", [&[gatekeeper, "check", "-r"], &DIRECTORIES[..]].concat(), false),
        ("find -perm /111", [&["find"], &DIRECTORIES[..], &["-type", "f", "-perm", "/111"]].concat(), false),
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, words, takes_list), times) in contenders.iter().zip(&mut times) {
            times.extend(timed(words, takes_list.then_some(&list[..])));
        }
    }
    let medians: Vec<Option<Duration>> = times.iter_mut().map(|times| median(times)).collect();
    println!("{:<22} {:>10} {:>12} {:>8}", "", "median ms", "us per file", "ratio");
    for ((name, ..), median) in contenders.iter().zip(&medians) {
        match (median, medians[0]) {
            (Some(median), Some(ours)) => println!(
                "{name:<22} {:>10.1} {:>12.1} {:>7.1}x",
                median.as_secs_f64() * 1e3,
                median.as_secs_f64() * 1e6 / files.max(1) as f64,
                median.as_secs_f64() / ours.as_secs_f64()
            ),
            _ => println!("{name:<22} not installed"),
        }
    }
}

/// The time of one run with its output discarded; `None` if the program cannot be started.
fn timed(words: &[&str], list: Option<&[u8]>) -> Option<Duration> {
    let start = Instant::now();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    // The program may exit before it has read the whole list.
    let _ = stdin.write_all(list.unwrap_or_default());
    drop(stdin);
    let status = child.wait().ok()?;
    // xargs exits with 127 if the program does not exist.
    (status.code() != Some(127)).then(|| start.elapsed())
}

fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
