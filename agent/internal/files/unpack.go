package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"coppice/agent/internal/account"
	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

const (
	// maxArchiveEntries limits the work of one request; the disk limits the bytes.
	maxArchiveEntries = 500_000
	// maxNameBytes is the kernel's PATH_MAX without its NUL.
	maxNameBytes = 4095
	// newFileBits leave out the set-id bits: the files get another owner, who never gave anyone these rights.
	newFileBits = 0o1777
)

// unpacking writes the entries of an archive below a directory. The kernel resolves all names beneath it, so neither ".."
// nor a symlink, of the archive or there before, leads out of it.
type unpacking struct {
	top   *os.File
	owner account.Identity
	// Entries and Size count what has been written.
	Entries int   `json:"entries"`
	Size    int64 `json:"size"`
}

// Unpack answers PUT /files/archive: it unpacks a tar into a directory, which it creates if there is none.
func (s *Service) Unpack(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := s.locate(query)
	if err != nil {
		return err
	}
	wanted, err := parseFormat(query)
	if err != nil {
		return err
	}
	owner, err := s.resolveOwner(query.Get("user"))
	if err != nil {
		return err
	}
	asked = path.Clean(asked)
	top, err := openDirectory(nil, asked, owner)
	if err != nil {
		return err
	}
	defer closeLogged(top)
	unpacked := &unpacking{top: top, owner: owner}
	if err := unpacked.readBody(r.Context(), r.Body, wanted); err != nil {
		known := fault.From(err)
		return fault.New(known.Code, "%s; %d entries with %d bytes were written before", known.Message, unpacked.Entries, unpacked.Size)
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Path string `json:"path"`
		*unpacking
	}{asked, unpacked})
	return nil
}

// readBody reads the body to its end, so that a body that breaks off after the last entry is noticed, too.
func (u *unpacking) readBody(ctx context.Context, body io.Reader, wanted format) error {
	source := &bodyReader{body: body}
	content, err := openContent(source, wanted)
	if err == nil {
		err = u.readAll(ctx, content)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	switch {
	case source.err != nil:
		return fault.Invalid("body: ended early: %v", source.err)
	// Some clients end the body before they reset the stream.
	case ctx.Err() != nil:
		return fault.Invalid("body: the client left")
	case isNoArchive(err):
		return fault.Invalid("body: is not a whole archive of the given format: %v", err)
	}
	return err
}

func openContent(source io.Reader, wanted format) (io.Reader, error) {
	buffered := bufio.NewReaderSize(source, copyBytes)
	if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
		return nil, fault.Invalid("body: is empty; send an archive")
	}
	if wanted == gzippedTar {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}

// isNoArchive reports errors of the parsers. Failures of files are of type fault.Error.
func isNoArchive(err error) bool {
	var known *fault.Error
	return err != nil && !errors.As(err, &known)
}

func (u *unpacking) readAll(ctx context.Context, content io.Reader) error {
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if u.Entries == maxArchiveEntries {
			return fault.Invalid("body: has more than %d entries; send several archives", maxArchiveEntries)
		}
		if err := u.writeEntry(ctx, header, archive); err != nil {
			return err
		}
	}
}

func (u *unpacking) writeEntry(ctx context.Context, header *tar.Header, content io.Reader) error {
	name, err := cleanName(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	parent, err := u.openDirectory(path.Dir(name))
	if err != nil {
		return err
	}
	defer closeLogged(parent)
	target := &place{directory: parent, name: path.Base(name)}
	mode := uint32(header.Mode) & newFileBits
	switch header.Typeflag {
	case tar.TypeDir:
		err = u.makeDirectory(target, mode)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = u.writeFile(ctx, &fileEntry{name: name, mode: mode, content: content, modified: header.ModTime}, target)
	case tar.TypeSymlink:
		err = u.linkSymbolically(header.Linkname, target)
	case tar.TypeLink:
		err = u.linkHard(header.Linkname, target)
	default:
		err = fault.Invalid("body: %q is neither a file nor a directory nor a link", name)
	}
	if err != nil {
		return fault.FromFile("cannot write "+name, err)
	}
	u.Entries++
	return nil
}

// cleanName returns a relative name without "..".
func cleanName(name string) (string, error) {
	switch {
	case len(name) > maxNameBytes:
		return "", fault.Invalid("body: the name of an entry has more than %d bytes", maxNameBytes)
	case strings.ContainsRune(name, 0):
		return "", fault.Invalid("body: the name %q contains NUL", name)
	case path.IsAbs(name):
		return "", fault.Invalid("body: the name %q is absolute; name entries relative to the directory", name)
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", fault.Invalid("body: the name %q contains \"..\"", name)
	}
	return path.Clean(name), nil
}
