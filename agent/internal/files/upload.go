package files

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

const (
	defaultMode = 0o644
	maxMode     = 0o7777
	setIDBits   = unix.S_ISUID | unix.S_ISGID
)

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// upload is a request to write a file.
type upload struct {
	path  string
	owner account.Identity
	mode  int
	// modified is zero for the time of the upload.
	modified time.Time
	// replacesLinks is false where symlinks have been followed before.
	replacesLinks bool
}

// Put answers PUT /files. It writes the content to a temporary name in the same directory and renames it when the body
// has ended well. So no process sees half a file, and a broken body leaves nothing.
func (s *Service) Put(w http.ResponseWriter, r *http.Request) error {
	wanted, err := s.parseUpload(r.URL.Query())
	if err != nil {
		return err
	}
	target, err := openPlace(wanted.path, wanted.owner)
	if err != nil {
		return err
	}
	defer closeLogged(target.directory)
	size, err := wanted.write(r.Context(), target, r.Body)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	}{wanted.path, size})
	return nil
}

func (s *Service) parseUpload(query url.Values) (*upload, error) {
	asked, err := s.locate(query)
	if err != nil {
		return nil, err
	}
	mode, err := parseMode(query.Get("mode"))
	if err != nil {
		return nil, err
	}
	owner, err := s.resolveOwner(query.Get("user"))
	return &upload{path: asked, owner: owner, mode: mode}, err
}

// resolveOwner returns the user that the request names, or else the image's USER.
func (s *Service) resolveOwner(user string) (account.Identity, error) {
	settings, err := s.guest.Get()
	if err != nil {
		return account.Identity{}, err
	}
	if user == "" {
		return account.ImageOwner(s.root, settings.User), nil
	}
	accounts, err := account.Load(s.root)
	if err != nil {
		return account.Identity{}, fault.FromFile("cannot read the sandbox's accounts", err)
	}
	return accounts.Resolve(user)
}

// noMode means that the request has no mode.
const noMode = -1

func parseMode(text string) (int, error) {
	if text == "" {
		return noMode, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > maxMode {
		return 0, fault.Invalid("mode: %q is not an octal mode such as 644", text)
	}
	return int(mode), nil
}

// modeFor keeps the mode of a file that is replaced. If the new file has another owner, it drops the set-id bits, as
// chown does: a program would otherwise run as a user who never gave it that right.
func (u *upload) modeFor(target *place) (uint32, error) {
	var old unix.Stat_t
	err := unix.Fstatat(int(target.directory.Fd()), target.name, &old, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && u.replacesLinks && old.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.ENOENT
	}
	switch {
	case err != nil && !errors.Is(err, unix.ENOENT):
		return 0, fault.FromFile("cannot write "+u.path, err)
	case err == nil && old.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, fault.Invalid("path: %s is not a regular file", u.path)
	case u.mode != noMode:
		return uint32(u.mode), nil
	case err != nil:
		return defaultMode, nil
	}
	mode := old.Mode & maxMode
	if old.Uid != u.owner.UID || old.Gid != u.owner.GID {
		mode &^= setIDBits
	}
	return mode, nil
}

func (u *upload) write(ctx context.Context, target *place, body io.Reader) (int64, error) {
	mode, err := u.modeFor(target)
	if err != nil {
		return 0, err
	}
	at := int(target.directory.Fd())
	temporary, err := createTemporary(at)
	if err != nil {
		return 0, fault.FromFile("cannot write "+u.path, err)
	}
	size, err := u.fill(temporary, mode, body)
	if closeErr := temporary.Close(); err == nil && closeErr != nil {
		err = fault.FromFile("cannot write "+u.path, closeErr)
	}
	// Some clients end the body before they reset the stream.
	if err == nil && ctx.Err() != nil {
		err = fault.Invalid("body: the client left after %d bytes", size)
	}
	if err == nil {
		if renameErr := unix.Renameat(at, temporary.Name(), at, target.name); renameErr != nil {
			err = fault.FromFile("cannot write "+u.path, renameErr)
		}
	}
	if err != nil {
		if removeErr := unix.Unlinkat(at, temporary.Name(), 0); removeErr != nil && !errors.Is(removeErr, unix.ENOENT) {
			slog.Error("temporary file left behind", "error", removeErr)
		}
		return 0, err
	}
	return size, nil
}

// createTemporary returns a file whose name is relative to the directory.
func createTemporary(directory int) (*os.File, error) {
	name, err := temporaryName()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(directory, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func temporaryName() (string, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return ".coppice-" + hex.EncodeToString(random[:]), nil
}

func (u *upload) fill(file *os.File, mode uint32, body io.Reader) (int64, error) {
	buffer, _ := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	source := &bodyReader{body: body}
	size, err := io.CopyBuffer(struct{ io.Writer }{file}, source, buffer[:])
	if source.err != nil {
		return 0, fault.Invalid("body: ended early, after %d bytes: %v", size, source.err)
	}
	if err != nil {
		return 0, fault.FromFile("cannot write "+u.path, err)
	}
	// The order matters: chown clears set-id bits.
	if err := file.Chown(int(u.owner.UID), int(u.owner.GID)); err != nil {
		return 0, fault.FromFile("cannot set the owner of "+u.path, err)
	}
	if err := unix.Fchmod(int(file.Fd()), mode); err != nil {
		return 0, fault.FromFile("cannot set the mode of "+u.path, err)
	}
	if err := u.setTimes(file); err != nil {
		return 0, fault.FromFile("cannot set the time of "+u.path, err)
	}
	return size, nil
}

// setTimes sets them on the open file: after the rename, its name may be that of another file.
func (u *upload) setTimes(file *os.File) error {
	if u.modified.IsZero() {
		return nil
	}
	modified := unix.Timespec{Sec: u.modified.Unix(), Nsec: int64(u.modified.Nanosecond())}
	return unix.UtimesNanoAt(int(file.Fd()), "", []unix.Timespec{{Nsec: unix.UTIME_NOW}, modified}, unix.AT_EMPTY_PATH)
}

// bodyReader fills whole buffers, because the body arrives in small pieces and writes are expensive. It keeps the
// body's error separate from the file's.
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
