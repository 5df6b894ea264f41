package shell

import (
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/proctable"
	"coppice/agent/internal/reap"
)

// depart kills the shell and its foreground job. Background jobs survive, as after an exec.
//
// With job control, which bash has here, each job is a process group. The shell does not say which group it waits for.
// depart assumes the group of the shell's newest child, unless the last report lists it as a background job. So a job
// that the running command has put into the background is killed if the command has started nothing after it, as in
// "sleep 1000 & wait". Without job control, all processes are in one group and are killed.
func (s *session) depart() {
	s.mu.Lock()
	background, running := s.last.jobs, s.running
	s.mu.Unlock()
	// A stopped shell cannot start another process in the meantime.
	if err := s.child.SignalGroup(unix.SIGSTOP); err != nil {
		if !errors.Is(err, reap.ErrEnded) {
			slog.Error("shell not stopped", "error", err)
		}
		return
	}
	if running && s.dialect.bash {
		s.killForeground(background)
	}
	s.child.KillGroup()
}

func (s *session) killForeground(background map[int]bool) {
	table, err := proctable.List("/proc")
	if err != nil {
		slog.Error("cannot list the processes of a shell", "error", err)
		return
	}
	group := newestGroup(table, s.child.Pid(), background)
	if group == 0 {
		return
	}
	if err := unix.Kill(-group, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		slog.Error("foreground of a shell not killed", "group", group, "error", err)
	}
}

// newestGroup returns the process group of the shell's newest child, or 0. Children in the shell's own group die with
// it.
func newestGroup(table []proctable.Process, shell int, background map[int]bool) int {
	var newest proctable.Process
	for _, p := range table {
		ours := p.Parent == shell && p.Session == shell && p.Group != shell && p.Group > 1
		if !ours || background[p.Group] {
			continue
		}
		if p.StartTicks > newest.StartTicks || (p.StartTicks == newest.StartTicks && p.Pid > newest.Pid) {
			newest = p
		}
	}
	return newest.Group
}
