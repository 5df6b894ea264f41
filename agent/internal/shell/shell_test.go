package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/stream"
)

var reaper *reap.Reaper

func TestMain(m *testing.M) {
	// A descriptor that the tests' own parent has left open would look like one that the shell leaks.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	reaper = agenttest.RunReaper()
	os.Exit(m.Run())
}

// testSession is a shell under test.
type testSession struct {
	*agenttest.Machine
	*agenttest.Call
	t *testing.T
	// given are the commands so far, for failure messages.
	given []string
}

func open(t *testing.T, onlySh bool) *testSession {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin", "IMAGE": "yes"}, Workdir: "/"})
	m := agenttest.NewMachine(t, func(hostMoved func(context.Context) bool) api.Router {
		launcher := process.NewLauncher(process.Options{Reaper: reaper, Root: t.TempDir()})
		service := New(Options{Guest: state, Launcher: launcher, HostMoved: hostMoved})
		service.onlySh = onlySh
		return api.Router{"POST /shell": service.Open}
	})
	return &testSession{Machine: m, Call: m.Start("/shell", map[string]any{}), t: t}
}

// eachShell tests with bash, and with sh as in an image without bash.
func eachShell(t *testing.T, test func(t *testing.T, s *testSession)) {
	t.Helper()
	for name, onlySh := range map[string]bool{"bash": false, "sh": true} {
		t.Run(name, func(t *testing.T) { test(t, open(t, onlySh)) })
	}
}

// outcome is the result of one command.
type outcome struct {
	out, err string
	code     int
}

func (s *testSession) run(command string) outcome {
	s.t.Helper()
	s.Send(frame.Run, command)
	s.given = append(s.given, command)
	return s.await()
}

func (s *testSession) await() outcome {
	s.t.Helper()
	var o outcome
	for {
		switch kind, payload := s.MustNext(); kind {
		case frame.Stdout:
			o.out += string(payload)
		case frame.Stderr:
			o.err += string(payload)
		case frame.Done:
			var done struct {
				ExitCode int `json:"exit_code"`
			}
			if err := json.Unmarshal(payload, &done); err != nil {
				s.t.Fatal(err)
			}
			o.code = done.ExitCode
			return o
		default:
			s.t.Fatalf("frame %d %s after %+v; commands %q", kind, payload, o, s.given)
		}
	}
}

// expect runs a command and checks that it succeeds and writes nothing to standard error.
func (s *testSession) expect(command, out string) {
	s.t.Helper()
	if got := s.run(command); got != (outcome{out: out}) {
		s.t.Fatalf("%+v, want %q; commands %q", got, out, s.given)
	}
}

func (s *testSession) expectCode(command string, code int) outcome {
	s.t.Helper()
	got := s.run(command)
	if got.code != code {
		s.t.Fatalf("%q: %+v, want code %d", command, got, code)
	}
	return got
}

func (s *testSession) expectAlive() {
	s.t.Helper()
	s.expect("echo alive", "alive\n")
}

// expectExit checks the end of the shell.
func (s *testSession) expectExit(want stream.Exit) {
	s.t.Helper()
	kind, payload := s.MustNext()
	for kind == frame.Stdout || kind == frame.Stderr {
		kind, payload = s.MustNext()
	}
	var exit stream.Exit
	if err := json.Unmarshal(payload, &exit); kind != frame.Exit || err != nil || exit != want {
		s.t.Fatalf("frame %d %s, want %+v", kind, payload, want)
	}
	s.ExpectEnd()
}

func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func TestDirectoryVariablesAndFunctionsLastFromCommandToCommand(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.expect("cd /usr; own=5; export EXPORTED=7; f() { echo \"f $1\"; }", "")
		s.expect("pwd; echo $own $IMAGE; f x; sh -c 'echo $EXPORTED'", "/usr\n5 yes\nf x\n7\n")
		s.expect("alias greet='echo hello'", "")
		s.expect("greet you", "hello you\n")
		s.expect("umask 077; set -- a 'b c'", "")
		s.expect("umask; echo $# \"$2\"", "0077\n2 b c\n")
	})
}

func TestStandardOutputAndErrorAreApart(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		if got := s.run("echo out; echo err >&2; false"); got != (outcome{"out\n", "err\n", 1}) {
			s.t.Fatalf("%+v", got)
		}
	})
}

