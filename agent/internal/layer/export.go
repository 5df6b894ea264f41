// Package layer sends what a sandbox has changed in its image as a layer of an OCI image: GET /layer of
// docs/reference/agent-protocol.md.
//
// The changes are the upper directory of the root's overlay. Three things in it mean something to the kernel only:
//
//	character device 0:0              the image's file of this name is removed     ──▶ .wh.NAME
//	xattr trusted.overlay.opaque=y    the directory hides the image's              ──▶ NAME/.wh..wh..opq
//	xattr trusted.overlay.redirect    the directory was renamed; the rest of its   ──▶ NAME/.wh..wh..opq, and all that
//	                                  content is the image's, under another name       the merged directory shows
//
// What programs have mounted is not of the image. Below a renamed directory, the layer has what lies under a mount.
package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	// maxDepth limits the open directories of a walk.
	maxDepth = 512
	// batch limits the names that a walk holds of each open directory.
	batch = 256
	// copyBytes is large because each system call is expensive under emulation.
	copyBytes      = 256 << 10
	maxXattrBytes  = 64 << 10
	whiteout       = ".wh."
	opaqueMarker   = ".wh..wh..opq"
	opaqueXattr    = "trusted.overlay.opaque"
	redirectXattr  = "trusted.overlay.redirect"
	overlayXattrs  = "trusted.overlay."
	paxXattr       = "SCHILY.xattr."
	permissionBits = 0o7777
)

// left lists the files that the agent writes itself into every sandbox. The image keeps its own.
var left = map[string]bool{
	"etc/hosts": true, "etc/hostname": true, "etc/machine-id": true, "etc/resolv.conf": true,
}

// leftTrees lists the mount points of the system.
var leftTrees = map[string]bool{"proc": true, "sys": true, "dev": true, "run": true}

type inode struct{ device, number uint64 }

type export struct {
	context context.Context
	tar     *tar.Writer
	// merged is the root as programs see it, without what they have mounted.
	merged *os.File
	names  map[inode]string
	// buffer holds a part of a file's content, or its attributes before that.
	buffer []byte
}

// write sends the changes in upper as an archive. merged is the root of the overlay.
func write(ctx context.Context, w io.Writer, upper, merged *os.File) error {
	bare, err := withoutMounts(merged)
	if err != nil {
		return fault.New(fault.FileError, "cannot read the root without what is mounted in it: %v", err)
	}
	defer bare.Close()
	e := &export{
		context: ctx, tar: tar.NewWriter(w), merged: bare, names: map[inode]string{}, buffer: make([]byte, copyBytes),
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(upper.Fd()), &stat); err != nil {
		return err
	}
	if err := e.writeHead(&tar.Header{Typeflag: tar.TypeDir, Name: "./"}, &stat, nil); err != nil {
		return err
	}
	if err := e.below(upper, "", 0, false); err != nil {
		return err
	}
	return e.tar.Close()
}

// below visits what a directory has. isMerged says that it is one that programs see, and not one of the upper directory.
func (e *export) below(directory *os.File, relative string, depth int, isMerged bool) error {
	if depth > maxDepth {
		return fault.New(fault.FileError, "%s: directories are nested more than %d deep", relative, maxDepth)
	}
	for {
		names, err := directory.Readdirnames(batch)
		for _, name := range names {
			if err := e.visit(directory, name, path.Join(relative, name), depth, isMerged); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.FromFile("cannot list "+relative, err)
		}
	}
}

func (e *export) visit(directory *os.File, name, relative string, depth int, isMerged bool) error {
	if err := context.Cause(e.context); err != nil {
		return err
	}
	if left[relative] || leftTrees[relative] {
		return nil
	}
	if strings.HasPrefix(name, whiteout) {
		return fault.New(fault.FileError, "%s: an image cannot have a name that begins with %s; remove it or rename it", relative, whiteout)
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(directory.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fault.FromFile("cannot read "+relative, err)
	}
	head := &tar.Header{Name: relative}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return e.visitDirectory(directory, name, relative, &stat, depth, isMerged)
	case unix.S_IFREG:
		return e.addFile(directory, name, relative, &stat)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(directory.Fd()), name, target)
		if err != nil {
			return fault.FromFile("cannot read "+relative, err)
		}
		head.Typeflag, head.Linkname = tar.TypeSymlink, string(target[:n])
	case unix.S_IFCHR:
		if stat.Rdev == 0 && !isMerged {
			marker := path.Join(path.Dir(relative), whiteout+name)
			return e.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: marker})
		}
		head.Typeflag = tar.TypeChar
	case unix.S_IFBLK:
		head.Typeflag = tar.TypeBlock
	case unix.S_IFIFO:
		head.Typeflag = tar.TypeFifo
	default:
		// A socket is useless without the process that listens.
		return nil
	}
	head.Devmajor, head.Devminor = int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev))
	return e.writeHead(head, &stat, nil)
}

