package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// Pipe has a blocking end for the child and a non-blocking end for the agent's poller.
type Pipe struct {
	Child int
	Agent *os.File
}

// Direction is the direction of a pipe's bytes.
type Direction int

// The directions of a pipe.
const (
	ToChild Direction = iota
	FromChild
)

func openPipe(way Direction) (Pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return Pipe{}, ExplainOpen("pipe", err)
	}
	child, agent := ends[1], ends[0]
	if way == ToChild {
		child, agent = ends[0], ends[1]
	}
	if err := unix.SetNonblock(agent, true); err != nil {
		return Pipe{}, errors.Join(err, unix.Close(child), unix.Close(agent))
	}
	return Pipe{Child: child, Agent: os.NewFile(uintptr(agent), "pipe")}, nil
}

// ExplainOpen returns a capacity error if the agent's own limits are reached, and wraps other failures.
func ExplainOpen(step string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return fault.New(fault.Capacity, "too many commands and background processes: %v", err)
	}
	return fmt.Errorf("%s: %w", step, err)
}

// Pipes are the pipes of one process.
type Pipes []Pipe

// OpenPipes opens all pipes or none.
func OpenPipes(ways ...Direction) (Pipes, error) {
	var pipes Pipes
	for _, way := range ways {
		pipe, err := openPipe(way)
		if err != nil {
			pipes.CloseChildEnds()
			pipes.CloseAgentEnds()
			return nil, err
		}
		pipes = append(pipes, pipe)
	}
	return pipes, nil
}

// CloseChildEnds closes the agent's copies of the child's ends. Call it as soon as the child has them.
func (p Pipes) CloseChildEnds() {
	for _, pipe := range p {
		if err := unix.Close(pipe.Child); err != nil {
			slog.Error("close of a child's pipe", "error", err)
		}
	}
}

// CloseAgentEnds closes the agent's ends. Call it for a child that could not be started.
func (p Pipes) CloseAgentEnds() {
	for _, pipe := range p {
		CloseLogged(pipe.Agent)
	}
}

// CloseLogged closes a file that may have been closed before.
func CloseLogged(file *os.File) {
	if err := file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		slog.Error("close failed", "file", file.Name(), "error", err)
	}
}
