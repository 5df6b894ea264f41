package commands

import (
	"context"
	"slices"
	"sync"

	"coppice/agent/internal/fault"
)

const (
	// maxRunning limits the memory for outputs and the open pipes.
	maxRunning = 128
	// maxKept limits how many commands are remembered. Of those that have ended the oldest are forgotten.
	maxKept = 512
)

// table holds the commands in the order of their starts.
type table struct {
	mu   sync.Mutex
	byID map[string]*command
	// starting has a channel for each id that is reserved. It is closed when the command runs, or could not be started.
	starting map[string]chan struct{}
	order    []*command
	// ends are the commands that have ended, in that order; lastEnd counts them, also those that are forgotten.
	ends    []*command
	lastEnd int64
	changed chan struct{}
}

func newTable() *table {
	return &table{byID: map[string]*command{}, starting: map[string]chan struct{}{}, changed: make(chan struct{})}
}

// find returns a command. Of those that have ended the oldest are forgotten.
func (t *table) find(id string) (*command, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.byID[id]; ok {
		return c, nil
	}
	return nil, fault.New(fault.InvalidState, "the guest has no command %q any more", id)
}

// reserve takes an id for a command that is about to start. It returns the command that has the id already. A command that
// is being started is waited for: the host repeats a request whose answer was lost.
func (t *table) reserve(ctx context.Context, id string) (*command, error) {
	for {
		c, starting, err := t.tryReserve(id)
		if starting == nil {
			return c, err
		}
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *table) tryReserve(id string) (c *command, starting <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.byID[id]; ok {
		return c, nil, nil
	}
	if starting, ok := t.starting[id]; ok {
		return nil, starting, nil
	}
	if running := len(t.byID) + len(t.starting) - len(t.ends); running >= maxRunning {
		return nil, nil, fault.New(fault.InvalidState, "%d commands run already; end one of them", running)
	}
	t.starting[id] = make(chan struct{})
	return nil, nil, nil
}

// release gives back the id of a command that did not start.
func (t *table) release(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(id)
}

// settle ends the reservation of an id. The caller holds the lock.
func (t *table) settle(id string) {
	if starting, ok := t.starting[id]; ok {
		close(starting)
		delete(t.starting, id)
	}
}

// add adds a command that runs.
func (t *table) add(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[c.id] = c
	t.order = append(t.order, c)
	t.settle(c.id)
}

// end notes that a command has ended, and forgets the oldest of too many.
func (t *table) end(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastEnd++
	c.endNumber = t.lastEnd
	t.ends = append(t.ends, c)
	for len(t.byID) > maxKept && len(t.ends) > 1 {
		t.forget(t.ends[0])
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *table) forget(c *command) {
	c.output.discard()
	delete(t.byID, c.id)
	t.order = slices.DeleteFunc(t.order, func(other *command) bool { return other == c })
	t.ends = slices.DeleteFunc(t.ends, func(other *command) bool { return other == c })
}

// drop forgets a command that could not be attended to.
func (t *table) drop(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(c)
}

// list returns all commands.
func (t *table) list() []*command {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
}

// endsAfter returns the commands that have ended after the first seen ones, how many have ended in all, and a channel that
// is closed when that changes.
func (t *table) endsAfter(seen int64) (ends []*command, last int64, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.ends {
		if c.endNumber > seen {
			ends = append(ends, c)
		}
	}
	return ends, t.lastEnd, t.changed
}
