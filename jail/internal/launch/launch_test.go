package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/plan"
	"coppice/jail/internal/probe"
)

// This program is both launcher and payload: the test starts it again, in child processes, in either role.
func init() {
	if len(os.Args) != 2 {
		return
	}
	switch os.Args[1] {
	case "as-launcher":
		runtime.LockOSThread()
		fmt.Fprintln(os.Stderr, Run(os.Stdin))
		os.Exit(1)
	case "as-payload":
		if err := json.NewEncoder(os.Stdout).Encode(look()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

type view struct {
	Pid, UID, GID int
	Probe         string
	Names         []string
	Own           string
	ReadOnly      string
	Far           string
	Environment   int
	Input         string
	Fallocate     string
	Descriptors   []int
	OpenFiles     uint64
}

func look() view {
	var limit syscall.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, (*unix.Rlimit)(&limit)); err != nil {
		return view{Probe: err.Error()}
	}
	seen := view{Pid: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), Environment: len(os.Environ()), OpenFiles: limit.Max}
	for descriptor := 3; descriptor < 64; descriptor++ {
		var status unix.Stat_t
		if unix.Fstat(descriptor, &status) == nil && status.Mode&unix.S_IFMT != 0 {
			seen.Descriptors = append(seen.Descriptors, descriptor)
		}
	}
	input, _ := io.ReadAll(os.Stdin)
	seen.Input = string(input)
	entries, _ := os.ReadDir("/")
	for _, entry := range entries {
		seen.Names = append(seen.Names, entry.Name())
	}
	content, err := os.ReadFile("/own/file")
	seen.Own = string(content) + fmt.Sprint(err)
	seen.ReadOnly = fmt.Sprint(os.WriteFile("/read-only/new", nil, 0o600))
	seen.Far = fmt.Sprint(writeAt("/own/large", 1<<20))
	seen.Fallocate = fmt.Sprint(allocateAt("/own/file"))
	seen.Probe = fmt.Sprint(probe.Run(&bytes.Buffer{}))
	return seen
}

func writeAt(path string, offset int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt([]byte("x"), offset)
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func allocateAt(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fallocate(int(file.Fd()), 0, 0, 4096)
}

const (
	testUser   = 1_999_999
	endsWithin = 20 * time.Second
)

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: only root can give a program another user")
	}
}

