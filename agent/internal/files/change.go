package files

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// removalRounds limits how often a directory is read again that got new files while it was emptied.
const removalRounds = 3

// MakeDirectory answers POST /files/mkdir. Missing parents belong to the new directory's owner. With parents, an existing
// directory is a success and stays as it is.
func (s *Service) MakeDirectory(w http.ResponseWriter, r *http.Request) error {
	wanted := struct {
		Path    string `json:"path"`
		Mode    string `json:"mode"`
		User    string `json:"user"`
		Parents bool   `json:"parents"`
	}{}
	asked, err := s.readChange(r, &wanted, &wanted.Path)
	if err != nil {
		return err
	}
	mode, err := parseMode(wanted.Mode)
	if err != nil {
		return err
	}
	owner, err := s.resolveOwner(wanted.User)
	if err != nil {
		return err
	}
	if mode == noMode {
		mode = newDirectoryMode
	}
	err = makeDirectory(&newDirectory{path: asked, mode: uint32(mode), owner: owner}, wanted.Parents)
	if wanted.Parents {
		// The parents may have been created.
		err = afterChange(err)
	}
	if err != nil {
		return err
	}
	return s.answerChanged(w, asked)
}

type newDirectory struct {
	path  string
	mode  uint32
	owner account.Identity
}

func makeDirectory(wanted *newDirectory, withParents bool) error {
	parent, name := path.Split(wanted.path)
	if name == "" {
		return existing(wanted.path, withParents)
	}
	directory, err := openParent(parent, wanted.owner, withParents)
	if err != nil {
		return err
	}
	defer closeLogged(directory)
	err = unix.Mkdirat(int(directory.Fd()), name, newDirectoryMode)
	if errors.Is(err, unix.EEXIST) {
		return existing(wanted.path, withParents)
	}
	if err != nil {
		return fault.FromFile("cannot create "+wanted.path, err)
	}
	created, err := openAt(int(directory.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return afterChange(fault.FromFile("cannot open "+wanted.path, err))
	}
	defer closeLogged(created)
	// The order matters: chown clears set-id bits.
	if err := created.Chown(int(wanted.owner.UID), int(wanted.owner.GID)); err != nil {
		return fault.FromFile("cannot set the owner of "+wanted.path, err)
	}
	if err := unix.Fchmod(int(created.Fd()), wanted.mode); err != nil {
		return fault.FromFile("cannot set the mode of "+wanted.path, err)
	}
	return nil
}

func openParent(parent string, owner account.Identity, create bool) (*os.File, error) {
	if create {
		return openDirectory(nil, parent, owner)
	}
	opened, err := openAt(unix.AT_FDCWD, parent, unix.O_PATH)
	if err != nil {
		return nil, fault.FromFile("cannot open the directory "+path.Clean(parent), err)
	}
	return opened, nil
}

// existing judges a name that is taken.
func existing(asked string, isWelcome bool) error {
	info, err := os.Stat(asked)
	if err == nil && info.IsDir() && isWelcome {
		return nil
	}
	return fault.New(fault.AlreadyExists, "path: %s exists already", asked)
}

// Move answers POST /files/move. It moves the name itself, also that of a symlink.
func (s *Service) Move(w http.ResponseWriter, r *http.Request) error {
	wanted := struct {
		From      string `json:"from"`
		To        string `json:"to"`
		Overwrite bool   `json:"overwrite"`
	}{}
	if err := api.ReadJSON(r, &wanted); err != nil {
		return err
	}
	from, err := s.absolute("from", wanted.From)
	if err != nil {
		return err
	}
	to, err := s.absolute("to", wanted.To)
	if err != nil {
		return err
	}
	if err := move(path.Clean(from), path.Clean(to), wanted.Overwrite); err != nil {
		return err
	}
	return s.answerChanged(w, path.Clean(to))
}

func move(from, to string, overwrite bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if overwrite {
		flags = 0
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST) && !overwrite:
		return fault.New(fault.AlreadyExists, "to: %s exists already; choose another name or set overwrite", to)
	case errors.Is(err, unix.EXDEV):
		return fault.New(fault.FileError,
			"to: %s cannot be reached by a rename, which does not copy; run mv in the sandbox: cross-device link (EXDEV)", to)
	}
	if _, missing := os.Lstat(from); missing != nil {
		return fault.FromFile("from: cannot find "+from, missing)
	}
	return fault.FromFile("to: cannot move to "+to, err)
}

// Remove answers POST /files/remove. It removes a symlink, never its target.
func (s *Service) Remove(w http.ResponseWriter, r *http.Request) error {
	wanted := struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
	}{}
	asked, err := s.readChange(r, &wanted, &wanted.Path)
	if err != nil {
		return err
	}
	parent, name := path.Split(asked)
	if name == "" {
		return fault.Invalid("path: is the root of the sandbox; name a file or directory in it")
	}
	directory, err := openAt(unix.AT_FDCWD, parent, unix.O_PATH)
	if err != nil {
		return fault.FromFile("cannot open the directory "+path.Clean(parent), err)
	}
	defer closeLogged(directory)
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	if err := removeTree(ctx, &node{directory: directory, name: name, path: asked}, wanted.Recursive); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

func removeTree(ctx context.Context, top *node, recursive bool) error {
	err := unix.Fstatat(top.at(), top.name, &top.stat, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fault.FromFile("cannot find "+top.path, err)
	}
	if top.isDirectory() && !recursive {
		err := unix.Unlinkat(top.at(), top.name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) {
			return fault.New(fault.FileError, "recursive: %s is not empty; set recursive to remove what is in it", top.path)
		}
		return failedRemoval(top, err)
	}
	removal := &walk{context: ctx}
	removal.enter = func(n *node) (bool, error) {
		if n.isDirectory() {
			return true, nil
		}
		return false, failedRemoval(n, unix.Unlinkat(n.at(), n.name, 0))
	}
	removal.leave = func(n *node) error {
		return failedRemoval(n, unix.Unlinkat(n.at(), n.name, unix.AT_REMOVEDIR))
	}
	for round := 1; ; round++ {
		err := removal.visit(top, 0)
		if !errors.Is(err, unix.ENOTEMPTY) || round == removalRounds {
			return removal.explain(err)
		}
	}
}

// failedRemoval returns nil if the file is gone.
func failedRemoval(n *node, err error) error {
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fault.FromFile("cannot remove "+n.path, err)
}
