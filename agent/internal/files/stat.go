package files

import (
	"net/http"
	"os"
	"path"
	"syscall"

	"coppice/agent/internal/account"
	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// detailedEntry is an entry with its owner. User and Group are empty for numbers without a name.
type detailedEntry struct {
	entry
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
}

// Stat answers GET /files/stat. It does not follow a symlink, unless the path ends with a slash.
func (s *Service) Stat(w http.ResponseWriter, r *http.Request) error {
	asked, err := s.locate(r.URL.Query())
	if err != nil {
		return err
	}
	return s.answerEntry(w, asked)
}

// answerChanged sends the entry at a path that was changed.
func (s *Service) answerChanged(w http.ResponseWriter, changed string) error {
	return afterChange(s.answerEntry(w, changed))
}

// afterChange gives an error after the first step of a change another code than that of a missing file, which means that
// nothing was changed: control logs no such change. Another process may remove a file at any time.
func afterChange(err error) error {
	if err == nil {
		return nil
	}
	known := fault.From(err)
	if known.Code != fault.FileNotFound {
		return err
	}
	return fault.New(fault.FileError, "the change was made, at least in part, but a file of it is gone by now: %s", known.Message)
}

// answerEntry sends the entry at a path as the whole answer.
func (s *Service) answerEntry(w http.ResponseWriter, asked string) error {
	info, err := os.Lstat(asked)
	if err != nil {
		return fault.FromFile("cannot find "+asked, err)
	}
	found := detailedEntry{entry: describe(path.Dir(path.Clean(asked)), info)}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		found.UID, found.GID = stat.Uid, stat.Gid
	}
	s.nameOwner(&found)
	api.WriteJSON(w, http.StatusOK, found)
	return nil
}

// nameOwner leaves the names empty if the guest's account files cannot be read: the numbers are known.
func (s *Service) nameOwner(found *detailedEntry) {
	accounts, err := account.Load(s.root)
	if err != nil {
		return
	}
	for _, user := range accounts.Users {
		if user.UID == found.UID {
			found.User = user.Name
			break
		}
	}
	for _, group := range accounts.Groups {
		if group.GID == found.GID {
			found.Group = group.Name
			break
		}
	}
}
