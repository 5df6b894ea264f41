// Package rootfs builds the guest's root: an overlay with the image below and the scratch disk above.
//
//	initramfs (the agent) ── image mounted, scratch disk mounted, overlay built, moved onto /   (in the template)
//
// The new root is moved onto /, not only entered by chroot: the kernel refuses user namespaces in a chroot.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/blockdevice"
	"coppice/agent/internal/ondemand"
)

// Serial numbers of the block devices that the runner attaches.
const (
	imageSerial   = "image"
	scratchSerial = "scratch"
)

// Mount points in the initramfs. None of them is visible from the guest's root.
const (
	imagePoint   = "/run/coppice-image"
	scratchPoint = "/run/coppice-scratch"
	rootPoint    = "/run/coppice-root"
)

// Root builds the guest's root.
type Root struct {
	mu       sync.Mutex
	switched bool
	// scratch is the top of the scratch disk's file system. No path leads to it once the root is switched.
	scratch *os.File
	// scratchDisk is the device of the scratch disk, such as /dev/vdb.
	scratchDisk string
}

// mountImage mounts the image's disk if it is not mounted yet.
func mountImage() error {
	if mounted, err := isMountPoint(imagePoint); mounted || err != nil {
		return err
	}
	image, err := blockdevice.Find("/sys", imageSerial)
	if err != nil {
		return err
	}
	return mountAt(mount{image, imagePoint, "squashfs", unix.MS_RDONLY | unix.MS_NODEV, ""})
}

// scratchOptions are the mount options of the scratch disk. noinit_itable: the host writes the file system's size but
// not its inode tables; a kernel thread would otherwise zero them for minutes in every sandbox.
// no_prefetch_block_bitmaps: reading the bitmaps ahead is not needed. discard: deleted blocks are given back to the
// host. noauto_da_alloc: a file that replaces another need not be written out first, because the disk does not outlive
// a crash.
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
	disk, err := blockdevice.Find("/sys", scratchSerial)
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
	mountStores(scratchPoint, rootPoint)
	if err := enter(rootPoint); err != nil {
		return fmt.Errorf("switch of the root: %w", err)
	}
	if err := offerPlace(r.scratch); err != nil {
		return fmt.Errorf("place on the scratch disk: %w", err)
	}
	if err := ondemand.Link(); err != nil {
		return fmt.Errorf("helper of the kernel: %w", err)
	}
	r.switched = true
	return nil
}

// mountOverlay overlays directories of the writable file system on the image. redirect_dir lets a directory of the
// image be renamed; without it rename(2) fails with EXDEV.
func mountOverlay(writable, target string) error {
	upper, work := filepath.Join(writable, upperName), filepath.Join(writable, "work")
	for _, directory := range []string{upper, work} {
		if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// The overlay's root directory is the upper one. The image's may have another mode, for example the sticky bit.
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

// enter moves the system's mounts into root and then moves the mount at root onto /. The initramfs's /run stays mounted
// but hidden, with the image and the scratch disk in it.
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
