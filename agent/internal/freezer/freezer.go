// Package freezer freezes the guest's programs while the host saves the machine: POST /freeze and POST /thaw of
// docs/reference/agent-protocol.md, and the end of POST /resume.
//
//	running ──freeze──▶ requested ──no start under way──▶ groups frozen
//	   ▲                    │                                  │
//	   └────────────────────┴── thaw, end of a resume, or ─────┘
//	                            60 s in which neither came and no resume began
//
// A process that is being started uses the agent's memory and processor until it has become its program (vfork). If it
// were frozen in between, the agent would wait for it and could not thaw it. So no start begins while a freeze is
// requested, and the groups are frozen only when no start is under way.
package freezer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"coppice/agent/internal/clock"
	"coppice/agent/internal/fault"
)

// The agent thaws the programs by itself if no request does: the runner may have died. The time is counted in steps, so
// that a clock that jumps when a saved machine is restored does not use it up. The runner gives up a restored machine
// after 45 s.
const (
	patienceStep  = 5 * time.Second
	patienceSteps = 12
)

// Groups are the control groups of the guest's programs.
type Groups interface {
	// Freeze asks the kernel to freeze the groups. A repeated call freezes new groups.
	Freeze() error
	// AwaitFrozen waits, at most until the given time, and reports whether all groups are frozen. It returns false if
	// no freeze was requested.
	AwaitFrozen(until time.Time) bool
	// Thaw undoes what Freeze has requested. It costs nothing if nothing was requested.
	Thaw() error
}

// Freezer freezes and thaws the guest's programs. A nil Freezer never freezes them.
type Freezer struct {
	groups   Groups
	step     time.Duration
	setClock func(unixNs int64) error

	mu       sync.Mutex
	starting int  // processes that are being started
	asked    bool // from Freeze to Thaw
	// pressed is closed when the kernel has been asked to freeze; thawed is closed when the freeze is over. Both belong
	// to the current freeze.
	pressed, thawed chan struct{}
	isPressed       bool
	// watch is the number of the self-thaw that counts. Older ones do nothing.
	watch uint64
}

// New returns a Freezer.
func New(groups Groups) *Freezer {
	return &Freezer{groups: groups, step: patienceStep, setClock: clock.Set}
}

// Enter begins the start of a process; leave ends it. While the guest is frozen, Enter waits, at most until the request
// ends: in a copy of the machine, the requests of the original are over and must not start anything.
func (f *Freezer) Enter(ctx context.Context) (leave func(), err error) {
	if f == nil {
		return func() {}, nil
	}
	for {
		thawed, entered := f.tryEnter()
		if entered {
			return f.leave, nil
		}
		select {
		case <-thawed:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, fault.New(fault.InvalidState, "the client left while the sandbox was frozen; nothing was started")
		}
	}
}

func (f *Freezer) tryEnter() (thawed <-chan struct{}, entered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked {
		return f.thawed, false
	}
	f.starting++
	return nil, true
}

func (f *Freezer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starting--
	if f.asked && f.starting == 0 {
		f.press()
	}
}

// Freeze stops the guest's programs and reports whether they are frozen. If they are not within the limit, the freeze
// stays requested: the rest of them stops as soon as it can.
func (f *Freezer) Freeze(limit time.Duration) bool {
	until := time.Now().Add(limit)
	pressed := f.ask()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-pressed:
	case <-timer.C:
	}
	return f.groups.AwaitFrozen(until)
}

func (f *Freezer) ask() (pressed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked {
		f.asked, f.isPressed = true, false
		f.pressed, f.thawed = make(chan struct{}), make(chan struct{})
	}
	f.watch++
	f.await(f.watch, patienceSteps)
	if f.starting == 0 {
		f.press()
	}
	return f.pressed
}

// press asks the kernel to freeze the groups. Call it with the lock held.
func (f *Freezer) press() {
	if err := f.groups.Freeze(); err != nil {
		slog.Warn("not all of the guest's programs are frozen", "error", err)
	}
	if !f.isPressed {
		f.isPressed = true
		close(f.pressed)
	}
}

// Thaw lets the guest's programs continue.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw()
}

// thaw ends the freeze. Call it with the lock held.
func (f *Freezer) thaw() error {
	f.watch++
	err := f.groups.Thaw()
	if f.asked {
		f.asked = false
		close(f.thawed)
	}
	return err
}

// Hold is called when a resume begins. From now on only the resume's end, or Thaw, ends the freeze. Otherwise a resume
// that fails half way would let programs run with half an identity.
func (f *Freezer) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch++
}

// await counts the steps to the self-thaw.
func (f *Freezer) await(watch uint64, steps int) {
	time.AfterFunc(f.step, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case watch != f.watch:
		case steps > 1:
			f.await(watch, steps-1)
		default:
			slog.Warn("thawed without a request", "after", patienceSteps*f.step)
			if err := f.thaw(); err != nil {
				slog.Error("cannot thaw the guest's programs", "error", err)
			}
		}
	})
}
