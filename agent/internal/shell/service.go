// Package shell keeps one shell for many commands: POST /shell of docs/reference/agent-protocol.md. The directory,
// variables, functions and jobs last from one command to the next, as they do for a person at a prompt.
//
//	run frame ──▶ script ──▶ standard input of the shell
//	                         status pipe ──▶ report: the command's status, jobs in the background
//	stdout, stderr ──▶ two pumps ──▶ answer
//	report ──▶ output left in both pipes ──▶ done frame ──▶ the next run frame is read
//
// The shell runs without a terminal. It reads a script that only the agent writes; see dialect for how commands are
// kept apart from the script.
package shell

import (
	"context"
	"net/http"
	"os"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/stream"
)

// Service runs shells.
type Service struct {
	guest     *guest.State
	launcher  *process.Launcher
	hostMoved func(context.Context) bool
	// onlySh makes tests use /bin/sh, as in images without bash.
	onlySh bool
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

// Open answers POST /shell.
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
	place, err := process.ParsePlace(payload)
	if err != nil {
		return err
	}
	started, err := s.launch(r.Context(), place, settings)
	if err != nil {
		return err
	}
	open, err := newSession(started, w, r, frames)
	if err != nil {
		started.abandon()
		return err
	}
	open.attend(r.Context(), s.hostMoved)
	return nil
}

// shell is a started shell and the agent's ends of its pipes.
type shell struct {
	child                          *reap.Child
	dialect                        dialect
	stdout, stderr, script, status *os.File
}

func (s *Service) launch(ctx context.Context, place process.Place, settings guest.Settings) (*shell, error) {
	plan, err := s.launcher.Plan(place, settings, nil)
	if err != nil {
		return nil, err
	}
	program, isBash := plan.FindShell()
	if isBash {
		program.Argv = append(program.Argv, "--norc", "--noprofile")
	}
	if s.onlySh {
		program, isBash = plan.SystemShell(), false
	}
	pipes, err := process.OpenPipes(process.FromChild, process.FromChild, process.ToChild, process.FromChild)
	if err != nil {
		return nil, err
	}
	child, err := plan.Start(ctx, program, filesOf(pipes), false)
	pipes.CloseChildEnds()
	if err != nil {
		pipes.CloseAgentEnds()
		return nil, err
	}
	return &shell{
		child: child, dialect: dialect{bash: isBash},
		stdout: pipes[0].Agent, stderr: pipes[1].Agent, script: pipes[2].Agent, status: pipes[3].Agent,
	}, nil
}

// filesOf returns the descriptors of the shell. Those between standard error and the status pipe stay closed.
func filesOf(pipes process.Pipes) []uintptr {
	files := make([]uintptr, statusDescriptor+1)
	for i := range files {
		files[i] = ^uintptr(0)
	}
	files[0], files[1], files[2] = uintptr(pipes[2].Child), uintptr(pipes[0].Child), uintptr(pipes[1].Child)
	files[statusDescriptor] = uintptr(pipes[3].Child)
	return files
}

// abandon kills a shell whose start has not been answered yet.
func (s *shell) abandon() {
	s.child.KillGroup()
	for _, file := range []*os.File{s.stdout, s.stderr, s.script, s.status} {
		process.CloseLogged(file)
	}
}
