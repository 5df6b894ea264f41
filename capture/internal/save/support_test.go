package save

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"coppice/capture/testing/mapper"
)

const (
	mib        = 1 << 20
	ramBytes   = 64 * mib
	endsWithin = 20 * time.Second
)

// This program is also the process that the tests read from, and the program that they test.
func init() {
	mapper.Serve()
	if len(os.Args) == 2 && os.Args[1] == "as-capture" {
		os.Exit(Run(os.Stdin, os.Stdout))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func filled(length int, value byte) []byte { return bytes.Repeat([]byte{value}, length) }

// site is a VM, whose base has data at 1 to 9 MiB, and the file to which its memory is saved.
type site struct {
	base, target string
	vm           *mapper.Process
}

func newSite(t *testing.T) *site {
	t.Helper()
	directory := t.TempDir()
	s := &site{base: filepath.Join(directory, "base"), target: filepath.Join(directory, "target")}
	must(t, os.WriteFile(s.base, nil, 0o600))
	must(t, os.Truncate(s.base, ramBytes))
	file, err := os.OpenFile(s.base, os.O_WRONLY, 0)
	must(t, err)
	defer file.Close()
	_, err = file.WriteAt(filled(8*mib, 7), mib)
	must(t, err)
	s.vm = mapper.Start(t, s.base, ramBytes)
	return s
}

func (s *site) plan() plan {
	return plan{Pid: s.vm.Pid, Base: s.base, Target: s.target, SizeBytes: ramBytes}
}

func (s *site) expectNoTarget(t *testing.T) {
	t.Helper()
	if _, err := os.Lstat(s.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target still exists: %v", err)
	}
}

// expectTarget compares the file with what the VM sees.
func (s *site) expectTarget(t *testing.T) {
	t.Helper()
	seen := filepath.Join(t.TempDir(), "seen")
	s.vm.Dump(t, seen)
	want, err := os.ReadFile(seen)
	must(t, err)
	got, err := os.ReadFile(s.target)
	must(t, err)
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("the file of %d bytes differs from offset %d on", len(got), i)
		}
	}
	t.Fatalf("the file has %d bytes", len(got))
}

// program is one run of capture save.
type program struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Scanner
}

func startProgram(t *testing.T) *program {
	t.Helper()
	reader, writer, err := os.Pipe()
	must(t, err)
	defer writer.Close()
	t.Cleanup(func() { reader.Close() })
	program := startProgramTo(t, writer)
	program.stdout = bufio.NewScanner(reader)
	return program
}

func startProgramTo(t *testing.T, stdout *os.File) *program {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	command := exec.Command(self, "as-capture")
	command.Stdout, command.Stderr = stdout, os.Stderr
	stdin, err := command.StdinPipe()
	must(t, err)
	must(t, command.Start())
	killer := time.AfterFunc(endsWithin, func() { _ = command.Process.Kill() })
	t.Cleanup(func() {
		killer.Stop()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return &program{command: command, stdin: stdin}
}

type answer struct {
	Step           string
	Code           string
	Message        string
	BaseBytes      int64 `json:"base_bytes"`
	DirtyBytes     int64 `json:"dirty_bytes"`
	Bytes          int64
	AllocatedBytes int64 `json:"allocated_bytes"`
	Digest         string
}

func (p *program) write(t *testing.T, request any) {
	t.Helper()
	line, err := json.Marshal(request)
	must(t, err)
	_, err = p.stdin.Write(append(line, '\n'))
	must(t, err)
}

func (p *program) ask(t *testing.T, request any) answer {
	t.Helper()
	p.write(t, request)
	if !p.stdout.Scan() {
		t.Fatalf("no answer to %+v: %v", request, p.stdout.Err())
	}
	var answer answer
	must(t, json.Unmarshal(p.stdout.Bytes(), &answer))
	return answer
}

// expect sends a request and fails the test unless the answer is of that step.
func (p *program) expect(t *testing.T, request any, step string) answer {
	t.Helper()
	answer := p.ask(t, request)
	if answer.Step != step {
		t.Fatalf("got %+v instead of %s", answer, step)
	}
	return answer
}

func (p *program) expectExit(t *testing.T, code int) {
	t.Helper()
	_ = p.command.Wait()
	if got := p.command.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d instead of %d", got, code)
	}
}
