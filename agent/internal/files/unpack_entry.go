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

// openTries limits how often a path is resolved again because a process of the guest has renamed a part of it.
const openTries = 16

// fileEntry is a regular file of an archive.
type fileEntry struct {
	name     string
	mode     uint32
	content  io.Reader
	modified time.Time
}

// writeFile replaces a file of that name as an upload does, and a symlink itself, as tar does.
func (u *unpacking) writeFile(ctx context.Context, entry *fileEntry, target *place) error {
	wanted := &upload{path: entry.name, owner: u.owner, mode: int(entry.mode), modified: entry.modified, replacesLinks: true}
	size, err := wanted.write(ctx, target, entry.content)
	u.Size += size
	return err
}

// openDirectory opens a directory beneath the top, and creates it if it is missing.
func (u *unpacking) openDirectory(relative string) (*os.File, error) {
	opened, err := u.openBeneath(relative)
	if !errors.Is(err, unix.ENOENT) || relative == "." {
		return opened, err
	}
	parent, err := u.openDirectory(path.Dir(relative))
	if err != nil {
		return nil, err
	}
	err = u.makeDirectory(&place{directory: parent, name: path.Base(relative)}, newDirectoryMode)
	closeLogged(parent)
	if err != nil {
		return nil, err
	}
	return u.openBeneath(relative)
}

func (u *unpacking) openBeneath(relative string) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(int(u.top.Fd()), relative, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), relative), nil
		case errors.Is(err, unix.EAGAIN) && try < openTries:
			continue
		case errors.Is(err, unix.EXDEV):
			return nil, fault.Invalid("body: %q leads out of the directory through a symlink", relative)
		}
		return nil, fault.FromFile("cannot open the directory "+relative, err)
	}
}

// makeDirectory leaves an existing directory as it is.
func (u *unpacking) makeDirectory(target *place, mode uint32) error {
	created, err := createOwned(int(target.directory.Fd()), target.name, u.owner)
	if errors.Is(err, unix.EEXIST) {
		return requireDirectory(target)
	}
	if err != nil {
		return err
	}
	defer closeLogged(created)
	return unix.Fchmod(int(created.Fd()), mode)
}

// requireDirectory also accepts a symlink: where it leads is judged when something is written through it.
func requireDirectory(target *place) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(target.directory.Fd()), target.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFLNK {
		return fault.Invalid("body: %q exists and is not a directory", target.name)
	}
	return nil
}

// link makes a link under a temporary name, and renames it: a file of that name is replaced in one step.
func (u *unpacking) link(target *place, create func(at int, temporary string) error) error {
	at := int(target.directory.Fd())
	temporary, err := temporaryName()
	if err != nil {
		return err
	}
	if err := create(at, temporary); err != nil {
		return err
	}
	err = unix.Renameat(at, temporary, at, target.name)
	// A rename of a hard link to another name of the same file does nothing.
	if removeErr := unix.Unlinkat(at, temporary, 0); err == nil && removeErr != nil && !errors.Is(removeErr, unix.ENOENT) {
		err = removeErr
	}
	return err
}

func (u *unpacking) linkSymbolically(text string, target *place) error {
	return u.link(target, func(at int, temporary string) error {
		if err := unix.Symlinkat(text, at, temporary); err != nil {
			return err
		}
		return unix.Fchownat(at, temporary, int(u.owner.UID), int(u.owner.GID), unix.AT_SYMLINK_NOFOLLOW)
	})
}

// linkHard links a file that is beneath the top, too.
func (u *unpacking) linkHard(name string, target *place) error {
	existing, err := cleanName(name)
	if err != nil {
		return err
	}
	directory, err := u.openBeneath(path.Dir(existing))
	if err != nil {
		return err
	}
	defer closeLogged(directory)
	return u.link(target, func(at int, temporary string) error {
		return unix.Linkat(int(directory.Fd()), path.Base(existing), at, temporary, 0)
	})
}
