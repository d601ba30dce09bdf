//! One request: checks where it goes, decides, puts secrets in, forwards it, and passes the answer back.

use super::Connection;
use super::answer::{self, refuse};
use super::credentials::{Search, To, mask, put};
use super::decide::{Wanted, decide, is_for_heads, path_of, place};
use super::upstream::Body;
use crate::proxy::gate::Closed;
use crate::proxy::rules::Refused;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Headers that belong to a connection, not to a request (RFC 9110, section 7.6.1).
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "transfer-encoding",
    "upgrade",
];
/// Counts a request as long as it is in progress, which is until its answer has been sent.
struct Active(Arc<Connection>);

impl Active {
    fn new(connection: &Arc<Connection>) -> Active {
        connection.shared.active.fetch_add(1, Ordering::SeqCst);
        Active(connection.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.shared.active.fetch_sub(1, Ordering::SeqCst);
    }
}

pub async fn serve(connection: Arc<Connection>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let active = Active::new(&connection);
    let head = request.method() == Method::HEAD;
    let mut response = handle(&connection, request).await;
    if head && response.headers().contains_key("x-gatekeeper") {
        *response.body_mut() = answer::empty();
    }
    Ok(response.map(|body| {
        body.map_frame(move |frame| {
            let _ = &active;
            frame
        })
        .boxed()
    }))
}

async fn handle(connection: &Arc<Connection>, mut request: Request<Incoming>) -> Response<Body> {
    let inspector = &connection.inspector;
    let upstream = match place(connection, &request) {
        Ok(upstream) => upstream,
        Err(why) => {
            let shown = connection.shown();
            return refuse(inspector, &shown, &connection.guest, &request, Refused::always(why));
        }
    };
    let named = format!("{}:{}", upstream.host, upstream.port);
    if let Err(refused) = decide(connection, &upstream, Wanted::of(&request)).await {
        return refuse(inspector, &named, &connection.guest, &request, refused);
    }
    let upgrades = asks_for_websocket(request.headers()) && request.version() == Version::HTTP_11;
    let on_client = upgrades.then(|| hyper::upgrade::on(&mut request));
    let original = (request.method().clone(), request.uri().path().to_owned());
    let (mut parts, body) = request.into_parts();
    let safe = upstream.tls || upstream.host.is_this_machine();
    let to = To { host: &upstream.host, port: upstream.port, safe };
    if let Err(refused) = put(&inspector.secrets, &to, &parts.method, &mut parts.uri, &mut parts.headers) {
        let request = Request::from_parts(parts, ());
        return refuse(inspector, &named, &connection.guest, &request, refused);
    }
    strip(&mut parts.headers, upgrades);
    let mut body = body;
    let mut search = Search::new(inspector.secrets.clone());
    let first = first_block(&mut body).await;
    let data = first.as_ref().and_then(Frame::data_ref).cloned().unwrap_or_default();
    let trailers = first.as_ref().and_then(Frame::trailers_ref);
    let in_trailers = trailers.and_then(|all| search.finds_in(all).map(in_body).or_else(|| misplaced(all)));
    if let Some(why) = in_trailers.or_else(|| search.finds(&data).map(in_body)) {
        let request = Request::from_parts(parts, ());
        return refuse(inspector, &named, &connection.guest, &request, Refused::always(why));
    }
    // Before anything is sent; what a later part of the body is refused for gets a line of its own.
    let (method, path) = (original.0.as_str(), path_of(&parts.uri));
    if let Err(why) = inspector.note(true, &named, &connection.guest, method, path, None) {
        return answer::failed(&why);
    }
    let found = Arc::new(OnceLock::new());
    let searched = Searched {
        first,
        body,
        search,
        connection: connection.clone(),
        named: named.clone(),
        original,
        found: found.clone(),
    };
    let request = Request::from_parts(parts, searched.boxed());
    let sent = upstream.send(inspector, &connection.guest, request, upgrades).await;
    if let Some(why) = found.get() {
        return answer::forbidden(&format!("{named}: {why}"));
    }
    let mut response = match sent {
        Ok(response) => response,
        Err(Closed::Refused(why)) => return answer::forbidden(&why),
        Err(Closed::Failed(why)) => return answer::failed(&why),
    };
    mask(&inspector.secrets, response.headers_mut());
    // The words after the status code are the host's own, and could hold a secret.
    response.extensions_mut().remove::<hyper::ext::ReasonPhrase>();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return match on_client {
            Some(on_client) => switch(connection, on_client, response),
            None => answer::failed("the host switched protocols unasked"),
        };
    }
    // With both, the coding says where the answer ends, and the length is not passed on (RFC 9112, section 6.3).
    if response.headers().contains_key(header::TRANSFER_ENCODING) {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    strip(response.headers_mut(), false);
    response.headers_mut().remove(HeaderName::from_static("alt-svc"));
    let secrets = inspector.secrets.clone();
    response.map(|body| {
        let masked = body.map_frame(move |mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                mask(&secrets, trailers);
            }
            frame
        });
        masked.map_err(io::Error::other).boxed()
    })
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Removes the headers of one connection. An upgrade is asked for again on the other one.
fn strip(headers: &mut HeaderMap, upgrades: bool) {
    let trailers = headers.get(header::TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    let connection: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let kept = ["content-length", "host", "authorization"];
    for name in HOP
        .iter()
        .map(|name| (*name).to_owned())
        .chain(connection.into_iter().filter(|name| !kept.contains(&name.as_str())))
    {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.remove(name);
        }
    }
    if trailers {
        headers.insert(header::TE, header::HeaderValue::from_static("trailers"));
    }
    if upgrades {
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
    }
}

