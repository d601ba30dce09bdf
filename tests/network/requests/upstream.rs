//! Hosts that are not who they should be, or whose answers are wrong.

use super::{READ_V1, Tls};
use crate::support::fresh;

#[test]
fn an_expired_certificate_or_one_for_another_name_is_refused() {
    for (names, days, why) in [("DNS:other.test", "30", "not valid for"), ("IP:127.0.0.1", "0", "expired")] {
        let Some(tls) = Tls::serving(&["node", "server.js", "both"], None, names, days) else { return };
        if days == "0" {
            // It holds until the second in which it was made.
            std::thread::sleep(std::time::Duration::from_millis(2100));
        }
        let dir = fresh("certificates");
        let line = format!("curl -sS -w ' %{{http_code}}' {}", tls.url("/v1/x"));
        let ran = tls.confined(&dir, None, READ_V1, &[]).args(&["-c", &line]).go();
        let out = ran.done.exits(0).stdout();
        assert!(out.contains(why) && out.ends_with(" 502"), "{why}: {out}");
        assert_eq!(tls.seen(), "", "{why}");
    }
}

#[test]
fn a_wrong_answer_is_never_taken_for_a_whole_one() {
    let Some(tls) = Tls::serving(&["python3", "evil.py"], None, "IP:127.0.0.1", "30") else { return };
    let dir = fresh("wrong-answers");
    // What curl exits with, the status, and the body.
    let cases = [
        ("fine", "0 200 ok"),
        ("early", "cut"),
        ("cut", "cut"),
        ("none", "0 502 "),
        ("garbage", "0 502 "),
        ("hints", "0 200 ok"),
        ("head", "0 502 "),
        ("many", "0 502 "),
        ("endless", "0 502 "),
        ("two", "0 502 "),
        ("both", "0 200 hello"),
        ("switch", "0 502 "),
        ("extra", "0 200 ok"),
        ("fine", "0 200 ok"),
    ];
    for version in ["--http1.1", "--http2"] {
        let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        let line = format!(
            "for p in {}; do curl -s {version} -m 20 -o out -w '%{{exitcode}} %{{http_code}} ' {}/v1/$p; cat out; echo; done; true",
            names.join(" "),
            tls.url("")
        );
        let ran = tls.confined(&dir, None, READ_V1, &["--profile", "write"]).args(&["-c", &line]).go();
        let out = ran.done.exits(0).stdout();
        let answers: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(answers.len(), cases.len(), "{out}");
        for ((name, wanted), answer) in cases.iter().zip(&answers) {
            let cut = ["18 ", "92 "].iter().any(|code| answer.starts_with(code));
            assert!(answer.starts_with(wanted) || *wanted == "cut" && cut, "{version} {name}: {answer}");
            assert!(!answer.contains("evil"), "{version} {name}: {answer}");
        }
    }
}

#[test]
fn a_redirect_carries_the_placeholder_away_and_not_the_secret() {
    let Some(tls) = Tls::serving(&["python3", "evil.py"], None, "IP:127.0.0.1", "30") else { return };
    let dir = fresh("redirect");
    let policy = "[[network.credential]]\nenv = 'API_TOKEN'\nfrom = 'env:REAL_TOKEN'\nhost = 'HOST'\n";
    let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let line = format!(
        "curl -s -i --location-trusted -H \"Authorization: Bearer $API_TOKEN\" {}; echo; echo $API_TOKEN",
        tls.url("/v1/redirect")
    );
    let ran = tls.confined(&dir, None, policy, &[]).env("REAL_TOKEN", secret).args(&["-c", &line]).go();
    let out = ran.done.exits(0).stdout();
    let shown = out.lines().last().expect("the placeholder");
    assert!(out.contains(&format!("location: https://other.test/?t={shown}")) && !out.contains(secret), "{out}");
    ran.denial("proxy", "other.test:443");
}
