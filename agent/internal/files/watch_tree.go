package files

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	// maxWatchedDirectories limits the memory that one watch takes of the kernel's and the agent's.
	maxWatchedDirectories = 8192
	changesIn             = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// changesOf the top end the watch. Those of other directories are reported by their parents.
	changesOf = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

var errTooManyDirectories = errors.New("too many directories")

// watch is an inotify queue with the paths of its directories.
//
//	kernel's queue (bounded) ──▶ read ──▶ events ──▶ lines, at the speed of the client
//	                              └─ new directories, of a recursive watch ──▶ kernel
type watch struct {
	context   context.Context
	queue     *os.File
	raw       syscall.RawConn
	top       string
	topID     int32
	recursive bool
	paths     map[int32]string
	lines     *eventLines
	// moved is the first half of a rename.
	moved *movedFile
}

type movedFile struct {
	cookie      uint32
	path        string
	isDirectory bool
}

func openWatch(ctx context.Context, top string, recursive bool) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fault.FromFile("cannot watch "+top, err)
	}
	w := &watch{context: ctx, queue: os.NewFile(uintptr(fd), "inotify"), top: top, recursive: recursive, paths: map[int32]string{}}
	if err := w.begin(); err != nil {
		closeLogged(w.queue)
		return nil, err
	}
	return w, nil
}

func (w *watch) begin() error {
	raw, err := w.queue.SyscallConn()
	if err != nil {
		return err
	}
	w.raw = raw
	id, err := w.add(w.top, changesIn|changesOf)
	if errors.Is(err, unix.ENOTDIR) {
		return fault.Invalid("path: %s is not a directory; watch the directory that contains it", w.top)
	}
	if err != nil {
		return w.explain(err)
	}
	w.topID = id
	return w.explain(w.addBelow(w.top, func(event) error { return nil }))
}

func (w *watch) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTooManyDirectories):
		return fault.Invalid("recursive: there are more than %d directories below %s; watch fewer", maxWatchedDirectories, w.top)
	case errors.Is(err, unix.ENOSPC):
		return fault.Invalid("recursive: the sandbox's kernel allows no more watches; watch fewer directories")
	}
	return fault.FromFile("cannot watch "+w.top, err)
}

// add returns the id of the watch of a directory. The kernel returns the same id again for the same directory.
func (w *watch) add(directory string, mask uint32) (int32, error) {
	var id int
	var failure error
	err := w.raw.Control(func(fd uintptr) {
		id, failure = unix.InotifyAddWatch(int(fd), directory, mask|unix.IN_ONLYDIR|unix.IN_EXCL_UNLINK)
	})
	if err := errors.Join(err, failure); err != nil {
		return 0, err
	}
	if _, isKnown := w.paths[int32(id)]; !isKnown && len(w.paths) >= maxWatchedDirectories {
		w.drop(int32(id))
		return 0, errTooManyDirectories
	}
	w.paths[int32(id)] = directory
	return int32(id), nil
}

// drop ends the watch of a directory. The kernel may have removed it already.
func (w *watch) drop(id int32) {
	_ = w.raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(id)) })
}

// addBelow watches all directories below one, of a recursive watch, and reports everything that is there by then. Other
// file systems are left out.
func (w *watch) addBelow(directory string, found func(event) error) error {
	if !w.recursive {
		return nil
	}
	opened, err := os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if directory == w.top && errors.Is(err, unix.ENOTDIR) {
		// The top may be a symlink.
		opened, err = os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return ignoreGone(err)
	}
	defer closeLogged(opened)
	var stat unix.Stat_t
	if err := unix.Fstat(int(opened.Fd()), &stat); err != nil {
		return err
	}
	search := &walk{context: w.context}
	search.enter = func(n *node) (bool, error) {
		full := path.Join(directory, n.path)
		if err := found(event{Type: eventCreated, Path: full, Directory: n.isDirectory()}); err != nil {
			return false, err
		}
		if !n.isDirectory() || n.stat.Dev != stat.Dev {
			return false, nil
		}
		// A removed directory is left out of the walk, too.
		_, err := w.add(full, changesIn|unix.IN_DONT_FOLLOW)
		return err == nil, ignoreGone(err)
	}
	return search.below(opened, "", 0)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// rename gives the directories below a moved one their new paths.
func (w *watch) rename(from, to string) {
	for id, known := range w.paths {
		if known == from || strings.HasPrefix(known, from+"/") {
			w.paths[id] = to + strings.TrimPrefix(known, from)
		}
	}
}

// forget ends the watches of a directory that was moved out of the tree.
func (w *watch) forget(directory string) {
	for id, known := range w.paths {
		if known == directory || strings.HasPrefix(known, directory+"/") {
			delete(w.paths, id)
			w.drop(id)
		}
	}
}
