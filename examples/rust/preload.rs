//! Starts a program under the libsandbox.so that is embedded in this one.
//!
//!     SECCOMP_SYSCALL_DENY=@network preload (sealed|on-disk) CMD [ARGS]

use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() -> std::io::Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [how, program, arguments @ ..] = words.as_slice() else {
        return Err(std::io::Error::other("usage: preload (sealed|on-disk) CMD [ARGS]"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    // Without SANDBOX_REQUIRED, the library does nothing if no variable is set.
    command.env("SANDBOX_REQUIRED", "1");
    let sealed;
    if how == "sealed" {
        sealed = gatekeeper::library::Sealed::new()?;
        sealed.preload(&mut command);
    } else {
        command.env("LD_PRELOAD", gatekeeper::library::on_disk()?);
    }
    Err(command.exec())
}
