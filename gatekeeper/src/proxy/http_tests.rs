use super::*;

fn forwarded(text: &str) -> (String, u16, String, Body) {
    let (request, _) = parse(text.as_bytes()).expect("a request").expect("a whole one");
    let (head, body) = request.forward.expect("no CONNECT");
    (request.host, request.port, String::from_utf8(head).expect("text"), body)
}

fn passed(body: &mut Body, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let more = body.pass(bytes, &mut out).expect("sound");
    (out, more)
}

#[test]
fn connect_names_host_and_port() {
    for (target, host, port) in
        [("a.org:443", "a.org", 443), ("[::1]:80", "[::1]", 80), ("user:pw@a.org:1", "a.org", 1)]
    {
        let (request, _) = parse(format!("CONNECT {target} HTTP/1.1\r\nHost: other\r\n\r\n").as_bytes())
            .expect("a request")
            .expect("a whole one");
        assert_eq!((request.host.as_str(), request.port, request.forward), (host, port, None), "{target}");
    }
    for target in ["a.org", ":443", "a.org:0", "a.org:x", "a.org:99999"] {
        let answer = parse(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).expect_err(target);
        assert_eq!(answer.status, "400 Bad Request", "{target}");
    }
}

#[test]
fn the_host_header_is_the_address_of_the_first_line() {
    let (host, port, head, body) = forwarded(
        "GET http://a.org:81/x?y#z HTTP/1.1\r\nHost: evil.org\r\nProxy-Authorization: Basic x\r\n\
         Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nAccept: */*\r\n\r\n",
    );
    assert_eq!((host.as_str(), port, body), ("a.org", 81, Body::Length(0)));
    assert_eq!(head, "GET /x?y HTTP/1.1\r\nHost: a.org:81\r\nAccept: */*\r\nConnection: close\r\n\r\n");
}

#[test]
fn addresses_without_a_path_or_with_a_user() {
    let (host, port, head, _) = forwarded("GET http://me:pw@a.org HTTP/1.0\r\n\r\n");
    assert_eq!((host.as_str(), port), ("a.org", 80));
    assert!(head.starts_with("GET / HTTP/1.0\r\nHost: a.org\r\n"), "{head}");
    let (host, _, head, _) = forwarded("GET http://a.org?q=http://b.org/ HTTP/1.1\r\n\r\n");
    assert_eq!(host, "a.org");
    assert!(head.starts_with("GET /?q=http://b.org/ HTTP/1.1\r\nHost: a.org\r\n"), "{head}");
    let (host, ..) = forwarded("GET HTTP://a.org\\@b.org/ HTTP/1.1\r\n\r\n");
    assert_eq!(host, "b.org", "the host that is judged is the host that is connected to");
}

#[test]
fn what_is_no_proxy_request_is_answered() {
    for (line, status) in [
        ("GET / HTTP/1.1", "501 Not Implemented"),
        ("GET https://a.org/ HTTP/1.1", "501 Not Implemented"),
        ("GET ftp://a.org/ HTTP/1.1", "501 Not Implemented"),
        ("GET http:///x HTTP/1.1", "400 Bad Request"),
        ("nonsense", "400 Bad Request"),
    ] {
        assert_eq!(parse(format!("{line}\r\n\r\n").as_bytes()).expect_err(line).status, status, "{line}");
    }
}

#[test]
fn a_body_whose_end_is_unclear_is_refused() {
    for headers in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: +3",
        "Content-Length: 0x3",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ] {
        let text = format!("POST http://a.org/ HTTP/1.1\r\n{headers}\r\n\r\n");
        assert_eq!(parse(text.as_bytes()).expect_err(headers).status, "400 Bad Request", "{headers}");
    }
}

#[test]
fn nothing_behind_the_body_passes() {
    let mut body = Body::Length(3);
    assert_eq!(passed(&mut body, b"ab"), (b"ab".to_vec(), true));
    assert_eq!(passed(&mut body, b"cGET http://evil/"), (b"c".to_vec(), false));
    let chunked = || Body::Chunked(Chunks::Size(Vec::new()));
    let whole = b"3;ext=1\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n";
    let mut body = chunked();
    let mut all = whole.to_vec();
    all.extend_from_slice(b"GET http://evil/");
    assert_eq!(passed(&mut body, &all), (whole.to_vec(), false));
    // The same, byte by byte.
    let mut body = chunked();
    for (at, byte) in whole.iter().enumerate() {
        assert_eq!(passed(&mut body, &[*byte]), (vec![*byte], at + 1 < whole.len()), "byte {at}");
    }
    for wrong in ["x\r\n", "-1\r\n", "\r\n", "ffffffffffffffff\r\n"] {
        assert!(chunked().pass(wrong.as_bytes(), &mut Vec::new()).is_err(), "{wrong:?}");
    }
}

#[test]
fn an_answer_is_the_last_of_its_connection() {
    let mut response = Response::default();
    let mut out = Vec::new();
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\
                Content-Length: 2\r\n\r\nhi";
    for byte in text.bytes() {
        response.pass(&[byte], &mut out).expect("sound");
    }
    let expected = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    assert_eq!(String::from_utf8_lossy(&out), expected);
    assert!(Response::default().pass(b"SSH-2.0-x\r\n", &mut Vec::new()).is_err());
}
