package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"coppice/blocks/internal/supervise"
	"coppice/blocks/testing/s3server"
)

const (
	diskBytes = 200 << 20
	testKey   = "00112233445566778899aabbccddeeff"
)

// TestMain lets a test run this binary as the command.
func TestMain(m *testing.M) {
	if os.Getenv("BLOCKS_TEST_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

type server struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	count   int
}

// bench is what outlives the processes: the store, the socket's path and the directory of overlays.
type bench struct {
	t                  *testing.T
	store, root        string
	socketPath, vmPath string
}

func newBench(t *testing.T, store string) *bench {
	root := t.TempDir()
	b := &bench{t: t, store: store, root: root, socketPath: filepath.Join(root, "nbd"), vmPath: filepath.Join(root, "overlays")}
	if err := os.Mkdir(b.vmPath, 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) command(arguments ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], arguments...)
	command.Args = append(command.Args, "--store", b.store, "--objects", filepath.Join(b.root, "objects"), "--cache", filepath.Join(b.root, "cache"))
	command.Env = append(os.Environ(), "BLOCKS_TEST_COMMAND=1", "COPPICE_EXPORT_KEY="+testKey)
	command.Stderr = os.Stderr
	return command
}

func (b *bench) start(options ...string) *server {
	overlays, err := os.Open(b.vmPath)
	if err != nil {
		b.t.Fatal(err)
	}
	defer overlays.Close()
	command := b.command("serve", "--socket", b.socketPath, "--overlays-fd", "3")
	command.Args = append(command.Args, options...)
	command.ExtraFiles = []*os.File{overlays}
	in, err := command.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.t.Fatal(err)
	}
	s := &server{t: b.t, command: command, in: in, out: bufio.NewReader(out)}
	b.t.Cleanup(s.end)
	if line, err := s.out.ReadString('\n'); line != supervise.Ready+"\n" {
		b.t.Fatalf("%q %v", line, err)
	}
	return s
}

// end ends both processes, as the runner does that leaves.
func (s *server) end() {
	_ = s.in.Close()
	_ = s.command.Wait()
}

// child is the process that the supervisor runs.
func (s *server) child() *os.Process {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		output, _ := exec.Command("pgrep", "-P", fmt.Sprint(s.command.Process.Pid)).Output()
		pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
		if err == nil {
			process, _ := os.FindProcess(pid)
			return process
		}
	}
	s.t.Fatal("the supervisor runs no server")
	return nil
}

// ask sends a request and returns its result, or the code of its error.
func (s *server) ask(request string) (result map[string]any, code string) {
	s.t.Helper()
	s.count++
	_, _ = fmt.Fprintf(s.in, "{\"id\":%d,%s}\n", s.count, request)
	line, err := s.out.ReadBytes('\n')
	var answer struct {
		ID     int
		Result any
		Error  *struct{ Code, Message string }
	}
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil || answer.ID != s.count {
		s.t.Fatalf("%s: %s %v", request, line, err)
	}
	if answer.Error != nil {
		s.t.Log(answer.Error.Message)
		return nil, answer.Error.Code
	}
	result, _ = answer.Result.(map[string]any)
	return result, ""
}

func (s *server) must(request string) map[string]any {
	s.t.Helper()
	result, code := s.ask(request)
	if code != "" {
		s.t.Fatalf("%s: %s", request, code)
	}
	return result
}

// load returns the name of an export.
func (s *server) load(disk string, version int) string {
	s.t.Helper()
	return s.must(fmt.Sprintf(`"op":"load","org":"o","disk":"%s","version":%d`, disk, version))["export"].(string)
}

func runTool(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
}