func (e *export) visitDirectory(directory *os.File, name, relative string, stat *unix.Stat_t, depth int, isMerged bool) error {
	opened, err := openDirectory(directory, name)
	if errors.Is(err, unix.EXDEV) {
		return e.writeHead(&tar.Header{Typeflag: tar.TypeDir, Name: relative + "/"}, stat, nil)
	}
	if err != nil {
		return fault.FromFile("cannot open "+relative, err)
	}
	defer opened.Close()
	attributes, err := e.readXattrs(opened)
	if err != nil {
		return fault.FromFile("cannot read the attributes of "+relative, err)
	}
	if err := e.writeHead(&tar.Header{Typeflag: tar.TypeDir, Name: relative + "/"}, stat, attributes); err != nil {
		return err
	}
	if isMerged {
		return e.below(opened, relative, depth+1, true)
	}
	_, isRenamed := attributes[redirectXattr]
	if isRenamed || attributes[opaqueXattr] == "y" {
		marker := path.Join(relative, opaqueMarker)
		if err := e.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: marker}); err != nil {
			return err
		}
	}
	if !isRenamed {
		return e.below(opened, relative, depth+1, false)
	}
	whole, err := openDirectory(e.merged, relative)
	if err != nil {
		return fault.FromFile("cannot open "+relative+", which was renamed", err)
	}
	defer whole.Close()
	return e.below(whole, relative, depth+1, true)
}

// withoutMounts returns the file system at root, with nothing mounted in it.
func withoutMounts(root *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(int(root.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), root.Name()), nil
}

// openDirectory returns EXDEV for a mount point.
func openDirectory(above *os.File, relative string) (*os.File, error) {
	fd, err := unix.Openat2(int(above.Fd()), relative, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), relative), nil
}

// addFile fails if the file becomes shorter: the archive has no other way to say that the content is not whole.
func (e *export) addFile(directory *os.File, name, relative string, stat *unix.Stat_t) error {
	if stat.Nlink > 1 {
		key := inode{uint64(stat.Dev), stat.Ino}
		if first, known := e.names[key]; known {
			return e.writeHead(&tar.Header{Typeflag: tar.TypeLink, Name: relative, Linkname: first}, stat, nil)
		}
		e.names[key] = relative
	}
	file, err := openAt(int(directory.Fd()), name, unix.O_NONBLOCK)
	if err != nil {
		return fault.FromFile("cannot open "+relative, err)
	}
	defer file.Close()
	attributes, err := e.readXattrs(file)
	if err != nil {
		return fault.FromFile("cannot read the attributes of "+relative, err)
	}
	if err := e.writeHead(&tar.Header{Typeflag: tar.TypeReg, Name: relative, Size: stat.Size}, stat, attributes); err != nil {
		return err
	}
	content := io.LimitReader(file, stat.Size)
	sent, err := io.CopyBuffer(struct{ io.Writer }{e.tar}, struct{ io.Reader }{content}, e.buffer)
	if err == nil && sent < stat.Size {
		err = fmt.Errorf("%s became shorter while it was read", relative)
	}
	return err
}

func (e *export) writeHead(head *tar.Header, stat *unix.Stat_t, attributes map[string]string) error {
	head.Mode, head.Uid, head.Gid = int64(stat.Mode&permissionBits), int(stat.Uid), int(stat.Gid)
	head.ModTime = time.Unix(stat.Mtim.Unix()).Truncate(time.Second)
	for name, value := range attributes {
		if strings.HasPrefix(name, overlayXattrs) {
			continue
		}
		if head.PAXRecords == nil {
			head.PAXRecords = map[string]string{}
		}
		head.PAXRecords[paxXattr+name] = value
	}
	return e.tar.WriteHeader(head)
}

func openAt(directory int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(directory, name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readXattrs returns nothing for a file system without attributes.
func (e *export) readXattrs(file *os.File) (map[string]string, error) {
	names, value := e.buffer[:maxXattrBytes], e.buffer[maxXattrBytes:2*maxXattrBytes]
	n, err := unix.Flistxattr(int(file.Fd()), names)
	if errors.Is(err, unix.ENOTSUP) || (err == nil && n == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		size, err := unix.Fgetxattr(int(file.Fd()), name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[name] = string(value[:size])
	}
	return found, nil
}
