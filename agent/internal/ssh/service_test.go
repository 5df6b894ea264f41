package ssh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
	"coppice/agent/internal/execution"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/sshserver"
)

var reaper *reap.Reaper

func TestMain(m *testing.M) {
	// The service starts its own program, which is this one.
	if len(os.Args) > 1 && os.Args[1] == sshserver.Argument {
		if err := sshserver.Main(); err != nil {
			os.Exit(1)
		}
		return
	}
	reaper = agenttest.RunReaper()
	os.Exit(m.Run())
}

func newMachine(t *testing.T) (*agenttest.Machine, *Service) {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin", "FROM_IMAGE": "yes"}, Workdir: "/tmp"})
	var service *Service
	machine := agenttest.NewMachine(t, func(hostMoved func(context.Context) bool) api.Router {
		launcher := process.NewLauncher(process.Options{Reaper: reaper, Root: "/"})
		service = New(execution.New(execution.Options{
			Guest: state, Launcher: launcher, Null: agenttest.OpenNull(t), HostMoved: hostMoved,
		}))
		return api.Router{"POST /ssh": service.Open, "GET /ssh": service.Key}
	})
	return machine, service
}

func readKey(t *testing.T, machine *agenttest.Machine) string {
	t.Helper()
	body, err := io.ReadAll(machine.Ask("GET", "/ssh", "").Answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		HostKey string `json:"host_key"`
	}
	if err := json.Unmarshal(body, &told); err != nil || told.HostKey == "" {
		t.Fatalf("%s: %v", body, err)
	}
	return told.HostKey
}

// line is the stream of a call as the connection of a client.
type line struct {
	net.Conn
	call *agenttest.Call
	rest []byte
}

func (l *line) Read(b []byte) (int, error) {
	for len(l.rest) == 0 {
		kind, _, err := l.call.Frames.Next()
		if err != nil {
			return 0, err
		}
		if kind == frame.Exit {
			return 0, io.EOF
		}
		payload, err := l.call.Frames.ReadPayload()
		if err != nil {
			return 0, err
		}
		if kind == frame.Stdout {
			l.rest = payload
		}
	}
	n := copy(b, l.rest)
	l.rest = bytes.Clone(l.rest[n:])
	return n, nil
}

func (l *line) Write(b []byte) (int, error) {
	l.call.Send(frame.Stdin, string(b))
	return len(b), nil
}

func (l *line) Close() error { return l.call.Input.Close() }

func dial(t *testing.T, machine *agenttest.Machine, head map[string]any, known string) *ssh.Client {
	t.Helper()
	client, _ := dialCall(t, machine, head, known)
	return client
}

func dialCall(t *testing.T, machine *agenttest.Machine, head map[string]any, known string) (*ssh.Client, *agenttest.Call) {
	t.Helper()
	near, _ := net.Pipe()
	conn := &line{Conn: near, call: machine.Start("/ssh", head)}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(known))
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ClientConfig{User: "default", HostKeyCallback: ssh.FixedHostKey(key), Timeout: 10 * time.Second}
	client, channels, requests, err := ssh.NewClientConn(conn, "sandbox", config)
	if err != nil {
		t.Fatal(err)
	}
	return ssh.NewClient(client, channels, requests), conn.call
}

func output(t *testing.T, client *ssh.Client, command string) string {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.CombinedOutput(command)
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return string(out)
}

func TestAConnectionHasTheHostKeyThatTheServiceTells(t *testing.T) {
	machine, _ := newMachine(t)
	client := dial(t, machine, map[string]any{}, readKey(t, machine))
	if got := output(t, client, "echo $FROM_IMAGE $PWD $(id -un)"); got != "yes /tmp root\n" {
		t.Fatalf("%q", got)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAConnectionIsTheUserOfTheRequest(t *testing.T) {
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skip("this machine has no user nobody")
	}
	// The program of the test is in a directory that others may not enter; the path is resolved without that.
	machine, _ := newMachine(t)
	head := map[string]any{"user": "nobody", "cwd": "/", "env": map[string]string{"OWN": "1"}}
	client := dial(t, machine, head, readKey(t, machine))
	if got := output(t, client, "echo $(id -un) $PWD $OWN; cat /etc/shadow 2>&1 | grep -c denied"); got != "nobody / 1\n1\n" {
		t.Fatalf("%q", got)
	}
}

func TestTheKeyStaysWithItsSandboxAndNoCopyHasIt(t *testing.T) {
	machine, service := newMachine(t)
	service.KeepFor("aaaa")
	first := readKey(t, machine)
	service.KeepFor("aaaa")
	if again := readKey(t, machine); again != first {
		t.Fatal("the key changed with a resume of the same sandbox")
	}
	service.KeepFor("bbbb")
	if fork := readKey(t, machine); fork == first || !strings.HasPrefix(fork, "ssh-ed25519 ") {
		t.Fatal("a copy has the key of its origin: " + fork)
	}
}

func TestAnUnknownUserIsRefused(t *testing.T) {
	machine, _ := newMachine(t)
	call := machine.Start("/ssh", map[string]any{"user": "nobody-has-this-name"})
	body, err := io.ReadAll(call.Answer.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if call.Answer.StatusCode != 400 || !strings.Contains(string(body), "user") {
		t.Fatal(fmt.Sprint(call.Answer.StatusCode, " ", string(body)))
	}
}

func TestTheServerEndsWithItsClient(t *testing.T) {
	leave := func(_ *agenttest.Machine, call *agenttest.Call) { call.Leave() }
	// As in a copy, where the session of the origin is gone.
	move := func(machine *agenttest.Machine, _ *agenttest.Call) { machine.MoveHost() }
	t.Run("client left", func(t *testing.T) { checkServerEnd(t, leave, false) })
	t.Run("client left a server that hangs", func(t *testing.T) { checkServerEnd(t, leave, true) })
	t.Run("host moved", func(t *testing.T) { checkServerEnd(t, move, false) })
	t.Run("host moved from a server that hangs", func(t *testing.T) { checkServerEnd(t, move, true) })
}

func checkServerEnd(t *testing.T, lose func(*agenttest.Machine, *agenttest.Call), hangs bool) {
	t.Helper()
	machine, _ := newMachine(t)
	client, call := dialCall(t, machine, map[string]any{}, readKey(t, machine))
	server, err := strconv.Atoi(strings.TrimSpace(output(t, client, "echo $PPID")))
	if err != nil {
		t.Fatal(err)
	}
	if hangs {
		if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	lose(machine, call)
	agenttest.Eventually(t, "the end of the server", func() bool { return syscall.Kill(server, 0) != nil })
}
