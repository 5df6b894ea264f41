// Package workload keeps the guest's programs in their own control group, so that the agent has its share of the
// processor and of processes whatever they do: a fork bomb would otherwise leave it one part in a thousand.
//
//	/sys/fs/cgroup            agent, kernel threads
//	/sys/fs/cgroup/workload   every command and its descendants
//
// The group also stops all programs while the machine is saved: see Freeze. It is not a security boundary: root in the
// guest can leave the group, but harms only its own sandbox.
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
	// Programs may use 1/tasksDivisor of the tasks that the kernel allows: it allows a task for each 128 KiB of memory,
	// and the smallest shell takes more. Otherwise a fork bomb would fill the memory first, and the kernel could kill
	// any process.
	tasksDivisor = 2
	// leastTasks is the minimum, for guests that are very small.
	leastTasks = 128
)

// Group is the control group in which commands are started. A nil Group means that there is none: commands run in the
// agent's group.
type Group struct {
	hierarchy string
	mu        sync.Mutex
	root      *os.File // the hierarchy, even if root in the guest mounts something on its path later
	directory *os.File
	frozen    []string // names below root for which Freeze has requested a freeze
}

// Open creates the group. It returns nil, and logs the reason, if the kernel does not have these controllers.
func Open() *Group {
	group := &Group{hierarchy: hierarchy}
	if err := group.make(); err != nil {
		slog.Warn("commands run without a control group", "error", err)
		return nil
	}
	return group
}

// Place makes the process that is started with attr begin in the group. It creates the group again if the guest has
// removed it.
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