// preparePlan lays out a jail below a directory that the jail's user may pass through.
func preparePlan(t *testing.T) *plan.Plan {
	t.Helper()
	directory := t.TempDir()
	own, readOnly := filepath.Join(directory, "own"), filepath.Join(directory, "read-only")
	for _, each := range []string{own, readOnly} {
		must(t, os.Mkdir(each, 0o700))
		must(t, os.WriteFile(filepath.Join(each, "file"), []byte("mine"), 0o600))
		must(t, os.Chown(each, testUser, testUser))
		must(t, os.Chown(filepath.Join(each, "file"), testUser, testUser))
	}
	self, err := os.Executable()
	must(t, err)
	return &plan.Plan{
		Version:    plan.Version,
		Namespaces: true,
		Mounts: []plan.Mount{
			{Source: own, Target: "/own", Writable: true},
			{Source: readOnly, Target: "/read-only"},
			{Source: self, Target: "/bin/payload", Executable: true},
			{Source: "/dev/null", Target: "/dev/null", Writable: true, Device: true},
		},
		Identity:    &plan.Identity{UID: testUser, GID: testUser},
		Limits:      plan.Limits{OpenFiles: 77, FileSizeBytes: 1 << 16, Tasks: 200},
		Descriptors: []int{4},
		Program:     "/bin/payload",
		Arguments:   []string{"as-payload"},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// launch starts the launcher with three more descriptors (3, 4, and 5, which holds "mine") and returns its pid and its output.
func launch(t *testing.T, wanted *plan.Plan) (pid int, stdout, stderr string) {
	t.Helper()
	text, err := json.Marshal(wanted)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	deadline, cancel := context.WithTimeout(context.Background(), endsWithin)
	defer cancel()
	command := exec.CommandContext(deadline, self, "as-launcher")
	command.Stdin = bytes.NewReader(text)
	var output, messages bytes.Buffer
	command.Stdout, command.Stderr = &output, &messages
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	input, err := os.Open(wanted.Mounts[1].Source + "/file")
	must(t, err)
	defer input.Close()
	command.ExtraFiles = []*os.File{null, null, input}
	if err := command.Run(); err != nil {
		fmt.Fprint(&messages, err)
	}
	return command.Process.Pid, output.String(), messages.String()
}

func TestAProgramFindsItselfInTheJailOfItsPlan(t *testing.T) {
	requireRoot(t)
	pid, stdout, stderr := launch(t, preparePlan(t))
	var got view
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	want := view{
		Pid: pid, UID: testUser, GID: testUser, Probe: "<nil>", Names: []string{"bin", "dev", "own", "read-only"},
		Fallocate: "<nil>", Own: "mine<nil>", ReadOnly: "open /read-only/new: read-only file system", Far: "file too large",
		Descriptors: []int{4}, OpenFiles: 77,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestADescriptorBecomesStandardInputAndIsNotKeptBeside(t *testing.T) {
	requireRoot(t)
	wanted, input := preparePlan(t), 5
	wanted.Input = &input
	_, stdout, stderr := launch(t, wanted)
	var got view
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	if got.Input != "mine" || fmt.Sprint(got.Descriptors) != "[4]" {
		t.Errorf("got input %q and descriptors %v", got.Input, got.Descriptors)
	}
}

func TestAProgramThatMayNotReserveSpaceIsRefusedFallocate(t *testing.T) {
	requireRoot(t)
	wanted := preparePlan(t)
	wanted.NoFallocate = true
	_, stdout, stderr := launch(t, wanted)
	var got view
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	if got.Fallocate != "operation not supported" {
		t.Errorf("got %q", got.Fallocate)
	}
}

// The launcher's parent is a shell that ends at once; the program would otherwise wait for the end of its input for ever.
func TestAProgramEndsWithTheProcessThatStartedIt(t *testing.T) {
	requireRoot(t)
	wanted, input := preparePlan(t), 5
	wanted.EndWithParent, wanted.Input, wanted.Descriptors = true, &input, nil
	text, err := json.Marshal(wanted)
	must(t, err)
	planned := filepath.Join(t.TempDir(), "plan")
	must(t, os.WriteFile(planned, text, 0o600))
	self, err := os.Executable()
	must(t, err)
	waiting, holder, err := os.Pipe()
	must(t, err)
	defer holder.Close()
	// The shell waits for a moment in which the launcher has become the program.
	command := exec.Command("sh", "-c", `"$0" as-launcher < "$1" & echo $!; sleep 1`, self, planned)
	command.ExtraFiles = []*os.File{waiting, waiting, waiting}
	command.WaitDelay = time.Second
	output, err := command.Output()
	if !errors.Is(err, exec.ErrWaitDelay) {
		must(t, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	must(t, err)
	for deadline := time.Now().Add(endsWithin); unix.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Fatal("the program has survived")
		}
	}
}

func TestAStepThatFailsIsToldAndNothingIsStarted(t *testing.T) {
	requireRoot(t)
	for _, test := range []struct {
		name  string
		spoil func(*plan.Plan)
		want  string
	}{
		{"a cgroup that does not exist", func(p *plan.Plan) { p.Cgroups = []string{"/nowhere/cgroup.procs"} }, "/nowhere/cgroup.procs: no such file"},
		{"a source that does not exist", func(p *plan.Plan) { p.Mounts[0].Source = "/nowhere" }, "mounting /nowhere: no such file"},
		{"a device that the plan does not announce", func(p *plan.Plan) { p.Mounts[3].Device = false }, "mounting /dev/null: device is true"},
		{"a program that does not exist", func(p *plan.Plan) { p.Program = "/bin/other" }, "starting /bin/other: no such file"},
		{"a program on a mount that is not executable", func(p *plan.Plan) { p.Mounts[2].Executable = false }, "permission denied"},
		{"a descriptor that is not open", func(p *plan.Plan) { p.Descriptors = []int{99} }, "keeping descriptor 99"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wanted := preparePlan(t)
			test.spoil(wanted)
			_, stdout, stderr := launch(t, wanted)
			if stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("got %q %q, want something about %q", stdout, stderr, test.want)
			}
		})
	}
}

func TestNoMountOfTheJailReachesTheHost(t *testing.T) {
	requireRoot(t)
	wanted := preparePlan(t)
	if _, stdout, stderr := launch(t, wanted); stdout == "" {
		t.Fatal(stderr)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), filepath.Dir(wanted.Mounts[0].Source)) {
		t.Errorf("mounts of the host:\n%s", mounts)
	}
}
