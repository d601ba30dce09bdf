module gatekeeper.example

go 1.19
