//! Limits of the whole tree: a command that exceeds one is ended and reported, and one that stays within runs.

use super::{Place, mark, none_left, users};
use crate::support::{descriptors, has, probe, run};
use serde_json::Value;
use std::os::fd::AsRawFd;

#[track_caller]
fn is_limit(report: &Value, which: &str, value: u64) {
    assert_eq!(report["outcome"], "limit", "{report:#}");
    assert_eq!(report["exit_code"], 137, "{report:#}");
    assert_eq!(report["limit"]["which"], which, "{report:#}");
    assert_eq!(report["limit"]["value"], value, "{report:#}");
    let peak = report["limit"]["peak"].as_u64().expect("a number");
    assert!(peak >= value, "{report:#}");
}

#[track_caller]
fn is_fine(report: &Value) {
    assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(0)), "{report:#}");
    assert!(report.get("limit").is_none(), "{report:#}");
}

fn hog() -> String {
    probe("hog", &[]).to_str().expect("text").to_owned()
}

#[test]
fn a_memory_hog_is_ended_and_its_neighbour_is_not() {
    for user in users() {
        let place = Place::new(user);
        let report = place.report(&["--memory", "128M", "--timeout", "300s", "--", &hog(), "alone", "2000"]);
        is_limit(&report, "memory", 128 << 20);
        let peak = report["usage"]["peak_memory"].as_u64().expect("always");
        assert!((128 << 20..1500 << 20).contains(&peak), "{report:#}");
        let layers = report["layers"].as_array().expect("layers").iter();
        let limits = layers.into_iter().find(|layer| layer["layer"] == "limits").expect("a limits layer");
        assert!(
            limits["status"] == "enforced" || limits["detail"].as_str().expect("text").contains("supervisor measures")
        );
        is_fine(&place.report(&["--memory", "128M", "--", &hog(), "alone", "64"]));
    }
}

/// /proc/PID/stat says nothing of the memory of a process whose first thread has exited.
#[test]
fn a_hog_without_its_first_thread_is_ended() {
    let hog = probe("leaderless", &[]).to_str().expect("text").to_owned();
    for user in users() {
        let place = Place::new(user);
        let report =
            place.report(&["-p", "write", "--memory", "96M", "--timeout", "300s", "--", &hog, "memory", "1000"]);
        is_limit(&report, "memory", 96 << 20);
        is_fine(&place.report(&["-p", "write", "--memory", "96M", "--", &hog, "memory", "48"]));
    }
}

#[test]
fn a_hog_in_many_processes_is_one_hog() {
    for user in users() {
        let place = Place::new(user);
        let report =
            place.report(&["-p", "write", "--memory", "128M", "--timeout", "300s", "--", &hog(), "many", "40"]);
        is_limit(&report, "memory", 128 << 20);
    }
}

/// Eight processes that share 64M do not use 512M.
#[test]
fn shared_memory_is_counted_once() {
    for user in users() {
        let place = Place::new(user);
        is_fine(&place.report(&["-p", "write", "--memory", "256M", "--", &hog(), "shared", "64"]));
    }
}

#[test]
fn a_fork_bomb_is_ended() {
    for user in users() {
        let place = Place::new(user);
        let mark = mark();
        let report = place.report(&[
            "-p",
            "write",
            "--processes",
            "50",
            "--timeout",
            "300s",
            "--",
            probe("bomb", &[]).to_str().expect("text"),
            &mark,
        ]);
        is_limit(&report, "processes", 50);
        none_left(&mark);
        is_fine(&place.report(&[
            "-p",
            "write",
            "--processes",
            "50",
            "-c",
            "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait",
        ]));
    }
}

#[test]
fn processor_time_is_added_up() {
    for user in users() {
        let place = Place::new(user);
        let line = "for i in 1 2 3 4; do (while :; do :; done) & done; wait";
        let report = place.report(&["-p", "write", "--cpu", "1s", "--timeout", "300s", "-c", line]);
        is_limit(&report, "cpu", 1000);
        let used = report["usage"]["cpu_user_ms"].as_u64().expect("always");
        assert!((800..10_000).contains(&used), "{report:#}");
        is_fine(&place.report(&[
            "-p",
            "write",
            "--cpu",
            "30s",
            "-c",
            "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done",
        ]));
    }
}

