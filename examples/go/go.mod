module gatekeeper.example/tools

go 1.19

require gatekeeper.example/sandbox v0.2.0

replace gatekeeper.example/sandbox => ../../bindings/go
