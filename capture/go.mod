module coppice/capture

go 1.23.0

require golang.org/x/sys v0.33.0
