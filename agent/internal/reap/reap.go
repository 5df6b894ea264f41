// Package reap is the only place where the agent starts and reaps processes.
//
// As PID 1 the agent inherits every orphan of the guest. wait4(-1) would also take the exit status of the agent's own
// children. So there is one reaper, and it puts a child into its table under the same lock under which it collects
// zombies:
//
//	Start:  lock · fork+exec · table[pid] = child · unlock
//	Run:    waitid(P_ALL, WNOWAIT) sleeps until there is a zombie, without reaping it
//	        lock · wait4(-1, WNOHANG) until none is left, each status to its child or nowhere · unlock
//	Signal: lock · kill(-pid) only if the child is still in the table · unlock
//
// So no status is lost, and a process group is never signalled after its number may have been reused. The agent must
// not use os/exec as well.
package reap

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrEnded means that the process has ended and can no longer be signalled.
var ErrEnded = errors.New("process has ended")

// Reaper starts processes and collects all zombies of this process.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Child
	started  chan struct{}
}

// Child is a started process, leader of its own session and process group.
type Child struct {
	reaper *Reaper
	pid    int
	ended  chan struct{}
	status syscall.WaitStatus
}

// New returns a Reaper whose Run must be called once.
func New() *Reaper {
	return &Reaper{children: map[int]*Child{}, started: make(chan struct{}, 1)}
}

// Start runs a program in its own session.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sys := syscall.SysProcAttr{}
	if attr.Sys != nil {
		sys = *attr.Sys
	}
	sys.Setsid = true
	own := *attr
	own.Sys = &sys
	pid, err := syscall.ForkExec(path, argv, &own)
	// A failed exec leaves a zombie that ForkExec reaps itself or that Run finds.
	if err != nil {
		return nil, err
	}
	child := &Child{reaper: r, pid: pid, ended: make(chan struct{})}
	r.children[pid] = child
	select {
	case r.started <- struct{}{}:
	default:
	}
	return child, nil
}

// Run collects zombies forever. It sleeps in the kernel and costs nothing while no process ends.
func (r *Reaper) Run() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			r.collect()
		case errors.Is(err, unix.ECHILD):
			// Without children there are no descendants, so no zombie can appear before the next Start.
			<-r.started
		case !errors.Is(err, unix.EINTR):
			slog.Error("waitid failed", "error", err)
			time.Sleep(time.Second)
		}
	}
}

func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if child, ours := r.children[pid]; ours {
			delete(r.children, pid)
			child.status = syscall.WaitStatus(status)
			close(child.ended)
		}
	}
}

// Ended returns a channel that is closed when the process has ended and its status is known.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Status returns the child's status. It is valid once Ended is closed.
func (c *Child) Status() syscall.WaitStatus { return c.status }

// SignalGroup signals the child's whole process group, or returns ErrEnded.
func (c *Child) SignalGroup(signal syscall.Signal) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if _, running := c.reaper.children[c.pid]; !running {
		return ErrEnded
	}
	return unix.Kill(-c.pid, signal)
}

// KillGroup kills the child's whole process group, if the child still runs.
func (c *Child) KillGroup() {
	if err := c.SignalGroup(syscall.SIGKILL); err != nil && !errors.Is(err, ErrEnded) {
		slog.Error("process group not killed", "error", err)
	}
}

// Pid returns the number of the child, which is also that of its process group and session. The number may be reused
// once the child has ended.
func (c *Child) Pid() int { return c.pid }

// AnyProcess reports whether the guest runs anything except the agent: every process descends from PID 1, so without
// children there is none.
func AnyProcess() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != unix.ECHILD
}
