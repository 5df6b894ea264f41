module coppice/agent

go 1.23.0

require (
	github.com/pkg/sftp v1.13.10
	golang.org/x/crypto v0.41.0
	golang.org/x/net v0.42.0
	golang.org/x/sys v0.35.0
)

require (
	github.com/kr/fs v0.1.0 // indirect
	golang.org/x/text v0.28.0 // indirect
)