func TestOutputComesAsItIsWritten(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		marker := t.TempDir() + "/go"
		s.Send(frame.Run, fmt.Sprintf("echo early; while ! [ -e %s ]; do sleep 0.01; done; echo late", marker))
		s.ReadUntil("early")
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.await(); got.out != "late\n" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestTheStatusIsCarriedOver(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.expect("echo $?", "0\n")
		for _, code := range []int{1, 2, 42, 255} {
			s.expectCode(fmt.Sprintf("(exit %d)", code), code)
			s.expect("echo $?", fmt.Sprintf("%d\n", code))
		}
		// "!" is exempt from -e. The line that restores its status must be exempt too.
		s.expectCode("set -e; ! true", 1)
		s.expect("echo $?; set +e", "1\n")
	})
}

func TestACommandCanNeitherReadTheScriptNorReport(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.expect("cat", "")
		s.expect("read x; echo \"<$x>\"", "<>\n")
		s.expect("cat; cat /dev/stdin", "")
		s.expect("sh -c 'cat; ls /proc/self/fd'", "0\n1\n2\n3\n")
		s.run("printf '%s\\n' '1 0 hB' . >&253")
		s.run("printf '%s\\n' '1 0 hB' . >&9")
		s.expect("printf '%s\\n' '9 0 hB' .; echo '1 0 x'", "9 0 hB\n.\n1 0 x\n")
		s.run("exec 9>/dev/null")
		s.run("exec 9>&-")
		s.run("exec </etc/passwd")
		s.run("exec <&-")
		s.expectAlive()
	})
}

func TestBashMayUseTheDescriptorOfItsReports(t *testing.T) {
	s := open(t, false)
	s.run("exec 253>/dev/null")
	s.run("exec 253>&-")
	s.expectAlive()
}

func TestWhatAPromptTakesIsTaken(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.expect("cat <<EOF\na $((1+1))\n'b'\nEOF", "a 2\n'b'\n")
		s.expect("cat <<'EOF'\n$x `y` \\\nEOF\n", "$x `y` \\\n")
		s.expect("echo 'it'\\''s' \"a \\\"b\\\" 'c'\" \\\\", "it's a \"b\" 'c' \\\n")
		s.expect("echo a # 'comment", "a\n")
		s.expect("# only a comment", "")
		s.expect("echo a \\\n b", "a b\n")
		s.expect("echo a\\", "a\\\n")
		s.expect("set -e; echo a\\", "a\n")
		s.expect("\n\n", "")
		s.expect("  \t", "")
		s.expect("for i in 1 2\ndo\necho $i\ndone\n\necho grün", "1\n2\ngrün\n")
		s.expect("echo a;\n", "a\n")
	})
}

func TestWhatCannotBeParsedFailsAndTheShellGoesOn(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		// "$(" is left to the random texts: bash 5.2.15 may die of it, because its parser writes beyond a buffer.
		for _, command := range []string{"if", ")", "'", "\"", "`", "${", "case x in", "echo )", "f() {", "&& a", ";;", "done"} {
			if got := s.run(command); got.code == 0 || got.err == "" {
				t.Fatalf("%q: %+v", command, got)
			}
			s.expectAlive()
		}
		s.expectCode("nonexistent-command", 127)
		s.run("break")
		s.run("continue")
		s.expectAlive()
	})
}

func TestErrorsThatEndTheCommandDoNotEndABash(t *testing.T) {
	s := open(t, false)
	for _, command := range []string{
		"[[ a ;;", "readonly r=1; r=2; echo not reached", "echo $((1/0))", "exec nonexistent", "exec /", "return 3", "local x", ". /nonexistent",
		"cd /nonexistent", "<nonexistent", "set -o nonsense", "unset r", "x[", "shift 99", "kill %9", "eval 'if'", "echo ${x!y}",
	} {
		if got := s.run(command); got.code == 0 {
			t.Fatalf("%q: %+v", command, got)
		}
		s.expectAlive()
		s.expect("cat", "")
	}
}

func TestTheEndOfTheShellIsTheEndOfItsCommandToo(t *testing.T) {
	for command, want := range map[string]stream.Exit{
		"echo bye; exit 3":                {ExitCode: 3},
		"exit":                            {},
		"false; exit":                     {ExitCode: 1},
		"kill -9 $$":                      {ExitCode: 137, Signal: 9},
		"exec true":                       {},
		"exec sh -c 'sleep 0.1; exit 4'":  {ExitCode: 4},
		"set -e; false; echo not reached": {ExitCode: 1},
		"trap 'exit 5' EXIT; exit 1":      {ExitCode: 5},
	} {
		eachShell(t, func(t *testing.T, s *testSession) {
			if got := s.run(command); got.code != want.ExitCode || strings.Contains(got.out, "not reached") {
				t.Errorf("%q: %+v", command, got)
			}
			s.expectExit(want)
		})
	}
}

