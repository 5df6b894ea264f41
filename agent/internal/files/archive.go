package files

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// format is the form of an archive.
type format int

const (
	plainTar format = iota
	gzippedTar
)

func parseFormat(query url.Values) (format, error) {
	switch query.Get("format") {
	case "", "tar":
		return plainTar, nil
	case "tar.gz":
		return gzippedTar, nil
	}
	return 0, fault.Invalid("format: must be tar or tar.gz")
}

// Archive answers GET /files/archive with a tar of everything below a directory. The head is sent before the tree is read, so
// a later failure can only reset the stream.
func (s *Service) Archive(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := s.locate(query)
	if err != nil {
		return err
	}
	wanted, err := parseFormat(query)
	if err != nil {
		return err
	}
	asked = path.Clean(asked)
	top, err := os.OpenFile(asked, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return fault.Invalid("path: %s is not a directory; download it as a file", asked)
	}
	if err != nil {
		return fault.FromFile("cannot open "+asked, err)
	}
	defer closeLogged(top)
	w.Header().Set("content-type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err := writeArchive(r.Context(), w, top, wanted); err != nil {
		slog.Warn("cannot send an archive to its end", "directory", asked, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func writeArchive(ctx context.Context, w io.Writer, top *os.File, wanted format) error {
	if wanted == gzippedTar {
		// The guest's processor is slower than its link to the host.
		packer, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(ctx, packer, top), packer.Close())
	}
	return writeTar(ctx, w, top)
}

func writeTar(ctx context.Context, w io.Writer, top *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &stat); err != nil {
		return err
	}
	buffer, _ := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	a := &archive{tar: tar.NewWriter(w), device: uint64(stat.Dev), buffer: buffer[:]}
	if err := (&walk{context: ctx, enter: a.add}).below(top, "", 0); err != nil {
		return err
	}
	return a.tar.Close()
}

// archive writes files as they are visited.
type archive struct {
	tar *tar.Writer
	// device is that of the top. Directories of other file systems are entered as empty: a tree with /proc has no end.
	device uint64
	buffer []byte
}

// add leaves out pipes, sockets and devices.
func (a *archive) add(n *node) (descend bool, err error) {
	header := &tar.Header{
		Name: n.path, Mode: int64(n.stat.Mode & permissionBits), Uid: int(n.stat.Uid), Gid: int(n.stat.Gid),
		ModTime: time.Unix(n.stat.Mtim.Unix()),
	}
	switch n.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		header.Typeflag, header.Name = tar.TypeDir, n.path+"/"
		return uint64(n.stat.Dev) == a.device, a.tar.WriteHeader(header)
	case unix.S_IFLNK:
		target, isLink, err := readLink(n.directory, n.name)
		if err != nil || !isLink {
			return false, err
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
		return false, a.tar.WriteHeader(header)
	case unix.S_IFREG:
		return false, a.addFile(n, header)
	}
	return false, nil
}

// addFile adds as many bytes as the file had when it was opened. It fails if there are fewer: the archive has no other way
// to say that the content is not whole.
func (a *archive) addFile(n *node, header *tar.Header) error {
	fd, err := unix.Openat(n.at(), n.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return fault.FromFile("cannot open "+n.path, err)
	}
	file := os.NewFile(uintptr(fd), n.path)
	defer closeLogged(file)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	sent, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, struct{ io.Reader }{io.LimitReader(file, header.Size)}, a.buffer)
	if err == nil && sent < header.Size {
		err = fmt.Errorf("%s became shorter while it was read", n.path)
	}
	return err
}
