package files

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/guestfile"
)

// unknownSize is the size of a file that does not state its true size and is longer than one buffer.
const unknownSize = -1

// source is an open file.
type source interface {
	io.ReadSeeker
	Name() string
}

// download is what one request gets of a file: part, whose beginning, first, has already been read. The file's offset
// is after first. A file of unknown size is sent from its start to its end.
type download struct {
	file  source
	size  int64
	part  span
	kind  rangeKind
	first []byte
}

// madeByReading are the file systems whose files the kernel generates when they are read. Their stated sizes are 0 or a
// page.
var madeByReading = map[int64]bool{
	unix.PROC_SUPER_MAGIC:    true,
	unix.SYSFS_MAGIC:         true,
	unix.CGROUP_SUPER_MAGIC:  true,
	unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC:       true,
	unix.TRACEFS_MAGIC:       true,
	unix.SECURITYFS_MAGIC:    true,
	configfsMagic:            true,
}

// configfsMagic is CONFIGFS_MAGIC of the kernel's fs/configfs/mount.c.
const configfsMagic = 0x62656570

// begin reads the first bytes of the requested range into buffer. stated is the size according to stat. A file that
// grows is cut at that size. A file that turns out to be shorter is measured instead.
func begin(file *guestfile.File, stated int64, ranges string, buffer []byte) (*download, error) {
	fileSystem, err := file.FileSystem()
	if err != nil {
		return nil, err
	}
	if stated == 0 || madeByReading[fileSystem] {
		return measure(file, ranges, buffer)
	}
	return beginStated(file, stated, ranges, buffer)
}

func beginStated(file source, stated int64, ranges string, buffer []byte) (*download, error) {
	part, kind := parseRange(ranges, stated)
	d := &download{file: file, size: stated, part: part, kind: kind}
	if kind == unsatisfiable {
		return d, nil
	}
	if _, err := file.Seek(part.first, io.SeekStart); err != nil {
		return nil, err
	}
	wanted := buffer[:min(part.length, int64(len(buffer)))]
	n, err := io.ReadFull(file, wanted)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	case err != nil:
		return nil, err
	default:
		d.first = wanted[:n]
		return d, nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return measure(file, ranges, buffer)
}

// measure reads a file to its end, or until the buffer is full. Only a file that ends within the buffer has a size and
// supports ranges.
func measure(file source, ranges string, buffer []byte) (*download, error) {
	n, err := io.ReadFull(file, buffer)
	if err == nil {
		return &download{file: file, size: unknownSize, kind: wholeFile, first: buffer}, nil
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	part, kind := parseRange(ranges, int64(n))
	return &download{
		file: file, size: int64(n), part: part, kind: kind, first: buffer[part.first : part.first+part.length],
	}, nil
}
