//! The tools of an agent in its container: exec and process, the file tools, and what is known about its sessions. Tools
//! that the configuration denies are not listed, and refused by name with the key that denies them.

use super::answer;
use super::arguments::{asked, object};
use super::catalogue::{Arguments, Described, described};
use super::jobs::{Job, Jobs};
use super::transport::Stdio;
use crate::container::{self, Boxed, Input, Running, Streams};
use crate::policy::{Profile, values};
use crate::report::Report;
use crate::request::{Asked, Request};
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Bytes to keep of each stream of a command, and of a file that is read: a model reads all of them.
const KEPT: u64 = 64 << 10;
const KEPT_OF_FILE: u64 = 256 << 10;

/// The container, and the request of each call except for its command.
pub struct BoxTerms {
    boxed: Boxed,
    request: Request,
    /// The browser of this machine, if the session has started it.
    host: Mutex<Option<super::host::Host>>,
}

impl BoxTerms {
    pub fn new(boxed: Boxed, mut request: Request) -> BoxTerms {
        request.flags.limits.output.get_or_insert(KEPT);
        BoxTerms { boxed, request, host: Mutex::default() }
    }
}

/// Serves a client until it disconnects. Background commands end with it.
pub fn serve_box(terms: BoxTerms) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let jobs = Arc::new(Jobs::default());
    let (ended, terms) = (Arc::clone(&jobs), Arc::new(terms));
    let held = Arc::clone(&terms);
    let served = runtime.block_on(async {
        let (leaves, gone) = watch::channel(false);
        let server = Server { terms, jobs, gone };
        let service = server.serve(Stdio::new(leaves)).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other)?;
        Ok(())
    });
    ended.end_all();
    drop(held.host.lock().unwrap_or_else(PoisonError::into_inner).take());
    runtime.shutdown_background();
    served
}

struct Server {
    terms: Arc<BoxTerms>,
    jobs: Arc<Jobs>,
    gone: watch::Receiver<bool>,
}

/// Output of a foreground command, which the report captures.
struct Dropped;

impl Streams for Dropped {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
    fn warning(&mut self, _: &str) {}
}

impl Server {
    fn tools(&self) -> Vec<Tool> {
        let allowed = |tool: &Described| self.terms.boxed.settings.tool(tool.0).allowed;
        let tool = |(name, about, properties, needed): Described| {
            let schema =
                json!({"type": "object", "properties": properties, "required": needed, "additionalProperties": false});
            Tool::new(name, about, object(schema))
        };
        described().into_iter().filter(allowed).map(tool).collect()
    }

