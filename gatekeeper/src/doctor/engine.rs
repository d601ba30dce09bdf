//! Which container engine works for `gatekeeper box`, and which limits it really enforces.

use super::distribution::Distribution;
use super::{Finding, Status, Why};
use crate::container::engine;
use crate::container::trial::{self, Trial, Untried};

const LAYER: &str = "container engine";

pub fn engine(distribution: &Distribution) -> Finding {
    let arguments = engine::arguments(None);
    let named = std::env::var(engine::ENGINE).ok().filter(|name| !name.is_empty());
    match trial::tried(named.as_deref(), &arguments) {
        Ok(trial) => judged(&trial),
        Err(untried) => {
            let (cause, fix) = match untried {
                Untried::Place(cause) => (cause, "set TMPDIR to a directory that you may enter and write".to_owned()),
                Untried::Engine(cause) => (cause, distribution.install("podman")),
            };
            Finding::lacking(LAYER, Status::Unavailable, "none", Why { cause, fix }, "gatekeeper box has no containers")
        }
    }
}

fn judged(Trial { engine, about, ignored }: &Trial) -> Finding {
    let rootless = if about.rootless { "rootless" } else { "as root" };
    let detail = format!("{} {}, {rootless}", engine.kind.name(), about.version);
    let ignored = match ignored {
        Ok(ignored) => ignored,
        Err(cause) => {
            let why = Why { cause: cause.clone(), fix: "start a container by hand with the same engine, and follow its complaint; on Debian without systemd, install runc".to_owned() };
            return Finding::lacking(LAYER, Status::Unavailable, detail, why, "gatekeeper box has no containers");
        }
    };
    if ignored.is_empty() {
        return Finding::available(LAYER, format!("{detail}, enforces memory, cpus and pidsLimit"));
    }
    let why = match about.rootless {
        true => Why {
            cause: format!("it ignores {} here: a user cannot be given these cgroups", ignored.join(", ")),
            fix: "boot with systemd and cgroups v2 (systemd.unified_cgroup_hierarchy=1), and log in through it; or use the engine as root".to_owned(),
        },
        false => Why {
            cause: format!("it ignores {} here", ignored.join(", ")),
            fix: "mount the cgroup controllers memory, cpu and pids".to_owned(),
        },
    };
    let lost = "gatekeeper's own limits for memory and processes take their place; nothing limits cpus";
    Finding::lacking(LAYER, Status::Partial, detail, why, lost)
}