func TestTheShellMayEndBetweenCommands(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.run("(sleep 0.1; kill -9 $$) >/dev/null 2>&1 &")
		s.expectExit(stream.Exit{ExitCode: 137, Signal: 9})
	})
}

func TestTheEndOfTheBodyEndsTheShellAfterTheCommand(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		s.run("trap 'echo trapped' EXIT")
		s.Send(frame.Run, "sleep 0.1; echo done; (exit 6)")
		if err := s.Input.Close(); err != nil {
			t.Fatal(err)
		}
		if got := s.await(); got != (outcome{out: "done\n", code: 6}) {
			t.Fatalf("%+v", got)
		}
		if kind, payload := s.MustNext(); kind != frame.Stdout || string(payload) != "trapped\n" {
			t.Fatalf("%d %q", kind, payload)
		}
		s.expectExit(stream.Exit{ExitCode: 0})
	})
}

func TestRedirectionsOfTheShellLast(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		file := t.TempDir() + "/out"
		s.expect("exec 3>&1 >"+file, "")
		s.expect("echo into the file", "")
		s.expect("exec >&3 3>&-; cat "+file, "into the file\n")
		s.expect("exec 2>&1; echo both >&2", "both\n")
		s.expect("exec 5<"+file+"; read x <&5; echo $x", "into the file\n")
	})
}

func TestJobsLastFromCommandToCommand(t *testing.T) {
	s := open(t, false)
	s.expect("sleep 1000 &", "")
	if got := s.run("jobs"); !strings.Contains(got.out, "Running") || !strings.Contains(got.out, "sleep 1000 &") {
		t.Fatalf("%+v", got)
	}
	// The shell itself decides when it reports that the job is gone.
	s.expectCode("kill %1", 0)
	s.run("wait %1")
	s.expect("(sleep 0.1; exit 7) &", "")
	s.expectCode("wait $!", 7)
	s.expectCode("(sleep 0.2; echo later) & wait %1", 0)
}

func TestHistoryHasTheCommandsAsTheyWereGiven(t *testing.T) {
	s := open(t, false)
	s.run("echo 'one'")
	s.run("for i in 1\ndo echo $i; done")
	s.expect("history", "    1  echo 'one'\n    2  for i in 1\ndo echo $i; done\n    3  history\n")
	s.expect("echo \"<$HISTFILE>\"", "<>\n")
}

func TestTracingShowsTheUsersCommandsAlone(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		s.run("set -x")
		s.expectCode("false", 1)
		if got := s.run("echo $?"); got.out != "1\n" || strings.TrimLeft(got.err, "+") != " echo 1\n" {
			t.Fatalf("%+v", got)
		}
		s.run("set +x")
		s.expectAlive()
	})
}

func TestAllOutputComesBeforeTheCommandIsDone(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		for _, size := range []int{1, 60_000, 5 << 20} {
			got := s.run(fmt.Sprintf("head -c %d /dev/zero; head -c %d /dev/zero >&2", size, size))
			if len(got.out) != size || len(got.err) != size {
				t.Fatal(size, len(got.out), len(got.err))
			}
		}
	})
}

func TestOutputOfTheBackgroundGoesOn(t *testing.T) {
	eachShell(t, func(_ *testing.T, s *testSession) {
		s.expect("(sleep 0.2; echo from behind) &", "")
		s.ReadUntil("from behind")
		s.expectAlive()
	})
}

func TestALongCommandIsTaken(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		text := strings.Repeat("x'\"y\n", 60_000)
		got := s.run("wc -c <<'EOF'\n" + text + "EOF")
		if strings.TrimSpace(got.out) != fmt.Sprint(len(text)) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestCommandsQueueUp(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		go func() {
			for i := range 20 {
				s.Send(frame.Run, fmt.Sprintf("echo %d", i))
			}
		}()
		for i := range 20 {
			if got := s.await(); got.out != fmt.Sprintf("%d\n", i) {
				t.Fatalf("%d: %+v", i, got)
			}
		}
	})
}

func TestWhatIsNoCommandEndsTheSession(t *testing.T) {
	for _, payload := range []string{"", "a\x00b", "\xff"} {
		eachShell(t, func(_ *testing.T, s *testSession) {
			s.Send(frame.Run, payload)
			s.expectExit(stream.Exit{ExitCode: 137, Signal: 9})
		})
	}
}

func TestAReportThatIsNoneEndsTheSession(t *testing.T) {
	s := open(t, false)
	s.Send(frame.Run, "trap 'echo nonsense >&253' DEBUG; :")
	for kind := byte(0); kind != frame.Exit; {
		kind, _ = s.MustNext()
	}
	s.ExpectEnd()
}
