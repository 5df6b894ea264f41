package sshserver

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const limit = 20 * time.Second

func connect(t *testing.T) *ssh.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = Serve(conn, key)
		}
		ended <- err
	}()
	config := &ssh.ClientConfig{User: "default", HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: limit}
	client, err := ssh.Dial("tcp", listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(limit):
			t.Error("the server continues after its client has left")
		}
	})
	return client
}

func newSession(t *testing.T, client *ssh.Client) *ssh.Session {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(limit, func() { _ = session.Close() })
	return session
}

func TestACommandHasInputTwoOutputsAndACode(t *testing.T) {
	session := newSession(t, connect(t))
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = strings.NewReader("typed"), &stdout, &stderr
	if err := session.Setenv("LC_TEST", "passed"); err != nil {
		t.Fatal(err)
	}
	err := session.Run("cat; echo $LC_TEST >&2; exit 7")
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 7 || stdout.String() != "typed" || stderr.String() != "passed\n" {
		t.Fatal(err, stdout.String(), stderr.String())
	}
}

func TestManyShortCommandsAllReportTheirEnd(t *testing.T) {
	client := connect(t)
	for range 50 {
		if out, err := newSession(t, client).Output("echo x"); err != nil || string(out) != "x\n" {
			t.Fatal(err, string(out))
		}
	}
}

func TestAllOfALargeOutputArrives(t *testing.T) {
	out, err := newSession(t, connect(t)).Output("head -c 5000000 /dev/zero")
	if err != nil || len(out) != 5000000 {
		t.Fatal(err, len(out))
	}
}

func TestASignalReachesTheProgramAndIsReported(t *testing.T) {
	session := newSession(t, connect(t))
	out, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("echo ready; exec sleep 100"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := session.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Fatal(err)
	}
}

func TestATerminalHasItsSizeAndIsResized(t *testing.T) {
	session := newSession(t, connect(t))
	if err := session.RequestPty("vt100", 33, 91, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	input, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("stty size; echo $TERM; read line; stty size; exit 4"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("33 91\r\nvt100\r\n"))
	if _, err := io.ReadFull(output, first); err != nil || string(first) != "33 91\r\nvt100\r\n" {
		t.Fatal(err, string(first))
	}
	if err := session.WindowChange(50, 132); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(output)
	if err != nil || !strings.HasSuffix(string(rest), "50 132\r\n") {
		t.Fatal(err, string(rest))
	}
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 4 {
		t.Fatal(err)
	}
}

func TestFilesAreServed(t *testing.T) {
	client, err := sftp.NewClient(connect(t))
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/file"
	content := bytes.Repeat([]byte("content\n"), 200_000)
	file, err := client.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ReadFrom(bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), client.PosixRename(path, path+"2"), client.Chmod(path+"2", 0o640)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path + "2")
	if err != nil || !bytes.Equal(got, content) {
		t.Fatal(err, len(got))
	}
}

func TestOnlyLoopbackIsReached(t *testing.T) {
	client := connect(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	conn, err := client.Dial("tcp", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "echo"); err != nil {
		t.Fatal(err)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Fatal("the direction to the service cannot be ended alone")
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "echo" {
		t.Fatal(err, string(got))
	}
	for _, host := range []string{"192.0.2.1", "example.com", "169.254.169.254", "[::ffff:192.0.2.1]", "0.0.0.0"} {
		var refused *ssh.OpenChannelError
		if _, err := client.Dial("tcp", host+":80"); !errors.As(err, &refused) || refused.Reason != ssh.Prohibited {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestWhatASandboxMustNotGetIsRefused(t *testing.T) {
	client := connect(t)
	session := newSession(t, client)
	for _, kind := range []string{"auth-agent-req@openssh.com", "x11-req"} {
		if ok, err := session.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("%s: %v %v", kind, ok, err)
		}
	}
	if err := session.RequestSubsystem("netconf"); err == nil {
		t.Error("an unknown subsystem was started")
	}
	if _, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("the guest listens for the client")
	}
	if err := session.Setenv("A=B", "x"); err == nil {
		t.Error("a variable that no process can have was accepted")
	}
}

func TestAProgramIsHungUpWhenItsClientLeaves(t *testing.T) {
	for name, hasTerminal := range map[string]bool{"on a terminal": true, "on pipes": false} {
		t.Run(name, func(t *testing.T) { checkHangUp(t, hasTerminal) })
	}
}

func checkHangUp(t *testing.T, hasTerminal bool) {
	t.Helper()
	path := t.TempDir() + "/hung-up"
	client := connect(t)
	session := newSession(t, client)
	if hasTerminal {
		if err := session.RequestPty("xterm", 24, 80, ssh.TerminalModes{}); err != nil {
			t.Fatal(err)
		}
	}
	output, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("trap 'echo yes > " + path + "; exit' HUP; echo ready; while :; do sleep 0.1; done"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(output, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && string(text) == "yes\n" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the program was not hung up")
		}
	}
}

func TestWhatACommandLeftBehindIsNotHungUp(t *testing.T) {
	path := t.TempDir() + "/kept"
	client := connect(t)
	if out, err := newSession(t, client).Output("(sleep 1; echo yes > " + path + ") >/dev/null 2>&1 & echo left"); err != nil {
		t.Fatal(err, string(out))
	}
	_ = client.Close()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && string(text) == "yes\n" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the job in the background was ended")
		}
	}
}

func TestChannelsAreLimited(t *testing.T) {
	client := connect(t)
	for range maxChannels {
		newSession(t, client)
	}
	_, err := client.NewSession()
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
		t.Fatal(err)
	}
}

func TestRefusedChannelsAreLimited(t *testing.T) {
	client := connect(t)
	refusals := 0
	for {
		_, _, err := client.OpenChannel("x11", nil)
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) {
			break
		}
		// A few more are refused while the connection is closed.
		if refusals++; refusals > maxRefusals+100 {
			t.Fatal("the connection continues")
		}
	}
	if refusals < maxRefusals-1 {
		t.Fatal("the connection ended after", refusals)
	}
}

func TestAProgramThatDoesNotReadStopsItsClientOnly(t *testing.T) {
	client := connect(t)
	stuck := newSession(t, client)
	input, err := stuck.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stuck.Start("exec sleep 100"); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	go func() {
		for chunk := make([]byte, 32<<10); ; {
			n, err := input.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	before := int64(-1)
	for end := time.Now().Add(limit); before != sent.Load(); time.Sleep(500 * time.Millisecond) {
		if before = sent.Load(); time.Now().After(end) {
			t.Fatal("the client is not stopped after", before)
		}
	}
	if total := sent.Load(); total > 4<<20 {
		t.Fatal("buffered", total)
	}
	if out, err := newSession(t, client).Output("echo other"); err != nil || string(out) != "other\n" {
		t.Fatal(err, string(out))
	}
}
