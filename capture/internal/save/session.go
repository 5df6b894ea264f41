// Package save writes a VM's RAM to a file. The runner requests it in steps, because the VM is stopped for one of them:
//
//	plan   -> ready     the VM runs: the file is made with the data shared with its base and a first copy of the rest
//	copy   -> copied    the VM is stopped: everything that it has changed is copied; requested again if it has
//	                    changed more
//	finish -> finished  the VM runs: the file is made durable if requested, and is the runner's from here on
//
// A runner that dies closes the input: at any moment before the end, the file is then removed.
package save

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/digest"
	"coppice/capture/internal/ramfile"
	"coppice/capture/internal/vmmemory"
)

type session struct {
	lines    <-chan []byte
	answers  *json.Encoder
	target   ramfile.Target
	base     *os.File
	file     *os.File
	memory   *vmmemory.Memory
	transfer *transfer
}

// Run answers requests until the file is finished, and returns the exit code.
func Run(input io.Reader, output io.Writer) int {
	s := &session{answers: json.NewEncoder(output)}
	ignoreSignals()
	s.removeOnSignal()
	s.lines = readLines(input, s.abandon)
	if err := s.run(); err != nil {
		s.target.Discard()
		_ = s.answers.Encode(describe(err))
		return 1
	}
	return 0
}

// ignoreSignals makes such writes fail with an error instead.
func ignoreSignals() { signal.Ignore(unix.SIGPIPE, unix.SIGXFSZ) }

func (s *session) removeOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go func() {
		<-signals
		s.abandon()
	}()
}

// abandon removes the file and ends the program, whatever it is doing.
func (s *session) abandon() {
	s.target.Remove()
	os.Exit(1)
}

func (s *session) run() error {
	if err := s.prepare(); err != nil {
		return err
	}
	for isCopied := false; ; isCopied = true {
		var request request
		if err := decode(<-s.lines, &request); err != nil {
			return err
		}
		switch {
		case request.Step == "finish" && isCopied:
			return s.finish(request.Sync)
		case request.Step != "copy":
			return fmt.Errorf("step %q is not expected now", request.Step)
		}
		if err := s.copy(); err != nil {
			return err
		}
	}
}

func (s *session) prepare() error {
	var plan plan
	if err := decode(<-s.lines, &plan); err != nil {
		return err
	}
	if err := plan.check(); err != nil {
		return err
	}
	var err error
	if s.base, err = openBase(plan.Base, plan.SizeBytes); err != nil {
		return err
	}
	if s.memory, err = vmmemory.Open(plan.Pid, s.base, uint64(plan.SizeBytes)); err != nil {
		return err
	}
	if s.file, err = s.target.Create(plan.Target); err != nil {
		return err
	}
	answer := readyAnswer{Step: "ready"}
	data := newPageSet(plan.SizeBytes)
	if answer.BaseBytes, err = ramfile.CopyBase(s.file, s.base, plan.SizeBytes, data.addExtent); err != nil {
		return err
	}
	s.transfer = newTransfer(s.memory, s.file, plan.SizeBytes, data)
	if answer.DirtyBytes, err = s.transfer.pass(); err != nil {
		return err
	}
	return s.answers.Encode(answer)
}

func openBase(path string, size int64) (*os.File, error) {
	base, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := base.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() < size {
		return nil, fmt.Errorf("%s is not a file of at least %d bytes", path, size)
	}
	return base, nil
}

func (s *session) copy() error {
	started := time.Now()
	bytes, err := s.transfer.pass()
	if err != nil {
		return err
	}
	return s.answers.Encode(copiedAnswer{
		Step: "copied", Pages: bytes / vmmemory.PageSize, Bytes: bytes,
		ElapsedMS: float64(time.Since(started).Microseconds()) / 1000,
	})
}

func (s *session) finish(sync bool) error {
	s.transfer.close()
	answer := finishedAnswer{Step: "finished"}
	if sync {
		sum, err := sumAndSync(s.file)
		if err != nil {
			return err
		}
		answer.Digest = sum.Digest
	}
	var err error
	if answer.AllocatedBytes, err = ramfile.AllocatedBytes(s.file); err != nil {
		return err
	}
	s.target.Keep()
	return s.answers.Encode(answer)
}

// sumAndSync reads the file from memory while the disk is busy writing it.
func sumAndSync(file *os.File) (digest.Sum, error) {
	synced := make(chan error, 1)
	go func() { synced <- file.Sync() }()
	sum, err := digest.File(file)
	return sum, errors.Join(err, <-synced)
}
