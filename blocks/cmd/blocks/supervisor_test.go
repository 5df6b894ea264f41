package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