/// The time of a process whose parent ignores SIGCHLD is nowhere after its end.
#[test]
fn processor_time_that_no_parent_has_is_added_up_too() {
    let burner = probe("burner", &[]).to_str().expect("text").to_owned();
    let used = |report: &Value| {
        let of = |name: &str| report["usage"][name].as_u64().expect("always");
        of("cpu_user_ms") + of("cpu_system_ms")
    };
    for user in users() {
        let place = Place::new(user);
        for way in ["waited", "unwaited", "orphans"] {
            let run = |limit, count| {
                place.report(&["-p", "write", "--cpu", limit, "--timeout", "300s", "--", &burner, way, count])
            };
            let report = run("1s", "400");
            is_limit(&report, "cpu", 1000);
            assert!((800..10_000).contains(&used(&report)), "{way}: {report:#}");
            let layers = report["layers"].as_array().expect("layers");
            let limits = layers.iter().find(|layer| layer["layer"] == "limits").expect("a limits layer");
            let detail = limits["detail"].as_str().expect("text");
            match detail.contains("CPU time of the tree") {
                true => assert!(limits["status"] == "partial" && detail.contains("SIGCHLD"), "{report:#}"),
                false => assert_eq!(limits["status"], "enforced", "{report:#}"),
            }
            // Nothing counts twice: eight children use 0.4 s.
            let report = run("1s", "8");
            is_fine(&report);
            assert!(used(&report) <= 700, "{way}: {report:#}");
        }
    }
}

#[test]
fn a_file_that_grows_too_large_ends_its_writer() {
    for user in users() {
        let place = Place::new(user);
        let report =
            place.report(&["-p", "write", "--disk", "1M", "--", "dd", "if=/dev/zero", "of=big", "bs=64k", "count=64"]);
        assert_eq!(
            (report["outcome"].as_str(), report["limit"]["which"].as_str()),
            (Some("limit"), Some("disk")),
            "{report:#}"
        );
        let written = std::fs::metadata(place.at("work").join("big")).expect("begun").len();
        assert_eq!(written, 1 << 20);
    }
}

#[test]
fn descriptors_are_limited_for_each_process() {
    for user in users() {
        let place = Place::new(user);
        let report = place.report(&["--files", "20", "-c", "ulimit -n; ulimit -Hn"]);
        assert_eq!(report["stdout"], "20\n20\n", "{report:#}");
        // Nor do descriptors that the caller left open count.
        let null = std::fs::File::open("/dev/null").expect("readable");
        let mut command = place.command(&["run", "--files", "20", "-c", "ulimit -n; ulimit -Hn"]);
        let left: [_; 40] = std::array::from_fn(|at| (null.as_raw_fd(), 3 + at as i32));
        descriptors::place(&mut command, left);
        run(&mut command).exits(0).prints("20\n20\n");
        // A limit above the user's own is not an error; the command gets the lower one.
        let report = place.report(&["--files", "1000000000000", "-c", "ulimit -n >/dev/null && echo fine"]);
        assert_eq!(report["stdout"], "fine\n", "{report:#}");
    }
}

/// Runtimes that reserve far more address space than memory.
#[test]
fn large_runtimes_run_under_a_memory_limit() {
    for user in users() {
        let place = Place::new(user);
        let cases: [(&str, &[&str]); 2] =
            [("node", &["-e", "console.log(process.version.slice(0, 1))"]), ("java", &["-version"])];
        for (program, words) in cases {
            if !has(program) {
                continue;
            }
            let all: Vec<&str> =
                ["-p", "write", "--memory", "512M", "--", program].iter().chain(words).copied().collect();
            is_fine(&place.report(&all));
        }
        if !has("go") {
            continue;
        }
        let source = place.at("work").join("main.go");
        std::fs::write(
            &source,
            "package main\nfunc main() { x := make([]byte, 64<<20); for i := range x { x[i] = 1 }; println(len(x)) }\n",
        )
        .expect("own directory");
        let built = crate::support::run(
            place
                .any("/usr/bin/env".as_ref(), &["go", "build", "-o", "hello", "main.go"])
                .env("GOCACHE", place.at("tmp").join("go")),
        );
        built.exits(0);
        is_fine(&place.report(&["--memory", "512M", "--", "./hello"]));
    }
}

#[test]
fn usage_is_always_told() {
    let place = Place::new(None);
    for words in [&["--", "true"][..], &["--", "false"], &["--timeout", "200ms", "--", "sleep", "60"]] {
        let report = place.report(words);
        assert!(report["usage"]["peak_memory"].as_u64().expect("a number") > 0, "{report:#}");
        assert!(report["usage"]["cpu_user_ms"].is_u64() && report["usage"]["cpu_system_ms"].is_u64(), "{report:#}");
    }
}

