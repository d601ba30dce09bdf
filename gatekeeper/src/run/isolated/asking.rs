//! Questions about calls of a command inside bubblewrap.

use crate::enforce::Without;
use crate::isolate::config::SandboxConfig;
use crate::isolate::mounts;
use crate::plan::table::Table;
use crate::report::Asked;
use crate::run::{Options, Prepared, execute};
use crate::supervise::ask::hub::Hub;
use crate::supervise::ask::never::Never;
use crate::supervise::ask::outside::{Guardian, serve};
use crate::supervise::ask::view::View;
use crate::supervise::ask::{Asker, Asking};
use crate::supervise::connect::Reach;
use crate::supervise::judge::Judge;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub struct Asks {
    hub: Arc<Hub>,
    guardian: Guardian,
}

impl Asks {
    /// Serves the calls that arrive on this socket, if the run asks.
    pub fn start(
        socket: Option<OwnedFd>,
        prepared: &Prepared,
        options: &Options<'_>,
        config: &SandboxConfig,
    ) -> io::Result<Option<Asks>> {
        let (Some(socket), Some(ask)) = (socket, &prepared.plan.ask) else { return Ok(None) };
        let plan = &prepared.plan;
        let (hub, guardian) = (execute::hub(ask, options)?, Guardian::default());
        let mounted = config.rw_paths.iter().chain(&config.ro_paths).cloned().collect();
        let asker = Asker { hub: hub.clone(), never: Never::outside(plan, mounted), view: View::Outside };
        let without = Without { listener: false, namespaces: false };
        // The gatekeeper inside decides by the table of syscalls, and sends what it refuses.
        let judged = execute::judge(plan, Table::open().into(), None, without, options.audit.clone());
        let judge = Judge {
            reach: Reach { own_network: mounts::has_own_network(plan), ..judged.reach },
            asking: Some(Asking::Here(asker)),
            ..judged
        };
        let (serving, found) = (hub.clone(), guardian.clone());
        let thread = std::thread::Builder::new().name("outside".to_owned());
        thread.spawn(move || serve(socket, judge, &serving, &found))?;
        Ok(Some(Asks { hub, guardian }))
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Whether a question on the terminal has stopped the command. The message may arrive when the command runs again.
    pub fn stops(&self) -> Box<dyn Fn() -> bool + Send> {
        let (hub, guardian) = (self.hub.clone(), self.guardian.clone());
        Box::new(move || hub.holds() || guardian.runs())
    }

    /// Ends the questions with the run, and returns all that were asked.
    pub fn finish(self) -> Vec<Asked> {
        self.hub.finish()
    }

    /// Nothing was run. Whoever answers will be asked by another run.
    pub fn abandon(&self) {
        self.hub.abandon();
    }
}
