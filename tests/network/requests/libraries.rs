//! Clients with trust variables of their own: Ruby, deno, aws, and the gRPC libraries.

use super::clients::{client, file, nothing};
use crate::support::fetched;

#[test]
fn ruby() {
    // Ruby never uses the proxy of the environment for loopback addresses, so the test names it.
    let text = r#"
require "net/http"
require "open-uri"
to, proxy = URI(ARGV[0]), URI(ENV["HTTPS_PROXY"])
http = Net::HTTP.new(to.host, to.port, proxy.host, proxy.port)
http.use_ssl = true
answer = http.get(to.path)
puts answer.body
exit 1 if answer.code != "200"
puts to.open(proxy: proxy).read
"#;
    client("ruby", "ruby", "ruby get.rb URL", file("get.rb", text));
}

#[test]
fn deno() {
    let Some(modules) = fetched::node("@deno/linux-x64-glibc@2") else { return };
    let text = "const r = await fetch(Deno.args[0]); console.log(await r.text()); Deno.exit(r.ok ? 0 : 1);\n";
    let program = modules.join("node_modules/@deno/linux-x64-glibc/deno");
    let line = format!("DENO_DIR=$PWD/deno {} run --quiet --no-check --allow-net get.js URL", program.display());
    client("deno", "node", &line, file("get.js", text));
}

/// An object in a bucket: the path of the URL names both. The request is signed with a key of the command's own.
#[test]
fn aws() {
    let Some(modules) = fetched::python("awscli==1.36.40") else { return };
    let line = format!(
        "url=URL; path=${{url#https://*/}}; AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_EC2_METADATA_DISABLED=true \
         AWS_DEFAULT_REGION=us-east-1 AWS_MAX_ATTEMPTS=1 PYTHONPATH={} /usr/bin/python3 -m awscli s3api get-object \
         --endpoint-url ${{url%/$path}} --bucket ${{path%/*}} --key ${{path#*/}} out && cat out",
        modules.display()
    );
    client("aws", "python3", &line, nothing);
}

/// A call, and a stream in both directions. The service and method are the path.
#[test]
fn grpc_in_python() {
    let Some(modules) = fetched::python("grpcio==1.66.2") else { return };
    let text = r#"
import grpc, sys
host, path = sys.argv[1].removeprefix("https://").split("/", 1)
channel = grpc.secure_channel(host, grpc.ssl_channel_credentials())
print(channel.unary_unary("/" + path)(b"hello", timeout=20).decode())
for part in channel.stream_stream("/" + path)(iter([b"one", b"two"]), timeout=20): print(part.decode())
"#;
    let line = format!("PYTHONPATH={} /usr/bin/python3 call.py URL", modules.display());
    client("grpcio", "python3", &line, file("call.py", text));
}

#[test]
fn grpc_in_node() {
    let Some(modules) = fetched::node("@grpc/grpc-js@1") else { return };
    let text = r#"
const grpc = require(process.env.MODULES + "/node_modules/@grpc/grpc-js"), to = new URL(process.argv[2]);
const same = (bytes) => bytes, client = new grpc.Client(to.host, grpc.credentials.createSsl());
client.makeUnaryRequest(to.pathname, same, same, Buffer.from("hello"), (error, answer) => {
  console.log(error ? "failed: " + error.code : answer.toString());
  process.exit(error ? 1 : 0);
});
"#;
    client("grpc-js", "node", &format!("MODULES={} node call.js URL", modules.display()), file("call.js", text));
}
