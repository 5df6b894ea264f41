package sshserver

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

const (
	maxVariables     = 256
	maxVariableBytes = 128 << 10
)

// session is one channel for a shell, a command or a subsystem:
//
//	pty-req?, env … ─► shell, exec or subsystem ─► window-change, signal … ─► exit-status or exit-signal, close
//
// Requests are handled one after the other.
type session struct {
	channel  ssh.Channel
	env      []string
	envBytes int
	term     string
	terminal *pty
	started  bool
	// replied is closed when the client knows that the program was started. The end must not come before that.
	replied chan struct{}

	mu      sync.Mutex
	process *os.Process
}

func openSession(offer ssh.NewChannel) {
	channel, requests, err := offer.Accept()
	if err != nil {
		slog.Debug("client left before its session was open", "error", err)
		return
	}
	s := &session{channel: channel, replied: make(chan struct{})}
	hasReplied := false
	for request := range requests {
		ok := s.handle(request)
		if request.WantReply {
			_ = request.Reply(ok, nil)
		}
		if s.started && !hasReplied {
			hasReplied = true
			close(s.replied)
		}
	}
	s.leave()
}

// leave does what the kernel does when a line drops: the program is hung up, with or without a terminal. It does so before
// it writes to the client, which may be gone.
func (s *session) leave() {
	s.hangUp()
	if s.terminal != nil {
		s.terminal.close()
	}
	_ = s.channel.Close()
}

func (s *session) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	if err := unix.Kill(-s.process.Pid, unix.SIGHUP); err != nil {
		slog.Debug("program ended before it was hung up", "error", err)
	}
}

// handle reports whether a request was done. Everything else is refused, among it the forwarding of the client's
// authentication agent, which would let the guest use the client's keys.
func (s *session) handle(request *ssh.Request) bool {
	switch request.Type {
	case "env":
		return s.setVariable(request.Payload)
	case "pty-req":
		return s.openTerminal(request.Payload)
	case "window-change":
		return s.resize(request.Payload)
	case "signal":
		return s.signal(request.Payload)
	case "shell":
		return s.begin("")
	case "exec":
		var command struct{ Line string }
		return ssh.Unmarshal(request.Payload, &command) == nil && command.Line != "" && s.begin(command.Line)
	case "subsystem":
		var subsystem struct{ Name string }
		return ssh.Unmarshal(request.Payload, &subsystem) == nil && subsystem.Name == "sftp" && s.beginSFTP()
	default:
		return false
	}
}

func (s *session) setVariable(payload []byte) bool {
	var variable struct{ Name, Value string }
	if s.started || ssh.Unmarshal(payload, &variable) != nil {
		return false
	}
	s.envBytes += len(payload)
	isValid := variable.Name != "" && !strings.ContainsAny(variable.Name, "=\x00") && !strings.ContainsRune(variable.Value, 0)
	if !isValid || len(s.env) >= maxVariables || s.envBytes > maxVariableBytes {
		return false
	}
	s.env = append(s.env, variable.Name+"="+variable.Value)
	return true
}

func (s *session) openTerminal(payload []byte) bool {
	var wanted struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if s.started || s.terminal != nil || ssh.Unmarshal(payload, &wanted) != nil || strings.ContainsRune(wanted.Term, 0) {
		return false
	}
	terminal, err := openPTY(wanted.Cols, wanted.Rows)
	if err != nil {
		s.complain("cannot open a terminal: " + err.Error())
		return false
	}
	s.terminal, s.term = terminal, wanted.Term
	return true
}

func (s *session) resize(payload []byte) bool {
	var size struct{ Cols, Rows, Width, Height uint32 }
	return s.terminal != nil && ssh.Unmarshal(payload, &size) == nil && s.terminal.resize(size.Cols, size.Rows) == nil
}

// begin starts the shell, with a command or, if it is empty, for a person.
func (s *session) begin(line string) bool {
	if s.started {
		return false
	}
	cmd := s.build(line)
	var err error
	if s.terminal == nil {
		err = s.beginPiped(cmd)
	} else {
		err = s.beginOnTerminal(cmd)
	}
	if err != nil {
		s.complain("cannot start " + cmd.Path + ": " + err.Error())
		return false
	}
	s.started = true
	return true
}

