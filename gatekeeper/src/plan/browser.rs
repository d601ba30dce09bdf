//! A browser's arguments: those that affect its confinement, and those that gatekeeper adds.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The arguments from the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    words: Vec<OsString>,
    pub headless: bool,
    pub pipe: bool,
    pub port: bool,
    /// `--no-sandbox`. Automation libraries often add it; it is not passed on, because the browser's sandbox works here.
    pub without_sandbox: bool,
    pub user_data_dir: Option<PathBuf>,
}

impl Arguments {
    pub fn read(words: &[OsString]) -> Arguments {
        let mut read = Arguments { words: words.to_vec(), ..Arguments::default() };
        // Only addresses follow `--`.
        for word in words.iter().take_while(|word| !is_end(word)) {
            let Some((name, value)) = switch(word) else { continue };
            match name {
                b"headless" => read.headless = value != Some(b"false"),
                b"remote-debugging-pipe" => read.pipe = true,
                b"remote-debugging-port" => read.port = true,
                b"no-sandbox" => read.without_sandbox = true,
                b"user-data-dir" => {
                    let given = value.filter(|value| !value.is_empty());
                    read.user_data_dir = given.map(|value| PathBuf::from(OsString::from_vec(value.to_vec())));
                }
                _ => {}
            }
        }
        read
    }

    /// The whole command. `profile` is used unless the caller names one.
    pub fn completed(&self, program: &Path, profile: Option<&Path>) -> Vec<OsString> {
        let mut words = vec![program.as_os_str().to_owned()];
        if let (None, Some(profile)) = (&self.user_data_dir, profile) {
            words.push(joined("--user-data-dir=", profile.as_os_str()));
        }
        let is_one = |word: &OsString| switch(word).is_some_and(|(name, _)| name == b"no-sandbox");
        let end = self.words.iter().position(|word| is_end(word)).unwrap_or(self.words.len());
        let (switches, addresses) = self.words.split_at(end);
        words.extend(switches.iter().filter(|word| !is_one(word)).chain(addresses).cloned());
        words
    }
}

/// Only addresses follow this word.
fn is_end(word: &OsStr) -> bool {
    trimmed(word) == b"--"
}

/// Chromium ignores white space around an argument: that of ASCII, and for care also the vertical tab.
fn trimmed(word: &OsStr) -> &[u8] {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let bytes = word.as_bytes();
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// `--name` or `--name=value`; Chromium accepts a single dash too.
fn switch(word: &OsStr) -> Option<(&[u8], Option<&[u8]>)> {
    let bytes = trimmed(word).strip_prefix(b"-")?;
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    Some(match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    })
}

/// Arguments that depend on the run. They come last, because of a repeated switch the browser uses the last.
pub struct Added<'a> {
    pub proxy: Option<SocketAddr>,
    pub without_sandbox: bool,
    /// The private temporary directory, for a browser without a profile.
    pub private: Option<&'a Path>,
}

impl Added<'_> {
    pub fn to(&self, argv: &mut Vec<OsString>) {
        let mut added: Vec<OsString> = Vec::new();
        if let Some(private) = self.private {
            added.push(joined("--user-data-dir=", private.join("profile").as_os_str()));
        }
        if self.without_sandbox {
            added.push("--no-sandbox".into());
        }
        if let Some(proxy) = self.proxy {
            added.push(format!("--proxy-server=http://{proxy}").into());
            // Use the proxy for this machine too; by default browsers connect to loopback directly.
            added.push("--proxy-bypass-list=<-loopback>".into());
        }
        let end = argv.iter().position(|word| is_end(word)).unwrap_or(argv.len());
        argv.splice(end..end, added);
    }
}

fn joined(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn switches_that_affect_confinement_are_found() {
        let read = Arguments::read(&words(&["--headless=new", "--remote-debugging-port=0", "-user-data-dir=/a", "x"]));
        assert!(read.headless && read.port && !read.pipe && !read.without_sandbox);
        assert_eq!(read.user_data_dir.as_deref(), Some(Path::new("/a")));
        let read = Arguments::read(&words(&["--", "--headless", "--no-sandbox"]));
        assert!(!read.headless && !read.without_sandbox, "these are addresses");
        assert_eq!(Arguments::read(&words(&["--user-data-dir="])).user_data_dir, None);
    }

    #[test]
    fn white_space_around_a_switch_hides_nothing() {
        let read = Arguments::read(&words(&[
            " --no-sandbox",
            "\t--user-data-dir=/a ",
            "\n-remote-debugging-port=9",
            " -- ",
            "--headless",
        ]));
        assert!(read.without_sandbox && read.port && !read.headless);
        assert_eq!(read.user_data_dir.as_deref(), Some(Path::new("/a")));
        let all = words(&["c", "\t--user-data-dir=/a ", "\n-remote-debugging-port=9", " -- ", "--headless"]);
        assert_eq!(read.completed(Path::new("c"), None), all);
    }

    #[test]
    fn no_sandbox_is_dropped_from_the_switches() {
        let given = Arguments::read(&words(&["--no-sandbox", "x", "--", "--no-sandbox"]));
        let all = words(&["c", "--user-data-dir=/p", "x", "--", "--no-sandbox"]);
        assert_eq!(given.completed(Path::new("c"), Some(Path::new("/p"))), all);
    }

    #[test]
    fn added_switches_come_last_and_before_the_addresses() {
        let mut argv = words(&["c", "--proxy-server=http://x", "--", "http://a"]);
        let proxy = "127.0.0.1:9".parse().ok();
        Added { proxy, without_sandbox: true, private: Some(Path::new("/t")) }.to(&mut argv);
        let all = words(&[
            "c",
            "--proxy-server=http://x",
            "--user-data-dir=/t/profile",
            "--no-sandbox",
            "--proxy-server=http://127.0.0.1:9",
            "--proxy-bypass-list=<-loopback>",
            "--",
            "http://a",
        ]);
        assert_eq!(argv, all);
    }
}
