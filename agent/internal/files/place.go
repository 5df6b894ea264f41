package files

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
)

const (
	// maxSymlinks is the kernel's own limit.
	maxSymlinks      = 40
	newDirectoryMode = 0o755
)

// place is the target of a write: a name in an open directory. A process of the guest may replace a directory by a
// symlink in the meantime. That changes neither where the file is written nor the owner of any other file.
type place struct {
	directory *os.File
	name      string
}

// openPlace follows symlinks, because a rename would replace them. It creates missing directories, which then belong to
// owner.
func openPlace(asked string, owner account.Identity) (*place, error) {
	var directory *os.File
	rest := asked
	for range maxSymlinks {
		parent, name := path.Split(rest)
		if name == "" || name == "." || name == ".." {
			closeIfOpen(directory)
			return nil, fault.Invalid("path: %s is a directory; name a file", asked)
		}
		next, err := openDirectory(directory, parent, owner)
		closeIfOpen(directory)
		if err != nil {
			return nil, err
		}
		directory = next
		link, isLink, err := readLink(directory, name)
		if err != nil {
			closeLogged(directory)
			return nil, fault.FromFile("cannot write "+asked, err)
		}
		if !isLink {
			return &place{directory: directory, name: name}, nil
		}
		rest = link
	}
	closeIfOpen(directory)
	return nil, fault.FromFile("cannot write "+asked, unix.ELOOP)
}

func closeIfOpen(directory *os.File) {
	if directory != nil {
		closeLogged(directory)
	}
}

// readLink returns the target of the symlink name in directory. A name that does not exist is not a symlink.
func readLink(directory *os.File, name string) (target string, isLink bool, err error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(directory.Fd()), name, buffer)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return string(buffer[:n]), true, nil
}

// openDirectory creates the missing directories of wanted, a path relative to base, and opens it.
func openDirectory(base *os.File, wanted string, owner account.Identity) (*os.File, error) {
	at := unix.AT_FDCWD
	if base != nil {
		at = int(base.Fd())
	}
	var missing []string
	for existing := wanted; ; {
		if existing == "" {
			existing = "."
		}
		opened, err := openAt(at, existing, unix.O_PATH)
		if err == nil {
			return createBelow(opened, missing, owner)
		}
		if !errors.Is(err, unix.ENOENT) || existing == "." || existing == "/" {
			return nil, fault.FromFile("cannot open the directory "+path.Clean(existing), err)
		}
		head, last := path.Split(strings.TrimRight(existing, "/"))
		missing = append(missing, last)
		existing = head
	}
}

// createBelow creates a directory for each of names, from the last to the first, each in the one before. It closes
// directory.
func createBelow(directory *os.File, names []string, owner account.Identity) (*os.File, error) {
	for i := len(names) - 1; i >= 0; i-- {
		next, err := createIn(directory, names[i], owner)
		closeLogged(directory)
		if err != nil {
			return nil, fault.FromFile("cannot create the directory "+names[i], err)
		}
		directory = next
	}
	return directory, nil
}

func createIn(parent *os.File, name string, owner account.Identity) (*os.File, error) {
	at := int(parent.Fd())
	created, err := createOwned(at, name, owner)
	if errors.Is(err, unix.EEXIST) {
		// Another upload has just created it, or it is "..".
		return openAt(at, name, unix.O_PATH)
	}
	return created, err
}

// createOwned creates and opens a directory. It fails if the name is taken.
func createOwned(at int, name string, owner account.Identity) (*os.File, error) {
	if err := unix.Mkdirat(at, name, newDirectoryMode); err != nil {
		return nil, err
	}
	created, err := openAt(at, name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	if err := created.Chown(int(owner.UID), int(owner.GID)); err != nil {
		closeLogged(created)
		return nil, err
	}
	return created, nil
}

func openAt(at int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(at, name, flags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
