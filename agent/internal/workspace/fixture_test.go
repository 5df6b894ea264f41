package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/guest"
)

// inNamespaces is set in the environment of the process that runs the tests.
const inNamespaces = "COPPICE_TEST_NAMESPACES"

// TestMain runs the tests in mount and process namespaces of their own. Unmount ends processes, and may see none of the
// machine's; and a program that starts meanwhile may not get a copy of the tests' mounts, which would keep them in use.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespaces) != "" {
		os.Exit(m.Run())
	}
	command := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0]}
	path, err := exec.LookPath(command[0])
	if err == nil {
		err = syscall.Exec(path, append(command, os.Args[1:]...), append(os.Environ(), inNamespaces+"=1"))
	}
	panic(err)
}

// fixture is a guest's root with a disk, which is a loop device over a file.
type fixture struct {
	t         *testing.T
	root      string
	file      string
	device    string
	workspace *Workspace
	// grown are the sizes to which the file system was to grow. The kernel grows one only for CAP_SYS_RESOURCE, which not
	// every root has; e2e tests do it in a guest.
	grown []uint64
}

const (
	testBytes = 64 << 20
	testUser  = "1000:1001"
)

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, output)
	}
	return strings.TrimSpace(string(output))
}

func truncate(t *testing.T, file string, bytes int64) {
	t.Helper()
	handle, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = handle.Truncate(bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = handle.Close()
}

// newFixture makes a disk with what format writes to the file of testBytes.
func newFixture(t *testing.T, format func(file string)) *fixture {
	t.Helper()
	f := &fixture{t: t, root: t.TempDir(), file: filepath.Join(t.TempDir(), "disk")}
	truncate(t, f.file, testBytes)
	format(f.file)
	f.device = run(t, "losetup", "--find", "--show", f.file)
	t.Cleanup(func() { run(t, "losetup", "--detach", f.device) })
	f.workspace = New(f.root)
	f.workspace.find = func() (string, error) { return f.device, nil }
	f.workspace.resize = func(_ *os.File, bytes uint64) error {
		f.grown = append(f.grown, bytes)
		return nil
	}
	t.Cleanup(f.leave)
	return f
}

// start runs a program, which writes a line when it is ready, until the test ends. It returns a channel that is closed
// when the program has ended.
func (f *fixture) start(directory string, command ...string) <-chan struct{} {
	f.t.Helper()
	program := exec.Command(command[0], command[1:]...)
	program.Dir = directory
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := program.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		f.t.Fatal(err)
	}
	group := program.Process.Pid
	ended := make(chan struct{})
	f.t.Cleanup(func() {
		_ = unix.Kill(-group, unix.SIGKILL)
		<-ended
	})
	readErr := output.(*os.File).SetReadDeadline(time.Now().Add(agenttest.Limit))
	if readErr == nil {
		_, readErr = output.Read(make([]byte, 1))
	}
	go func() {
		_ = program.Wait()
		close(ended)
	}()
	if readErr != nil {
		f.t.Fatal(command, readErr)
	}
	return ended
}

func formatted(t *testing.T, options ...string) func(file string) {
	return func(file string) {
		run(t, "mke2fs", append([]string{"-q", "-F", "-t", "ext4"}, append(options, file)...)...)
	}
}

func (f *fixture) path(name string) string { return filepath.Join(f.root, "workspace", name) }

func (f *fixture) settings() guest.Settings {
	return guest.Settings{User: testUser, Workdir: guest.DefaultDirectory}
}

func (f *fixture) mount() {
	f.t.Helper()
	if err := f.workspace.Mount(Disk{SizeBytes: testBytes}, f.settings()); err != nil {
		f.t.Fatal(err)
	}
}

// leave unmounts the disk as a destroyed sandbox does.
func (f *fixture) leave() {
	f.t.Helper()
	if f.workspace.top == nil {
		return
	}
	agenttest.Eventually(f.t, "no freeze is in progress", func() bool { return !f.workspace.isHeld() })
	f.workspace.syncing <- struct{}{}
	defer func() { <-f.workspace.syncing }()
	_ = f.workspace.top.Close()
	f.workspace.top = nil
	if err := unix.Unmount(f.path(""), 0); err != nil {
		f.t.Error(err)
	}
}

func (f *fixture) state(name string) unix.Stat_t {
	f.t.Helper()
	var state unix.Stat_t
	if err := unix.Lstat(f.path(name), &state); err != nil {
		f.t.Fatal(err)
	}
	return state
}

func names(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}
