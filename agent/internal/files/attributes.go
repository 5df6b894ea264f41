package files

import (
	"context"
	"errors"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
)

// attribute changes something of files: of one that a path names, following symlinks, and of one in a tree.
type attribute struct {
	path string
	name string
	set  func(asked string) error
	// setIn never follows a symlink.
	setIn func(n *node) error
}

// ChangeMode answers POST /files/chmod.
func (s *Service) ChangeMode(w http.ResponseWriter, r *http.Request) error {
	wanted := struct {
		Path      string `json:"path"`
		Mode      string `json:"mode"`
		Recursive bool   `json:"recursive"`
	}{}
	asked, err := s.readChange(r, &wanted, &wanted.Path)
	if err != nil {
		return err
	}
	mode, err := parseMode(wanted.Mode)
	if err != nil {
		return err
	}
	if mode == noMode {
		return fault.Invalid("mode: is missing; give an octal mode such as 644")
	}
	return s.change(w, r, &attribute{
		path:  asked,
		name:  "mode",
		set:   func(asked string) error { return unix.Fchmodat(unix.AT_FDCWD, asked, uint32(mode), 0) },
		setIn: func(n *node) error { return setModeIn(n, uint32(mode)) },
	}, wanted.Recursive)
}

// setModeIn leaves out symlinks, which have no mode, and pipes, sockets and devices: opening one may have an effect, and
// before Linux 6.6 a mode can only be set through a symlink or on an open file. It also leaves out files that have the mode
// already: a repeated request gets further than the one before.
func setModeIn(n *node, mode uint32) error {
	kind := n.stat.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil
	}
	if n.stat.Mode&maxMode == mode {
		return nil
	}
	fd, err := unix.Openat(n.at(), n.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fchmod(fd, mode), unix.Close(fd))
}

// ChangeOwner answers POST /files/chown.
func (s *Service) ChangeOwner(w http.ResponseWriter, r *http.Request) error {
	wanted := struct {
		Path      string `json:"path"`
		User      string `json:"user"`
		Recursive bool   `json:"recursive"`
	}{}
	asked, err := s.readChange(r, &wanted, &wanted.Path)
	if err != nil {
		return err
	}
	if wanted.User == "" {
		return fault.Invalid("user: is missing; give a name, uid, name:group or uid:gid")
	}
	owner, err := s.resolveOwner(wanted.User)
	if err != nil {
		return err
	}
	return s.change(w, r, &attribute{
		path: asked,
		name: "owner",
		set: func(asked string) error {
			return unix.Fchownat(unix.AT_FDCWD, asked, int(owner.UID), int(owner.GID), 0)
		},
		setIn: func(n *node) error { return setOwnerIn(n, owner) },
	}, wanted.Recursive)
}

// setOwnerIn leaves out files that have the owner already: a repeated request gets further than the one before.
func setOwnerIn(n *node, owner account.Identity) error {
	if n.stat.Uid == owner.UID && n.stat.Gid == owner.GID {
		return nil
	}
	return unix.Fchownat(n.at(), n.name, int(owner.UID), int(owner.GID), unix.AT_SYMLINK_NOFOLLOW)
}

func (s *Service) change(w http.ResponseWriter, r *http.Request, wanted *attribute, recursive bool) error {
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	if err := wanted.set(wanted.path); err != nil {
		return fault.FromFile("cannot set the "+wanted.name+" of "+wanted.path, err)
	}
	if recursive {
		if err := wanted.changeBelow(ctx); err != nil {
			return afterChange(err)
		}
	}
	return s.answerChanged(w, wanted.path)
}

func (a *attribute) changeBelow(ctx context.Context) error {
	directory, err := os.OpenFile(a.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fault.FromFile("cannot open "+a.path, err)
	}
	defer closeLogged(directory)
	changes := &walk{context: ctx}
	changes.enter = func(n *node) (bool, error) {
		err := a.setIn(n)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fault.FromFile("cannot set the "+a.name+" of "+n.path, err)
		}
		return n.isDirectory(), nil
	}
	return changes.explain(changes.below(directory, a.path, 0))
}
