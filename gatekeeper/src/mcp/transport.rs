//! Newline-delimited JSON over standard input and output. rmcp's own transport silently drops a line that is not JSON or
//! is too long, and the client waits for ever; this one answers it with an error.

use rmcp::model::ErrorData;
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdin, Stdout};
use tokio::sync::{Mutex, watch};

/// The longest line, so that a client cannot exhaust our memory. The same limit as in rmcp.
const LONGEST: usize = 16 << 20;

pub struct Stdio {
    input: BufReader<Stdin>,
    output: Arc<Mutex<Stdout>>,
    /// The part of the current line that has been read. `receive` may be cancelled at any await, so its state is kept here.
    line: Vec<u8>,
    /// The current line is too long: skip the rest of it.
    skipping: bool,
    /// An error answer that is being written.
    answering: Option<Sending>,
    /// Set to true when the client is gone.
    gone: watch::Sender<bool>,
}

type Sending = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl Stdio {
    pub fn new(gone: watch::Sender<bool>) -> Stdio {
        Stdio {
            input: BufReader::new(tokio::io::stdin()),
            output: Arc::new(Mutex::new(tokio::io::stdout())),
            line: Vec::new(),
            skipping: false,
            answering: None,
            gone,
        }
    }

    /// Reads the next line into `self.line`. `Ok(false)` at the end of the input.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            self.skipping |= self.line.len() + taken > LONGEST;
            if self.skipping {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.input.consume(taken);
            if newline.is_some() {
                return Ok(true);
            }
        }
    }

    /// The next message. `None` at the end of the input, or if an error answer cannot be written.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                let answered = answering.await;
                self.answering = None;
                answered.ok()?;
            }
            if !self.read_line().await.ok()? {
                return None;
            }
            let skipped = std::mem::take(&mut self.skipping);
            let parsed = if skipped { Err(too_long()) } else { parse(&self.line) };
            self.line.clear();
            match parsed {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(answer) => {
                    self.answering = Some(Box::pin(write_line(Arc::clone(&self.output), answer.to_string())))
                }
            }
        }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move { write_line(output, serde_json::to_string(&message)?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.next().await;
        if message.is_none() {
            self.gone.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output.lock().await.flush().await
    }
}

async fn write_line(output: Arc<Mutex<Stdout>>, mut line: String) -> io::Result<()> {
    line.push('\n');
    let mut output = output.lock().await;
    output.write_all(line.as_bytes()).await?;
    output.flush().await
}

/// Parses a line. `Ok(None)` for a line to ignore: an empty one, or a notification that this server does not know, because
/// JSON-RPC never answers a notification. `Err` is the answer to a line that is no message.
fn parse(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Value> {
    let line = line.trim_ascii();
    // RFC 8259, section 8.1, lets a parser ignore a byte order mark.
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| failure(&ErrorData::parse_error(format!("Parse error: {error}"), None), Value::Null))?;
    let id = value.get("id").cloned();
    let is_notification = id.is_none() && value.get("method").is_some_and(Value::is_string);
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(error) => {
            let id = id.filter(|id| id.is_string() || id.is_number()).unwrap_or(Value::Null);
            Err(failure(&ErrorData::invalid_request(format!("Invalid request: {error}"), None), id))
        }
    }
}

fn too_long() -> Value {
    failure(&ErrorData::parse_error(format!("Parse error: the line is longer than {LONGEST} bytes"), None), Value::Null)
}

/// JSON-RPC 2.0, section 5: `id` is null if the request's id is not known. rmcp would leave it out.
fn failure(error: &ErrorData, id: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> Value {
        parse(line.as_bytes()).expect_err(line)
    }

    #[test]
    fn what_is_no_message_is_answered_and_a_notification_never() {
        for line in ["{", "nonsense", "{\"jsonrpc\": \"2.0\"", "\u{1}"] {
            let answer = answer(line);
            assert_eq!((&answer["error"]["code"], answer.get("id")), (&json!(-32700), Some(&Value::Null)), "{answer}");
        }
        let bytes = parse(b"{\"a\": \"\xff\"}").expect_err("not UTF-8");
        assert_eq!(bytes["error"]["code"], -32700, "{bytes}");
        let unknown = answer(r#"{"jsonrpc": "1.0", "id": 7, "method": "ping"}"#);
        assert_eq!((&unknown["error"]["code"], &unknown["id"]), (&json!(-32600), &json!(7)), "{unknown}");
        assert_eq!(answer("[]")["error"]["code"], -32600);
        assert_eq!(answer(r#"{"id": {}}"#)["id"], Value::Null);
        for line in ["", "\r\n", r#"{"method": "textDocument/didOpen"}"#] {
            assert!(matches!(parse(line.as_bytes()), Ok(None)), "{line}");
        }
        let ping = "\u{feff}{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\r\n";
        assert!(matches!(parse(ping.as_bytes()), Ok(Some(_))), "the positive control");
    }
}
