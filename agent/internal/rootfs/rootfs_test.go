package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
)

func TestDisksAreRereadOrExplained(t *testing.T) {
	sys := t.TempDir()
	if err := rereadDisks(sys); err == nil {
		t.Fatal("a guest without disks was accepted")
	}
	driver := filepath.Join(sys, blockDriver)
	for _, device := range []string{"virtio9", "virtio10"} {
		if err := os.MkdirAll(filepath.Join(driver, device), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := rereadDisks(sys); err != nil {
		t.Fatal(err)
	}
	// The kernel takes each word as a command; a file keeps only the last one. The scratch disk comes last.
	for _, action := range []string{"unbind", "bind"} {
		if content, err := os.ReadFile(filepath.Join(driver, action)); err != nil || string(content) != "virtio10" {
			t.Fatal(action, string(content), err)
		}
	}
	if err := os.RemoveAll(filepath.Join(driver, "unbind")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(driver, "unbind"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rereadDisks(sys); err == nil || !strings.Contains(err.Error(), "unbind virtio9") {
		t.Fatal(err)
	}
}

func TestASymlinkInThePlaceOfAMountPointIsReplaced(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, root+"/dev"); err != nil {
		t.Fatal(err)
	}
	if err := ensureDirectory(root, "/dev"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(root + "/dev"); err != nil || !info.IsDir() {
		t.Fatal(info, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Fatal("the link's target was touched: ", err)
	}
}

func TestMissingDirectoriesAreMadeAndThoseOfTheImageKept(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.Symlink("/nonexistent", root+"/tmp"), os.Mkdir(root+"/home", 0o700), os.Mkdir(root+"/real", 0o755),
	); err != nil {
		t.Fatal(err)
	}
	if err := EnsureDirectories(root, "/srv/app", account.Identity{UID: 1000, GID: 1001}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ mode, uid uint32 }{
		"tmp": {0o1777, 0}, "home": {0o700, 0}, "workspace": {0o755, 1000}, "srv/app": {0o755, 0},
	} {
		var info unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, path), &info); err != nil {
			t.Fatal(err)
		}
		if info.Mode != unix.S_IFDIR|want.mode || info.Uid != want.uid {
			t.Errorf("%s: %o of %d", path, info.Mode, info.Uid)
		}
	}
}

func TestAProgramIsLookedUpInsideOfTheImage(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(root+"/usr/bin", 0o755), os.Symlink("usr/bin", root+"/bin"),
		os.Symlink("/usr/bin/busybox", root+"/usr/bin/sh"),
	); err != nil {
		t.Fatal(err)
	}
	if has, err := isProgram(root, "/bin/sh"); has || err != nil {
		t.Fatal("a dangling link in the image counts as a program", err)
	}
	if err := os.WriteFile(root+"/usr/bin/busybox", nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if has, err := isProgram(root, "/bin/sh"); !has || err != nil {
		t.Fatal(has, err)
	}
}

func TestWhateverTheImageHasInThePlaceOfADirectoryDoesNotKeepItFromStarting(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.Symlink("tmp", root+"/tmp"), os.Symlink("file/below", root+"/home"), os.Symlink("nowhere", root+"/etc"),
		os.WriteFile(root+"/file", nil, 0o600), os.WriteFile(root+"/workspace", nil, 0o600), os.Symlink("nowhere", root+"/link"),
	); err != nil {
		t.Fatal(err)
	}
	for _, workdir := range []string{"/file", "/file/below", "/link", "/" + strings.Repeat("x", 300)} {
		if err := EnsureDirectories(root, workdir, account.Identity{}); err != nil {
			t.Errorf("%.20s: %v", workdir, err)
		}
	}
	for _, name := range []string{"tmp", "home", "etc", "workspace"} {
		if info, err := os.Lstat(filepath.Join(root, name)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if info, err := os.Lstat(root + "/file"); err != nil || !info.Mode().IsRegular() {
		t.Error("a WORKDIR that is a file was replaced", err)
	}
}

func TestTheRootHasTheImagesOwnerAndMode(t *testing.T) {
	image, upper := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chown(image, 1000, 1001), unix.Chmod(image, 0o1750)); err != nil {
		t.Fatal(err)
	}
	if err := copyOwnerAndMode(image, upper); err != nil {
		t.Fatal(err)
	}
	var info unix.Stat_t
	if err := unix.Stat(upper, &info); err != nil {
		t.Fatal(err)
	}
	if info.Uid != 1000 || info.Gid != 1001 || info.Mode != unix.S_IFDIR|0o1750 {
		t.Errorf("%o of %d:%d", info.Mode, info.Uid, info.Gid)
	}
}

func TestARootWithoutAScratchDiskDoesNotGrow(t *testing.T) {
	if err := (&Root{}).Grow(64 << 20); err == nil {
		t.Fatal("a root without a scratch disk was grown")
	}
}
