package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Container engines put overlays of their own on the directories where they keep layers. The kernel refuses that on the
// guest's root, which is an overlay itself. So directories of the scratch disk are mounted in these places. They are part
// of the same disk: copies have them, and they count as its content.

// scratchPlaces is the directory of the scratch disk that holds these directories, next to those of the root's overlay.
const scratchPlaces = "places"

// OpenPlace is a directory of the scratch disk that every guest has, for engines that keep their layers elsewhere.
const OpenPlace = "/run/coppice/scratch"

// stores are the directories of the engines. An engine's directory is mounted only if the image has the engine, and has
// nothing in the directory.
var stores = []struct{ program, directory string }{
	{"dockerd", "var/lib/docker"},
	{"containerd", "var/lib/containerd"},
}

var programDirectories = []string{"usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin"}

// mountStores mounts the directories of the engines that the image in root has. A guest without them is better than none,
// so failures are only logged.
func mountStores(scratch, root string) {
	for _, store := range stores {
		if !hasProgram(root, store.program) {
			continue
		}
		if err := mountStore(scratch, root, store.directory); err != nil {
			slog.Warn("a directory stays on the root's overlay", "directory", store.directory, "error", err)
		}
	}
}

func hasProgram(root, name string) bool {
	for _, directory := range programDirectories {
		if found, err := isProgram(root, "/"+directory+"/"+name); found && err == nil {
			return true
		}
	}
	return false
}

var errNotEmpty = errors.New("the image has files there")

func mountStore(scratch, root, directory string) error {
	target := filepath.Join(root, directory)
	if err := ensureUnlinked(root, directory); err != nil {
		return err
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return errNotEmpty
	}
	return mountPlace(filepath.Join(scratch, scratchPlaces, filepath.Base(directory)), target)
}

// ensureUnlinked creates the directory below root if it is missing. It refuses a path with a symlink of the image, which
// could lead out of root.
func ensureUnlinked(root, directory string) error {
	path := root
	for _, name := range strings.Split(directory, "/") {
		path = filepath.Join(path, name)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", strings.TrimPrefix(path, root))
		}
	}
	return nil
}

// mountPlace makes a directory of the scratch disk, which root alone may list, and mounts it at target.
func mountPlace(source, target string) error {
	if err := os.MkdirAll(source, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount on %s: %w", target, err)
	}
	return nil
}

// offerPlace mounts OpenPlace. The root is switched, so the scratch disk is reached by its open directory.
func offerPlace(scratch *os.File) error {
	if err := os.MkdirAll(OpenPlace, 0o755); err != nil {
		return err
	}
	top := fmt.Sprintf("/proc/self/fd/%d", scratch.Fd())
	return mountPlace(filepath.Join(top, scratchPlaces, filepath.Base(OpenPlace)), OpenPlace)
}
