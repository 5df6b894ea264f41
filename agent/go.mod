module coppice/agent

go 1.23.0

require (
	github.com/pkg/sftp v1.13.9
	golang.org/x/crypto v0.38.0
	golang.org/x/net v0.40.0
	golang.org/x/sys v0.33.0
)

require (
	github.com/kr/fs v0.1.0 // indirect
	golang.org/x/text v0.25.0 // indirect
)