/// Connects both sides after a WebSocket was agreed on.
fn switch(
    connection: &Arc<Connection>,
    client: hyper::upgrade::OnUpgrade,
    mut response: Response<Incoming>,
) -> Response<Body> {
    let host = hyper::upgrade::on(&mut response);
    connection.shared.upgraded.store(true, Ordering::SeqCst);
    let place = connection.clone();
    tokio::spawn(async move {
        if let (Ok(client), Ok(host)) = (client.await, host.await) {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(host)).await;
        }
        drop(place);
    });
    response.map(|_| answer::empty())
}

/// How long the first block of a body may take before the head is sent without it, as a stream in both directions needs.
const FIRST: std::time::Duration = std::time::Duration::from_millis(50);

/// The first block of a body. Most bodies have one only, and can so be searched before anything is sent.
async fn first_block(body: &mut Incoming) -> Option<Frame<hyper::body::Bytes>> {
    use hyper::body::Body as _;
    if body.is_end_stream() {
        return None;
    }
    // An error comes again when the body is read on.
    tokio::time::timeout(FIRST, body.frame()).await.ok().flatten().and_then(Result::ok)
}

fn in_body(env: &str) -> String {
    format!("the placeholder of {env} is sent where its secret does not belong: in the body")
}

/// Why these trailers are refused: one of them is a header that the rules look at, and some servers take trailers for headers.
fn misplaced(trailers: &HeaderMap) -> Option<String> {
    let name = trailers.keys().find(|name| is_for_heads(name.as_str()))?;
    Some(format!("the header {name} is sent as a trailer, after the request was decided"))
}

/// A request's body on its way, searched for placeholders.
struct Searched {
    /// Already searched.
    first: Option<Frame<hyper::body::Bytes>>,
    body: Incoming,
    search: Search,
    connection: Arc<Connection>,
    named: String,
    original: (Method, String),
    /// Why the request was refused while it was on its way.
    found: Arc<OnceLock<String>>,
}

impl hyper::body::Body for Searched {
    type Data = hyper::body::Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, io::Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let frame = match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        let found = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => this.search.finds(data).map(in_body),
            (_, Some(trailers)) => this.search.finds_in(trailers).map(in_body).or_else(|| misplaced(trailers)),
            _ => None,
        };
        if let Some(why) = found {
            let Searched { connection, named, original: (method, path), .. } = &*this;
            let refused = Refused::always(why.clone());
            connection.inspector.record(named, &connection.guest, method.as_str(), path, &refused);
            let _ = this.found.set(why.clone());
            return Poll::Ready(Some(Err(io::Error::other(why))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        let rest = self.body.size_hint();
        let mut hint = hyper::body::SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}
