//! `gatekeeper import`: converts the seccomp profile of a container engine to a policy file.

use super::args::ImportArgs;
use super::{complain, failed, write_out};
use crate::compile::fits;
use crate::oci::{self, Imported, Surroundings, capability};
use crate::policy::{self, MAX_BYTES, Policy};
use crate::trust::Hostile;

pub fn main(args: &ImportArgs) -> u8 {
    let shown = args.profile.display();
    let bytes = match policy::read(&args.profile, None, &Hostile::default()) {
        Ok((bytes, _)) if bytes.len() <= MAX_BYTES => bytes,
        Ok(_) => return failed(format_args!("import: {shown} is larger than {MAX_BYTES} bytes")),
        Err(error) => return failed(format_args!("import: {error}")),
    };
    let release = rustix::system::uname();
    let running = release.release().to_string_lossy();
    let kernel = match oci::kernel_version(args.kernel.as_deref().unwrap_or(&running)) {
        Ok(kernel) => kernel,
        Err(error) => return failed(format_args!("import: --kernel: {error}")),
    };
    if let Some(error) = args.cap.iter().find_map(|cap| capability::known(cap).err()) {
        return failed(format_args!("import: --cap: {error}"));
    }
    let surroundings = Surroundings { caps: args.cap.clone(), kernel };
    let Imported { document, notes } = match oci::import(&bytes, &surroundings) {
        Ok(imported) => imported,
        Err(error) => return failed(format_args!("import: {shown}: {error}")),
    };
    // Do not write a policy that could not be loaded again.
    let (text, policy) = match document.to_toml().and_then(|text| Ok((text, Policy::resolve(document)?))) {
        Ok(usable) => usable,
        Err(error) => return failed(format_args!("import: {shown}: {error}")),
    };
    if let Err(error) = fits(&policy) {
        return failed(format_args!("import: {shown}: {error}"));
    }
    notes.iter().for_each(|note| complain(format_args!("note: {note}")));
    let (major, minor) = kernel;
    let caps = if args.cap.is_empty() { "no capabilities".to_owned() } else { args.cap.join(", ") };
    let head =
        format!("# Imported from a container engine's seccomp profile, for kernel {major}.{minor} and {caps}.\n");
    write_out(args.output.as_deref(), format!("{head}{text}").as_bytes())
}
