//! The files that a command line names, as a shell takes it, roughly: a word too many costs a lookup, one too few leaves a
//! program writable.

/// How deep command substitutions may nest.
const DEEPEST: usize = 8;
/// Programs that execute the file in one of their arguments.
const RUNNERS: &[&[u8]] = &[
    b".", b"ash", b"awk", b"bash", b"bun", b"command", b"dash", b"deno", b"env", b"exec", b"fish", b"gawk", b"guile",
    b"java", b"julia", b"ksh", b"lua", b"nice", b"node", b"nodejs", b"nohup", b"perl", b"php", b"python", b"ruby",
    b"sed", b"setsid", b"sh", b"source", b"sudo", b"tclsh", b"time", b"timeout", b"tsx", b"xargs", b"zsh",
];
/// Of these, those whose first argument is a program in their own language, with `$1` of the shell in it.
const EDITORS: &[&[u8]] = &[b"awk", b"gawk", b"sed"];
/// What may come before a command.
const KEYWORDS: &[&[u8]] = &[b"!", b"do", b"elif", b"else", b"if", b"then", b"until", b"while"];
/// Variables and commands that lead to the home, the working tree, the git directory, or git's own programs.
const KNOWN: &[&[u8]] = &[
    b"GIT_DIR",
    b"GIT_PREFIX",
    b"GIT_WORK_TREE",
    b"HOME",
    b"PWD",
    b"XDG_CONFIG_HOME",
    b"git --exec-path",
    b"git rev-parse --absolute-git-dir",
    b"git rev-parse --git-common-dir",
    b"git rev-parse --git-dir",
    b"git rev-parse --show-cdup",
    b"git rev-parse --show-toplevel",
    b"pwd",
];

/// The words of a command line that may name files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub paths: Vec<Vec<u8>>,
    /// What follows a variable or another command, as `t/c.sh` in `$TOP/t/c.sh`, and whether a file somewhere must be it: where it
    /// leads is not known, and the file is executed.
    pub rests: Vec<(Vec<u8>, bool)>,
    /// Whether it executes a file whose name is made of other parts.
    pub unclear: bool,
}

impl Words {
    pub(super) fn of(line: &[u8]) -> Words {
        let mut words = Words::default();
        Scan::new(line, DEEPEST, &mut words).run();
        // Without a shell, all of it is one path; with a shell, what is quoted is.
        words.paths.extend(line.contains(&b' ').then(|| line.to_vec()));
        words
            .paths
            .extend(quoted(line).filter(|part| part.contains(&b' ') && part.contains(&b'/')).map(<[u8]>::to_vec));
        // No file has a longer name.
        let fits = |path: &[u8]| path.split(|byte| *byte == b'/').all(|name| name.len() <= 255);
        words.paths.retain(|path| fits(path));
        words.rests.retain(|(rest, _)| fits(rest));
        words
    }
}

/// What is between two quotes of the same kind.
fn quoted(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let at = rest.iter().position(|byte| matches!(byte, b'\'' | b'"'))?;
        let after = &rest[at + 1..];
        let end = after.iter().position(|byte| *byte == rest[at])?;
        rest = &after[end + 1..];
        Some(&after[..end])
    })
}

/// A command line, or a part of it in `$(...)`.
struct Scan<'l, 'w> {
    rest: &'l [u8],
    deeper: usize,
    words: &'w mut Words,
    /// The word up to here, and the one before it.
    word: Vec<u8>,
    last: Vec<u8>,
    /// Whether the word begins with an expansion, and whether it is known where that leads.
    begins: Option<bool>,
    /// Whether something else in it is expanded.
    mixed: bool,
    /// Whether it is the program of its command.
    first: bool,
    /// Whether the program executes its arguments.
    runs: bool,
    /// Whether the program edits text with its arguments.
    edits: bool,
    /// Whether it names a file for the output.
    output: bool,
    /// Whether it is the value of a variable or option.
    value: bool,
}

impl<'l, 'w> Scan<'l, 'w> {
    fn new(line: &'l [u8], deeper: usize, words: &'w mut Words) -> Scan<'l, 'w> {
        Scan {
            rest: line,
            deeper,
            words,
            word: Vec::new(),
            last: Vec::new(),
            begins: None,
            mixed: false,
            first: true,
            runs: false,
            edits: false,
            output: false,
            value: false,
        }
    }

