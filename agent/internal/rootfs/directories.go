package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
)

// EnsureDirectories creates the directories of every sandbox that the image lacks: /etc, /tmp, /home, /workspace and
// the working directory. Directories of the image keep their owner and mode. A symlink to a directory counts as a
// directory.
func EnsureDirectories(root, workdir string, user account.Identity) error {
	for _, wanted := range []struct {
		name  string
		mode  uint32
		owner account.Identity
	}{
		{"etc", 0o755, account.Identity{}},
		{"tmp", 0o1777, account.Identity{}},
		{"home", 0o755, account.Identity{}},
		{"workspace", 0o755, user},
	} {
		if err := ensureOwned(filepath.Join(root, wanted.name), wanted.mode, wanted.owner); err != nil {
			return err
		}
	}
	err := os.MkdirAll(filepath.Join(root, workdir), 0o755)
	if isImagesFault(err) {
		// For example, WORKDIR is a file. Files can still be moved; exec reports the problem.
		return nil
	}
	return err
}

// isImagesFault reports whether err comes from what the image has in the place of a directory, not from a failing disk.
func isImagesFault(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOTDIR, unix.EEXIST, unix.ELOOP, unix.ENAMETOOLONG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func ensureOwned(path string, mode uint32, owner account.Identity) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !isImagesFault(err) {
		return err
	}
	// path is a file, or a symlink that is dangling, circular or leads to a file.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	if err := os.Chown(path, int(owner.UID), int(owner.GID)); err != nil {
		return err
	}
	return unix.Chmod(path, mode)
}
