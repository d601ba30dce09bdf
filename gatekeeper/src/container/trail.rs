//! The audit trail of a command in a box. Its files are on the host, out of the container's sight: the gatekeeper inside sends
//! each entry out before its decision takes effect, and goes on when the one outside has written it.

use super::boxed::Boxed;
use crate::audit::Audit;
use crate::request::Request;
use crate::trust::Hostile;
use std::sync::Arc;

/// Opens the trail that a request names.
pub fn open(boxed: &Boxed, request: &mut Request) -> Result<Option<Arc<Audit>>, String> {
    let Some(file) = request.audit.take() else { return Ok(None) };
    let mut hostile = Hostile::here();
    boxed.made.mounts.iter().filter(|mount| mount.writable).for_each(|mount| hostile.add(&mount.host));
    let words: Vec<String> = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let audit = Audit::start(&file, &hostile, &words)?;
    let [path, _] = audit.paths();
    match boxed.made.mounts.iter().find(|mount| path.starts_with(&mount.host)) {
        None => Ok(Some(audit)),
        Some(mount) => Err(format!(
            "--audit {}: it is in {}, which the container sees; keep the trail elsewhere",
            file.display(),
            mount.host.display()
        )),
    }
}
