//! Tests that an action is denied: tries it unconfined and then confined, and checks the errno, the recorded denial and
//! that no file changed.

use super::corpus::{Control, Stop};
use super::scene::Scene;
use super::trial::{Outcome, Stage, Tried, denials, summary};
use super::watched::{Seen, watch};
use crate::report::TRUNCATION;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

impl Stage<'_> {
    fn stop_cases(&self, stop: &Stop) -> Vec<(String, &'static str)> {
        let wanted = |name: &&String| self.only.as_ref().is_none_or(|only| only == *name);
        let both = |name: &String| ["errno", "kill"].map(|mode| (name.clone(), mode));
        stop.profiles.iter().filter(wanted).flat_map(both).collect()
    }

    /// Tries an action once unconfined, to prove that the probe works, and then in every case.
    pub fn try_stop(&self, stop: &Stop) -> Vec<Tried> {
        let cases = self.stop_cases(stop);
        let began = Instant::now();
        let scene = self.scene();
        let control = if cases.is_empty() { Ok(()) } else { self.control(stop, &scene) };
        cases
            .into_iter()
            .map(|(profile, on_violation)| {
                let tried = control.clone().and_then(|()| self.stopped(stop, &scene, &profile, on_violation));
                let (outcome, detail) = match tried {
                    Ok(()) => (Outcome::Passed, String::new()),
                    Err(why) => (Outcome::Failed, why),
                };
                let (name, duration_ms) = (stop.name.clone(), began.elapsed().as_millis() as u64);
                Tried { name, proves: "stopped", profile, on_violation, outcome, detail, duration_ms }
            })
            .collect()
    }

    /// Runs the probe without a sandbox. It must succeed, or fail with an errno that the sandbox does not return.
    fn control(&self, stop: &Stop, scene: &Scene) -> Result<(), String> {
        let _server = self.set_stop(scene)?;
        let mut command = scene.command(&self.gatekeeper.to_string_lossy());
        command.args(self.probe_words(stop, scene));
        let said = said(&watch(&mut command, b"").map_err(|error| error.to_string())?);
        let excused = stop.control_needs_root && !rustix::process::geteuid().is_root();
        let proves = match stop.control {
            Control::Done => said == "ok",
            // A machine without IPv6 returns the same errno as we do. Then only the recorded denial proves who denied it.
            Control::Other if said == "EAFNOSUPPORT" && stop.record.is_some() => true,
            Control::Other => said != stop.errno && said != "nothing",
        };
        if proves || excused { Ok(()) } else { Err(format!("unconfined it returns {said}, which proves nothing")) }
    }

    fn stopped(&self, stop: &Stop, scene: &Scene, profile: &str, mode: &'static str) -> Result<(), String> {
        let _server = self.set_stop(scene)?;
        let outside = || fs::symlink_metadata(scene.outside().join("file")).map(|meta| format!("{meta:?}")).ok();
        let before = outside();
        let report = self.base.join(format!("{}.json", stop.name));
        let mut command = self.launch(scene, profile, mode, &report);
        let mut words = vec![self.gatekeeper.clone().into_os_string()];
        words.extend(self.probe_words(stop, scene));
        match stop.line {
            true => command.arg("-c").arg(crate::policy::grants::quoted(&words)),
            false => command.arg("--").args(words),
        };
        let seen = watch(&mut command, b"").map_err(|error| error.to_string())?;
        let denied = denials(&report);
        let _ = fs::remove_file(&report);
        if outside() != before {
            return Err("it changed a file outside the working directory".to_owned());
        }
        let of_record = |denial: &&Value| denial["syscall"].as_str() == stop.record.as_deref();
        let record = denied.iter().find(of_record);
        if record.is_some() != stop.record.is_some() {
            let wanted = stop.record.as_deref().unwrap_or("nothing");
            return Err(format!("recorded {:?} instead of {wanted}; it returns {}", summary(&denied), said(&seen)));
        }
        if let (Some(path), Some(record)) = (&stop.path, record)
            && !record["path"].as_str().is_some_and(|named| Path::new(named).ends_with(path))
        {
            return Err(format!("the record has the path {} instead of {path}", record["path"]));
        }
        // Only the filter can kill. Landlock and mounts return an errno in both modes, and so does the filter where it stands in for
        // Landlock.
        let (wanted_status, wanted) = match (mode, record) {
            ("kill", Some(record)) if record["layer"] == "seccomp" && record["rule"] != TRUNCATION => {
                (128 + libc::SIGSYS, "nothing")
            }
            _ => (0, stop.errno.as_str()),
        };
        match (seen.status, said(&seen)) {
            (status, said) if status == wanted_status && said == wanted => Ok(()),
            (status, said) => Err(format!("exit status {status}, returns {said} instead of {wanted}")),
        }
    }

    fn set_stop(&self, scene: &Scene) -> Result<std::os::unix::net::UnixListener, String> {
        let set = || -> io::Result<std::os::unix::net::UnixListener> {
            scene.clear()?;
            fs::write(scene.outside().join("file"), "kept\n")?;
            fs::write(scene.work().join("file"), "mine\n")?;
            std::os::unix::fs::symlink(scene.outside().join("file"), scene.work().join("way-out"))?;
            std::os::unix::net::UnixListener::bind(scene.outside().join("socket"))
        };
        set().map_err(|error| format!("set-up: {error}"))
    }

    fn probe_words(&self, stop: &Stop, scene: &Scene) -> Vec<OsString> {
        let outside = scene.outside();
        let own = std::process::id().to_string();
        let filled = |word: &String| word.replace("{outside}", &outside.to_string_lossy()).replace("{harness}", &own);
        let words = stop.probe.iter().map(filled);
        std::iter::once("__probe".to_owned()).chain(words).map(OsString::from).collect()
    }
}

/// The result that a probe printed.
fn said(seen: &Seen) -> String {
    let text = String::from_utf8_lossy(&seen.stdout).trim_end().to_owned();
    match text.is_empty() {
        true if seen.stderr.is_empty() => "nothing".to_owned(),
        true => String::from_utf8_lossy(&seen.stderr).trim_end().to_owned(),
        false => text,
    }
}