/// Python ignores SIGXFSZ, as the manual says: the write fails, and only the program learns of it.
#[test]
fn a_file_that_grows_too_large_is_an_error_where_the_signal_is_ignored() {
    if !has("/usr/bin/python3") {
        return;
    }
    let script = "import os, errno\n\
                  file = os.open('big', os.O_CREAT | os.O_WRONLY)\n\
                  assert os.pwrite(file, b'x', (1 << 20) - 1) == 1\n\
                  try: os.pwrite(file, b'x', 1 << 20)\n\
                  except OSError as error: raise SystemExit(error.errno)\n";
    for user in users() {
        let place = Place::new(user);
        let report = place.report(&["-p", "write", "--disk", "1M", "--", "/usr/bin/python3", "-c", script]);
        assert_eq!((&report["outcome"], &report["exit_code"]), (&"exited".into(), &libc::EFBIG.into()), "{report:#}");
        assert!(report.get("limit").is_none(), "{report:#}");
    }
}

/// The words of a shell line, and then of the command that it becomes.
fn after<'a>(line: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["-c", line, "sh"], words].concat()
}

#[test]
fn a_limit_of_the_callers_on_files_is_an_error_of_gatekeeper_and_ends_the_command() {
    let gatekeeper = super::gatekeeper().to_str().expect("text");
    for user in users() {
        let place = Place::new(user);
        let limited = |blocks: u32, words: &[&str]| {
            let line = format!("ulimit -f {blocks}; exec \"$@\"");
            run(&mut place.any("/bin/sh".as_ref(), &after(&line, &[&[gatekeeper], words].concat())))
        };
        let too_large = "File too large (os error 27)\n";
        limited(0, &["extract", "lib.so"])
            .exits(2)
            .prints("")
            .complains(&format!("gatekeeper: extract: cannot write lib.so: {too_large}"));
        limited(0, &["compile", "--to", "filter", "-o", "filter"])
            .exits(2)
            .prints("")
            .complains(&format!("gatekeeper: cannot write filter: {too_large}"));
        assert_eq!(std::fs::read_dir(place.at("work")).expect("own directory").count(), 0);
        // The same signal still ends a command, which would otherwise not see the limit of its caller.
        let write = ["-p", "write", "--", "/bin/sh", "-c", "exec head -c 2000000 /dev/zero > large"];
        for way in [&["run"][..], &["run", "--isolate", "required"]] {
            limited(2000, &[way, &write].concat()).exits(128 + libc::SIGXFSZ);
        }
        place.run(&[&["run"], &write[..]].concat()).exits(0);
        is_limit(&place.report(&[&["--disk", "64K"], &write[..]].concat()), "disk", 64 << 10);
    }
}

#[test]
fn a_command_starts_with_the_signals_of_its_caller() {
    const XFSZ: u64 = 1 << (libc::SIGXFSZ - 1);
    const PIPE: u64 = 1 << (libc::SIGPIPE - 1);
    let ignored = |told: &str| {
        let mask = told.trim_end().strip_prefix("SigIgn:\t").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.unwrap_or_else(|| panic!("{told}")) & (XFSZ | PIPE)
    };
    let gatekeeper = super::gatekeeper().to_str().expect("text");
    let show = ["-p", "read", "--", "grep", "SigIgn", "/proc/self/status"];
    let order = "{\"id\": 1, \"argv\": [\"grep\", \"SigIgn\", \"/proc/self/status\"], \"flags\": [\"-p\", \"read\"]}";
    for user in users() {
        let place = Place::new(user);
        // gatekeeper handles both signals itself. The command gets SIGPIPE back always, SIGXFSZ unless the caller ignores it.
        for (set, wanted) in [("", 0), ("trap '' XFSZ; ", XFSZ), ("trap '' PIPE; ", 0)] {
            for way in [&["run"][..], &["run", "--isolate", "required"]] {
                let line = format!("{set}exec \"$@\"");
                let words = [&[gatekeeper], way, &show].concat();
                let done = run(&mut place.any("/bin/sh".as_ref(), &after(&line, &words)));
                assert_eq!(ignored(&done.exits(0).stdout()), wanted, "{done}");
            }
            // The guardian program starts this one.
            let line = format!("{set}echo \"$2\" | exec \"$1\" serve");
            let done = run(&mut place.any("/bin/sh".as_ref(), &after(&line, &[gatekeeper, order])));
            let answer: Value = serde_json::from_str(done.exits(0).stdout().trim_end()).expect("a report");
            assert_eq!(ignored(answer["report"]["stdout"].as_str().expect("text")), wanted, "{done}");
        }
    }
}
