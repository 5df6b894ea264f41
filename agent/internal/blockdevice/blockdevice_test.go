package blockdevice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if disk, err := Find(sys, "scratch"); err != nil || disk != "/dev/vdb" {
		t.Fatal(disk, err)
	}
	if _, err := Find(sys, "workspace"); err == nil {
		t.Fatal("a disk that does not exist was found")
	}
}

func TestAGrownDiskIsAwaited(t *testing.T) {
	size := filepath.Join(t.TempDir(), "size")
	write := func(sectors string) {
		if err := os.WriteFile(size+".new", []byte(sectors), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(size+".new", size); err != nil {
			t.Error(err)
		}
	}
	write("131072\n")
	if err := awaitSize(size, 64<<20, time.Minute); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { write("204800\n") })
	if err := awaitSize(size, 100<<20, time.Minute); err != nil {
		t.Fatal(err)
	}
	err := awaitSize(size, 101<<20, 10*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "the disk has 104857600 bytes") {
		t.Fatal(err)
	}
}
