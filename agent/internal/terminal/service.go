// Package terminal runs a program on a pseudo-terminal: POST /terminal of docs/reference/agent-protocol.md.
//
//	request body ──▶ input ──▶ master ══ PTY ══ slave: standard input, output and error of the program
//	answer     ◀── pump  ◀── master              controlling terminal of its session
//
//	program ended ──▶ output left in the PTY ──▶ exit frame ──▶ master closed: the rest of the session is hung up
//	client left   ──▶ SIGHUP, master closed ──▶ after 2 s SIGKILL
//	host moved    ──▶ the program continues, its output is read and discarded
package terminal

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/proctable"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/stream"
)

// hangUpGrace is the time that programs have for cleanup after SIGHUP.
const hangUpGrace = 2 * time.Second

// defaults are the variables that programs on a terminal expect. The image and the request may override them.
var defaults = map[string]string{"TERM": "xterm-256color", "LANG": "C.UTF-8"}

// Service opens terminals.
type Service struct {
	guest     *guest.State
	launcher  *process.Launcher
	hostMoved func(context.Context) bool
}

// Options are what a Service needs.
type Options struct {
	Guest     *guest.State
	Launcher  *process.Launcher
	HostMoved func(context.Context) bool
}

// New returns a Service.
func New(o Options) *Service {
	return &Service{guest: o.Guest, launcher: o.Launcher, hostMoved: o.HostMoved}
}

// head is the first frame of a request.
type head struct {
	Command *string `json:"command"`

	window size
	place  process.Place
}

func parseHead(payload []byte) (head, error) {
	var h head
	if err := api.DecodeJSON("head frame", payload, &h); err != nil {
		return head{}, err
	}
	if h.Command != nil {
		if err := process.ValidateCommand(*h.Command); err != nil {
			return head{}, err
		}
	}
	var err error
	if h.window, err = parseSize("head frame", payload); err != nil {
		return head{}, err
	}
	h.place, err = process.ParsePlace(payload)
	return h, err
}

func parseSize(name string, payload []byte) (size, error) {
	var s size
	if err := api.DecodeJSON(name, payload, &s); err != nil {
		return size{}, err
	}
	return s, s.validate()
}

// Open answers POST /terminal.
func (s *Service) Open(w http.ResponseWriter, r *http.Request) error {
	settings, err := s.guest.Get()
	if err != nil {
		return err
	}
	frames := frame.NewReader(r.Body)
	payload, err := stream.ReadHead(w, frames)
	if err != nil {
		return err
	}
	h, err := parseHead(payload)
	if err != nil {
		return err
	}
	t, err := s.launch(r.Context(), h, settings)
	if err != nil {
		return err
	}
	return t.attend(w, r, frames, s.hostMoved)
}

// terminal is an open terminal and its program.
type terminal struct {
	pty   *pty
	child *reap.Child
}

func (s *Service) launch(ctx context.Context, h head, settings guest.Settings) (*terminal, error) {
	plan, err := s.launcher.Plan(h.place, settings, defaults)
	if err != nil {
		return nil, err
	}
	program, _ := plan.FindShell()
	if h.Command != nil {
		program = plan.RunInShell(*h.Command)
	}
	pty, err := openPTY(plan.Who, h.window)
	if err != nil {
		return nil, err
	}
	slave := pty.slave.Fd()
	child, err := plan.Start(ctx, program, []uintptr{slave, slave, slave}, true)
	if err != nil {
		pty.close()
		return nil, err
	}
	return &terminal{pty: pty, child: child}, nil
}

// attend serves a started program until it ends. It fails only before the status has been sent.
func (t *terminal) attend(w http.ResponseWriter, r *http.Request, frames *frame.Reader, hostMoved func(context.Context) bool) error {
	reply := stream.NewAnswer(w)
	output, err := stream.NewTerminalPump(frame.Stdout, t.pty.master, reply)
	if err != nil {
		t.hangUp()
		return err
	}
	reply.Begin()
	go output.Run()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		t.feed(frames)
	}()
	stopWatching := context.AfterFunc(r.Context(), func() {
		if !hostMoved(r.Context()) {
			t.hangUp()
		}
	})
	defer stopWatching()

	<-t.child.Ended()
	output.Stop()
	<-output.Sent()
	reply.Send(stream.ExitOf(t.child.Status(), false).Frame())
	t.pty.close()
	if err := r.Body.Close(); err != nil {
		slog.Debug("close of a request body", "error", err)
	}
	<-fed
	return nil
}

// hangUp does what the kernel does when a line drops. When a master is closed, the kernel signals only the session
// leader; the foreground group gets the signal only when the leader dies of it. Here the foreground group gets it in
// any case.
func (t *terminal) hangUp() {
	foreground := t.pty.foreground()
	t.signal(foreground, unix.SIGHUP)
	t.signal(foreground, unix.SIGCONT)
	t.pty.close()
	time.AfterFunc(hangUpGrace, func() {
		t.child.KillGroup()
		t.signal(foreground, unix.SIGKILL)
	})
}

// signal signals a process group only if it belongs to this session: the number may have been reused.
func (t *terminal) signal(group int, signal unix.Signal) {
	if group == 0 {
		return
	}
	table, err := proctable.List("/proc")
	if err != nil {
		slog.Error("cannot list the processes of a terminal", "error", err)
		return
	}
	for _, p := range table {
		if p.Group == group && p.Session == t.child.Pid() {
			if err := unix.Kill(-group, signal); err != nil {
				slog.Debug("foreground process group not signalled", "group", group, "error", err)
			}
			return
		}
	}
}