func (b *bench) overlay(name string, commands ...string) {
	path := filepath.Join(b.vmPath, name)
	runTool(b.t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=128k,extended_l2=on", path, fmt.Sprint(diskBytes))
	arguments := []string{"-f", "qcow2", "-d", "unmap"}
	model := []string{"-f", "raw", "-d", "unmap"}
	for _, command := range commands {
		arguments, model = append(arguments, "-c", command), append(model, "-c", command)
	}
	runTool(b.t, "qemu-io", append(arguments, path)...)
	runTool(b.t, "qemu-io", append(model, filepath.Join(b.root, "model"))...)
}

func (b *bench) compare(export string) {
	b.t.Helper()
	runTool(b.t, "qemu-img", "compare", "-f", "raw", "-F", "raw", filepath.Join(b.root, "model"), "nbd+unix:///"+export+"?socket="+b.socketPath)
}

func TestADiskLivesThroughDrainsRestartsAndForks(t *testing.T) {
	t.Run("directory", func(t *testing.T) { live(t, newBench(t, "directory")) })
	t.Run("S3", func(t *testing.T) { live(t, newBench(t, s3server.Start(t))) })
}

func live(t *testing.T, b *bench) {
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	b.overlay("o1", "write -P 1 0 30M", "write -P 2 100M 4k", "write -z 1M 1M")
	drain := `"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"%s","source":"%[1]s","keep_from":0`
	if v := s.must(fmt.Sprintf(drain, "o1"))["version"]; v != 3.0 {
		t.Errorf("the first drain made version %v", v)
	}
	third := s.load("d", 3)
	b.compare(third)
	s.end()
	s = b.start()
	b.compare(third) // not loaded by this process
	if again := s.must(fmt.Sprintf(drain, "o1")); again["version"] != 3.0 || again["repeated"] != true {
		t.Errorf("the overlay was drained twice: %v", again)
	}
	b.overlay("o2", "write -P 3 20M 20M", "write -z -u 100M 128k", "write -P 4 101M 8k")
	t.Log(s.must(fmt.Sprintf(drain, "o2")))
	b.compare(s.load("d", 4))
	if dirty := s.must(`"op":"dirty","overlay":"o2"`); dirty["data_bytes"] != float64(20<<20+8192) {
		t.Errorf("dirty: %v", dirty)
	}
	snapshot := s.must(`"op":"snapshot","org":"o","disk":"d","runner":"r1","epoch":1,"name":"s"`)
	for range 2 {
		again := s.must(`"op":"snapshot","org":"o","disk":"d","runner":"r1","epoch":1,"name":"s"`)
		forked := s.must(fmt.Sprintf(`"op":"fork","org":"o","disk":"d","version":%v,"to":"f"`, snapshot["version"]))
		if again["version"] != snapshot["version"] || forked["version"] != 1.0 {
			t.Errorf("repeated: %v, %v", again, forked)
		}
	}
	if listed := s.must(`"op":"snapshots","org":"o","disk":"d"`)["snapshots"].([]any); len(listed) != 1 || listed[0].(map[string]any)["name"] != "s" {
		t.Errorf("snapshots: %v", listed)
	}
	b.compare(s.load("f", 1))
	runTool(t, "cp", "--sparse=always", filepath.Join(b.root, "model"), filepath.Join(b.vmPath, "image"))
	load := `"op":"import","org":"o","disk":"i","overlay":"image","format":"raw"`
	imported := s.must(load)
	b.compare(s.load("i", 2))
	if again := s.must(load); again["version"] != imported["version"] || again["repeated"] != true {
		t.Errorf("the image was imported twice: %v", again)
	}
	refuse(t, s)
	exported, err := b.command("export", "--org", "o", "--disk", "f").Output()
	model, _ := os.ReadFile(filepath.Join(b.root, "model"))
	if err != nil || !bytes.Equal(exported, model) {
		t.Errorf("the export differs: %v", err)
	}
	exported, err = b.command("export", "--org", "o", "--disk", "f", "--format", "qcow2").Output()
	if err != nil || os.WriteFile(filepath.Join(b.root, "exported"), exported, 0o600) != nil {
		t.Fatal(err)
	}
	runTool(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", filepath.Join(b.root, "model"), filepath.Join(b.root, "exported"))
	finish(t, s)
}

func refuse(t *testing.T, s *server) {
	for request, want := range map[string]string{
		`"op":"delete","org":"o","disk":"d"`:                    "held",
		`"op":"fork","org":"o","disk":"d","version":1,"to":"g"`: "no_data",
		`"op":"fork","org":"o","disk":"d","version":5,"to":"i"`: "exists",
		`"op":"load","org":"o","disk":"none","version":1`:       "no_disk",
		`"op":"nothing"`: "invalid",
		`"op":"create","org":"o","disk":"n","size_bytes":5`:                                     "invalid",
		`"op":"import","org":"o","disk":"d","overlay":"image","format":"raw"`:                   "exists",
		`"op":"import","org":"o","disk":"j","overlay":"image","format":"qcow2"`:                 "refused",
		`"op":"load","org":"../o","disk":"d","version":1`:                                       "invalid",
		`"op":"dirty","overlay":"../model"`:                                                     "invalid",
		`"op":"drain","org":"o","disk":"d","runner":"r2","epoch":9,"overlay":"o1","source":"x"`: "stale",
	} {
		if _, code := s.ask(request); code != want {
			t.Errorf("%s: %s, not %s", request, code, want)
		}
	}
}

func finish(t *testing.T, s *server) {
	s.must(`"op":"take","org":"o","disk":"d","runner":"r2","lease_ms":100`)
	if _, code := s.ask(`"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"o1","source":"y"`); code != "stale" {
		t.Errorf("a drain of the earlier holder: %s", code)
	}
	s.must(`"op":"renew","runner":"r2"`)
	s.must(`"op":"release","org":"o","disk":"d","runner":"r2","epoch":2`)
	if _, code := s.ask(`"op":"delete","org":"o","disk":"d"`); code != "has_forks" {
		t.Errorf("a delete of a disk with forks: %s", code)
	}
	s.must(`"op":"delete","org":"o","disk":"f"`)
	if stored := s.must(`"op":"stored","org":"o","disk":"d"`)["stored_bytes"]; stored == 0.0 {
		t.Error("nothing is stored")
	}
	s.must(`"op":"delete","org":"o","disk":"d"`)
	s.must(`"op":"delete","org":"o","disk":"i"`)
	var collected map[string]any
	for range 4 {
		collected = s.must(`"op":"collect","org":"o"`)
	}
	if collected["objects"] != 0.0 {
		t.Errorf("objects stay: %v", collected)
	}
}
