// Package supervise keeps the block server running as a child of a process that outlives it. The supervisor holds the
// listening socket: while no server runs, QEMU's connections queue there instead of being refused, after which QEMU would
// wait for seconds.
//
//	runner ── requests ──► supervisor ── requests ──► server        the server may die at any time;
//	       ◄── answers ───            ◄── answers ───   ▲           its next life knows nothing of the requests
//	QEMU   ── connects ──► socket ── accepted by ───────┘
//
// A server that writes nothing for a while, although it is asked, hangs: it is killed, and the next one started.
//
// Each request of the runner is answered once: by the server, or with the code "restarted" if the server died before it
// answered. The operation may have happened then; operations are repeatable.
package supervise

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxRequestBytes = 64 << 10
	maxAnswerBytes  = 16 << 20
	// quickDeath is the age below which the next server starts after a pause, which doubles up to longestPause.
	quickDeath   = 10 * time.Second
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// A server that answers none of that many questions hangs. A host that is overloaded, or was suspended, gets no tick.
	usualPingTime = 5 * time.Second
	maxUnanswered = 12
	// pingID is that of no request of the runner.
	pingID = -1
)

// Ready is the line that says that the socket listens and a server runs.
const Ready = `{"event":"ready"}`

// Supervisor passes requests on to servers, of which one runs at a time.
type Supervisor struct {
	// Command makes the command of a new server, without standard input and output.
	Command func() *exec.Cmd
	Log     *slog.Logger
	// PingTime is the time between two questions whether the server lives. 0: five seconds.
	PingTime time.Duration

	writing sync.Mutex
	out     io.Writer

	mutex sync.Mutex
	// server is the input of the running server; changed is closed, and made anew, when it changes.
	server  io.WriteCloser
	changed chan struct{}
	// waiting counts the requests without an answer by their id. All were given to the running server.
	waiting map[int64]int
	isReady bool
	// isAlive is set by each line of the server, isPassing while such a line waits for the runner to read it.
	isAlive, isPassing atomic.Bool
}

// Run ends when in ends, or with the context, and ends the server then. It fails if the first server does not get ready:
// its options are wrong. The calling goroutine gets a thread of its own, because servers end with the thread that
// started them.
func (s *Supervisor) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Of this thread, and so of all servers.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up the privileges of programs: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.out, s.changed, s.waiting = out, make(chan struct{}), map[int64]int{}
	read := make(chan error, 1)
	go func() {
		defer cancel()
		read <- s.readRequests(ctx, in)
	}()
	for pause := time.Duration(0); ; {
		begin := time.Now()
		err := s.runServer(ctx)
		if ctx.Err() != nil {
			break
		}
		if !s.isReady {
			return fmt.Errorf("the block server does not start: %w", err)
		}
		s.Log.Error("the block server ended, and is started again", "error", err, "pause", pause)
		if time.Since(begin) >= quickDeath {
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(max(2*pause, firstPause), longestPause)
	}
	select {
	case err := <-read:
		return err
	default:
		return nil // a signal ended it; nothing stops the read
	}
}

// runServer runs one server to its end.
func (s *Supervisor) runServer(ctx context.Context) error {
	command := s.Command()
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	s.use(input)
	// At once: the next runner's server drains the same overlays, and later ones, which a drain of this server must not
	// follow.
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	watching, stopWatching := context.WithCancel(ctx)
	s.passAnswers(output, func() { go s.watch(watching, input, command.Process) })
	stopWatching()
	// Without its output it is of no use, whatever it does.
	if ctx.Err() == nil {
		_ = command.Process.Kill()
	}
	err = command.Wait()
	stop()
	s.abandon()
	return err
}

