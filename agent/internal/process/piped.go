package process

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"coppice/agent/internal/reap"
)

// Piped is a started program and the agent's ends of its pipes.
type Piped struct {
	Child          *reap.Child
	Stdin          *os.File // nil if standard input is /dev/null
	Stdout, Stderr *os.File
}

// StartPiped runs a program with pipes. An error means that nothing runs. null is an open /dev/null.
func (p *Plan) StartPiped(ctx context.Context, program Program, null *os.File, hasStdin bool) (*Piped, error) {
	ways := []Direction{FromChild, FromChild}
	if hasStdin {
		ways = append(ways, ToChild)
	}
	pipes, err := OpenPipes(ways...)
	if err != nil {
		return nil, err
	}
	started := &Piped{Stdout: pipes[0].Agent, Stderr: pipes[1].Agent}
	stdin := null.Fd()
	if hasStdin {
		started.Stdin, stdin = pipes[2].Agent, uintptr(pipes[2].Child)
	}
	files := []uintptr{stdin, uintptr(pipes[0].Child), uintptr(pipes[1].Child)}
	started.Child, err = p.Start(ctx, program, files, false)
	pipes.CloseChildEnds()
	if err != nil {
		pipes.CloseAgentEnds()
		return nil, err
	}
	return started, nil
}

// TimeLimit kills the process group of a child when its time is up.
type TimeLimit struct {
	child   *reap.Child
	timer   *time.Timer
	elapsed atomic.Bool
}

// LimitTime starts a limit. 0 is none.
func LimitTime(child *reap.Child, limit time.Duration) *TimeLimit {
	l := &TimeLimit{child: child}
	if limit > 0 {
		l.timer = time.AfterFunc(limit, func() {
			l.elapsed.Store(true)
			child.KillGroup()
		})
	}
	return l
}

// End is called when the child has ended, and reports whether its time was up. A shell that ended by itself just then
// keeps its own exit code.
func (l *TimeLimit) End() bool {
	if l.timer == nil {
		return false
	}
	l.timer.Stop()
	status := l.child.Status()
	return l.elapsed.Load() && status.Signaled() && status.Signal() == syscall.SIGKILL
}
