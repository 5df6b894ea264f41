package workspace

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

func TestANewDiskIsEmptyAndBelongsToTheImagesUser(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	if state := f.state(""); state.Uid != 1000 || state.Gid != 1001 || state.Mode != unix.S_IFDIR|0o755 {
		t.Errorf("%o of %d:%d", state.Mode, state.Uid, state.Gid)
	}
	if found := names(t, f.path("")); len(found) > 0 {
		t.Error(found)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 3 && fields[1] == strings.TrimSuffix(f.path(""), "/") {
			options := strings.Split(fields[3], ",")
			for _, wanted := range []string{"rw", "noatime", "discard", "errors=remount-ro"} {
				if !slices.Contains(options, wanted) {
					t.Errorf("%s is not in %s", wanted, fields[3])
				}
			}
			return
		}
	}
	t.Error("the disk is not among the mounts")
}

func TestANewDiskGetsOwnerAndModeOfTheImagesDirectory(t *testing.T) {
	f := newFixture(t, formatted(t))
	if err := errors.Join(os.Mkdir(f.path(""), 0o700), os.Chown(f.path(""), 5, 6), unix.Chmod(f.path(""), 0o1770)); err != nil {
		t.Fatal(err)
	}
	f.mount()
	if state := f.state(""); state.Uid != 5 || state.Gid != 6 || state.Mode != unix.S_IFDIR|0o1770 {
		t.Errorf("%o of %d:%d", state.Mode, state.Uid, state.Gid)
	}
}

func TestADiskThatWasUsedKeepsWhatItHas(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	if err := errors.Join(
		os.WriteFile(f.path("file"), []byte("kept"), 0o600), os.Chown(f.path(""), 0, 0), unix.Chmod(f.path(""), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	f.leave()
	f.mount()
	if content, err := os.ReadFile(f.path("file")); err != nil || string(content) != "kept" {
		t.Error(string(content), err)
	}
	if state := f.state(""); state.Uid != 0 || state.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("%o of %d:%d", state.Mode, state.Uid, state.Gid)
	}
}

func TestARecoveredFileInLostAndFoundIsKept(t *testing.T) {
	f := newFixture(t, func(file string) {
		formatted(t)(file)
		run(t, "debugfs", "-w", "-R", "write /etc/hostname lost+found/#12", file)
	})
	f.mount()
	if found := names(t, f.path("lost+found")); len(found) != 1 {
		t.Error(found)
	}
}

func TestTheWorkingDirectoryIsMadeOnTheDisk(t *testing.T) {
	f := newFixture(t, formatted(t))
	settings := f.settings()
	settings.Workdir = "/workspace/app/src"
	if err := f.workspace.Mount(Disk{SizeBytes: testBytes}, settings); err != nil {
		t.Fatal(err)
	}
	if found := names(t, f.path("app")); !slices.Equal(found, []string{"src"}) {
		t.Error(found)
	}
	if state := f.state(""); state.Uid != 1000 {
		t.Error("the directory belongs to ", state.Uid)
	}
}

func TestNothingIsMountedThroughWhatTheImageHasAtTheMountPoint(t *testing.T) {
	outside := t.TempDir()
	for what, place := range map[string]func(path string) error{
		"a symlink":          func(path string) error { return os.Symlink(outside, path) },
		"a dangling symlink": func(path string) error { return os.Symlink("nowhere", path) },
		"a file":             func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a pipe":             func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		f := newFixture(t, formatted(t))
		if err := place(f.root + "/workspace"); err != nil {
			t.Fatal(err)
		}
		f.mount()
		if err := os.WriteFile(f.path("file"), nil, 0o600); err != nil {
			t.Error(what, err)
		}
		if state := f.state(""); state.Mode&unix.S_IFMT != unix.S_IFDIR || state.Uid != 1000 {
			t.Errorf("%s: %o of %d", what, state.Mode, state.Uid)
		}
		if found := names(t, outside); len(found) > 0 {
			t.Error(what, found)
		}
	}
}

func TestAFileSystemThatIsSmallerThanTheDiskGrows(t *testing.T) {
	f := newFixture(t, func(file string) { run(t, "mke2fs", "-q", "-F", "-t", "ext4", file, "16M") })
	f.mount()
	if !slices.Equal(f.grown, []uint64{testBytes}) {
		t.Error(f.grown)
	}
}

func TestAKindOfFileSystemThatCannotGrowIsMountedAsItIs(t *testing.T) {
	f := newFixture(t, func(file string) { run(t, "mke2fs", "-q", "-F", "-t", "ext4", file, "16M") })
	f.workspace.resize = func(*os.File, uint64) error { return unix.EOPNOTSUPP }
	f.mount()
}

func TestADiskWhoseFileSystemDoesNotGrowIsNotMounted(t *testing.T) {
	f := newFixture(t, func(file string) { run(t, "mke2fs", "-q", "-F", "-t", "ext4", file, "16M") })
	f.workspace.resize = func(*os.File, uint64) error { return unix.ENOSPC }
	if err := f.workspace.Mount(Disk{SizeBytes: testBytes}, f.settings()); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), f.root) {
		t.Error("it is mounted")
	}
}

