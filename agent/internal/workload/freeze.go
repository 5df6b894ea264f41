package workload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxGroups bounds the groups that root in the guest may have made next to the workload group.
	maxGroups = 64
	// eventsBytes is enough for a whole cgroup.events.
	eventsBytes = 256
	// lookAgainMs is how often the state is read without an event: the kernel delays an event for 10 ms after another
	// one, and reports none for a file that the guest has removed.
	lookAgainMs = 1
)

// Freeze asks the kernel to stop every process of the workload group, and of the groups that root in the guest has made
// next to it, as container engines do, including all nested groups. It leaves alone a group that the guest has frozen
// itself. A repeated call finds new groups.
func (g *Group) Freeze() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names, err := g.list()
	failures := []error{err}
	for _, one := range names {
		failures = append(failures, g.freeze(one))
	}
	return errors.Join(failures...)
}

func (g *Group) freeze(group string) error {
	isNew := !slices.Contains(g.frozen, group)
	if isNew && group != name && g.isFreezing(group) {
		return nil
	}
	err := g.setFreeze(group, "1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && isNew {
		g.frozen = append(g.frozen, group)
	}
	return err
}

// AwaitFrozen waits, at most until the given time, and reports whether every group that Freeze was asked to stop is
// frozen.
func (g *Group) AwaitFrozen(until time.Time) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	names := slices.Clone(g.frozen)
	g.mu.Unlock()
	if !slices.Contains(names, name) {
		return false
	}
	for _, one := range names {
		events, err := g.open(one, "cgroup.events", unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) && one != name {
			continue
		}
		if err != nil {
			return false
		}
		frozen := awaitFrozen(events, until)
		_ = events.Close()
		if !frozen {
			return false
		}
	}
	return true
}

// Thaw undoes what Freeze has requested. Groups that are gone need no thaw. If the thaw of a group fails, the next call
// tries again.
func (g *Group) Thaw() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var failures []error
	var left []string
	for _, one := range g.frozen {
		if err := g.setFreeze(one, "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
			left = append(left, one)
		}
	}
	g.frozen = left
	return errors.Join(failures...)
}

// list returns the names of the groups below the root, the workload group first.
func (g *Group) list() ([]string, error) {
	if _, err := g.root.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	entries, err := g.root.ReadDir(-1)
	names := []string{name}
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == name {
			continue
		}
		if len(names) == maxGroups {
			return names, fmt.Errorf("there are more than %d control groups; the others are not frozen", maxGroups)
		}
		names = append(names, entry.Name())
	}
	return names, err
}

func (g *Group) isFreezing(group string) bool {
	file, err := g.open(group, "cgroup.freeze", unix.O_RDONLY)
	if err != nil {
		return false
	}
	var state [1]byte
	n, err := file.Read(state[:])
	_ = file.Close()
	return err == nil && n == 1 && state[0] == '1'
}

func (g *Group) setFreeze(group, value string) error {
	file, err := g.open(group, "cgroup.freeze", unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// open stays in the hierarchy: a path could lead to a FIFO that root in the guest has put there to block the agent.
func (g *Group) open(group, file string, flags uint64) (*os.File, error) {
	path := group + "/" + file
	how := &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(g.root.Fd()), path, how)
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// awaitFrozen sleeps until the kernel reports a change, so that the processes to be stopped get the processor and can
// stop.
func awaitFrozen(events *os.File, until time.Time) bool {
	buffer := make([]byte, eventsBytes)
	poll := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
	for {
		n, err := events.ReadAt(buffer, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		if isFrozen(string(buffer[:n])) {
			return true
		}
		if !time.Now().Before(until) {
			return false
		}
		if _, err := unix.Poll(poll, lookAgainMs); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

func isFrozen(events string) bool {
	return slices.Contains(strings.Split(events, "\n"), "frozen 1")
}
