// Package namespace gives the calling thread its own root directory, which holds only what the plan names, and its own
// network, IPC and UTS namespaces.
package namespace

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/plan"
)

// The root directory holds only mount points, and is read-only once they exist.
const (
	rootSize   = "64k"
	rootInodes = "1024"
)

// tree is a mount that has been made but is not in a namespace yet.
type tree struct {
	descriptor int
	target     string
	directory  bool
}

// Enter makes the namespaces and moves into them. After it, paths are those of the jail, for this thread alone: the
// other threads of this process end when it becomes the program.
func Enter(mounts []plan.Mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts from spreading to the host: %w", err)
	}
	// This comes before the new root covers anything that a source may lie below.
	trees, err := cloneAll(mounts)
	if err != nil {
		return err
	}
	root, err := mountRoot()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		if err := tree.attach(); err != nil {
			return err
		}
	}
	return becomeRoot(root)
}

func cloneAll(mounts []plan.Mount) ([]tree, error) {
	trees := make([]tree, 0, len(mounts))
	for _, mount := range mounts {
		cloned, err := clone(mount)
		if err != nil {
			return nil, err
		}
		trees = append(trees, cloned)
	}
	return trees, nil
}

// clone copies only the mount that the source lies on, never mounts below it.
func clone(mount plan.Mount) (tree, error) {
	fail := func(err error) (tree, error) { return tree{}, fmt.Errorf("mounting %s: %w", mount.Source, err) }
	descriptor, err := unix.OpenTree(unix.AT_FDCWD, mount.Source,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fail(err)
	}
	attributes := unix.MountAttr{Attr_set: attributesOf(mount)}
	if err := unix.MountSetattr(descriptor, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return fail(err)
	}
	var status unix.Stat_t
	if err := unix.Fstat(descriptor, &status); err != nil {
		return fail(err)
	}
	kind := status.Mode & unix.S_IFMT
	if isDevice := kind == unix.S_IFCHR || kind == unix.S_IFBLK; isDevice != mount.Device {
		return fail(fmt.Errorf("device is %v, the plan says %v", isDevice, mount.Device))
	}
	return tree{descriptor: descriptor, target: mount.Target, directory: kind == unix.S_IFDIR}, nil
}

// attributesOf only adds to the restrictions of the host's own mount: in a user namespace those are locked.
func attributesOf(mount plan.Mount) uint64 {
	attributes := uint64(unix.MOUNT_ATTR_NOSUID)
	if !mount.Writable {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if !mount.Executable {
		attributes |= unix.MOUNT_ATTR_NOEXEC
	}
	if !mount.Device {
		attributes |= unix.MOUNT_ATTR_NODEV
	}
	return attributes
}

// mountRoot mounts an empty file system and makes it the working directory. It covers /dev, a directory that every host
// has; no other thread is in the namespace to see it.
func mountRoot() (int, error) {
	fail := func(err error) (int, error) { return -1, fmt.Errorf("making the root directory: %w", err) }
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	for _, option := range [][2]string{{"size", rootSize}, {"nr_inodes", rootInodes}, {"mode", "0755"}} {
		if err := unix.FsconfigSetString(context, option[0], option[1]); err != nil {
			return fail(err)
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return fail(err)
	}
	root, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fail(err)
	}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/dev", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail(err)
	}
	if err := unix.Fchdir(root); err != nil {
		return fail(err)
	}
	return root, nil
}

// attach mounts the tree at its place below the working directory, which becomes the root.
func (t tree) attach() error {
	target := "." + t.target
	if err := makeMountPoint(target, t.directory); err != nil {
		return fmt.Errorf("making %s: %w", t.target, err)
	}
	if err := unix.MoveMount(t.descriptor, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting %s: %w", t.target, err)
	}
	return unix.Close(t.descriptor)
}

func makeMountPoint(target string, directory bool) error {
	if directory {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	descriptor, err := unix.Open(target, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	return unix.Close(descriptor)
}

// becomeRoot leaves the host's tree. With the same directory for both arguments, the old root ends up on top of the new
// one and can be unmounted without a place of its own.
func becomeRoot(root int) error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root directory: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the host's files: %w", err)
	}
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(root, "", unix.AT_EMPTY_PATH, &readOnly); err != nil {
		return fmt.Errorf("closing the root directory: %w", err)
	}
	return unix.Chdir("/")
}
