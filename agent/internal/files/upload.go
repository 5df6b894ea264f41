package files

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

const (
	defaultMode = 0o644
	maxMode     = 0o7777
	// maxSymlinks is the kernel's own limit.
	maxSymlinks = 40
)

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Put answers PUT /files. The content goes to a temporary name in the same directory and is renamed when the body has
// ended well, so nobody sees half a file and a broken body leaves nothing.
func (s *Service) Put(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := s.locate(query)
	if err != nil {
		return err
	}
	mode, err := parseMode(query.Get("mode"))
	if err != nil {
		return err
	}
	target, err := followLinks(asked)
	if err != nil {
		return err
	}
	size, err := write(r.Context(), target, mode, r.Body)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	}{asked, size})
	return nil
}

// noMode says that the request has none.
const noMode = -1

func parseMode(text string) (int, error) {
	if text == "" {
		return noMode, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > maxMode {
		return 0, fault.Invalid("mode: %q is no octal mode such as 644", text)
	}
	return int(mode), nil
}

// followLinks returns what a write through path would write to: rename would replace a symlink instead.
func followLinks(path string) (string, error) {
	if strings.HasSuffix(path, "/") || filepath.Base(path) == "/" {
		return "", fault.Invalid("path: %s is a directory; name a file", path)
	}
	for range maxSymlinks {
		link, err := os.Readlink(path)
		if err != nil {
			// Not a symlink, or not there yet.
			return path, nil
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return "", fault.Invalid("path: too many symbolic links")
}

// attributes are what a new file gets.
type attributes struct {
	mode     int
	uid, gid int
}

// attributesFor keeps mode and owner of a file that is replaced.
func attributesFor(target string, mode int) (attributes, error) {
	wanted := attributes{mode: mode}
	info, err := os.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return attributes{}, fault.FromFile("cannot write "+target, err)
	case !info.Mode().IsRegular():
		return attributes{}, fault.Invalid("path: %s is not a regular file", target)
	default:
		old, _ := info.Sys().(*syscall.Stat_t)
		wanted.uid, wanted.gid = int(old.Uid), int(old.Gid)
		if mode == noMode {
			wanted.mode = int(old.Mode & maxMode)
		}
	}
	if wanted.mode == noMode {
		wanted.mode = defaultMode
	}
	return wanted, nil
}

func write(ctx context.Context, target string, mode int, body io.Reader) (int64, error) {
	wanted, err := attributesFor(target, mode)
	if err != nil {
		return 0, err
	}
	directory := filepath.Dir(target)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return 0, fault.FromFile("cannot create "+directory, err)
	}
	temporary, err := createTemporary(directory)
	if err != nil {
		return 0, fault.FromFile("cannot write in "+directory, err)
	}
	size, err := fill(temporary, wanted, body)
	if closeErr := temporary.Close(); err == nil && closeErr != nil {
		err = fault.FromFile("cannot write "+target, closeErr)
	}
	// Some clients end the body before they reset the stream.
	if err == nil && ctx.Err() != nil {
		err = fault.Invalid("body: its client left after %d bytes", size)
	}
	if err == nil {
		if renameErr := os.Rename(temporary.Name(), target); renameErr != nil {
			err = fault.FromFile("cannot write "+target, renameErr)
		}
	}
	if err != nil {
		if removeErr := os.Remove(temporary.Name()); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			slog.Error("temporary file left behind", "error", removeErr)
		}
		return 0, err
	}
	return size, nil
}

func createTemporary(directory string) (*os.File, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	name := filepath.Join(directory, ".coppice-"+hex.EncodeToString(random[:]))
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

func fill(file *os.File, wanted attributes, body io.Reader) (int64, error) {
	buffer, _ := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	source := &bodyReader{body: body}
	size, err := io.CopyBuffer(struct{ io.Writer }{file}, source, buffer[:])
	if source.err != nil {
		return 0, fault.Invalid("body: broken off after %d bytes: %v", size, source.err)
	}
	if err != nil {
		return 0, fault.FromFile("cannot write "+file.Name(), err)
	}
	// The order matters: chown clears set-id bits.
	if err := file.Chown(wanted.uid, wanted.gid); err != nil {
		return 0, fault.FromFile("cannot set the owner of "+file.Name(), err)
	}
	if err := unix.Fchmod(int(file.Fd()), uint32(wanted.mode)); err != nil {
		return 0, fault.FromFile("cannot set the mode of "+file.Name(), err)
	}
	return size, nil
}

// bodyReader fills whole buffers, since the body arrives in small pieces and writes are dear, and keeps the body's
// error apart from the file's.
type bodyReader struct {
	body io.Reader
	err  error
}

func (b *bodyReader) Read(buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var piece int
		piece, err = b.body.Read(buffer[n:])
		n += piece
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
