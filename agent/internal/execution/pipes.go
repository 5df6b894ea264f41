package execution

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// pipe has a blocking end for the child and a non-blocking one for the agent's poller.
type pipe struct {
	child int
	agent *os.File
}

type direction int

const (
	toChild direction = iota
	fromChild
)

func openPipe(name string, way direction) (pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return pipe{}, fault.New(fault.Capacity, "too many commands and background processes: %v", err)
		}
		return pipe{}, fmt.Errorf("pipe for %s: %w", name, err)
	}
	child, agent := ends[1], ends[0]
	if way == toChild {
		child, agent = ends[0], ends[1]
	}
	if err := unix.SetNonblock(agent, true); err != nil {
		return pipe{}, errors.Join(err, unix.Close(child), unix.Close(agent))
	}
	return pipe{child: child, agent: os.NewFile(uintptr(agent), name)}, nil
}

func (p pipe) closeChild() {
	if err := unix.Close(p.child); err != nil {
		slog.Error("close of a child's pipe", "error", err)
	}
}

// pipes are those of one command; stdin.agent is nil if it has no standard input.
type pipes struct {
	stdin, stdout, stderr pipe
}

func openPipes(withStdin bool) (*pipes, error) {
	p := &pipes{}
	for _, wanted := range []struct {
		name string
		way  direction
		slot *pipe
	}{{"stdin", toChild, &p.stdin}, {"stdout", fromChild, &p.stdout}, {"stderr", fromChild, &p.stderr}} {
		if wanted.way == toChild && !withStdin {
			continue
		}
		opened, err := openPipe(wanted.name, wanted.way)
		if err != nil {
			p.closeChildEnds()
			p.closeAgentEnds()
			return nil, err
		}
		*wanted.slot = opened
	}
	return p, nil
}

func (p *pipes) opened() []pipe {
	var list []pipe
	for _, one := range []pipe{p.stdin, p.stdout, p.stderr} {
		if one.agent != nil {
			list = append(list, one)
		}
	}
	return list
}

func (p *pipes) childFiles(null *os.File) []uintptr {
	stdin := uintptr(p.stdin.child)
	if p.stdin.agent == nil {
		stdin = null.Fd()
	}
	return []uintptr{stdin, uintptr(p.stdout.child), uintptr(p.stderr.child)}
}

func (p *pipes) closeChildEnds() {
	for _, one := range p.opened() {
		one.closeChild()
	}
}

func (p *pipes) closeAgentEnds() {
	for _, one := range p.opened() {
		closeLogged(one.agent)
	}
}

func closeLogged(file *os.File) {
	if err := file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		slog.Error("close failed", "file", file.Name(), "error", err)
	}
}
