package execution

import (
	"context"
	"os"
	"time"

	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
)

// command is a started command and the agent's ends of its pipes.
type command struct {
	child          *reap.Child
	timeout        time.Duration
	stdin          *os.File // nil if standard input is /dev/null
	stdout, stderr *os.File
}

// launch starts the command of h. An error means that nothing runs.
func (s *Service) launch(ctx context.Context, h head, settings guest.Settings) (*command, error) {
	plan, err := s.launcher.Plan(h.place, settings, nil)
	if err != nil {
		return nil, err
	}
	ways := []process.Direction{process.FromChild, process.FromChild}
	if h.Stdin {
		ways = append(ways, process.ToChild)
	}
	pipes, err := process.OpenPipes(ways...)
	if err != nil {
		return nil, err
	}
	started := &command{
		timeout: time.Duration(h.TimeoutMs) * time.Millisecond, stdout: pipes[0].Agent, stderr: pipes[1].Agent,
	}
	stdin := s.null.Fd()
	if h.Stdin {
		started.stdin, stdin = pipes[2].Agent, uintptr(pipes[2].Child)
	}
	files := []uintptr{stdin, uintptr(pipes[0].Child), uintptr(pipes[1].Child)}
	started.child, err = plan.Start(ctx, plan.RunInShell(h.Command), files, false)
	pipes.CloseChildEnds()
	if err != nil {
		pipes.CloseAgentEnds()
		return nil, err
	}
	return started, nil
}