    fn run(mut self) {
        while let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            match byte {
                b'|' | b'&' | b';' | b'(' | b')' | b'{' | b'}' | b'\n' => {
                    self.end();
                    (self.first, self.runs, self.edits, self.value) = (true, false, false, false);
                }
                b' ' | b'\t' | b'<' => {
                    self.end();
                    self.value = false;
                }
                b'>' => {
                    self.end();
                    (self.output, self.value) = (true, false);
                }
                b'\'' | b'"' if self.word.is_empty() => {}
                b'\'' | b'"' => self.end(),
                // `NAME=value command` and `--option=value`.
                b'=' => {
                    let first = self.first;
                    self.end();
                    (self.first, self.value) = (first, true);
                }
                b'!' if self.first && self.word.is_empty() => {}
                b'\\' => {
                    let next = self.rest.split_first();
                    self.rest = next.map_or(self.rest, |(_, rest)| rest);
                    self.word.extend(next.map(|(next, _)| *next));
                }
                b'$' | b'`' => {
                    let known = self.expansion(*byte);
                    match self.word.is_empty() && self.begins.is_none() {
                        true => self.begins = Some(known),
                        false => self.mixed = true,
                    }
                }
                byte => self.word.push(*byte),
            }
        }
        self.end();
    }

    /// Passes what is expanded. Returns whether it is known where it leads.
    fn expansion(&mut self, byte: u8) -> bool {
        let until = |text: &[u8], end: usize| (text.len().min(end), text.len().min(end + 1));
        let rest = self.rest;
        let (begin, (end, after), is_command) = match (byte, rest.first()) {
            (b'`', _) => (0, until(rest, rest.iter().position(|byte| *byte == b'`').unwrap_or(rest.len())), true),
            (_, Some(b'(')) => (1, until(rest, closing(rest, b'(', b')')), true),
            (_, Some(b'{')) => (1, until(rest, closing(rest, b'{', b'}')), false),
            _ => {
                let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let end = rest.iter().position(|byte| !name(byte)).unwrap_or(rest.len());
                // `$@` and the like.
                let end = if end == 0 { rest.len().min(1) } else { end };
                (0, (end, end), false)
            }
        };
        let inner = rest.get(begin..end).unwrap_or_default();
        self.rest = rest.get(after..).unwrap_or_default();
        if is_command && self.deeper > 0 {
            Scan::new(inner, self.deeper - 1, self.words).run();
        }
        let name = inner.split(|byte| !is_command && matches!(byte, b':' | b'-')).next().unwrap_or_default();
        KNOWN.contains(&name.trim_ascii())
    }

    /// Takes the word that ends here.
    fn end(&mut self) {
        let word = std::mem::take(&mut self.word);
        let (begins, mixed, output) = (self.begins.take(), self.mixed, self.output);
        if word.is_empty() && begins.is_none() {
            return;
        }
        (self.mixed, self.output) = (false, false);
        let executed = (self.first || self.runs && !self.edits) && !output && !self.value;
        match (begins, word.strip_prefix(b"/")) {
            (Some(known), Some(rest)) if !mixed => self.words.rests.push((rest.to_vec(), executed && !known)),
            (None, _) if !mixed => {
                // The shell looks for a program without a slash elsewhere.
                let bare = self.runs && !word.starts_with(b"-") || word.contains(&b'.') || word.contains(&b'/');
                if self.runs && self.last == b"-m" {
                    // A module of Python.
                    let path: Vec<u8> = word.iter().map(|byte| if *byte == b'.' { b'/' } else { *byte }).collect();
                    self.words.paths.extend([&b".py"[..], b"/__main__.py"].map(|end| [&path, end].concat()));
                }
                self.words.paths.extend((bare && !output).then(|| word.clone()));
            }
            _ => self.words.unclear |= executed && word.contains(&b'/'),
        }
        if !output && !self.value {
            self.follow(&word);
        }
        self.last = word;
    }

    /// What the words after this one are.
    fn follow(&mut self, word: &[u8]) {
        let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // Without a version, as in `python3.11`.
        let end = name.iter().rposition(|byte| !matches!(byte, b'0'..=b'9' | b'.')).map_or(name.len(), |at| at + 1);
        let stem = &name[..end];
        if self.first && KEYWORDS.contains(&word) {
            return;
        }
        match name {
            // What follows is a program in the language of the runner.
            b"-c" | b"-e" if self.runs => (self.first, self.runs, self.edits) = (true, false, false),
            b"git" => (self.first, self.runs, self.edits) = (false, false, false),
            _ => {
                self.edits |= self.first && EDITORS.contains(&name);
                self.runs |= RUNNERS.contains(&name) || RUNNERS.contains(&stem);
                self.first = false;
            }
        }
    }
}

