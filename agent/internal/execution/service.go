// Package execution runs commands: POST /exec of docs/reference/agent-protocol.md.
//
// One request has these parts. It ends when the shell has ended and its output has been sent:
//
//	request body ──▶ input ──▶ stdin, signals to the process group
//	stdout, stderr ──▶ two pumps ──▶ answer (frames, in one stream)
//	timer, reset of the stream ──▶ SIGKILL to the process group
//
// Only one chunk for each pipe is buffered: if a client does not read, the full pipe stops the process.
package execution

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/stream"
)

// Service runs commands in the guest's root.
type Service struct {
	guest    *guest.State
	launcher *process.Launcher
	null     *os.File
	// hostMoved distinguishes the end of a whole session from a client that left.
	hostMoved func(context.Context) bool
}

// Options are what a Service needs. Null is an open /dev/null: the guest can put something else in its place.
type Options struct {
	Guest     *guest.State
	Launcher  *process.Launcher
	Null      *os.File
	HostMoved func(context.Context) bool
}

// New returns a Service.
func New(o Options) *Service {
	return &Service{guest: o.Guest, launcher: o.Launcher, null: o.Null, hostMoved: o.HostMoved}
}

// Exec answers POST /exec.
func (s *Service) Exec(w http.ResponseWriter, r *http.Request) error {
	return s.serve(w, r, func(payload []byte, settings guest.Settings) (*command, error) {
		h, err := parseHead(payload)
		if err != nil {
			return nil, err
		}
		plan, err := s.launcher.Plan(h.place, settings, nil)
		if err != nil {
			return nil, err
		}
		started, err := plan.StartPiped(r.Context(), plan.RunInShell(h.Command), s.null, h.Stdin)
		return &command{Piped: started, timeout: time.Duration(h.TimeoutMs) * time.Millisecond}, err
	})
}

// leaveGrace is the time that a program of the agent has to end after its client has left.
const leaveGrace = 2 * time.Second

// ServeProgram runs a program of the agent as POST /exec runs a command. first is the beginning of its input; it must fit
// into a pipe. When the client leaves or the host side moves, the program's input ends. Then the program has to end, too.
func (s *Service) ServeProgram(w http.ResponseWriter, r *http.Request, program process.Program, first []byte) error {
	return s.serve(w, r, func(payload []byte, settings guest.Settings) (*command, error) {
		place, err := process.ParsePlace(payload)
		if err != nil {
			return nil, err
		}
		plan, err := s.launcher.Plan(place, settings, nil)
		if err != nil {
			return nil, err
		}
		started, err := plan.StartPiped(r.Context(), program, s.null, true)
		if err != nil {
			return nil, err
		}
		if _, err := started.Stdin.Write(first); err != nil {
			started.Child.KillGroup()
			process.CloseLogged(started.Stdin)
			process.CloseLogged(started.Stdout)
			process.CloseLogged(started.Stderr)
			return nil, err
		}
		return &command{Piped: started, grace: leaveGrace}, nil
	})
}

func (s *Service) serve(
	w http.ResponseWriter, r *http.Request, start func(payload []byte, settings guest.Settings) (*command, error),
) error {
	settings, err := s.guest.Get()
	if err != nil {
		return err
	}
	frames := frame.NewReader(r.Body)
	payload, err := stream.ReadHead(w, frames)
	if err != nil {
		return err
	}
	started, err := start(payload, settings)
	if err != nil {
		return err
	}
	return s.attend(w, r, frames, started)
}

// command is a started command.
type command struct {
	*process.Piped
	timeout time.Duration
	// grace is set for a program of the agent, which has no purpose without its client.
	grace time.Duration
}

// attend sends the status and serves a started process until its end.
func (s *Service) attend(w http.ResponseWriter, r *http.Request, frames *frame.Reader, p *command) error {
	reply := stream.NewAnswer(w)
	pumps, err := stream.NewPumps(p.Stdout, p.Stderr, reply)
	if err != nil {
		p.Child.KillGroup()
		return err
	}
	reply.Begin()
	pumps.Start()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		newInput(frames, p).run()
	}()
	timedOut := s.guard(r.Context(), p)

	pumps.Finish()
	reply.Send(stream.ExitOf(p.Child.Status(), timedOut).Frame())
	s.endInput(r.Body, p, fed)
	return nil
}

// guard waits for the end of the shell. It kills the group when the time is up or the client has left. If the host side
// has moved, a command continues without a client.
func (s *Service) guard(ctx context.Context, p *command) (timedOut bool) {
	stopWatching := context.AfterFunc(ctx, func() {
		switch {
		case p.grace > 0:
			process.LimitTime(p.Child, p.grace)
		case !s.hostMoved(ctx):
			p.Child.KillGroup()
		}
	})
	defer stopWatching()
	limit := process.LimitTime(p.Child, p.timeout)
	<-p.Child.Ended()
	return limit.End()
}

// endInput stops reading a body that its client may keep open forever.
func (s *Service) endInput(body io.Closer, p *command, fed <-chan struct{}) {
	if err := body.Close(); err != nil {
		slog.Debug("close of a request body", "error", err)
	}
	if p.Stdin != nil {
		process.CloseLogged(p.Stdin)
	}
	<-fed
}
