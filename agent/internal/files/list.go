package files

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// maxEntries bounds a list; names of one directory are held in memory to be sorted.
const maxEntries = 100_000

// truncatedHeader is set on a list that has been cut at maxEntries.
const truncatedHeader = "coppice-truncated"

// entry is one element of a list.
type entry struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode"`
	Mtime  string `json:"mtime"`
	Target string `json:"target,omitempty"`
}

// List answers GET /list. A name that is not UTF-8 has each bad byte replaced by U+FFFD, by the JSON encoder.
func (s *Service) List(w http.ResponseWriter, r *http.Request) error {
	asked, err := s.locate(r.URL.Query())
	if err != nil {
		return err
	}
	names, truncated, err := readNames(path.Clean(asked))
	if err != nil {
		return err
	}
	w.Header().Set("content-type", "application/json")
	if truncated {
		w.Header().Set(truncatedHeader, "true")
	}
	w.WriteHeader(http.StatusOK)
	if err := sendEntries(w, path.Clean(asked), names); err != nil {
		slog.Debug("client left a list", "error", err)
	}
	return nil
}

func readNames(directory string) (names []string, truncated bool, err error) {
	opened, err := os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return nil, false, fault.Invalid("path: %s is not a directory", directory)
		}
		return nil, false, fault.FromFile("cannot list "+directory, err)
	}
	defer closeLogged(opened)
	names, err = opened.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fault.FromFile("cannot list "+directory, err)
	}
	if truncated = len(names) > maxEntries; truncated {
		names = names[:maxEntries]
	}
	slices.Sort(names)
	return names, truncated, nil
}

func sendEntries(w io.Writer, directory string, names []string) error {
	out := bufio.NewWriterSize(w, 64<<10)
	separator := "["
	for _, name := range names {
		info, err := os.Lstat(path.Join(directory, name))
		if err != nil {
			// Gone since the directory was read.
			continue
		}
		encoded, err := json.Marshal(describe(directory, info))
		if err != nil {
			return err
		}
		if _, err := out.WriteString(separator); err != nil {
			return err
		}
		if _, err := out.Write(encoded); err != nil {
			return err
		}
		separator = ","
	}
	if separator == "[" {
		separator = "[]"
	} else {
		separator = "]"
	}
	if _, err := out.WriteString(separator); err != nil {
		return err
	}
	return out.Flush()
}

func describe(directory string, info fs.FileInfo) entry {
	full := path.Join(directory, info.Name())
	e := entry{
		Name:  info.Name(),
		Path:  full,
		Type:  typeOf(info.Mode()),
		Size:  info.Size(),
		Mode:  fmt.Sprintf("%04o", permissions(info)),
		Mtime: info.ModTime().UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if e.Type == "symlink" {
		if target, err := os.Readlink(full); err == nil {
			e.Target = target
		}
	}
	return e
}

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	default:
		return "other"
	}
}

// permissionBits include set-uid, set-gid and sticky.
const permissionBits = 0o7777

func permissions(info fs.FileInfo) uint32 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return uint32(info.Mode().Perm())
	}
	return stat.Mode & permissionBits
}
