package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coppice/blocks/internal/supervise"
	"coppice/blocks/testing/fakes3"
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
		`"op":"import","org":"o","disk":"d","overlay":"image","format":"raw"`:                   "exists",
		`"op":"import","org":"o","disk":"j","overlay":"image","format":"qcow2"`:                 "refused",
		`"op":"load","org":"../o","disk":"d","version":1`:                                       "invalid",
		`"op":"dirty","overlay":"../model"`:                                                     "failed",
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

func TestARevertShowsAKeptVersionAndItsSize(t *testing.T) {
	b := newBench(t, "directory")
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	drain := `"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"%s","source":"%[1]s"`
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	b.overlay("o1", "write -P 1 0 3M")
	drained := s.must(fmt.Sprintf(drain, "o1"))
	snapshot := s.must(`"op":"snapshot","org":"o","disk":"d","runner":"r1","epoch":1,"name":"s"`)
	runTool(t, "cp", "--sparse=always", filepath.Join(b.root, "model"), filepath.Join(b.root, "before"))
	b.overlay("o2", "write -P 2 1M 3M")
	s.must(fmt.Sprintf(drain, "o2"))
	s.must(fmt.Sprintf(`"op":"grow","org":"o","disk":"d","runner":"r1","epoch":1,"size_bytes":%d`, 2*diskBytes))
	revert := fmt.Sprintf(`"op":"revert","org":"o","disk":"d","runner":"r1","epoch":1,"version":%v`, snapshot["version"])
	reverted := s.must(revert)
	if reverted["size_bytes"] != float64(diskBytes) || reverted["drained_ms"] != drained["time_ms"] || reverted["kind"] != "revert" {
		t.Errorf("%v after %v", reverted, drained)
	}
	runTool(t, "mv", filepath.Join(b.root, "before"), filepath.Join(b.root, "model"))
	b.overlay("o3", "write -P 3 2M 3M")
	s.must(fmt.Sprintf(drain, "o3"))
	s.must(`"op":"remove_snapshot","org":"o","disk":"d","version":4`)
	if _, code := s.ask(revert); code != "no_data" {
		t.Errorf("a revert to a removed snapshot: %s", code)
	}
	for range 4 {
		s.must(`"op":"collect","org":"o","upload_ms":1`)
	}
	b.compare(s.load("d", int(s.must(`"op":"stat","org":"o","disk":"d"`)["version"].(float64))))
}

func TestATakeTellsWhetherAnEarlierHolderIsLost(t *testing.T) {
	s := newBench(t, "directory").start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	take := func(runner string) (isRecovered, previousRunner any) {
		taken := s.must(fmt.Sprintf(`"op":"take","org":"o","disk":"d","runner":"%s","lease_ms":10`, runner))
		return taken["recovered"], taken["previous"].(map[string]any)["runner"]
	}
	for _, step := range []struct {
		runner      string
		isRecovered bool
		previous    string
	}{{"r1", false, ""}, {"r1", true, "r1"}, {"r2", true, "r1"}} {
		if isRecovered, previous := take(step.runner); isRecovered != step.isRecovered || previous != step.previous {
			t.Errorf("%+v: %v from %v", step, isRecovered, previous)
		}
	}
	s.must(`"op":"release","org":"o","disk":"d","runner":"r2","epoch":3`)
	if isRecovered, _ := take("r1"); isRecovered != false {
		t.Error("a disk that was released is recovered")
	}
}

func TestTheStatusShowsAReadThatWaits(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test-key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	store := fakes3.Start()
	defer store.Close()
	var isAway atomic.Bool
	store.Rule = func(*http.Request) fakes3.Fault {
		if isAway.Load() {
			return fakes3.Busy
		}
		return fakes3.None
	}
	b := newBench(t, store.Setting("p"))
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	b.overlay("o1", "write -P 7 0 1M")
	s.must(`"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"o1","source":"o1"`)
	export := s.load("d", 3)
	isAway.Store(true)
	reader := exec.Command("qemu-io", "-r", "-f", "raw", "-c", "read -P 7 0 4k", "nbd+unix:///"+export+"?socket="+b.socketPath)
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	question := `"op":"status","org":"o","disk":"d"`
	status := s.must(question)
	for deadline := time.Now().Add(10 * time.Second); status["reads"] != 1.0 || status["oldest_read_ms"].(float64) < 100; status = s.must(question) {
		if time.Now().After(deadline) {
			t.Fatal(status)
		}
	}
	if status["store_error_ms"] == nil || !strings.Contains(status["store_error"].(string), "503") {
		t.Errorf("the failure of the store is missing: %v", status)
	}
	if other := s.must(`"op":"status","org":"o","disk":"e"`); other["reads"] != 0.0 {
		t.Errorf("another disk's reads: %v", other)
	}
	isAway.Store(false)
	if err := reader.Wait(); err != nil {
		t.Error(err)
	}
	if status = s.must(question); status["reads"] != 0.0 || status["store_ok_ms"].(float64) > status["store_error_ms"].(float64) {
		t.Errorf("afterwards: %v", status)
	}
}