func (s *session) build(line string) *exec.Cmd {
	shell := findShell()
	cmd := &exec.Cmd{Path: shell, Args: []string{shell[strings.LastIndexByte(shell, '/')+1:]}}
	if line != "" {
		cmd.Args = append(cmd.Args, "-c", line)
	}
	// Later values win. The image's and the sandbox's variables are those of this process.
	cmd.Env = append([]string{"LANG=C.UTF-8", "SHELL=" + shell}, os.Environ()...)
	if s.terminal != nil {
		cmd.Env = append(cmd.Env, "TERM="+s.term)
	}
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// findShell returns the shell that a person would want: bash if the image has it, else /bin/sh.
func findShell() string {
	if bash, err := exec.LookPath("bash"); err == nil && strings.HasPrefix(bash, "/") {
		return bash
	}
	return "/bin/sh"
}

func (s *session) beginPiped(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, inputErr := cmd.StdinPipe()
	output, outputErr := cmd.StdoutPipe()
	failures, failuresErr := cmd.StderrPipe()
	if err := errors.Join(inputErr, outputErr, failuresErr); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.setProcess(cmd.Process)
	go func() {
		// The program sees the end of its input only when the client has ended it.
		_, _ = io.Copy(input, s.channel)
		_ = input.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Add(2)
	go pass(&outputs, s.channel, output)
	go pass(&outputs, s.channel.Stderr(), failures)
	go func() {
		state, err := cmd.Process.Wait()
		// Programs that it left behind may write for long. Its number may belong to another program meanwhile.
		s.setProcess(nil)
		outputs.Wait()
		s.end(state, err)
	}()
	return nil
}

// pass copies output until no program has it open, or the client has left.
func pass(outputs *sync.WaitGroup, client io.Writer, output io.ReadCloser) {
	defer outputs.Done()
	_, _ = io.Copy(client, output)
	_ = output.Close()
}

func (s *session) beginOnTerminal(cmd *exec.Cmd) error {
	slave := s.terminal.slave
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.setProcess(cmd.Process)
	go func() { _, _ = io.Copy(s.terminal.master, s.channel) }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.terminal.copyTo(s.channel)
	}()
	go func() {
		err := cmd.Wait()
		s.setProcess(nil)
		s.terminal.expectEnd()
		<-sent
		s.end(cmd.ProcessState, err)
	}()
	return nil
}

// beginSFTP serves files in this process, which already is the user.
func (s *session) beginSFTP() bool {
	if s.started {
		return false
	}
	server, err := sftp.NewServer(s.channel)
	if err != nil {
		s.complain("cannot serve files: " + err.Error())
		return false
	}
	s.started = true
	go func() {
		if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
			slog.Debug("sftp ended", "error", err)
		}
		s.finish("exit-status", ssh.Marshal(struct{ Code uint32 }{0}))
	}()
	return true
}

func (s *session) setProcess(process *os.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = process
}

// signal sends a signal to the process group of the program.
func (s *session) signal(payload []byte) bool {
	var wanted struct{ Name string }
	if ssh.Unmarshal(payload, &wanted) != nil {
		return false
	}
	number := unix.SignalNum("SIG" + wanted.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return number != 0 && s.process != nil && unix.Kill(-s.process.Pid, number) == nil
}

// end reports how a program ended.
func (s *session) end(state *os.ProcessState, err error) {
	status, ok := syscall.WaitStatus(0), false
	if state != nil {
		status, ok = state.Sys().(syscall.WaitStatus)
	}
	if !ok {
		slog.Error("the end of a program is unknown", "error", err)
		s.finish("exit-status", ssh.Marshal(struct{ Code uint32 }{1}))
		return
	}
	if status.Signaled() {
		name := strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
		s.finish("exit-signal", ssh.Marshal(struct {
			Name              string
			Core              bool
			Message, Language string
		}{Name: name, Core: status.CoreDump()}))
		return
	}
	s.finish("exit-status", ssh.Marshal(struct{ Code uint32 }{uint32(status.ExitStatus())}))
}

func (s *session) finish(kind string, payload []byte) {
	<-s.replied
	_ = s.channel.CloseWrite()
	if _, err := s.channel.SendRequest(kind, false, payload); err != nil {
		slog.Debug("client left before it knew of the end", "error", err)
	}
	_ = s.channel.Close()
}

// complain tells a person why a request is refused: the protocol has only a refusal without a reason.
func (s *session) complain(message string) {
	_, _ = io.WriteString(s.channel.Stderr(), "coppice: "+message+"\r\n")
}
