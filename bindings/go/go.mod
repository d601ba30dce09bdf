module gatekeeper.example/sandbox

go 1.19
