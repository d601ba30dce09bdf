//! What the proxy adds to requests over TLS: many of 1 KB on one connection, and one of 100 MB, over HTTP/1.1 and HTTP/2, by
//! curl to a server on loopback. `direct`: without gatekeeper. `end to end`: through the proxy, to a host without rules.
//! `looked into`: to a host with rules. `cargo bench --bench http [ROUNDS]`. Needs node, openssl and curl.

#[allow(dead_code)]
mod interleaved;

use interleaved::{command, open_to_all, place, rounds};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Requests of 1 KB in one run of curl.
const MANY: usize = 300;

const SERVER: &str = r#"
const fs = require("fs"), options = { key: fs.readFileSync("key"), cert: fs.readFileSync("cert"), allowHTTP1: true };
const small = Buffer.alloc(1000, "x"), block = Buffer.alloc(1 << 20, "x");
require("http2").createSecureServer(options, (request, response) => {
  if (request.url !== "/large") return response.end(small);
  let left = 100;
  const more = () => { while (left > 0) { left -= 1; if (!response.write(block)) return response.once("drain", more); } response.end(); };
  more();
}).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
"#;

struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn openssl(dir: &Path, words: &str) {
    let done = Command::new("openssl").args(words.split(' ')).current_dir(dir).stderr(Stdio::null()).status();
    assert!(done.expect("openssl is installed").success(), "openssl {words}");
}

fn serve(dir: &Path) -> Server {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30";
    let ca = "-addext basicConstraints=critical,CA:TRUE";
    openssl(dir, &format!("req -x509 {curve} -keyout ca.key -out ca.pem -subj /CN=bench {ca}"));
    openssl(dir, &format!("req {} -keyout key -out csr -subj /CN=localhost", curve.trim_end_matches(" -days 30")));
    std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").expect("own directory");
    openssl(dir, "x509 -req -in csr -extfile names -CA ca.pem -CAkey ca.key -out cert -days 30");
    open_to_all(&dir.join("ca.pem"), 0o644);
    let mut command = Command::new("node");
    command.args(["-e", SERVER]).current_dir(dir).stdout(Stdio::piped());
    let mut child = command.spawn().expect("node is installed");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its port");
    Server(child, line.trim().parse().expect("a port"))
}

/// The seconds that curl itself took, from the first byte of a connection to the last of the answers.
fn timed(words: &[String], dir: &Path) -> f64 {
    let done = command(words, dir).stdout(Stdio::piped()).output().expect("it starts");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.split_whitespace().map(|word| word.parse::<f64>().expect("seconds")).sum()
}

fn main() {
    let rounds = rounds(20);
    let (dir, gatekeeper) = place();
    let dir = dir.path();
    let server = serve(dir);
    let host = format!("127.0.0.1:{}", server.1);
    let url = format!("https://{host}");
    let rules = "[[network.http]]\nhost = 'HOST'\nmethods = ['GET']\npaths = ['/**']\n".replace("HOST", &host);
    let policy = format!("profile = 'read'\n[network]\nupstream_ca = ['{}/ca.pem']\n{rules}", dir.display());
    std::fs::write(dir.join("rules.toml"), policy).expect("own directory");
    let many: String = (0..MANY).map(|_| format!("url = \"{url}/small\"\noutput = /dev/null\n")).collect();
    std::fs::write(dir.join("many"), many).expect("own directory");
    for name in ["many", "rules.toml"] {
        open_to_all(&dir.join(name), 0o644);
    }
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let run = own(&[gatekeeper.to_str().expect("text"), "run", "--quiet"]);
    println!("medians of {rounds} rounds: ms for one request of 1 KB ({MANY} on a connection), and for one of 100 MB");
    println!("{:22} {:>8} {:>12} {:>8} {:>12} {:>8}", "", "direct", "end to end", "ratio", "looked into", "ratio");
    for version in ["--http1.1", "--http2"] {
        for (name, what, count) in [("1 KB", "many", MANY as f64), ("100 MB", "large", 1.0)] {
            let large = format!("{url}/large");
            let curl = |trusts: bool| {
                let mut words = own(&["curl", "-sS", version, "-w", "%{time_total}\\n"]);
                words.extend(match what {
                    "many" => own(&["-K", "many"]),
                    _ => own(&["-o", "/dev/null", &large]),
                });
                // The client of a host that is looked into trusts the certificate of the run.
                if !trusts {
                    words.extend(own(&["--cacert", "ca.pem"]));
                }
                words
            };
            let net = format!("hosts={host}");
            let listed = own(&["--profile", "read", "--net", &net, "--"]);
            let ruled = own(&["--config", "rules.toml", "--"]);
            let contestants =
                [curl(false), [run.clone(), listed, curl(false)].concat(), [run.clone(), ruled, curl(true)].concat()];
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..rounds + 1 {
                for (words, times) in contestants.iter().zip(&mut times) {
                    let took = timed(words, dir);
                    if round > 0 {
                        times.push(took * 1000.0 / count);
                    }
                }
            }
            let [direct, plain, ruled] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            });
            println!(
                "{:22} {direct:8.2} {plain:12.2} {:8.2} {ruled:12.2} {:8.2}",
                format!("{}, {name}", version.trim_start_matches("--")),
                plain / direct,
                ruled / direct
            );
        }
    }
}
