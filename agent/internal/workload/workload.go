// Package workload keeps the guest's programs in a control group of their own, so that the agent has its share of
// processor and processes whatever they do: a fork bomb would otherwise leave it one part in a thousand.
//
//	/sys/fs/cgroup            agent, kernel threads
//	/sys/fs/cgroup/workload   every command and its descendants
//
// The group is also what stops them all while the machine is saved: see Freeze. It is no boundary: root in the guest can
// leave the group, and harms nobody but its own sandbox.
package workload

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	hierarchy   = "/sys/fs/cgroup"
	name        = "workload"
	controllers = "+cpu +pids"
	// tasksDivisor of what the kernel admits are left to programs: it allows a task for each 128 KiB of memory, and the
	// smallest shell takes more. Otherwise a fork bomb would fill the memory first, and the kernel would end what it likes.
	tasksDivisor = 2
	// leastTasks are for guests that are very small.
	leastTasks = 128
)

// Group is where commands are started. Nil stands for none: commands run where the agent does.
type Group struct {
	hierarchy string
	mu        sync.Mutex
	root      *os.File // the hierarchy, whatever root in the guest mounts on its path later
	directory *os.File
	frozen    []string // names below root that Freeze has asked for
}

// Open makes the group. Where the kernel has no such controllers it answers nil, with the reason in the log.
func Open() *Group {
	group := &Group{hierarchy: hierarchy}
	if err := group.make(); err != nil {
		slog.Warn("commands run without a control group", "error", err)
		return nil
	}
	return group
}

// Place makes the process that is started with attr begin its life in the group. A group that the guest has removed is
// made again.
func (g *Group) Place(attr *syscall.SysProcAttr) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := os.Lstat(g.path()); errors.Is(err, fs.ErrNotExist) {
		if err := g.make(); err != nil {
			slog.Warn("the commands' control group is gone", "error", err)
			return
		}
	}
	attr.UseCgroupFD = true
	attr.CgroupFD = int(g.directory.Fd())
}

func (g *Group) path() string { return filepath.Join(g.hierarchy, name) }

func (g *Group) make() error {
	if err := write(filepath.Join(g.hierarchy, "cgroup.subtree_control"), controllers); err != nil {
		return err
	}
	if err := os.Mkdir(g.path(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	tasks, err := readNumber("/proc/sys/kernel/threads-max")
	if err != nil {
		return err
	}
	limit := max(tasks/tasksDivisor, leastTasks)
	if err := write(filepath.Join(g.path(), "pids.max"), strconv.FormatUint(limit, 10)); err != nil {
		return err
	}
	if g.root == nil {
		if g.root, err = os.Open(g.hierarchy); err != nil {
			return err
		}
	}
	directory, err := os.Open(g.path())
	if err != nil {
		return err
	}
	if g.directory != nil {
		_ = g.directory.Close()
	}
	g.directory = directory
	return nil
}

func readNumber(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

func write(path, text string) error {
	return os.WriteFile(path, []byte(text), 0o644)
}
