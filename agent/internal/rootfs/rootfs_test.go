package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
)

func TestABlockDeviceIsFoundByItsSerialNumber(t *testing.T) {
	sys := t.TempDir()
	for name, serial := range map[string]string{"vda": "image", "vdb": "scratch\n"} {
		directory := filepath.Join(sys, "block", name)
		if err := errors.Join(
			os.MkdirAll(directory, 0o755),
			os.WriteFile(filepath.Join(directory, "serial"), []byte(serial), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	if disk, err := findBlockDevice(sys, scratchSerial); err != nil || disk != "/dev/vdb" {
		t.Fatal(disk, err)
	}
	if _, err := findBlockDevice(sys, "workspace"); err == nil {
		t.Fatal("a disk that is not there was found")
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
		t.Fatal("a link to nowhere in the image is a program", err)
	}
	if err := os.WriteFile(root+"/usr/bin/busybox", nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if has, err := isProgram(root, "/bin/sh"); !has || err != nil {
		t.Fatal(has, err)
	}
}
