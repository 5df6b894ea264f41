// Package rootfs makes the guest's root: the image below, the scratch disk above, as an overlay.
//
//	initramfs (the agent) ── image mounted, scratch disk mounted, overlay built, moved onto /   (in the template)
//
// The new root is moved onto / and not only entered by chroot: in a chroot the kernel refuses user namespaces.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Places in the initramfs; none of them can be seen from the guest's root.
const (
	imagePoint   = "/run/coppice-image"
	scratchPoint = "/run/coppice-scratch"
	rootPoint    = "/run/coppice-root"
)

// Root is the guest's root in the making.
type Root struct {
	mu       sync.Mutex
	switched bool
	// scratch is the top of the scratch disk's file system, which no path leads to once the root is switched.
	scratch *os.File
	// scratchDisk is its device, such as /dev/vdb.
	scratchDisk string
}

// mountImage mounts the image's disk unless it is mounted.
func mountImage() error {
	if mounted, err := isMountPoint(imagePoint); mounted || err != nil {
		return err
	}
	image, err := findBlockDevice("/sys", imageSerial)
	if err != nil {
		return err
	}
	return mountAt(mount{image, imagePoint, "squashfs", unix.MS_RDONLY | unix.MS_NODEV, ""})
}

// scratchOptions: the host has written the file system's size but not its inode tables, which a kernel thread would
// otherwise zero for minutes on every sandbox, nor is there a need to read its bitmaps ahead; discard gives deleted
// blocks back to the host. A file that replaces another need not be written out first: the disk does not outlive a crash.
const scratchOptions = "discard,noinit_itable,noauto_da_alloc,no_prefetch_block_bitmaps,errors=remount-ro"

func mountScratch(disk string) error {
	if mounted, err := isMountPoint(scratchPoint); mounted || err != nil {
		return err
	}
	return mountAt(mount{disk, scratchPoint, "ext4", unix.MS_NOATIME | unix.MS_NODEV, scratchOptions})
}

func (r *Root) openScratch() error {
	if r.scratch != nil {
		return nil
	}
	disk, err := findBlockDevice("/sys", scratchSerial)
	if err != nil {
		return err
	}
	if err := mountScratch(disk); err != nil {
		return err
	}
	r.scratchDisk = disk
	r.scratch, err = os.Open(scratchPoint)
	return err
}

// Switch makes the overlay the root of the agent and of everything it starts. Later calls do nothing.
func (r *Root) Switch() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.switched {
		return nil
	}
	if err := mountImage(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.openScratch(); err != nil {
		return fmt.Errorf("scratch disk: %w", err)
	}
	if err := mountOverlay(scratchPoint, rootPoint); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := enter(rootPoint); err != nil {
		return fmt.Errorf("switch of the root: %w", err)
	}
	r.switched = true
	return nil
}

// mountOverlay puts directories of the writable file system over the image. redirect_dir lets a directory of the
// image be renamed; without it rename(2) fails with EXDEV.
func mountOverlay(writable, target string) error {
	upper, work := filepath.Join(writable, "upper"), filepath.Join(writable, "work")
	for _, directory := range []string{upper, work} {
		if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// The root is the upper directory's; an image may have made its own sticky, say.
	if err := copyOwnerAndMode(imagePoint, upper); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on", imagePoint, upper, work)
	return mountAt(mount{"overlay", target, "overlay", 0, options})
}

func copyOwnerAndMode(from, to string) error {
	var info unix.Stat_t
	if err := unix.Stat(from, &info); err != nil {
		return fmt.Errorf("stat %s: %w", from, err)
	}
	if err := os.Chown(to, int(info.Uid), int(info.Gid)); err != nil {
		return err
	}
	return unix.Chmod(to, info.Mode&^unix.S_IFMT)
}

// enter takes the system's mounts along and moves the mount at root onto /. The initramfs's /run stays behind unseen,
// with the image and the scratch disk in it.
func enter(root string) error {
	for _, point := range systemPoints {
		if err := ensureDirectory(root, point); err != nil {
			return err
		}
		if err := unix.Mount(point, root+point, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move of %s: %w", point, err)
		}
	}
	if err := ensureDirectory(root, runMount.target); err != nil {
		return err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move of the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return mountAt(runMount)
}