func TestAMountedDiskGrowsWithItsDevice(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	if len(f.grown) > 0 {
		t.Fatal(f.grown)
	}
	const larger = 200<<20 + 512
	truncate(t, f.file, larger)
	run(t, "losetup", "--set-capacity", f.device)
	if err := f.workspace.Grow(Disk{SizeBytes: larger}); err != nil || !slices.Equal(f.grown, []uint64{larger}) {
		t.Fatal(f.grown, err)
	}
}

func TestADiskThatIsNotMountedDoesNotGrow(t *testing.T) {
	var known *fault.Error
	if err := (&Workspace{}).Grow(Disk{SizeBytes: 1 << 30}); !errors.As(err, &known) || known.Code != fault.InvalidState {
		t.Fatal(err)
	}
}

// TestADiskThatCannotBeMountedSaysWhy damages disks. Nothing may be mounted afterwards.
func TestADiskThatCannotBeMountedSaysWhy(t *testing.T) {
	patch := func(offset int64, bytes ...byte) func(file string) {
		return func(file string) {
			formatted(t, "-O", "^metadata_csum")(file)
			handle, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err == nil {
				_, err = handle.WriteAt(bytes, superblockOffset+offset)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = handle.Close()
		}
	}
	for what, one := range map[string]struct {
		format func(file string)
		reason string
	}{
		"empty":              {func(string) {}, "no ext4 file system"},
		"of another kind":    {func(file string) { run(t, "mkswap", file) }, "no ext4 file system"},
		"too large":          {func(file string) { formatted(t)(file); truncate(t, file, testBytes/2) }, "but the disk only"},
		"of the future":      {patch(fieldIncompatible+3, 0x80), "newer kernel (incompatible 0x80000000, read-only 0x0)"},
		"written by others":  {patch(fieldReadOnly+3, 0x40), "newer kernel (incompatible 0x0, read-only 0x40000000)"},
		"with known errors":  {patch(fieldState, stateHasErrors), "damaged (an earlier sandbox found errors)"},
		"without groups":     {patch(0x20, 0, 0, 0, 0), "damaged (invalid argument)"},
		"without a root":     {func(file string) { formatted(t)(file); run(t, "debugfs", "-w", "-R", "clri <2>", file) }, "damaged ("},
		"of the wrong check": {func(file string) { formatted(t)(file); corrupt(t, file) }, "damaged ("},
	} {
		f := newFixture(t, one.format)
		err := f.workspace.Mount(Disk{SizeBytes: testBytes / 2}, f.settings())
		var known *fault.Error
		if !errors.As(err, &known) || known.Code != fault.InvalidState || !strings.Contains(known.Message, one.reason) {
			t.Errorf("%s: %v", what, err)
		}
		if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), f.root) {
			t.Errorf("%s: it is mounted", what)
		}
	}
}

// corrupt changes a byte of the superblock that only its checksum shows.
func corrupt(t *testing.T, file string) {
	handle, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = handle.WriteAt([]byte{0xff}, superblockOffset+0x78)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = handle.Close()
}

func TestTheDiskIsMountedOnce(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	f.mount()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(string(mounts), f.root); count != 1 {
		t.Errorf("it is mounted %d times", count)
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	text := make([]byte, superblockBytes)
	text[fieldMagic], text[fieldMagic+1] = 0x53, 0xef
	f.Add(text, uint64(1<<30))
	f.Fuzz(func(t *testing.T, text []byte, deviceBytes uint64) {
		super, err := parseSuperblock(text)
		if err == nil && super.check(deviceBytes) == nil && super.bytes > min(deviceBytes, maxSizeBytes) {
			t.Fatalf("a file system of %d bytes on a disk of %d was accepted", super.bytes, deviceBytes)
		}
	})
}
