package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func addProgram(t *testing.T, root, path string) {
	t.Helper()
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755), os.WriteFile(filepath.Join(root, path), nil, 0o700),
	); err != nil {
		t.Fatal(err)
	}
}

func TestAnEngineIsFoundWhereverPackagesPutIt(t *testing.T) {
	for _, directory := range programDirectories {
		root := t.TempDir()
		if hasProgram(root, "dockerd") {
			t.Error("an empty image has an engine")
		}
		addProgram(t, root, directory+"/dockerd")
		if !hasProgram(root, "dockerd") || hasProgram(root, "containerd") {
			t.Error(directory)
		}
	}
}

func TestADirectoryBelowASymlinkOfTheImageIsRefused(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, root+"/var"); err != nil {
		t.Fatal(err)
	}
	if err := ensureUnlinked(root, "var/lib/docker"); err == nil {
		t.Error("a symlink was followed")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Error("a directory was made outside of the root", entries, err)
	}
	if err := errors.Join(ensureUnlinked(root, "srv/docker"), ensureUnlinked(root, "srv/docker")); err != nil {
		t.Error(err)
	}
}

func TestFilesOfTheImageInADirectoryOfAnEngineStayVisible(t *testing.T) {
	root := t.TempDir()
	addProgram(t, root, "var/lib/docker/image/list")
	if err := mountStore(t.TempDir(), root, "var/lib/docker"); !errors.Is(err, errNotEmpty) {
		t.Error(err)
	}
}

func TestOnlyTheDirectoriesOfTheImagesEnginesAreMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("this user may not mount; the guest's tests do")
		return
	}
	root, scratch := t.TempDir(), t.TempDir()
	addProgram(t, root, "usr/sbin/dockerd")
	mountStores(scratch, root)
	target := filepath.Join(root, "var/lib/docker")
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(target, "layer"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(scratch, scratchPlaces, "docker", "layer")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "var/lib/containerd")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an engine that the image lacks got a directory", err)
	}
}
