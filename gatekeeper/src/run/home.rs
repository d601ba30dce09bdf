//! What `~` means in the paths of a policy if the caller has no HOME.

use crate::plan::disk::Disk;
use crate::plan::paths::Tree;
use crate::plan::refusal::Refusal;
use crate::policy::{Policy, SecretFrom};
use crate::request::Request;
use std::borrow::Cow;
use std::path::PathBuf;

/// The request with this user's home according to the system, if the policy names `~` and HOME does not say what it means. Read as
/// the name of a directory, a `~` would deny nothing.
pub fn with_home<'r>(request: &'r Request, policy: &Policy) -> Result<Cow<'r, Request>, Box<Refusal>> {
    let Some((key, path)) = first(policy).filter(|_| request.home.is_none()) else {
        return Ok(Cow::Borrowed(request));
    };
    let Some(home) = Disk.homes().own.into_iter().next() else {
        return Err(Box::new(Refusal::setup(format!(
            "{key} {}: HOME names no home directory, and neither does /etc/passwd for this user; set HOME, or write the full path",
            path.display()
        ))));
    };
    Ok(Cow::Owned(Request { home: Some(home), ..request.clone() }))
}

/// The first path that starts with `~`, and its key.
fn first(policy: &Policy) -> Option<(&'static str, &PathBuf)> {
    let secrets = policy.network.credentials.iter().filter_map(|credential| match &credential.from {
        SecretFrom::File(path) => Some(("network.credentials", path)),
        _ => None,
    });
    let listed = policy.lists_of_paths().into_iter().chain([("paths.deny", policy.paths.deny.as_slice())]);
    let mut all = listed.flat_map(|(key, paths)| paths.iter().map(move |path| (key, path))).chain(secrets);
    all.find(|(_, path)| path.starts_with("~"))
}
