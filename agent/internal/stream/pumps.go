package stream

import (
	"errors"
	"os"

	"coppice/agent/internal/frame"
)

// Pumps copy standard output and standard error of one process to a sink.
type Pumps struct{ stdout, stderr *Pump }

// NewPumps returns Pumps for the agent's ends of both pipes, which they close.
func NewPumps(stdout, stderr *os.File, to Sink) (*Pumps, error) {
	out, outErr := NewPump(frame.Stdout, stdout, to)
	err, errErr := NewPump(frame.Stderr, stderr, to)
	return &Pumps{stdout: out, stderr: err}, errors.Join(outErr, errErr)
}

// Start begins to copy.
func (p *Pumps) Start() {
	go p.stdout.Run()
	go p.stderr.Run()
}

// Finish returns when everything has been sent that is in the pipes now. Call it when the process has ended.
func (p *Pumps) Finish() {
	p.stdout.Stop()
	p.stderr.Stop()
	<-p.stdout.Sent()
	<-p.stderr.Sent()
}
