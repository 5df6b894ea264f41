package shell

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"coppice/agent/internal/frame"
)

// words are harmless in every order: a word that reads has nothing to read, no word writes to a file, and no loop is
// endless.
var words = []string{
	"'", "\"", "`", "\\", "$", "(", ")", "{", "}", ";", ";;", "&&", "||", "!", "#", "\n", " ", "\t", "<<E", "<<'E'", "<<-E", "E", "\nE\n",
	"echo", "if", "then", "else", "fi", "do", "done", "for i in 1", "in", "case", "esac", "[[", "]]", "((", "))",
	"$(", "${", "$((", "x=1", "f()", "function g", "<", "true", "false", ":", "[", "]", "=", "%1", "~", "*", "return", "break", "|",
}

func text(random *rand.Rand) string {
	var b strings.Builder
	for range 1 + random.IntN(12) {
		b.WriteString(words[random.IntN(len(words))])
		if random.IntN(3) > 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Any text may end a shell, but a shell must never answer for another command than the one it was given.
func TestNoTextDesynchronizesAShell(t *testing.T) {
	for name, onlySh := range map[string]bool{"bash": false, "sh": true} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			random := rand.New(rand.NewPCG(seed, 0))
			t.Log("seed ", seed)
			var s *testSession
			for i := range 400 {
				if s == nil {
					s = open(t, onlySh)
				}
				if command := text(random); !s.survives(command, i) {
					s = nil
				}
			}
		})
	}
}

// survives runs any command and then one whose output is known. It returns false if the shell has ended.
func (s *testSession) survives(command string, number int) bool {
	s.t.Helper()
	if _, ended := s.runAny(command); ended {
		return false
	}
	alive := fmt.Sprintf("alive-%d\n", number)
	// A command may have redefined echo.
	out, ended := s.runAny("\\command printf '%s\\n' " + strings.TrimSpace(alive))
	if !ended && out != alive {
		// An earlier command may have corrupted the shell, which may show only now.
		if _, ended = s.runAny(":"); !ended {
			s.t.Fatalf("%q instead of %q after %q", out, alive, s.given)
		}
	}
	return !ended
}

// runAny runs a command after which, or right after which, the shell may end.
func (s *testSession) runAny(command string) (out string, ended bool) {
	s.t.Helper()
	s.given = append(s.given, command)
	// This fails if the shell has ended in the meantime, which the answer shows.
	_, _ = s.Input.Write(frame.Encode(frame.Run, []byte(command)))
	for {
		kind, payload, err := s.Next()
		switch {
		case err != nil:
			s.t.Fatalf("%v after %q", err, s.given[max(0, len(s.given)-4):])
		case kind == frame.Stdout:
			out += string(payload)
		case kind == frame.Done:
			return out, false
		case kind == frame.Exit:
			return out, true
		}
	}
}