func TestAReaderWaitsWhileTheServerIsAway(t *testing.T) {
	b := newBench(t, "directory")
	runTool(t, "truncate", "-s", fmt.Sprint(diskBytes), filepath.Join(b.root, "model"))
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":100`)
	b.overlay("o1", "write -P 7 0 100M")
	s.must(`"op":"drain","org":"o","disk":"d","runner":"r1","epoch":1,"overlay":"o1","source":"o1"`)
	reader := exec.Command("qemu-io", "-r", "--image-opts",
		"driver=nbd,server.type=unix,server.path="+b.socketPath+",export="+s.load("d", 3)+",reconnect-delay=60")
	in, err := reader.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := reader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	for round := range 3 {
		_, _ = fmt.Fprintf(in, "read -P 7 %dM 1M\n", round*20)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "read 1048576/1048576") {
			t.Fatalf("round %d: %s %v", round, line, err)
		}
		_, _ = answers.ReadString('\n')
		_ = s.child().Kill() // the next request arrives while no server runs, or while one starts
	}
	_, _ = fmt.Fprintln(in, "quit")
	if err := reader.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAnExportOpensOnlyByItsWholeName(t *testing.T) {
	b := newBench(t, "directory")
	s := b.start()
	for _, disk := range []string{"d", "e"} {
		s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"%s","size_bytes":%d`, disk, diskBytes))
	}
	own, other := s.load("d", 1), s.load("e", 1)
	code := own[strings.LastIndex(own, "/"):]
	last := "0"
	if strings.HasSuffix(own, "0") {
		last = "1"
	}
	for _, name := range []string{"", "o/d/1", "o/d/1/", "o/e/1" + code, "o/d/01" + code, "o/d/2" + code, own + "0", own[:len(own)-1],
		own[:len(own)-1] + last, strings.ToUpper(own), "/" + own} {
		output, err := exec.Command("qemu-img", "info", "nbd+unix:///"+name+"?socket="+b.socketPath).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "not available") && !strings.Contains(string(output), "no such export") {
			t.Errorf("%q: %s", name, output)
		}
	}
	for _, name := range []string{own, other} {
		runTool(t, "qemu-img", "info", "nbd+unix:///"+name+"?socket="+b.socketPath)
	}
}

func TestAServerThatDiesIsStartedAgainAndItsRequestsAreAnswered(t *testing.T) {
	b := newBench(t, "directory")
	s := b.start()
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	s.must(`"op":"take","org":"o","disk":"d","runner":"r1","lease_ms":60000`)
	s.count++
	_, _ = fmt.Fprintf(s.in, `{"id":%d,"op":"take","org":"o","disk":"d","runner":"r2","lease_ms":100}`+"\n", s.count) // watches r1's lease
	s.must(`"op":"status"`)
	first := s.child()
	_ = first.Kill()
	line, err := s.out.ReadString('\n')
	if err != nil || !strings.Contains(line, fmt.Sprintf(`"id":%d`, s.count-1)) || !strings.Contains(line, `"code":"restarted"`) {
		t.Errorf("%s %v", line, err)
	}
	s.must(`"op":"status"`)
	if s.child().Pid == first.Pid {
		t.Error("the server did not die")
	}
	if _, code := s.ask(`"op":7`); code != "invalid" {
		t.Errorf("a request of a wrong type: %s", code)
	}
	_, _ = fmt.Fprintln(s.in, "{")
	if line, _ := s.out.ReadString('\n'); !strings.Contains(line, `"code":"invalid"`) {
		t.Errorf("a line that is not JSON: %s", line)
	}
	s.must(`"op":"status"`)
}

func TestTheServerEndsWithItsSupervisorAndTheSupervisorWithItsRunner(t *testing.T) {
	b := newBench(t, "directory")
	for name, end := range map[string]func(*server){
		"killed":       func(s *server) { _ = s.command.Process.Kill() },
		"asked to end": func(s *server) { _ = s.command.Process.Signal(syscall.SIGTERM) },
		"left alone":   func(s *server) { _ = s.in.Close() },
	} {
		s := b.start()
		child := s.child()
		end(s)
		_ = s.command.Wait()
		for deadline := time.Now().Add(10 * time.Second); child.Signal(syscall.Signal(0)) == nil; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the server survives", name)
			}
		}
	}
}

func TestWrongOptionsEndTheSupervisor(t *testing.T) {
	b := newBench(t, "directory")
	_ = os.WriteFile(filepath.Join(b.root, "file"), nil, 0o600)
	for name, change := range map[string]func(*exec.Cmd){
		"no key":                    func(c *exec.Cmd) { c.Env = append(c.Env, "COPPICE_EXPORT_KEY=") },
		"a store that is no store":  func(c *exec.Cmd) { c.Args = append(c.Args, "--store", "http://x") },
		"a file in place of socket": func(c *exec.Cmd) { c.Args = append(c.Args, "--socket", filepath.Join(b.root, "file")) },
		"root as unprivileged user": func(c *exec.Cmd) { c.Args = append(c.Args, "--uid", "-1") },
	} {
		command := b.command("serve", "--socket", b.socketPath)
		change(command)
		command.Stderr = nil
		_, _ = command.StdinPipe() // stays open
		output, err := command.CombinedOutput()
		if err == nil || strings.Contains(string(output), "ready") {
			t.Errorf("%s: %v %s", name, err, output)
		}
	}
}

func TestBothProcessesServeAsAnUnprivilegedUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	const uid = 54321
	b := newBench(t, "directory")
	for path := b.root; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		_ = os.Chmod(path, 0o711)
	}
	for _, name := range []string{"objects", "cache"} {
		path := filepath.Join(b.root, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	s := b.start("--uid", fmt.Sprint(uid))
	s.must(fmt.Sprintf(`"op":"create","org":"o","disk":"d","size_bytes":%d`, diskBytes))
	for _, pid := range []int{s.command.Process.Pid, s.child().Pid} {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		id := fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d\n", uid)
		for _, line := range []string{"Uid:\t" + id, "Gid:\t" + id, "Groups:\t \n", "CapPrm:\t0000000000000000\n"} {
			if !strings.Contains(string(status), line) {
				t.Errorf("process %d lacks %q: %v", pid, line, err)
			}
		}
	}
	if info, err := os.Stat(b.socketPath); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the socket: %v %v", info, err)
	}
}