// watch kills a server that hangs.
func (s *Supervisor) watch(ctx context.Context, input io.Writer, server *os.Process) {
	ticker := time.NewTicker(cmp.Or(s.PingTime, usualPingTime))
	defer ticker.Stop()
	// A server that reads nothing would hold up the watch.
	pings := make(chan struct{}, 1)
	defer close(pings)
	go func() {
		for range pings {
			_, _ = fmt.Fprintf(input, "{\"id\":%d,\"op\":\"status\"}\n", pingID)
		}
	}()
	s.isAlive.Store(true)
	for unanswered := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if unanswered++; s.isAlive.Swap(false) || s.isPassing.Load() {
			unanswered = 0
		}
		if unanswered > maxUnanswered {
			s.Log.Error("the block server answers nothing, and is killed")
			_ = server.Kill()
			return
		}
		select {
		case pings <- struct{}{}:
		default:
		}
	}
}

func (s *Supervisor) use(server io.WriteCloser) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.server = server
	close(s.changed)
	s.changed = make(chan struct{})
}

// abandon answers all requests that the dead server did not answer.
func (s *Supervisor) abandon() {
	s.use(nil)
	s.mutex.Lock()
	waiting := s.waiting
	s.waiting = map[int64]int{}
	s.mutex.Unlock()
	for id, count := range waiting {
		for range count {
			s.refuse(id, "restarted", "the block server ended before it answered")
		}
	}
}

func (s *Supervisor) refuse(id int64, code, message string) {
	line, _ := json.Marshal(map[string]any{"id": id, "error": map[string]string{"code": code, "message": message}})
	s.write(line)
}

func (s *Supervisor) write(line []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	// A runner that is gone needs no answer; the end of its requests ends this process.
	_, _ = s.out.Write(append(line[:len(line):len(line)], '\n'))
}

func (s *Supervisor) readRequests(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxRequestBytes)
	for lines.Scan() {
		var asked struct {
			ID int64 `json:"id"`
		}
		var typeError *json.UnmarshalTypeError
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil && !errors.As(err, &typeError) {
			s.refuse(asked.ID, "invalid", "a request is not JSON")
			continue
		}
		server := s.begin(ctx, asked.ID)
		if server == nil {
			return nil
		}
		// If the server is dying, its request is answered when it is dead.
		_, _ = server.Write(append(lines.Bytes(), '\n'))
	}
	return lines.Err()
}

// begin waits for a server and records the request.
func (s *Supervisor) begin(ctx context.Context, id int64) io.Writer {
	for {
		s.mutex.Lock()
		server, changed := s.server, s.changed
		if server != nil {
			s.waiting[id]++
		}
		s.mutex.Unlock()
		if server != nil {
			return server
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// passAnswers calls onReady when the server is ready. Opening a large cache may take it a while.
func (s *Supervisor) passAnswers(output io.Reader, onReady func()) {
	lines := bufio.NewScanner(output)
	lines.Buffer(make([]byte, 0, 4096), maxAnswerBytes)
	for lines.Scan() {
		s.isAlive.Store(true)
		if string(lines.Bytes()) == Ready {
			onReady()
			if !s.isReady {
				s.isReady = true
				s.write([]byte(Ready))
			}
			continue
		}
		var answer struct {
			ID int64 `json:"id"`
		}
		err := json.Unmarshal(lines.Bytes(), &answer)
		if err == nil && answer.ID == pingID {
			continue
		}
		if err != nil || !s.end(answer.ID) {
			s.Log.Error("the block server wrote a line that answers nothing", "line", lines.Text()[:min(200, len(lines.Text()))])
			continue
		}
		s.isPassing.Store(true)
		s.write(lines.Bytes())
		s.isPassing.Store(false)
	}
}

func (s *Supervisor) end(id int64) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	count := s.waiting[id]
	if count > 1 {
		s.waiting[id]--
	} else {
		delete(s.waiting, id)
	}
	return count > 0
}

// Executable returns a path of this program that also a process finds which may not enter its directory.
func Executable() (path string, err error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the own program: %w", err)
	}
	descriptor, err := openAbove(own, firstFreeDescriptor)
	return fmt.Sprintf("/proc/self/fd/%d", descriptor), err
}
