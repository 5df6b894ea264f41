package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coppice/blocks/testing/s3server"
)

const diskBytes = 200 << 20

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

// bench is what outlives a server: the store, the socket and the directory of overlays.
type bench struct {
	t                  *testing.T
	store, root        string
	socket             *os.File
	socketPath, vmPath string
}

func newBench(t *testing.T, store string) *bench {
	root := t.TempDir()
	b := &bench{t: t, store: store, root: root, socketPath: filepath.Join(root, "nbd"), vmPath: filepath.Join(root, "overlays")}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socketPath, Net: "unix"})
	if err == nil {
		b.socket, err = listener.File()
	}
	if err == nil {
		err = os.Mkdir(b.vmPath, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) command(arguments ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], arguments...)
	command.Args = append(command.Args, "--store", b.store, "--objects", filepath.Join(b.root, "objects"), "--cache", filepath.Join(b.root, "cache"))
	command.Env = append(os.Environ(), "BLOCKS_TEST_COMMAND=1")
	command.Stderr = os.Stderr
	return command
}

func (b *bench) start() *server {
	overlays, err := os.Open(b.vmPath)
	if err != nil {
		b.t.Fatal(err)
	}
	defer overlays.Close()
	command := b.command("serve", "--listen-fd", "3", "--overlays-fd", "4")
	command.ExtraFiles = []*os.File{b.socket, overlays}
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
	b.t.Cleanup(s.kill)
	return s
}

func (s *server) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
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
	s.must(`"op":"load","org":"o","disk":"d","version":3`)
	b.compare("o/d/3")
	s.kill()
	s = b.start()
	b.compare("o/d/3") // not loaded by this process
	if again := s.must(fmt.Sprintf(drain, "o1")); again["version"] != 3.0 || again["repeated"] != true {
		t.Errorf("the overlay was drained twice: %v", again)
	}
	b.overlay("o2", "write -P 3 20M 20M", "write -z -u 100M 128k", "write -P 4 101M 8k")
	t.Log(s.must(fmt.Sprintf(drain, "o2")))
	b.compare("o/d/4")
	if dirty := s.must(`"op":"dirty","overlay":"o2"`); dirty["data_bytes"] != float64(20<<20+8192) {
		t.Errorf("dirty: %v", dirty)
	}
	snapshot := s.must(`"op":"snapshot","org":"o","disk":"d","runner":"r1","epoch":1,"name":"s"`)
	s.must(fmt.Sprintf(`"op":"fork","org":"o","disk":"d","version":%v,"to":"f"`, snapshot["version"]))
	b.compare("o/f/1")
	refuse(t, s)
	exported, err := b.command("export", "--org", "o", "--disk", "f").Output()
	model, _ := os.ReadFile(filepath.Join(b.root, "model"))
	if err != nil || !bytes.Equal(exported, model) {
		t.Errorf("the export differs: %v", err)
	}
	model[5] ^= 1
	imported := b.command("import", "--org", "o", "--disk", "f")
	imported.Stdin = bytes.NewReader(model)
	if err := imported.Run(); err != nil {
		t.Fatal(err)
	}
	exported, err = b.command("export", "--org", "o", "--disk", "f").Output()
	if err != nil || !bytes.Equal(exported, model) {
		t.Errorf("the import differs: %v", err)
	}
	finish(t, s)
}

func refuse(t *testing.T, s *server) {
	for request, want := range map[string]string{
		`"op":"delete","org":"o","disk":"d"`:                    "held",
		`"op":"fork","org":"o","disk":"d","version":1,"to":"g"`: "no_data",
		`"op":"fork","org":"o","disk":"d","version":5,"to":"f"`: "exists",
		`"op":"load","org":"o","disk":"none","version":1`:       "no_disk",
		`"op":"nothing"`: "invalid",
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
	if stored := s.must(`"op":"stat","org":"o","disk":"d"`)["stored_bytes"]; stored == 0.0 {
		t.Error("nothing is stored")
	}
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
	s.must(`"op":"delete","org":"o","disk":"d"`)
	var collected map[string]any
	for range 4 {
		collected = s.must(`"op":"collect","org":"o"`)
	}
	if collected["objects"] != 0.0 {
		t.Errorf("objects stay: %v", collected)
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
		"driver=nbd,server.type=unix,server.path="+b.socketPath+",export=o/d/3,reconnect-delay=60")
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
		if round > 0 {
			s = b.start() // the request arrived while no server ran
		}
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "read 1048576/1048576") {
			t.Fatalf("round %d: %s %v", round, line, err)
		}
		_, _ = answers.ReadString('\n')
		s.kill()
	}
	_, _ = fmt.Fprintln(in, "quit")
	if err := reader.Wait(); err != nil {
		t.Error(err)
	}
}
