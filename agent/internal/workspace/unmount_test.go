package workspace

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/fault"
)

const readyAndSleep = "echo; exec sleep 1000"

func TestUnmountEndsWhatUsesTheDiskAndNothingElse(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	shell := func(directory, script string, args ...string) <-chan struct{} {
		return f.start(directory, append([]string{"/bin/sh", "-c", script}, args...)...)
	}
	run(t, "cp", "/bin/sleep", f.path("program"))
	users := map[string]<-chan struct{}{
		"a directory": shell(f.path(""), readyAndSleep),
		"a file":      shell("/", "exec 5>$0; "+readyAndSleep, f.path("open")),
		"a program":   shell("/", "echo; exec $0 1000", f.path("program")),
		"a namespace": f.start("/", "unshare", "--mount", "/bin/sh", "-c", readyAndSleep),
	}
	other := shell("/", readyAndSleep)
	// It has a root of its own with nothing of the disk in it, as a container has.
	foreign := f.start("/", "unshare", "--mount", "/bin/sh", "-c", "umount $0 && "+readyAndSleep, f.path(""))
	if err := f.workspace.Unmount(agenttest.Limit, false); err != nil {
		t.Fatal(err)
	}
	for what, ended := range users {
		await(t, what, ended)
	}
	if isClosed(other) || isClosed(foreign) {
		t.Error("a program that does not use the disk was ended")
	}
	if err := f.workspace.Unmount(agenttest.Limit, false); err != nil {
		t.Error("a second unmount: ", err)
	}
	f.mount()
	if found := names(t, f.path("")); !slices.Contains(found, "open") {
		t.Error(found)
	}
	f.leave()
	run(t, "e2fsck", "-fn", f.device)
}

func TestUnmountEndsAContainerThatUsesTheDiskWithoutASign(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	const script = `mkdir upper work && mount -t overlay overlay -o lowerdir=/etc,upperdir=$PWD/upper,workdir=$PWD/work /mnt &&
		disk=$PWD && cd / && umount $disk && echo && exec sleep 1000`
	container := f.start(f.path(""), "unshare", "--mount", "/bin/sh", "-c", script)
	if err := f.workspace.Unmount(3*time.Second, false); err != nil {
		t.Fatal(err)
	}
	await(t, "the container ends", container)
}

func TestAMappedFileIsFound(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	if err := os.WriteFile(f.path("file"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(f.path("file"))
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	self := usage{directory: "/proc/self", device: f.state("").Dev}
	if !self.hasMapped() {
		t.Error("it is not found")
	}
	if err := unix.Munmap(mapped); err != nil || self.hasMapped() {
		t.Error("it is still mapped ", err)
	}
}

func TestUnmountEndsMountsBelowAndElsewhere(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	elsewhere := t.TempDir() + "/a b"
	if err := errors.Join(
		os.Mkdir(f.path("below"), 0o755), os.Mkdir(elsewhere, 0o755),
		unix.Mount("tmpfs", f.path("below"), "tmpfs", 0, ""), unix.Mount(f.path(""), elsewhere, "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	if err := f.workspace.Unmount(agenttest.Limit, false); err != nil {
		t.Fatal(err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), f.root) {
		t.Error("it is mounted")
	}
}

func TestAnotherDiskIsMountedAfterOneThatWasGivenUp(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	// Reads through the device fill the kernel's cache with what is not on the disk any more afterwards.
	run(t, "dd", "if="+f.device, "of=/dev/null", "bs=1M")
	if err := os.WriteFile(f.path("old"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.workspace.Unmount(agenttest.Limit, true); err != nil {
		t.Fatal(err)
	}
	other := newFixture(t, formatted(t))
	other.mount()
	if err := os.WriteFile(other.path("new"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	other.leave()
	run(t, "blockdev", "--flushbufs", other.device)
	run(t, "cp", other.file, f.file)
	f.mount()
	if found := names(t, f.path("")); !slices.Equal(found, []string{"new"}) {
		t.Error(found)
	}
	f.leave()
	run(t, "e2fsck", "-fn", f.device)
}

func TestADiskThatStaysInUseIsNotMountedAnew(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	// The test itself stands for a part of the kernel that uses the disk.
	file, err := os.Create(f.path("open"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.workspace.Unmount(0, false); fault.From(err).Code != fault.InvalidState {
		t.Fatal(err)
	}
	if done, err := f.workspace.Sync(agenttest.Limit); err != nil || !done {
		t.Error("after a failure it is not mounted any more: ", done, err)
	}
	second := New(t.TempDir())
	second.find = f.workspace.find
	if err := second.Mount(Disk{SizeBytes: testBytes}, f.settings()); fault.From(err).Code != fault.InvalidState {
		t.Error("a disk in use was mounted: ", err)
	}
	_ = file.Close()
}

func TestTheMountTableIsReadAsTheKernelWritesIt(t *testing.T) {
	table := parseMounts("22 1 254:16 / / rw - ext4 /dev/vdb rw\n" +
		"short\n30 22 7:0 / /work\\040space rw,noatime shared:1 - ext4 /dev/vdc rw\n" +
		"31 30 0:40 / /work\\040space/\\134 rw - tmpfs tmpfs rw\n32 22 0:41 / /work\\040spaces rw - tmpfs tmpfs rw\n")
	selected := selectMounts(table, unix.Mkdev(7, 0))
	want := []mountEntry{{unix.Mkdev(7, 0), "/work space"}, {unix.Mkdev(0, 40), `/work space/\`}}
	if len(table) != 4 || !slices.Equal(selected, want) {
		t.Error(table, selected)
	}
}