/// Where the bracket at the beginning is closed.
fn closing(text: &[u8], open: u8, close: u8) -> usize {
    let mut depth = 0_usize;
    let closes = |byte: &u8| {
        depth += usize::from(*byte == open);
        depth -= usize::from(*byte == close);
        depth == 0
    };
    text.iter().position(closes).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths, the rests and those that must be files, in one line.
    fn shown(line: &str) -> String {
        let words = Words::of(line.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let paths = words.paths.iter().filter(|path| !path.contains(&b' ')).map(|path| text(path));
        let rests = words.rests.iter().map(|(rest, must)| format!("{}{}", if *must { "?" } else { "$" }, text(rest)));
        let unclear = words.unclear.then(|| "unclear".to_owned());
        paths.chain(rests).chain(unclear).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_are_found_wherever_a_shell_takes_them() {
        for (line, expected) in [
            ("python3 clean.py", "clean.py"),
            ("python3 clean", "clean"),
            ("python3.11 clean", "python3.11 clean"),
            ("./t/pg", "./t/pg"),
            ("sh root.sh", "root.sh"),
            ("sh -x hook", "hook"),
            ("cat|./t/e.sh", "./t/e.sh"),
            ("./t/f.sh|cat", "./t/f.sh"),
            ("true&&./t/h.sh", "./t/h.sh"),
            ("$(./t/k.sh)", "./t/k.sh"),
            ("`./t/k.sh`", "./t/k.sh"),
            ("!./t/c.sh", "./t/c.sh"),
            ("!f() { ./t/c.sh \"$@\"; }; f", "./t/c.sh"),
            ("sh -c './t/c.sh'", "./t/c.sh"),
            ("tool --with=t/c.sh <in.txt", "t/c.sh in.txt"),
            ("X=./t/a ./t/b", "./t/a ./t/b"),
            ("python3 -m pack.clean", "pack/clean.py pack/clean/__main__.py pack.clean"),
            ("./my\\ tool/x", ""),
            ("$(git rev-parse --show-toplevel)/t/c.sh", "$t/c.sh"),
            ("\"$(git rev-parse --show-toplevel)\"/t/c.sh", "$t/c.sh"),
            ("sh ${HOME}/t/c.sh", "$t/c.sh"),
            ("!cd $X/sub && make", "$sub"),
            ("$X/t/c.sh", "?t/c.sh"),
            ("node \"$X/t/c.js\"", "?t/c.js"),
            ("./tools/$X.sh", "unclear"),
            ("$X$Y/t.sh", "unclear"),
            ("A=$X/b $X/t/c.sh", "$b ?t/c.sh"),
            ("sed s/a/$1/ x.txt; $X/t/c.sh", "x.txt ?t/c.sh"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
        assert_eq!(
            Words::of(format!("!git log --pretty='{}'", "%h ".repeat(100)).as_bytes()).paths,
            Vec::<Vec<u8>>::new()
        );
        let whole = |line: &str, part: &[u8]| Words::of(line.as_bytes()).paths.iter().any(|path| path == part);
        assert!(whole("./my\\ tool/x", b"./my tool/x") && whole("'./my tool/x' %f", b"./my tool/x"));
        assert!(whole("/my tool/x", b"/my tool/x"));
    }

    #[test]
    fn ordinary_settings_name_no_files_and_are_clear() {
        for line in [
            "git-lfs clean -- %f",
            "git-lfs filter-process",
            "vim",
            "code --wait",
            "less -FRX",
            "delta",
            "store",
            "!git fetch && git rebase",
            "!git push origin HEAD:refs",
            "!gh auth git-credential",
            "!git log > log",
            "!git log > out.log",
            "!sh -c 'git log $1' -",
            "!f() { git log $1..$2; }; f",
            "!f() { echo username=$USER; echo password=$TOKEN; }; f",
            "!$EDITOR",
            "!git commit -m \"$(git log -1 --format=%s)\"",
            "jq --sort-keys",
            "$(git --exec-path)",
            "!\"$@\"",
            "!git branch --merged | grep -v main | xargs -n 1 git branch -d",
        ] {
            let shown = shown(line);
            assert!(!shown.contains(['?', '/']) && !shown.contains("unclear"), "{line}: {shown}");
        }
        for line in [
            "!git diff origin/$(git rev-parse --abbrev-ref HEAD)",
            "!git fetch origin pull/$1/head:pr/$1",
            "!cd $(git rev-parse --show-toplevel)/$GIT_PREFIX && make",
            "!gi() { curl -sL https://www.example.org/api/$@ ;}; gi",
            "ssh -i $HOME/.ssh/id_ed25519 -o UserKnownHostsFile=$X/known",
            "!open \"$(git config remote.origin.url)/pull/$1\"",
            "$(git --exec-path)/git-rebase",
            "SSH_AUTH_SOCK=$XDG_RUNTIME_DIR/ssh-agent.socket ssh",
            "!env GIT_DIR=$1/.git git status",
            "!sed -i s/$1/$2/g $(git ls-files)",
            "!f() { sed \"s/a/b/\" $1/c.txt; }; f",
        ] {
            let shown = shown(line);
            assert!(!shown.contains('?') && !shown.contains("unclear"), "{line}: {shown}");
        }
    }

    #[test]
    fn what_is_never_closed_ends_with_the_line() {
        for line in ["$(", "${", "`", "'", "\"", "$", "\\", "$(a", "${a/b", "x$(y `z", "$((((((((((((((((((((a/b"] {
            Words::of(line.as_bytes());
        }
    }
}
