// Package execution runs commands: POST /exec of docs/reference/agent-protocol.md.
//
// One request has these parts, and ends when the shell has ended and its output is out:
//
//	request body ──▶ input ──▶ stdin, signals to the process group
//	stdout, stderr ──▶ two pumps ──▶ answer (frames, in one stream)
//	timer, reset of the stream ──▶ SIGKILL to the process group
//
// Nothing is buffered but one chunk for each pipe: a client that does not read stops the process by a full pipe.
package execution

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/workload"
)

// headLimit is how long a client may take to say what to run.
const headLimit = 30 * time.Second

// timeoutExitCode is what timeout(1) answers with, too.
const timeoutExitCode = 124

// Service runs commands in the guest's root.
type Service struct {
	reaper *reap.Reaper
	guest  *guest.State
	null   *os.File
	root   string
	shell  string
	// workload is where commands run.
	workload *workload.Group
	// hostMoved tells the end of a whole session from a client that left.
	hostMoved func(context.Context) bool
}

// Options are what a Service needs. Null is an open /dev/null: the guest can put something else in its place.
type Options struct {
	Reaper    *reap.Reaper
	Guest     *guest.State
	Null      *os.File
	Root      string
	Workload  *workload.Group
	HostMoved func(context.Context) bool
}

// New makes a Service.
func New(o Options) *Service {
	return &Service{
		reaper: o.Reaper, guest: o.Guest, null: o.Null, root: o.Root, shell: "/bin/sh", workload: o.Workload, hostMoved: o.HostMoved,
	}
}

// Exec answers POST /exec.
func (s *Service) Exec(w http.ResponseWriter, r *http.Request) error {
	settings, err := s.guest.Get()
	if err != nil {
		return err
	}
	frames := frame.NewReader(r.Body)
	h, err := readHead(w, frames)
	if err != nil {
		return err
	}
	started, err := s.launch(h, settings)
	if err != nil {
		return err
	}
	return s.attend(w, r, frames, started)
}

func readHead(w http.ResponseWriter, frames *frame.Reader) (head, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(headLimit)); err != nil {
		return head{}, err
	}
	kind, _, err := frames.Next()
	if err != nil {
		return head{}, fault.Invalid("body: the head frame is missing or broken: %v", err)
	}
	if kind != frame.Head {
		return head{}, fault.Invalid("body: the first frame must be the head (type 0), not type %d", kind)
	}
	payload, err := frames.ReadPayload()
	if err != nil {
		return head{}, fault.Invalid("body: broken off inside the head frame: %v", err)
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return head{}, err
	}
	return parseHead(payload)
}

// attend sees a started process through. It never fails: the status has been sent.
func (s *Service) attend(w http.ResponseWriter, r *http.Request, frames *frame.Reader, p *process) error {
	reply := newAnswer(w)
	reply.begin()
	stdout, outErr := newPump(frame.Stdout, p.stdout, reply)
	stderr, errErr := newPump(frame.Stderr, p.stderr, reply)
	if err := errors.Join(outErr, errErr); err != nil {
		kill(p.child)
		return err
	}
	go stdout.run()
	go stderr.run()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		newInput(frames, p).run()
	}()
	timedOut := s.guard(r.Context(), p)

	stdout.stop()
	stderr.stop()
	<-stdout.sent
	<-stderr.sent
	reply.send(frame.Encode(frame.Exit, encodeExit(p.child.Status(), timedOut)))
	s.endInput(r.Body, p, fed)
	return nil
}

// guard waits for the end of the shell. The group is killed when its time is up or its client has left; when the
// host side has moved it goes on, with nobody to listen.
func (s *Service) guard(ctx context.Context, p *process) (timedOut bool) {
	stopWatching := context.AfterFunc(ctx, func() {
		if !s.hostMoved(ctx) {
			kill(p.child)
		}
	})
	defer stopWatching()
	var elapsed atomic.Bool
	if p.timeout > 0 {
		timer := time.AfterFunc(p.timeout, func() {
			elapsed.Store(true)
			kill(p.child)
		})
		defer timer.Stop()
	}
	<-p.child.Ended()
	// A shell that ended by itself just as the time was up keeps its own exit code.
	return elapsed.Load() && p.child.Status().Signaled() && p.child.Status().Signal() == syscall.SIGKILL
}

func kill(child *reap.Child) {
	if err := child.SignalGroup(syscall.SIGKILL); err != nil && !errors.Is(err, reap.ErrEnded) {
		slog.Error("process group not killed", "error", err)
	}
}

// endInput ends the reading of a body that its client may keep open for ever.
func (s *Service) endInput(body io.Closer, p *process, fed <-chan struct{}) {
	if err := body.Close(); err != nil {
		slog.Debug("close of a request body", "error", err)
	}
	if p.stdin != nil {
		closeLogged(p.stdin)
	}
	<-fed
}

type exitFrame struct {
	ExitCode int  `json:"exit_code"`
	TimedOut bool `json:"timed_out"`
	Signal   int  `json:"signal,omitempty"`
}

func exitOf(status syscall.WaitStatus, timedOut bool) exitFrame {
	switch {
	case timedOut:
		return exitFrame{ExitCode: timeoutExitCode, TimedOut: true}
	case status.Signaled():
		return exitFrame{ExitCode: 128 + int(status.Signal()), Signal: int(status.Signal())}
	default:
		return exitFrame{ExitCode: status.ExitStatus()}
	}
}

func encodeExit(status syscall.WaitStatus, timedOut bool) []byte {
	payload, err := json.Marshal(exitOf(status, timedOut))
	if err != nil {
		panic("exit frame: " + err.Error())
	}
	return payload
}
