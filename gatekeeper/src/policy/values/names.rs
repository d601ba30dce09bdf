//! Names of variables, paths and commands. Looks nothing up.

use crate::policy::error::ValueError;
use crate::policy::pattern::Denied;
use sandbox_contract::vars;
use std::path::PathBuf;

/// A variable to pass from the caller's environment.
pub fn passed_variable(name: &str) -> Result<String, ValueError> {
    // The policy may pass the user's preload (jemalloc, libfaketime), which then follows ours.
    if name == "LD_PRELOAD" { Ok(name.to_owned()) } else { variable(name) }
}

/// A variable that the policy sets.
pub fn set_variable(name: &str) -> Result<String, ValueError> {
    variable(name)
}

fn variable(name: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::unusable("variable", name, why));
    if name.is_empty() || name.contains(['=', '\0']) {
        return wrong("not a name that a variable can have");
    }
    if name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return wrong("a name has no blanks; use a separate flag for each variable, as NAME or NAME=VALUE");
    }
    if name.contains('*') {
        return wrong("names are exact, there are no wildcards");
    }
    if name.starts_with("LD_") {
        return wrong("it controls the loader; of LD_* only LD_PRELOAD may be passed, and none may be set");
    }
    if vars::ALL.contains(&name) || name.starts_with("GATEKEEPER_") {
        return wrong("gatekeeper sets it itself");
    }
    Ok(name.to_owned())
}

/// The value of a variable.
pub(in crate::policy) fn variable_value(value: &str) -> Result<String, ValueError> {
    if value.contains('\0') {
        return Err(ValueError::unusable("variable", value, "a NUL would end it"));
    }
    Ok(value.to_owned())
}

/// A path in a policy.
pub fn path(text: &str) -> Result<PathBuf, ValueError> {
    // Taken literally it would match nothing, and the grant would have no effect.
    if text.contains('*') {
        return Err(ValueError::unusable("path", text, "there are no wildcards in paths; name the directory"));
    }
    any_path(text)
}

/// A path or a pattern to deny.
pub fn denied_path(text: &str) -> Result<PathBuf, ValueError> {
    let path = any_path(text)?;
    Denied::parse(&path)?;
    Ok(path)
}

fn any_path(text: &str) -> Result<PathBuf, ValueError> {
    let wrong = |why| Err(ValueError::unusable("path", text, why));
    if text.is_empty() {
        return wrong("empty; '.' is the working directory");
    }
    if text.contains('\0') {
        return wrong("no path holds a NUL");
    }
    if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
        return wrong("other users' homes are not looked up; write the full path, or prefix it with './'");
    }
    Ok(text.into())
}

/// A program, by name or path.
pub fn command(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.contains('\0') {
        return Err(ValueError::unusable("command", text, "not the name of a program"));
    }
    // Taken literally it would match no program, and the block would have no effect.
    let blank = text.find(char::is_whitespace);
    if blank.is_some_and(|at| !text.contains('/') || text[at..].trim_start().starts_with('-')) {
        let why = "it matches nothing: a command is one name or path, without arguments; name the program alone";
        return Err(ValueError::unusable("command", text, why));
    }
    Ok(text.to_owned())
}
