//! Captured output is bounded, keeps head and tail, and with `--spill` goes to a file as a whole.

use super::{Place, users};
use std::fs;

#[test]
fn an_endless_stream_is_bounded_and_ends_with_the_time() {
    for user in users() {
        let place = Place::new(user);
        let truncated = |report: &serde_json::Value| report["stdout_truncated"].as_u64().expect("a number");
        let report = place.report_of_timeout(&["--output", "10K", "--", "yes"], |report| truncated(report) > 1 << 20);
        assert_eq!(report["outcome"], "timeout", "{}", report["outcome"]);
        let text = report["stdout"].as_str().expect("text");
        assert!(text.len() < 11 * 1024, "{}", text.len());
        assert!(
            text.starts_with("y\ny\n")
                && text.ends_with("y\n")
                && text.contains(" bytes left out; --output SIZE keeps more, `gatekeeper run --spill DIR` all")
        );
    }
}

#[test]
fn head_tail_and_a_file_with_everything() {
    for user in users() {
        let place = Place::new(user);
        let spill = place.at("home");
        let line = "seq 200000; seq 10 >&2";
        let report = place.report(&["--output", "1000", "--spill", spill.to_str().expect("text"), "-c", line]);
        let text = report["stdout"].as_str().expect("text");
        assert!(text.starts_with("1\n2\n3\n") && text.ends_with("\n199999\n200000\n"), "{text}");
        assert_eq!((report["outcome"].as_str(), report["limit"]["which"].as_str()), (Some("exited"), Some("output")));
        let file = report["stdout_file"].as_str().expect("told where");
        let whole = fs::read_to_string(file).expect("written");
        assert_eq!(whole, (1..=200000).map(|n| format!("{n}\n")).collect::<String>());
        assert_eq!(report["stdout_truncated"].as_u64(), Some(whole.len() as u64 - 1000));
        assert!(report.get("stderr_file").is_none(), "what fits needs no file");
        assert_eq!(fs::read_dir(&spill).expect("readable").count(), 1);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_harms_nothing() {
    let place = Place::new(None);
    let report = place.report(&["--output", "100", "--spill", "/proc/nowhere", "--", "seq", "1000"]);
    assert_eq!(report["exit_code"], 0);
    assert!(report["stdout"].as_str().expect("text").contains("could not be written"), "{report:#}");
    assert!(report.get("stdout_file").is_none());
}

#[test]
fn without_capture_nothing_of_ours_is_in_between() {
    for user in users() {
        let place = Place::new(user);
        let mut command = place.command(&["run", "-c", "readlink /proc/self/fd/1; readlink /proc/self/fd/2"]);
        let out = fs::File::create(place.at("work").join("out")).expect("own directory");
        let err = fs::File::create(place.at("work").join("err")).expect("own directory");
        let status = command.stdout(out).stderr(err).status().expect("starts");
        assert!(status.success());
        let work = place.at("work");
        let expected = format!("{}\n{}\n", work.join("out").display(), work.join("err").display());
        assert_eq!(fs::read_to_string(work.join("out")).expect("readable"), expected);
    }
}
