package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	defaultPageEntries = 1000
	maxPageEntries     = 10_000
	nameBatch          = 1024
	// maxPageBytes ends a page early, because an entry can have two paths of 4 KiB.
	maxPageBytes = 4 << 20
	// nextHeader carries the cursor of the next page, if there is one.
	nextHeader = "coppice-next"
)

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

// page selects names: the first limit names after a name.
type page struct {
	after string
	limit int
}

// List answers GET /list with one page. The JSON encoder replaces each bad byte of a name that is not UTF-8 by U+FFFD,
// so the cursor of the next page is the exact last name in base64url.
func (s *Service) List(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := s.locate(query)
	if err != nil {
		return err
	}
	wanted, err := parsePage(query)
	if err != nil {
		return err
	}
	directory := path.Clean(asked)
	names, err := readNames(r.Context(), directory, wanted)
	if err != nil {
		return err
	}
	more := len(names) > wanted.limit
	names = names[:min(len(names), wanted.limit)]
	body, listed, err := encodeEntries(directory, names)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("content-type", "application/json")
	if listed > 0 && (more || listed < len(names)) {
		header.Set(nextHeader, base64.RawURLEncoding.EncodeToString([]byte(names[listed-1])))
	}
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(body); err != nil {
		slog.Debug("client left during a list", "error", err)
	}
	return nil
}

func parsePage(query url.Values) (page, error) {
	wanted := page{limit: defaultPageEntries}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPageEntries {
			return page{}, fault.Invalid("limit: must be a whole number from 1 to %d", maxPageEntries)
		}
		wanted.limit = limit
	}
	after, err := base64.RawURLEncoding.DecodeString(query.Get("after"))
	if err != nil {
		return page{}, fault.Invalid("cursor: is not one that a Link header gave; begin without it")
	}
	wanted.after = string(after)
	return wanted, nil
}

// readNames returns the sorted names of a page, and one more if there is one. It never holds more than a few pages,
// because a directory may have millions of names.
func readNames(ctx context.Context, directory string, wanted page) ([]string, error) {
	opened, err := os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return nil, fault.Invalid("path: %s is not a directory", directory)
		}
		return nil, fault.FromFile("cannot list "+directory, err)
	}
	defer closeLogged(opened)
	var kept []string
	for {
		// A file system of the guest may have an endless directory.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		names, err := opened.Readdirnames(nameBatch)
		for _, name := range names {
			if name > wanted.after {
				kept = append(kept, name)
			}
		}
		if len(kept) > 2*wanted.limit+nameBatch {
			kept = firstNames(kept, wanted.limit+1)
		}
		if errors.Is(err, io.EOF) {
			return firstNames(kept, wanted.limit+1), nil
		}
		if err != nil {
			return nil, fault.FromFile("cannot list "+directory, err)
		}
	}
}

func firstNames(names []string, count int) []string {
	slices.Sort(names)
	return slices.Clone(names[:min(len(names), count)])
}

// encodeEntries describes the first names, as many as a page's bytes allow, and returns their number.
func encodeEntries(directory string, names []string) (body []byte, listed int, err error) {
	var out bytes.Buffer
	out.WriteByte('[')
	for ; listed < len(names) && out.Len() < maxPageBytes; listed++ {
		info, err := os.Lstat(path.Join(directory, names[listed]))
		if err != nil {
			// The file was removed after the directory was read.
			continue
		}
		encoded, err := json.Marshal(describe(directory, info))
		if err != nil {
			return nil, 0, err
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.Write(encoded)
	}
	out.WriteByte(']')
	return out.Bytes(), listed, nil
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
