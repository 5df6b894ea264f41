package blockdevice

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resizeFS is EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64), which grows a mounted file system to a number of blocks. It
// does nothing if the file system already has that size.
const resizeFS = 0x40086610

// noticeLimit bounds the wait for the kernel, which learns of a disk's new size by an interrupt and reads it in a
// worker.
const (
	noticeLimit    = 10 * time.Second
	noticeInterval = time.Millisecond
	sectorBytes    = 512
)

// AwaitSize waits until the kernel has noticed that a disk, such as /dev/vdb, has at least the given number of bytes.
func AwaitSize(disk string, bytes uint64) error {
	return awaitSize(filepath.Join("/sys/block", filepath.Base(disk), "size"), bytes, noticeLimit)
}

// awaitSize waits until the file, which holds a number of sectors, shows at least the given number of bytes.
func awaitSize(path string, bytes uint64, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(noticeInterval) {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sectors, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 54)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if sectors*sectorBytes >= bytes {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the disk has %d bytes after %v, not %d", sectors*sectorBytes, limit, bytes)
		}
	}
}

// GrowFileSystem extends a mounted ext4, of which a directory is open, to a number of bytes.
func GrowFileSystem(mounted *os.File, bytes uint64) error {
	var info unix.Statfs_t
	if err := unix.Fstatfs(int(mounted.Fd()), &info); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	blocks := bytes / uint64(info.Bsize)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, mounted.Fd(), resizeFS, uintptr(unsafe.Pointer(&blocks)))
	if errno != 0 {
		return fmt.Errorf("growth to %d blocks: %w", blocks, errno)
	}
	return nil
}
