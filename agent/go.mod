module coppice/agent

go 1.23.0

require (
	golang.org/x/net v0.40.0
	golang.org/x/sys v0.33.0
)

require golang.org/x/text v0.25.0 // indirect
