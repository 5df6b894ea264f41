package files

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	// maxDepth limits the open directories of a walk.
	maxDepth = 512
	// walkBatch limits the names that a walk holds of each open directory, which may have millions.
	walkBatch = 256
	// changeLimit is below the runner's limit for an answer of the agent.
	changeLimit = 45 * time.Second
)

// node is a file below the top of a walk. Its name is relative to an open directory: a process of the guest may replace
// any directory by a symlink in the meantime, and that must not lead the walk out of the tree.
type node struct {
	directory *os.File
	name      string
	// path is relative to the top.
	path string
	stat unix.Stat_t
}

func (n *node) at() int { return int(n.directory.Fd()) }

func (n *node) isDirectory() bool { return n.stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// walk visits the files of a tree, each directory before and after what is in it. Files that are removed during the walk
// are left out.
type walk struct {
	context context.Context
	enter   func(n *node) (descend bool, err error)
	// leave may be nil. It gets the directories that enter has descended into.
	leave func(n *node) error
	// count is the number of files that have been entered.
	count int
}

func (w *walk) below(directory *os.File, relative string, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.FileError, "%s: directories are nested more than %d deep; use a command instead", relative, maxDepth)
	}
	for {
		names, err := directory.Readdirnames(walkBatch)
		for _, name := range names {
			if err := w.visit(&node{directory: directory, name: name, path: path.Join(relative, name)}, depth); err != nil {
				return err
			}
		}
		// The kernel says ENOENT for a directory that is gone.
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fault.FromFile("cannot list "+relative, err)
		}
	}
}

func (w *walk) visit(n *node, depth int) error {
	if err := w.context.Err(); err != nil {
		return err
	}
	err := unix.Fstatat(n.at(), n.name, &n.stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fault.FromFile("cannot read "+n.path, err)
	}
	w.count++
	descend, err := w.enter(n)
	if err != nil || !descend {
		return err
	}
	opened, err := openAt(n.at(), n.name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return fault.FromFile("cannot open "+n.path, err)
	}
	err = w.below(opened, n.path, depth+1)
	closeLogged(opened)
	if err != nil || w.leave == nil {
		return err
	}
	return w.leave(n)
}

// explain turns the end of a walk's time into an error with a remedy.
func (w *walk) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.FileError, "not complete after %v and %d files; send the request again to continue", changeLimit, w.count)
	}
	return err
}
