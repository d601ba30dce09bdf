//! Secrets, their placeholders, and how both are found in other forms.

use super::*;

fn secrets(value: &str) -> Secrets {
    let credential = "T@a.org".parse().expect("sound");
    Secrets::new(&[credential], &|_| Ok(Zeroizing::new(value.to_owned()))).expect("sound")
}

#[test]
fn a_placeholder_has_the_shape_of_its_secret() {
    for value in
        ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-proj-abcDEF0123456789xyz", "0123456789abcdef-0123456789ABCDEF"]
    {
        let secrets = secrets(value);
        let shown = secrets.placeholder(0);
        assert_ne!(shown, value);
        assert_eq!(shown.len(), value.len());
        let kind = |byte: u8| match byte {
            b'0'..=b'9' => 0,
            b'a'..=b'z' => 1,
            b'A'..=b'Z' => 2,
            other => other,
        };
        assert!(shown.bytes().zip(value.bytes()).all(|(one, other)| kind(one) == kind(other)), "{shown}");
    }
    assert!(secrets("ghp_16C7e42F292c6912E7710c838347Ae178B4a").placeholder(0).starts_with("ghp_"));
    assert!(secrets("short").placeholder(0).len() > 20);
}

#[test]
fn a_placeholder_is_found_in_every_encoding() {
    let secrets = secrets("user:ghp_16C7e42F292c6912E7710c838347Ae178B4a");
    let shown = secrets.placeholder(0).to_owned();
    let escaped: String = shown.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let twice = escaped.replace('%', "%25");
    let mut seen = vec![format!("x{shown}y"), format!("a={escaped}&b"), twice, shown.replace(':', "%3A")];
    for front in ["", "u", "us", "use", "user:"] {
        seen.push(STANDARD.encode(format!("{front}{shown}tail")));
    }
    for text in seen {
        assert_eq!(secrets.sent_in(text.as_bytes()), Some("T"), "{text}");
    }
    assert_eq!(secrets.sent_in(b"nothing of that kind"), None);
    assert_eq!(secrets.sent_in(shown.get(1..).expect("long").as_bytes()), None);
}

#[test]
fn a_secret_is_masked() {
    let secrets = secrets("s3cr3t-s3cr3t-s3cr3t");
    let shown = secrets.placeholder(0);
    let masked = secrets.masked(b"a s3cr3t-s3cr3t-s3cr3t b").expect("found");
    assert_eq!(masked, format!("a {shown} b").into_bytes());
    assert_eq!(secrets.masked(b"other"), None);
    let coded = STANDARD.encode("user:s3cr3t-s3cr3t-s3cr3t");
    assert_eq!(secrets.masked(coded.as_bytes()), Some(b"(masked)".to_vec()));
    assert_eq!(secrets.reveals(b"xs3cr3t-s3cr3t-s3cr3t"), Some("T"));
    assert!(!format!("{secrets:?}").contains("s3cr3t"));
}

#[test]
fn a_secret_in_the_url_of_a_redirect_is_masked_however_it_is_escaped() {
    let secrets = secrets("ab+cd/ef16C7e42F292c6912E7710c8==");
    let shown = escaped(secrets.placeholder(0));
    let masked = secrets.masked(b"/x/?key=ab%2Bcd%2Fef16C7e42F292c6912E7710c8%3D%3D&a=1").expect("found");
    assert_eq!(masked, format!("/x/?key={shown}&a=1").into_bytes());
    for text in
        ["/?k=ab%2bcd/ef16C7e42F292c6912E7710c8%3d%3d", "/?u=%2F%3Fk%3Dab%252Bcd%252Fef16C7e42F292c6912E7710c8%253D="]
    {
        assert_eq!(secrets.masked(text.as_bytes()), Some(b"(masked)".to_vec()), "{text}");
    }
    assert_eq!(secrets.masked(b"/x?key=other%2Bsecret"), None);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for value in ["", "\n", "a\nb", "b\u{fc}cher", "a\0"] {
        let credential: Credential = "T@a.org".parse().expect("sound");
        Secrets::new(&[credential], &|_| Ok(Zeroizing::new(value.to_owned()))).expect_err(value);
    }
}
