package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
)

// EnsureDirectories creates what every sandbox has, where the image lacks it: /tmp, /home, the working directory.
// Directories that the image has keep their owner and mode; a symlink to a directory is as good as one.
func EnsureDirectories(root, workdir string, user account.Identity) error {
	if err := ensureOwned(filepath.Join(root, "tmp"), 0o1777, account.Identity{}); err != nil {
		return err
	}
	if err := ensureOwned(filepath.Join(root, "home"), 0o755, account.Identity{}); err != nil {
		return err
	}
	if err := ensureOwned(filepath.Join(root, "workspace"), 0o755, user); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(root, workdir), 0o755)
}

func ensureOwned(path string, mode uint32, owner account.Identity) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A file, or a symlink to nowhere.
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