    /// Runs a request in the container on a thread, until it ends or the client cancels it or goes away.
    async fn run(&self, request: Request, input: Input, context: &RequestContext<RoleServer>) -> Report {
        let (send, report) = oneshot::channel();
        let running: Arc<Mutex<Option<Running>>> = Arc::default();
        let (terms, started) = (Arc::clone(&self.terms), Arc::clone(&running));
        std::thread::spawn(move || {
            let keep = |running| *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            let _ = send.send(container::exec(&terms.boxed, request, true, input, &mut Dropped, &keep));
        });
        let mut gone = self.gone.clone();
        tokio::pin!(report);
        tokio::select! {
            report = &mut report => return report.unwrap_or_else(|_| failed()),
            () = context.ct.cancelled() => (),
            _ = gone.wait_for(|gone| *gone) => (),
        }
        running.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Running::end);
        report.await.unwrap_or_else(|_| failed())
    }

    fn request(&self, given: &Arguments) -> Result<Request, String> {
        let asked = asked(given.command.clone(), given.line.clone())?;
        let mut request = Request { asked, ..self.terms.request.clone() };
        request.starts_in = given.cwd.as_ref().map(|cwd| Path::new("/workspace").join(cwd));
        if let Some(seconds) = given.timeout {
            let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("timeout {seconds}: {error}"))?;
            let most = request.flags.timeout.filter(|most| !most.is_zero());
            request.flags.timeout = Some(most.map_or(time, |most| most.min(time)).max(Duration::from_millis(1)));
        }
        Ok(request)
    }

    /// A file tool: gatekeeper itself, run in the container like any other command. A tool that writes may write.
    fn file(&self, action: &str, given: &Arguments) -> (Request, Input) {
        let words = [container::PROGRAM, container::INSIDE, "file", action].map(Into::into).to_vec();
        let mut request = Request { asked: Asked::Command(words), ..self.terms.request.clone() };
        let flags = &mut request.flags;
        if action != "read" {
            flags.profile = values::union(flags.profile.take(), Some(vec![Profile::Write]));
        }
        flags.limits.output = Some(KEPT_OF_FILE);
        let order = json!({
            "path": given.path.clone().unwrap_or_default(), "offset": given.offset, "limit": given.limit,
            "content": given.content, "old": given.old, "new": given.new, "all": given.all, "patch": given.patch,
        });
        (request, Input::From(Box::new(io::Cursor::new(order.to_string().into_bytes()))))
    }

    async fn call(&self, name: &str, given: Arguments, context: &RequestContext<RoleServer>) -> CallToolResult {
        match name {
            "exec" => {
                let request = match self.request(&given) {
                    Ok(request) => request,
                    Err(error) => return answer::wrong(error),
                };
                if given.background {
                    return self.background(request, given.stdin);
                }
                let input = Input::From(Box::new(io::Cursor::new(given.stdin.unwrap_or_default().into_bytes())));
                answer::of(&self.run(request, input, context).await, &[])
            }
            "browser" => self.browser(given).await,
            "process" => self.process(&given),
            "sessions_list" => self.sessions().await,
            "session_status" => {
                let boxed = &self.terms.boxed;
                let mut told = container::explain(&boxed.settings, &boxed.identity, &boxed.made.mounts, &boxed.name);
                told["processes"] = self.jobs.list();
                shown(told)
            }
            "read" | "write" | "edit" | "apply_patch" => {
                let action = if name == "apply_patch" { "patch" } else { name };
                let (request, input) = self.file(action, &given);
                let report = self.run(request, input, context).await;
                let mut result = answer::of(&report, &[]);
                // A file that cannot be read or changed is an error of the tool.
                result.is_error = Some(report.exit_code != 0);
                result
            }
            _ => answer::wrong(format!("unknown tool {name:?}")),
        }
    }

    fn background(&self, request: Request, stdin: Option<String>) -> CallToolResult {
        let words: Vec<String> = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let Some((id, job, input)) = self.jobs.start(words) else {
            return answer::wrong("too many background commands; kill some with the tool process".to_owned());
        };
        stdin.into_iter().for_each(|text| job.write(text.into_bytes()));
        let terms = Arc::clone(&self.terms);
        std::thread::spawn(move || {
            let keep = |running| job.runs(running);
            let report =
                container::exec(&terms.boxed, request, false, Input::Pieces(input), &mut Job::streams(&job), &keep);
            job.finish(&report);
        });
        shown(json!({"id": id, "running": true}))
    }

    fn process(&self, given: &Arguments) -> CallToolResult {
        let action = given.action.as_deref().unwrap_or_default();
        if action == "list" {
            return shown(json!({"processes": self.jobs.list()}));
        }
        let Some(job) = given.id.and_then(|id| self.jobs.get(id)) else {
            return answer::wrong(format!("there is no background command {:?}; the action list shows them", given.id));
        };
        match action {
            "poll" => shown(job.poll()),
            "write" => {
                given.data.iter().for_each(|data| job.write(data.clone().into_bytes()));
                if given.end {
                    job.end_input();
                }
                shown(job.poll())
            }
            "kill" => {
                job.kill();
                shown(json!({"id": given.id, "killed": true}))
            }
            _ => answer::wrong(format!("action {action:?}: use list, poll, write or kill")),
        }
    }

    /// Does on a thread what waits for an engine.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BoxTerms) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (send, done) = oneshot::channel();
        let terms = Arc::clone(&self.terms);
        std::thread::spawn(move || drop(send.send(work(&terms))));
        done.await.unwrap_or_else(|_| Err("it did not answer".to_owned()))
    }

    async fn sessions(&self) -> CallToolResult {
        let listed = self.aside(|terms| {
            let note = terms.boxed.noted()?.ok_or_else(|| "the container was removed".to_owned())?;
            container::list(&note.0.engine)
        });
        let agent = &self.terms.boxed.identity.agent;
        match listed.await {
            Ok(mut entries) => {
                entries.retain(|entry| entry.agent == *agent || entry.agent == "*");
                shown(json!({"sessions": entries}))
            }
            Err(error) => answer::wrong(error),
        }
    }

    async fn browser(&self, given: Arguments) -> CallToolResult {
        let act = move |terms: &BoxTerms| match given.target.as_deref() {
            None | Some("sandbox") => super::browser::act(&terms.boxed, &given),
            Some("host") => {
                let mut host = terms.host.lock().unwrap_or_else(PoisonError::into_inner);
                super::host::act(&mut host, &terms.boxed, terms.request.audit.as_deref(), &given)
            }
            Some(other) => Err(format!("target {other:?}: use sandbox or host")),
        };
        match self.aside(act).await {
            Ok(value) => shown(value),
            Err(error) => answer::wrong(error),
        }
    }
}

fn failed() -> Report {
    crate::plan::refusal::Refusal::setup("the thread that runs it ended").report(Vec::new(), Duration::ZERO)
}

fn shown(value: Value) -> CallToolResult {
    let text = value.to_string();
    let mut result = CallToolResult::structured(value);
    result.content = vec![ContentBlock::text(text)];
    result
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("gatekeeper", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Commands and files of an agent, in its container. /workspace is the workspace.".to_owned(),
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        let ruling = self.terms.boxed.settings.tool(&name);
        if !described().iter().any(|tool| tool.0 == name) {
            return Err(ErrorData::invalid_params(format!("unknown tool {name:?}"), None));
        }
        if !ruling.allowed {
            return Err(ErrorData::invalid_params(format!("tool {name} is not allowed here: {}", ruling.key), None));
        }
        let given = Value::Object(request.arguments.unwrap_or_default());
        match serde_json::from_value::<Arguments>(given) {
            Ok(given) => Ok(self.call(&name, given, &context).await.into()),
            Err(error) => Ok(answer::wrong(error.to_string()).into()),
        }
    }
}
